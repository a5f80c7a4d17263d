"""The engine: what every way in shares, be it a mode or kernels that are registered: handlers, their counts, and their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.diagnosis.explain_call import explain_on, one_overload
from eagerdecomp.diagnosis.explanation import Explanation
from eagerdecomp.diagnosis.gaps import Gap
from eagerdecomp.diagnosis.no_route import unsupported_error
from eagerdecomp.errors import ArgumentError, ArgumentTypeError
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import OpLike, resolve_ops
from eagerdecomp.ops.schema import arguments_of, writes_several
from eagerdecomp.planner.planner import planner_of
from eagerdecomp.program.key import key_or_none
from eagerdecomp.rules.rule import NoRoute, Rule, index_rules
from eagerdecomp.runtime.cache import ProgramCache, shared_cache
from eagerdecomp.runtime.entry import Entry
from eagerdecomp.runtime.runtime import Runtime, Watch
from eagerdecomp.runtime.stats import Stats
from eagerdecomp.runtime.zero_tangents import EFFICIENT_ZEROS, Zeros

__all__ = ["Engine", "HostRandom", "OnUnsupported"]

OnUnsupported: TypeAlias = Literal["error", "fallback"]
HostRandom: TypeAlias = Literal["decomposed", "native"]

#: Kinds of calls without a route, of one op, that are remembered at most.
_REMEMBERED = 256


class _AlreadyFailed(NoRoute):
    """No route for a call of a kind for which one was sought before."""


def _skip_known_failures(op: OpOverload, run: Callable[..., Any], unroutable: dict[Any, NoRoute]) -> Callable[..., Any]:
    """Wrap a handler: calls of a kind known to have no route raise at once."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        known = unroutable.get(key_or_none(op, arguments_of(op, args, kwargs)))
        if known is not None:
            raise _AlreadyFailed(known.op, known.attempts)
        return run(*args, **kwargs)

    return checked


