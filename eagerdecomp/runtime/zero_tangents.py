"""Efficient zero tensors under a mode: forward-mode differentiation makes them for tangents that are missing.

In eager such a tensor has no memory, and kernels at the dispatch key ``ZeroTensor`` treat it as an exact zero: 0 times infinity is
0, and the sum with another operand is that operand, with its signed zeros. Kernels of a backend read memory, so under a mode the
tensor is filled with zeros, and recognized by its storage, which its views share. Once a mode has made such a tensor, `Zeros` wraps
the handlers of the ops that eager treats in this way.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.host.fork_safe import free_in_child

__all__ = ["EFFICIENT_ZEROS", "Zeros"]

aten = torch.ops.aten

#: The op that makes efficient zero tensors.
EFFICIENT_ZEROS: OpOverload = op_called("aten._efficientzerotensor.default")

_Run = Callable[..., Any]


class _Numbers(threading.local):
    """Per-thread state: in how many of the next calls a zero tangent may arrive as a Python scalar."""

    awaited = 0


class Zeros:
    """The efficient zero tensors of one mode.

    Args:
        swap: takes an op and a wrapper, and wraps the handler of the op for calls of the user's program.
        run: returns the handler of an op for calls that the user's program does not make.
    """

    def __init__(self, swap: Callable[[OpOverload, Callable[[_Run], _Run]], None], run: Callable[[OpOverload], _Run]) -> None:
        self._swap = swap
        self._run = run
        # Storage -> the version of the tensor when it was made: if it has changed, the memory was written and may not be zero.
        self._known: WeakKeyDictionary[torch.UntypedStorage, int] = WeakKeyDictionary()
        self._numbers = _Numbers()
        self._wrapped = False
        self._lock = free_in_child(threading.Lock())

    def noted(self, made: Any) -> Any:
        """Remember a result of the handler of `EFFICIENT_ZEROS`, and return it."""
        if _is_tracked(made):
            self._numbers.awaited = 2 if made.dim() == 0 else 0
            with self._lock:
                self._known[made.untyped_storage()] = made._version
                if not self._wrapped:
                    self._wrapped = True
                    for op, formula in _FORMULAS.items():
                        self._swap(op, functools.partial(_with_zeros, self, formula))
        return made

    def holds(self, value: Any) -> bool:
        """Return whether a value is an efficient zero tensor, or a view of one."""
        return _is_tracked(value) and self._known.get(value.untyped_storage()) == value._version

    def holds_number(self, value: Any) -> bool:
        """Return whether a scalar that arrives as the first operand is an efficient zero.

        In ``x * 0.5`` the scalar has a zero tangent too. torch makes it a wrapped number, which reaches a mode as a Python scalar,
        within two calls after it was made.
        """
        awaited = self._numbers.awaited
        self._numbers.awaited = max(0, awaited - 1)
        return awaited > 0 and not isinstance(value, Tensor) and value == 0

    def like(self, tensor: Tensor) -> Tensor:
        """Return an efficient zero tensor of the shape, dtype and device of `tensor`."""
        return self.noted(self._run(EFFICIENT_ZEROS)(list(tensor.shape), dtype=tensor.dtype, device=tensor.device))  # type: ignore[no-any-return]

    def copied(self, operand: Any, like: Tensor, factor: Any) -> Tensor:
        """Return a scalar or tensor, expanded to the shape and cast to the dtype of `like`, times `factor`."""
        if not isinstance(operand, Tensor):
            operand = self._run(aten.scalar_tensor.default)(operand, dtype=like.dtype, device=like.device)
        operand = self._run(aten.expand.default)(operand, list(like.shape))
        result = self._run(aten._to_copy.default)(operand, dtype=like.dtype)
        is_one = not isinstance(factor, Tensor) and factor == 1
        return result if is_one else self._run(aten.mul.Scalar)(result, factor)  # type: ignore[no-any-return]

    def infinities(self, like: Tensor) -> Tensor:
        """Return infinities of the shape, dtype and device of `like`."""
        return self._run(aten.full.default)(list(like.shape), float("inf"), dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]


def _is_tracked(value: Any) -> bool:
    """Return whether a value is a tensor with one storage and a version; sparse and nested tensors have no single storage."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_nested and not value.is_inference()


#: Returns the result for zero operands: (zeros, whether the left operand is zero, whether the right one is, left operand, right
#: operand, result of the handler, alpha).
_ZeroFormula = Callable[["Zeros", bool, bool, Any, Any, Tensor, Any], Any]


def _with_zeros(zeros: Zeros, formula: _ZeroFormula, run: _Run) -> _Run:
    """Wrap the handler of a binary op to return `formula` for efficient zeros.

    The handler runs for these too, because its result has eager's shape and dtype, and it raises eager's errors.
    """

    def handler(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, other, *args, **kwargs)
        left, right = zeros.holds_number(self) or zeros.holds(self), zeros.holds(other)
        if not (left or right) or not isinstance(result, Tensor):
            return result
        return formula(zeros, left, right, self, other, result, kwargs.get("alpha", 1))

    return handler


def _product(zeros: Zeros, left: bool, right: bool, self: Any, other: Any, result: Tensor, alpha: Any) -> Any:
    return zeros.like(result)


def _quotient(zeros: Zeros, left: bool, right: bool, self: Any, other: Any, result: Tensor, alpha: Any) -> Any:
    if left and right:
        return result  # NaN
    return zeros.like(result) if left else zeros.infinities(result)


def _sum(zeros: Zeros, left: bool, right: bool, self: Any, other: Any, result: Tensor, alpha: Any) -> Any:
    if left and right:
        return zeros.like(result)
    return zeros.copied(other, result, alpha) if left else zeros.copied(self, result, 1)


def _difference(zeros: Zeros, left: bool, right: bool, self: Any, other: Any, result: Tensor, alpha: Any) -> Any:
    return _sum(zeros, left, right, self, other, result, -alpha)


_FORMULAS: Mapping[OpOverload, _ZeroFormula] = {
    op_called("aten.mul.Tensor"): _product,
    op_called("aten.mul.Scalar"): _product,
    op_called("aten.div.Tensor"): _quotient,
    op_called("aten.add.Tensor"): _sum,
    op_called("aten.add.Scalar"): _sum,
    op_called("aten.sub.Tensor"): _difference,
    op_called("aten.linalg_cross.default"): _product,
    op_called("aten.dot.default"): _product,
    op_called("aten.vdot.default"): _product,
}
