"""The mode: ``with EagerDecompMode(supported_ops)``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch

from eagerdecomp._torch import DispatchMode, HigherOrderOperator, builtin
from eagerdecomp.backend import Backend, Kernel, as_backend
from eagerdecomp.cache import ProgramCache, shared_cache
from eagerdecomp.decomps import our_rules
from eagerdecomp.explaining import explain_on, one_overload
from eagerdecomp.explanation import Explanation
from eagerdecomp.opset import OpLike, OpSet, resolve_ops
from eagerdecomp.planner import Planner, shipped_costs
from eagerdecomp.report import unsupported_error
from eagerdecomp.rules import NoRoute, Rule, index_rules
from eagerdecomp.runtime import Entry, Runtime
from eagerdecomp.schema import writes_several
from eagerdecomp.sources import shipped_rules
from eagerdecomp.stats import Stats
from eagerdecomp.tracer import desugars_first

__all__ = ["EagerDecompMode"]


class EagerDecompMode(DispatchMode):
    """Brings every eager op to the ops a backend supports: ``with EagerDecompMode(core_aten()): train()``.

    Args:
        supported_ops: an `OpSet`, an iterable of overloads, packets or names, or a `Backend`.
        kernels: op -> callable, over those a `Backend` brings; a supported op without one runs its native kernel.
        on_unsupported: ``"error"`` raises `UnsupportedOpError` for a call without a route; ``"fallback"`` runs it natively,
            counts it, and warns once per op.
        rules: your own decompositions (`register_decomposition`); each comes before all others for its op.
        cache: where programs are kept; by default modes with an equal backend and rules share one.

    Raises:
        OpSetError: for an unknown op name, or a kernel for an op outside the set.
        RuleError: for two rules for one op.

    A mode can be entered again, nested, and used from several threads at once (each enters it for itself).
    """

    supports_higher_order_operators = True

    # Dynamo compiles regions under the mode with the mode off and runs them with it on; otherwise it skips them for good.
    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __init__(
        self,
        supported_ops: Backend | OpSet | Iterable[OpLike],
        *,
        kernels: Mapping[OpLike, Kernel] | None = None,
        on_unsupported: Literal["error", "fallback"] = "error",
        rules: Iterable[Rule] = (),
        cache: ProgramCache | None = None,
    ) -> None:
        super().__init__()
        if on_unsupported not in ("error", "fallback"):
            raise ValueError(f'on_unsupported must be "error" or "fallback", not {on_unsupported!r}')
        self.backend = as_backend(supported_ops, kernels)
        self.on_unsupported = on_unsupported
        user = index_rules(rules)
        owner = (self.backend.ops, frozenset(self.backend.kernels.items()), self.backend.compile, frozenset(user.values()))
        self.cache = cache if cache is not None else shared_cache(owner)
        planner = Planner(self.backend, user, our_rules, shipped_rules, shipped_costs)
        self._runtime = Runtime(planner, self.cache, owner)
        self._entries = self._runtime.entries
        self._warned: set[Any] = set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and desugars_first(types):
            return NotImplemented
        try:
            entry = self._entries[func._op]
        except (KeyError, AttributeError):
            entry = None  # not from here: an error met on the way would carry this one as its context
        if entry is None:
            if isinstance(func, HigherOrderOperator):
                return self._higher_order(func, args, kwargs or {})
            entry = self._runtime.entry(func)
        entry.calls += 1
        try:
            return entry.run(*args, **kwargs) if kwargs else entry.run(*args)
        except NoRoute as caught:
            failure = caught.without_frames()
        return self._unsupported(entry, args, kwargs or {}, failure)

    def __repr__(self) -> str:
        return f"EagerDecompMode({self.backend!r}, on_unsupported={self.on_unsupported!r})"

    def stats(self) -> Stats:
        """Counts per op since the mode was made; prints as a table."""
        entries = sorted(self._entries.values(), key=lambda entry: str(entry.op))
        info = self.cache.info()
        return Stats({str(entry.op): entry.stats() for entry in entries}, info.programs, info.evictions)

    def why_missed(self, op: OpLike) -> str:
        """Which facts of an op's last recorded call no stored call shared; "" where none was recorded.

        Raises:
            OpSetError: for an unknown op name.
        """
        for overload in resolve_ops([op]):
            entry = self._entries.get(builtin(overload))
            if entry is not None and entry.last_miss is not None:
                table, key = entry.last_miss
                return table.why_missed(key)
        return ""

    def explain(self, op: OpLike, *args: Any, **kwargs: Any) -> Explanation:
        """What this mode does with a call of an op, as `eagerdecomp.explain` tells it, with the mode's counts and why the last
        recorded call was. Without arguments: the op's rules, and the program of that call.

        Raises:
            OpSetError: for an unknown op name, or a packet whose overload neither the arguments nor the calls so far tell.
        """
        met = [one for one in resolve_ops([op]) if builtin(one) in self._entries]
        overload = met[0] if len(met) == 1 and not (args or kwargs) else one_overload(op, args, kwargs)
        entry = self._entries.get(builtin(overload))
        counts = repr(entry.stats()) if entry is not None else "not called yet"
        last = entry.last_miss if entry is not None else None
        return explain_on(
            self._runtime.planner, overload, args, kwargs, last=last, counts=counts, last_miss=self.why_missed(overload)
        )

    def _unsupported(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute) -> Any:
        # An op that writes several tensors may have written some of them: to run it again would write those twice.
        begun = writes_several(entry.op) and not entry.routeless
        if entry.others and not begun:
            try:
                return self._runtime.by_others(entry, args, kwargs)
            except NoRoute:
                pass  # told below by what the first rule met
        if self.on_unsupported == "error" or begun:
            raise unsupported_error(self._runtime.planner, entry.op, args, kwargs, failure)
        entry.fell_back += 1
        if entry.op not in self._warned:
            self._warned.add(entry.op)
            warnings.warn(f"{entry.op} has no route to {self.backend.ops!r} and runs natively", UserWarning, stacklevel=3)
        return entry.op(*args, **kwargs)

    def _higher_order(self, func: HigherOrderOperator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run `torch.cond` and its kin with this mode on inside the functions they are given."""

        def under_mode(value: Any) -> Any:
            return self._entering(value) if callable(value) and not isinstance(value, torch.Tensor) else value

        return func(*map(under_mode, args), **{name: under_mode(value) for name, value in kwargs.items()})

    def _entering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def entered(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return entered