class Engine:
    """One backend's handlers, with what is asked of them and what becomes of calls that they have no route for.

    Args:
        backend: the op set and its kernels.
        rules: the user's own rules.
        cache: where programs are kept; None for the one that equal backends and rules share.
        on_unsupported: ``"error"`` or ``"fallback"``.
        watch: what is to stand around the handler of an op that the user's program calls.
        host_random: ``"decomposed"`` or ``"native"``.

    Attributes:
        observed: if set, called with each call that is about to run natively, with what the search for a route left behind.
        may_fall_back: whether the user could have given `on_unsupported`.

    Raises:
        ArgumentError: for a value that an argument cannot have.
        RuleError: for two rules for one op.
    """

    def __init__(
        self,
        backend: Backend,
        rules: Iterable[Rule] = (),
        cache: ProgramCache | None = None,
        on_unsupported: OnUnsupported = "error",
        watch: Watch | None = None,
        host_random: HostRandom = "decomposed",
    ) -> None:
        if host_random not in ("decomposed", "native"):
            raise ArgumentError(f'host_random must be "decomposed" or "native", not {host_random!r}')
        if on_unsupported not in ("error", "fallback"):
            raise ArgumentError(f'on_unsupported must be "error" or "fallback", not {on_unsupported!r}')
        if cache is not None and not isinstance(cache, ProgramCache):
            raise ArgumentTypeError(
                f"cache must be an eagerdecomp.ProgramCache(), not {cache!r}. Without cache=, modes of equal backends share one"
            )
        user = index_rules(rules)
        owner = (backend.ops, frozenset(backend.kernels.items()), backend.compile, backend.costs, frozenset(user.values()))
        self.backend = backend
        self.on_unsupported = on_unsupported
        self.cache = cache if cache is not None else shared_cache(owner)
        self.planner = planner_of(backend, user.values())
        self._watch = watch
        self._zeros = Zeros(self._swap, lambda op: self.runtime.nested(op).run)
        self.runtime = Runtime(self.planner, self.cache, owner, self._watched, host_random=host_random == "native")
        self._warned: set[OpOverload] = set()
        self._unroutable: dict[OpOverload, dict[Any, NoRoute]] = {}
        self._gaps: dict[Gap, None] = {}  # of calls so far, in their order
        self.on_no_route: Callable[[Entry, Sequence[Any], dict[str, Any], NoRoute], None] | None = None
        self.may_fall_back = True

    def _watched(self, op: OpOverload, run: Callable[..., Any]) -> Callable[..., Any]:
        watched = run if self._watch is None else self._watch(op, run)
        return watched if op is not EFFICIENT_ZEROS else lambda *args, **kwargs: self._zeros.noted(watched(*args, **kwargs))

    def _swap(self, op: OpOverload, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        entry = self.runtime.entry(op)
        entry.run = around(entry.run)

    def unsupported(
        self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute, native: Callable[..., Any]
    ) -> Any:
        """Raise for a call whose handler found no route, or run `native`, counted and warned of.

        Raises:
            UnsupportedOpError: where nothing else was asked for.
        """
        # An op that writes several tensors may have written some of them: to run it again would write those twice.
        begun = writes_several(entry.op) and not entry.routeless
        if self.on_unsupported == "error" or begun:
            raise unsupported_error(
                self.planner, entry.op, args, kwargs, failure, may_fall_back=self.may_fall_back, seen=self._gaps
            )
        if not isinstance(failure, _AlreadyFailed):
            self._remember(entry, args, kwargs, failure)
        entry.fell_back += 1
        if self.on_no_route is not None:
            self.on_no_route(entry, args, kwargs, failure)
        if entry.op not in self._warned:
            self._warned.add(entry.op)
            self._gaps[Gap(str(entry.op), ((str(entry.op),),))] = None
            words = f"{entry.op} has no route to {self.backend.ops!r} and runs natively"
            warn_caller(words)
        return native(*args, **kwargs)

    def _remember(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute) -> None:
        """Let later calls like this one, which runs natively, leave the search for a route out. What is not ours may ask more of a
        call than its kind."""
        if self.planner.has_user_rules or self.backend.ops.has_predicates:
            return
        key = key_or_none(entry.op, arguments_of(entry.op, args, kwargs))
        if key is None:
            return
        unroutable = self._unroutable.get(entry.op)
        if unroutable is None:
            unroutable = self._unroutable[entry.op] = {}
            entry.run = _skip_known_failures(entry.op, entry.run, unroutable)
        if len(unroutable) >= _REMEMBERED:
            unroutable.clear()
        unroutable[key] = failure

    def stats(self) -> Stats:
        """Counts per op since the engine was made."""
        called = (entry for entry in self.runtime.entries.values() if entry.calls)
        entries = sorted(called, key=lambda entry: str(entry.op))
        info = self.cache.info()
        return Stats({str(entry.op): entry.stats() for entry in entries}, info.programs, info.evictions)

    def why_missed(self, op: OpLike) -> str:
        """Which facts of an op's last recorded call no stored call shared, or why none of its calls was recorded."""
        known = [entry for one in resolve_ops([op]) if (entry := self.runtime.entries.get(builtin(one))) is not None]
        missed = next((entry.last_miss for entry in known if entry.last_miss is not None), None)
        if missed is not None:
            table, key = missed
            return table.why_missed(key)
        called = [entry for entry in known if entry.calls]
        return f"no call of it was recorded: {self._why_none(called[0])}" if called else "not called yet"

    def _why_none(self, entry: Entry) -> str:
        counts = entry.stats()
        if not counts.decomposed:
            if counts.host_random:
                return "data loading code called it, and it ran natively"
            return "it ran natively, without a route" if counts.fell_back else "its kernel runs it"
        if counts.bypassed:
            return f"it runs again each time, {counts.why_bypassed}"
        rules = self.planner.decide(entry.op).rules
        return "a linked rule runs it, which keeps no programs" if rules and rules[0].linked else "its programs were there before"

    def explain(self, op: OpLike, args: Sequence[Any], kwargs: dict[str, Any]) -> Explanation:
        """Explain a call, with the counts so far and why the last recorded call missed."""
        entries = self.runtime.entries
        known = [one for one in resolve_ops([op]) if builtin(one) in entries]
        overload = known[0] if len(known) == 1 and not (args or kwargs) else one_overload(op, args, kwargs)
        entry = entries.get(builtin(overload))
        counts = repr(entry.stats()) if entry is not None else "not called yet"
        last = entry.last_miss if entry is not None else None
        missed = self.why_missed(overload) if last is not None else ""
        return explain_on(self.planner, overload, args, kwargs, last=last, counts=counts, last_miss=missed)
