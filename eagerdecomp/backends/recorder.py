"""The audit: what really reached the backend, seen by a mode outside ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from eagerdecomp._torch.higher_order import AmbientMode, run_higher_order
from eagerdecomp._torch.ops import HigherOrderOperator, OpOverload
from eagerdecomp.ops.opset import OpLike, OpSet, as_op_set
from eagerdecomp.ops.passthrough import is_passthrough_name

__all__ = ["BackendRecorder"]


class BackendRecorder(AmbientMode):
    """Counts every op that comes out of what is entered after it: ``with BackendRecorder() as seen, EagerDecompMode(ops): ...``.

    It believes nothing the library says of itself: it is one more mode on torch's stack, further out, so it is handed exactly the
    calls that would have reached the device. Kernels that a `Backend` brings as Python callables are seen as the ops they call.

    Attributes:
        ops: op -> how often it was called.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.core_aten()):
        ...     y = torch.nn.functional.silu(torch.ones(2))
        >>> sorted(map(str, seen.ops))
        ['aten.full.default', 'aten.mul.Tensor', 'aten.sigmoid.default']
        >>> seen.outside(ed.core_aten())
        Counter()
    """

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[OpOverload] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # A higher-order op is no kernel call: the ops that it calls arrive by themselves.
        if isinstance(func, HigherOrderOperator):
            return run_higher_order(self, func, args, kwargs or {})
        if isinstance(func, OpOverload):
            self.ops[func] += 1
        return func(*args, **kwargs) if kwargs else func(*args)

    def passthrough(self, op_set: OpSet | Iterable[OpLike]) -> Counter[OpOverload]:
        """Count the ops seen outside the set that compute nothing (profiler ranges, metadata queries, collectives).

        Args:
            op_set: the set.

        Returns:
            Op -> number of calls.
        """
        ops = as_op_set(op_set)
        return Counter({op: count for op, count in self.ops.items() if op not in ops and _is_passthrough(op)})

    def outside(self, op_set: OpSet | Iterable[OpLike]) -> Counter[OpOverload]:
        """Count the ops seen that are neither in the set nor passthrough ops.

        Args:
            op_set: the set.

        Returns:
            Op -> number of calls; empty where every op was decomposed into the set.
        """
        ops = as_op_set(op_set)
        return Counter({op: count for op, count in self.ops.items() if op not in ops and not _is_passthrough(op)})


def _is_passthrough(op: OpOverload) -> bool:
    return is_passthrough_name(str(op))
