"""The recorder: a mode outside the library's own that counts the ops that reach the backend."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from eagerdecomp._torch.higher_order import AmbientMode, run_higher_order
from eagerdecomp._torch.ops import HigherOrderOperator, OpOverload
from eagerdecomp.ops.backend import Backend, Kernel
from eagerdecomp.ops.opset import OpLike, OpSet, as_op_set
from eagerdecomp.ops.passthrough import is_passthrough_name

__all__ = ["BackendRecorder"]


class _Thread(threading.local):
    """Whether this thread is in a kernel that was counted."""

    beneath = False


class BackendRecorder(AmbientMode):
    """Counts the ops that a mode inside it calls: ``with BackendRecorder() as seen, EagerDecompMode(ops): ...``.

    It believes nothing the library says of itself: it is one more mode on torch's stack, further out, so it is handed exactly the
    calls that would have reached the device. Kernels that a `Backend` brings as Python callables are seen as the ops they call,
    which may be Meta's, where a kernel asks for a shape. To count the kernels instead, hand the mode `counting(backend)`.

    Attributes:
        ops: op -> number of calls.

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
        self._thread = _Thread()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # A higher-order op is no kernel call: the ops that it calls arrive by themselves.
        if isinstance(func, HigherOrderOperator):
            return run_higher_order(self, func, args, kwargs or {})
        if isinstance(func, OpOverload) and not self._thread.beneath:
            self.ops[func] += 1
        return func(*args, **kwargs) if kwargs else func(*args)

    def counting(self, backend: Backend) -> Backend:
        """Return the backend with kernels that count as their ops, and in which nothing else is counted.

        Args:
            backend: the backend.

        Returns:
            A copy of the backend, for the mode.

        Examples:
            >>> import torch
            >>> import eagerdecomp as ed
            >>> mine = ed.Backend("mine", ["aten.square"], {"aten.square": lambda x: torch.ops.aten.mul.Tensor(x, x)})
            >>> x, seen = torch.ones(2), ed.BackendRecorder()
            >>> with seen, ed.EagerDecompMode(seen.counting(mine)):
            ...     y = torch.square(x)
            >>> seen.ops
            Counter({<OpOverload(op='aten.square', overload='default')>: 1})
        """
        return replace(backend, kernels={op: self._counted(op, kernel) for op, kernel in backend.kernels.items()})

    def _counted(self, op: OpOverload, kernel: Kernel) -> Kernel:
        @functools.wraps(kernel)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.ops[op] += 1
            before, self._thread.beneath = self._thread.beneath, True
            try:
                return kernel(*args, **kwargs)
            finally:
                self._thread.beneath = before

        return run

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
