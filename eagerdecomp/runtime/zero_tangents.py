"""Zeros that autograd makes for tangents that are not there: torch drops them from sums and products, and so must a mode.

In eager such a tensor has no memory, and a dispatch key of its own above every mode: 0 times infinity is 0 by it, and a sum with
zeros is the other operand, its signed zeros too. Kernels of a backend read memory, so theirs are plain zeros, known by their
storage, which views share. Once a mode has made some, `Zeros` stands around the handlers of the ops that torch treats so: those
that have a kernel at the key ``ZeroTensor``, or pass it by and ask for such tensors themselves.
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

#: What makes them.
EFFICIENT_ZEROS: OpOverload = op_called("aten._efficientzerotensor.default")

_Run = Callable[..., Any]


class _Numbers(threading.local):
    """The number of coming calls of a thread that may be handed zeros as a scalar."""

    awaited = 0


class Zeros:
    """The zeros of one mode.

    Args:
        swap: puts what it is given around the handler of an op that the user's program calls.
        run: runs an op that is not the user's call, by its handler.
    """

    def __init__(self, swap: Callable[[OpOverload, Callable[[_Run], _Run]], None], run: Callable[[OpOverload], _Run]) -> None:
        self._swap = swap
        self._run = run
        # Storage -> the version at which it was made: memory that was written to since is zero no more.
        self._known: WeakKeyDictionary[torch.UntypedStorage, int] = WeakKeyDictionary()
        self._numbers = _Numbers()
        self._around = False
        self._lock = free_in_child(threading.Lock())

    def noted(self, made: Any) -> Any:
        """A result of the handler of `EFFICIENT_ZEROS`, marked to be recognized."""
        if _is_tracked(made):
            self._numbers.awaited = 2 if made.dim() == 0 else 0
            with self._lock:
                self._known[made.untyped_storage()] = made._version
                if not self._around:
                    self._around = True
                    for op, what in _TREATED.items():
                        self._swap(op, functools.partial(_treated, self, what))
        return made

    def holds(self, value: Any) -> bool:
        """Whether a value is such zeros, or a view of them."""
        return _is_tracked(value) and self._known.get(value.untyped_storage()) == value._version

    def holds_number(self, value: Any) -> bool:
        """Whether a first operand is such a zero of a number: ``x * 0.5`` has a tangent of the 0.5, which torch makes a number too,
        and hands to a mode as one. It comes within two calls of having been made."""
        awaited = self._numbers.awaited
        self._numbers.awaited = max(0, awaited - 1)
        return awaited > 0 and not isinstance(value, Tensor) and value == 0

    def like(self, tensor: Tensor) -> Tensor:
        """More of them, in the shape and type of a tensor."""
        return self.noted(self._run(EFFICIENT_ZEROS)(list(tensor.shape), dtype=tensor.dtype, device=tensor.device))  # type: ignore[no-any-return]

    def copied(self, operand: Any, like: Tensor, factor: Any) -> Tensor:
        """A number's or a tensor's values in the shape and type of a tensor, times a number."""
        if not isinstance(operand, Tensor):
            operand = self._run(aten.scalar_tensor.default)(operand, dtype=like.dtype, device=like.device)
        operand = self._run(aten.expand.default)(operand, list(like.shape))
        found = self._run(aten._to_copy.default)(operand, dtype=like.dtype)
        is_one = not isinstance(factor, Tensor) and factor == 1
        return found if is_one else self._run(aten.mul.Scalar)(found, factor)  # type: ignore[no-any-return]

    def infinities(self, like: Tensor) -> Tensor:
        """Infinities in the shape and type of a tensor."""
        return self._run(aten.full.default)(list(like.shape), float("inf"), dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]


def _is_tracked(value: Any) -> bool:
    """Whether a value is a tensor with a storage and a version: sparse and nested ones have no one storage."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_nested and not value.is_inference()


_What = Callable[["Zeros", bool, bool, Any, Any, Tensor, Any], Any]


def _treated(zeros: Zeros, what: _What, run: _Run) -> _Run:
    """The handler of an op of two operands, one of which may be such zeros. It runs all the same: of what it returns the shape,
    the type and the refusals are eager's."""

    def treated(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        found = run(self, other, *args, **kwargs)
        left, right = zeros.holds_number(self) or zeros.holds(self), zeros.holds(other)
        if not (left or right) or not isinstance(found, Tensor):
            return found
        return what(zeros, left, right, self, other, found, kwargs.get("alpha", 1))

    return treated


def _product(zeros: Zeros, left: bool, right: bool, self: Any, other: Any, found: Tensor, alpha: Any) -> Any:
    return zeros.like(found)


def _quotient(zeros: Zeros, left: bool, right: bool, self: Any, other: Any, found: Tensor, alpha: Any) -> Any:
    if left and right:
        return found  # NaN
    return zeros.like(found) if left else zeros.infinities(found)


def _sum(zeros: Zeros, left: bool, right: bool, self: Any, other: Any, found: Tensor, alpha: Any) -> Any:
    if left and right:
        return zeros.like(found)
    return zeros.copied(other, found, alpha) if left else zeros.copied(self, found, 1)


def _difference(zeros: Zeros, left: bool, right: bool, self: Any, other: Any, found: Tensor, alpha: Any) -> Any:
    return _sum(zeros, left, right, self, other, found, -alpha)


_TREATED: Mapping[OpOverload, _What] = {
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
