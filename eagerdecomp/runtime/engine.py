"""The engine: handlers, counts and errors of one backend. The mode and registered kernels share it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from eagerdecomp._torch.dispatcher import functional_trace_active
from eagerdecomp._torch.fake import fake_cache_off, in_mode_of_fakes, needs_data
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.diagnosis.explain_call import explain_on, one_overload
from eagerdecomp.diagnosis.explanation import Explanation
from eagerdecomp.diagnosis.gaps import Gap
from eagerdecomp.diagnosis.no_route import unsupported_error
from eagerdecomp.eager.verdict import lacks_workspace, refuse
from eagerdecomp.errors import ArgumentError, ArgumentTypeError
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.device_ops import check_device_type
from eagerdecomp.ops.opset import OpLike, resolve_ops
from eagerdecomp.ops.schema import arguments_of, tensors_in, writes_several
from eagerdecomp.planner.planner import planner_of
from eagerdecomp.program.key import key_or_none
from eagerdecomp.rules.failed_routes import NotOnFakes
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.user_rules import index_rules
from eagerdecomp.runtime.cache import ProgramCache, shared_cache
from eagerdecomp.runtime.entry import Entry
from eagerdecomp.runtime.runtime import Runtime, Watch
from eagerdecomp.runtime.stats import Stats
from eagerdecomp.runtime.zero_tangents import EFFICIENT_ZEROS, Zeros

__all__ = ["Engine", "HostRandom", "OnUnsupported"]

OnUnsupported: TypeAlias = Literal["error", "fallback"]
HostRandom: TypeAlias = Literal["decomposed", "native"]

#: Maximum number of keys without a route to cache per op.
_REMEMBERED = 256


def _hides_data(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a rule cannot read data in a call: its tensors are on the device `meta`, or are traced."""
    tensors = [*tensors_in([*args, *kwargs.values()])]
    return functional_trace_active() or (bool(tensors) and all(one.is_meta for one in tensors))


