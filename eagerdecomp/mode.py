"""The mode: ``with EagerDecompMode(supported_ops)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from eagerdecomp._torch import HigherOrderOperator
from eagerdecomp.backend import Backend, Kernel, as_backend
from eagerdecomp.cache import ProgramCache
from eagerdecomp.engine import Engine, OnUnsupported
from eagerdecomp.explanation import Explanation
from eagerdecomp.keeping import KeepingMode, kept_of
from eagerdecomp.opset import OpLike, OpSet
from eagerdecomp.preflight import Preflight
from eagerdecomp.rules import NoRoute, Rule
from eagerdecomp.stats import Stats
from eagerdecomp.tracer import desugars_first

__all__ = ["EagerDecompMode"]


class EagerDecompMode(KeepingMode):
    """Brings every eager op to the ops a backend supports: ``with EagerDecompMode(core_aten()): train()``.

    Args:
        supported_ops: an `OpSet`, an iterable of overloads, packets or names, or a `Backend`.
        kernels: op -> callable, over those a `Backend` brings; a supported op without one runs its native kernel.
        on_unsupported: ``"error"`` raises `UnsupportedOpError` for a call without a route; ``"fallback"`` runs it natively,
            counts it, and warns once per op.
        rules: your own decompositions (`register_decomposition`); each comes before all others for its op.
        cache: where programs are kept; by default modes with an equal backend and rules share one.
        keep: composite ops that are to reach the backend whole, in training too, and are in the set by it: eager takes `linear`,
            `layer_norm` or `scaled_dot_product_attention` apart in C++, before a mode can see them, except in inference mode. Those
            of `supported_ops` are kept without being named here; of Core ATen's, which eager turns into others of it, the ones that
            the backend brings a kernel for. See below.
        preflight: refuse in the forward pass what could not be differentiated on the set: a call on tensors that require a gradient
            raises `UnsupportedGradientError` where its gradient has no route, before it runs. Judged is this very call, on fake
            tensors, once for a kind of call, which takes milliseconds. A call whose gradient nothing needs is refused too: make it
            under `torch.no_grad()`. Not judged: the sum of gradients that meet at one tensor, a user's `torch.autograd.Function`,
            gradients by `torch.func`, sparse tensors. Of several results it is enough that one can be differentiated.

    A kept op's gradient is that of PyTorch's composition, which backward runs anew, on ops of the set: it can be differentiated as
    often. Random ops draw their numbers again; a kernel that draws others than the composition does by the same generator raises in
    backward. While such a mode is entered, in any thread, the op has a kernel in PyTorch's dispatcher, through which calls of other
    threads pass on to the composition. Some calls come in parts still: under `torch.func` and forward-mode AD; under an autocast
    without a rule for the op; of a random op that needs a gradient while it is traced. Ops that answer views cannot be kept.

    Raises:
        OpSetError: for an unknown op name, a kernel for an op outside the set, or an op that cannot be kept.
        RuleError: for two rules for one op.
        ValueError: for `preflight` with ``on_unsupported="fallback"``, by which every gradient can be computed.

    A mode can be entered again, nested, and used from several threads at once (each enters it for itself).
    """

    supports_higher_order_operators = True
    _tracing = False  # whether what runs is written down to be run again

    # Dynamo compiles regions under the mode with the mode off and runs them with it on; otherwise it skips them for good.
    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __init__(
        self,
        supported_ops: Backend | OpSet | Iterable[OpLike],
        *,
        kernels: Mapping[OpLike, Kernel] | None = None,
        on_unsupported: OnUnsupported = "error",
        rules: Iterable[Rule] = (),
        cache: ProgramCache | None = None,
        keep: Iterable[OpLike] = (),
        preflight: bool = False,
    ) -> None:
        super().__init__()
        if preflight and on_unsupported == "fallback":
            raise ValueError('preflight=True refuses what on_unsupported="fallback" would run natively: ask for one of them')
        keep = tuple(keep)
        backend, rules = as_backend(supported_ops, kernels, keep), tuple(rules)
        watch = Preflight(backend, rules).watch if preflight else None
        self._engine = Engine(backend, rules, cache, on_unsupported, watch)
        self.backend = self._engine.backend
        self.cache = self._engine.cache
        self.on_unsupported = on_unsupported
        self.kept = kept_of(backend, keep, tracing=self._tracing)
        self._runtime = self._engine.runtime
        self._entries = self._runtime.entries

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
        return self._engine.unsupported(entry, args, kwargs or {}, failure, entry.op)

    def __repr__(self) -> str:
        return f"EagerDecompMode({self.backend!r}, on_unsupported={self.on_unsupported!r})"

    def stats(self) -> Stats:
        """Counts per op since the mode was made; prints as a table."""
        return self._engine.stats()

    def why_missed(self, op: OpLike) -> str:
        """Which facts of an op's last recorded call no stored call shared; "" where none was recorded.

        Raises:
            OpSetError: for an unknown op name.
        """
        return self._engine.why_missed(op)

    def explain(self, op: OpLike, *args: Any, **kwargs: Any) -> Explanation:
        """What this mode does with a call of an op, as `eagerdecomp.explain` tells it, with the mode's counts and why the last
        recorded call was. Without arguments: the op's rules, and the program of that call.

        Raises:
            OpSetError: for an unknown op name, or a packet whose overload neither the arguments nor the calls so far tell.
        """
        return self._engine.explain(op, args, kwargs)

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
