"""The backend recorder: a mode outside `EagerDecompMode` that counts the ops that reach the backend."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from eagerdecomp._torch.dynamo import traced_functional
from eagerdecomp._torch.higher_order import AmbientMode, run_higher_order
from eagerdecomp._torch.ops import HigherOrderOperator, OpOverload
from eagerdecomp._torch.tensors import any_fake
from eagerdecomp.ops.backend import Backend, Kernel, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet
from eagerdecomp.ops.passthrough import is_passthrough_name

__all__ = ["BackendRecorder"]


class _ThreadState(threading.local):
    """Whether this thread is in a kernel that was counted."""

    in_kernel = False


class BackendRecorder(AmbientMode):
    """Counts the ops that a mode inside it calls: ``with BackendRecorder() as seen, EagerDecompMode(ops): ...``.

    It does not use the counts of `EagerDecompMode`. It is a separate mode, outside the other one on torch's mode stack, so it gets
    exactly the calls that reach the device. For a Python kernel of a `Backend`, it counts the ops that the kernel calls, also those
    on meta tensors; calls on fake tensors, which only trace, do not count. To count the kernel instead, pass `counting(backend)` to
    the mode.

    Attributes:
        ops: op -> number of calls.
        in_kernels: op -> number of calls inside the kernels of a `counting` backend.

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
        self.in_kernels: Counter[OpOverload] = Counter()
        self._thread = _ThreadState()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # A higher-order op is not a kernel call. The ops that it calls reach this mode later.
        if isinstance(func, HigherOrderOperator):
            return run_higher_order(self, func, args, kwargs or {})
        if isinstance(func, OpOverload) and not (any_fake(types) or any(map(traced_functional, types))):  # those compute nothing
            (self.in_kernels if self._thread.in_kernel else self.ops)[func] += 1
        return func(*args, **kwargs) if kwargs else func(*args)

    def counting(self, backend: Backend) -> Backend:
        """Return a copy of the backend whose kernels are counted as their ops. Calls inside these kernels are in `in_kernels`.

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
            >>> seen.in_kernels
            Counter({<OpOverload(op='aten.mul', overload='Tensor')>: 1})
        """
        return replace(backend, kernels={op: self._counted(op, kernel) for op, kernel in backend.kernels.items()})

    def _counted(self, op: OpOverload, kernel: Kernel) -> Kernel:
        @functools.wraps(kernel)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.ops[op] += 1
            before, self._thread.in_kernel = self._thread.in_kernel, True
            try:
                return kernel(*args, **kwargs)
            finally:
                self._thread.in_kernel = before

        return run

    def passthrough(self, op_set: Backend | OpSet | Iterable[OpLike]) -> Counter[OpOverload]:
        """Count the recorded ops outside the set that compute nothing (profiler ranges, metadata queries, collectives).

        Args:
            op_set: the set, or a backend.

        Returns:
            Op -> number of calls.
        """
        ops = as_backend(op_set).ops
        return Counter({op: count for op, count in self.ops.items() if op not in ops and _is_passthrough(op)})

    def outside(self, op_set: Backend | OpSet | Iterable[OpLike]) -> Counter[OpOverload]:
        """Count the recorded ops that are neither in the set nor passthrough ops.

        Args:
            op_set: the set, or a backend.

        Returns:
            Op -> number of calls; empty if every op was decomposed to the set.
        """
        ops = as_backend(op_set).ops
        return Counter({op: count for op, count in self.ops.items() if op not in ops and not _is_passthrough(op)})


def _is_passthrough(op: OpOverload) -> bool:
    return is_passthrough_name(str(op))