def _skip_known_failures(op: OpOverload, unroutable: dict[Any, NoRoute], run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler to raise at once for keys that are known to have no route."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        known = unroutable.get(key_or_none(op, arguments_of(op, args, kwargs)))
        if known is not None:
            raise known
        return run(*args, **kwargs)

    return checked


class Engine:
    """The handlers of one backend, their statistics, and the policy for calls without a route.

    Args:
        backend: the op set and its kernels.
        rules: the user's rules.
        cache: the cache of programs; None for the cache that equal backends and rules share.
        on_unsupported: ``"error"`` or ``"fallback"``.
        watch: wraps the handler of each op that the user's program calls.
        host_random: ``"decomposed"`` or ``"native"``.
        fakes: whether this is the engine for calls on fake tensors (see `run_on_fakes`).

    Attributes:
        observed: if set, called with each call that is about to run natively, and with its `NoRoute` error.
        may_fall_back: whether the user can set `on_unsupported`, for error messages.

    Raises:
        ArgumentError: for an invalid argument.
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
        *,
        fakes: bool = False,
    ) -> None:
        if host_random not in ("decomposed", "native"):
            raise ArgumentError(f'host_random must be "decomposed" or "native", not {host_random!r}')
        if on_unsupported not in ("error", "fallback"):
            raise ArgumentError(f'on_unsupported must be "error" or "fallback", not {on_unsupported!r}')
        if cache is not None and not isinstance(cache, ProgramCache):
            raise ArgumentTypeError(
                f"cache must be an eagerdecomp.ProgramCache(), not {cache!r}. Without cache=, modes of equal backends share one"
            )
        check_device_type(backend.name, backend.device_type)
        user = index_rules(rules)
        parts = (backend.ops, frozenset(backend.kernels.items()), backend.compile, backend.costs, backend.dtypes)
        owner = (*parts, frozenset(user.values()))
        self.backend = backend
        self.on_unsupported = on_unsupported
        self.cache = cache if cache is not None else shared_cache(owner)
        self.planner = planner_of(backend, user.values(), fakes=fakes)
        self._fakes = fakes
        self._engine_for_fakes: Engine | None = None
        self._make_engine_for_fakes = functools.partial(
            Engine, backend, user.values(), ProgramCache(), on_unsupported, watch, fakes=True
        )
        self._zeros = Zeros(self._swap, lambda op: self.runtime.nested(op).run)
        noted = {EFFICIENT_ZEROS: self._zeros.noted}
        self.runtime = Runtime(self.planner, self.cache, owner, watch, noted, host_random=host_random == "native")
        self._warned: set[OpOverload] = set()
        self._unroutable: dict[OpOverload, dict[Any, NoRoute]] = {}
        self._gaps: dict[Gap, None] = {}  # gaps of calls so far, in order
        self.on_no_route: Callable[[Entry, Sequence[Any], dict[str, Any], NoRoute], None] | None = None
        self.may_fall_back = True

    def _swap(self, op: OpOverload, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.runtime.entry(op).wrap(around)

    # -- fake tensors ----------------------------------------------------------------------------------------------------

    def run_on_fakes(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a call on fake tensors, or one that makes a tensor while a fake mode is active; or one whose rule cannot read data.

        The mode of the fake tensors is active, so tensors that a rule makes are fake too. Another engine has the handlers of such
        calls, so they share no program and no constant with calls on real tensors. They use torch's kernels, because the backend's
        kernels compute. If the rule of a call reads data, the op itself runs, which gives the shapes.

        Raises:
            UnsupportedOpError: as `unsupported`.
        """
        engine = self._engine_for_fakes
        if engine is None:
            engine = self._engine_for_fakes = self._make_engine_for_fakes()
            engine.may_fall_back = self.may_fall_back
        entry = engine.runtime.entry(op)
        entry.calls += 1
        bypassed, failure = entry.bypassed, None
        with in_mode_of_fakes(tensors_in([*args, *kwargs.values()])):
            try:
                return entry(*args, **kwargs)
            except NoRoute as caught:
                failure = caught.without_frames()
            except RuntimeError as error:
                if not isinstance(error, NotOnFakes) and not needs_data(error):
                    raise
            if failure is not None:
                return engine.unsupported(entry, args, kwargs, failure, op)
            if not entry.direct:
                entry.shapes_only += 1
                entry.bypassed -= entry.bypassed > bypassed  # the rule was counted before it failed
            with fake_cache_off():
                return op(*args, **kwargs)

    def unsupported(
        self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute, native: Callable[..., Any]
    ) -> Any:
        """Raise for a call without a route, or count it, warn, and run `native`.

        If its rules could not read data, because its tensors have none or are traced, it runs as on fake tensors.

        Raises:
            UnsupportedOpError: unless `on_unsupported` is ``"fallback"``.
            Exception: eager's error, if eager refuses the call too.
        """
        # An op that writes several tensors may have written some of them, and would write them twice if it ran again.
        begun = writes_several(entry.op) and not entry.routeless
        if not self._fakes and not begun and _hides_data(args, kwargs):
            entry.calls -= 1  # it is counted there
            return self.run_on_fakes(entry.op, args, kwargs)
        if self.on_unsupported == "error" or begun or lacks_workspace(entry.op, args, kwargs):
            refuse(entry.op, args, kwargs)
            self._remember(entry, args, kwargs, failure)
            raise unsupported_error(
                self.planner, entry.op, args, kwargs, failure, may_fall_back=self.may_fall_back, seen=self._gaps
            )
        entry.count_fallback(after_predicate=failure.after_predicate)
        if self.on_no_route is not None:
            self.on_no_route(entry, args, kwargs, failure)
        if entry.op not in self._warned:
            self._warned.add(entry.op)
            self._gaps[Gap(str(entry.op), ((str(entry.op),),))] = None
            words = f"{entry.op} has no route to {self.backend.ops!r} and runs natively"
            warn_caller(words)
        result = native(*args, **kwargs)
        self._remember(entry, args, kwargs, failure)
        return result

    def _remember(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute) -> None:
        """Cache that the key of this call has no route, so that later calls with this key skip the search.

        Not with user rules or predicates, which may depend on more than the key, nor if the search read data.
        """
        if failure.remembered:
            return
        failure = failure.without_frames()
        if entry.has_read_data() or self.planner.has_user_rules or self.backend.ops.has_predicates:
            return
        key = key_or_none(entry.op, arguments_of(entry.op, args, kwargs))
        if key is None:
            return
        unroutable = self._unroutable.get(entry.op)
        if unroutable is None:
            unroutable = self._unroutable[entry.op] = {}
            entry.wrap(functools.partial(_skip_known_failures, entry.op, unroutable))
        if len(unroutable) >= _REMEMBERED:
            unroutable.clear()
        unroutable[key] = failure
        failure.remembered = True

    def stats(self) -> Stats:
        """Return counts per op since the engine was created."""
        called = {str(entry.op): entry for entry in self.runtime.entries.values() if entry.calls}
        info = self.cache.info()
        found = Stats({name: called[name].stats() for name in sorted(called)}, info.programs, info.evictions)
        return found if self._engine_for_fakes is None else found + self._engine_for_fakes.stats()

    def why_missed(self, op: OpLike) -> str:
        """Return why the last recorded call of an op missed the cache, or why none of its calls was recorded."""
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
                return "it drew for the host (`host_random`), and ran natively"
            return "it ran natively, without a route" if counts.fell_back else "its kernel runs it"
        if counts.bypassed:
            return f"it runs again each time, {counts.why_bypassed}"
        rules = entry.decision.rules
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
