"""Eager's checks of the operands of products, and of the added term, in its order and with its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.messages import no_cast, not_implemented, scalar_type_name, shape_text
from eagerdecomp.eager.promotion import can_cast, computed_in

__all__ = ["check_addmv", "check_baddbmm"]


def _fits(self: Tensor, size: Sequence[int]) -> None:
    """Raise if the added term of a product does not expand to its size."""
    more = len(size) - self.dim()
    if more < 0:
        raise RuntimeError(
            f"expand({scalar_type_name(self.dtype)}Tensor{{{shape_text(self.shape)}}}, size={shape_text(size)}): the number of "
            f"sizes provided ({len(size)}) must be greater or equal to the number of dimensions in the tensor ({self.dim()})"
        )
    for at, one in enumerate(self.shape, more):
        if one not in (1, size[at]):
            raise RuntimeError(
                f"The expanded size of the tensor ({size[at]}) must match the existing size ({one}) at non-singleton "
                f"dimension {at}.  Target sizes: {shape_text(size)}.  Tensor sizes: {shape_text(self.shape)}"
            )


def _scales(self: Tensor, beta: Any) -> None:
    """Raise if ``self.mul_(beta)`` does: eager runs it for a product that sums over no element, unless `beta` is 0.

    For other products eager casts `beta` to the dtype of `self`.
    """
    dtype = computed_in((self, beta))
    if beta != 0 and dtype is not None and not can_cast(dtype, self.dtype):
        raise no_cast(dtype, self.dtype)


def _sums_nothing(rows: int, inner: int, columns: int) -> bool:
    return not inner and rows > 0 and columns > 0


def check_baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, **factors: Any) -> None:
    """Raise for the calls that eager's `baddbmm` rejects first: operands whose ranks or sizes do not match the result."""
    size = [one.size(dim) for one, dim in ((batch1, 0), (batch1, 1), (batch2, 2))]
    _fits(self, size)
    if self.dtype is batch1.dtype is batch2.dtype and size[0] and _sums_nothing(size[1], batch1.size(2), size[2]):
        _scales(self, beta)


def check_addmv(self: Tensor, mat: Tensor, vec: Tensor, **factors: Any) -> None:
    """Raise for the calls that eager's `addmv` rejects: wrong ranks or sizes, or operands of several dtypes."""
    if mat.dim() != 2 or vec.dim() != 1 or self.dim() > 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {self.dim()}, {mat.dim()}, {vec.dim()}")
    rows, columns = mat.shape
    if columns != vec.numel() or self.numel() not in (1, rows):
        raise RuntimeError(f"size mismatch, got input ({self.size(0)}), mat ({rows}x{columns}), vec ({vec.numel()})")
    if not self.dtype is mat.dtype is vec.dtype:
        first, second, third = (scalar_type_name(one.dtype) for one in (self, mat, vec))
        raise RuntimeError(f"addmv input tensors must have the same dtype, but got {first}, {second}, and {third}")
    _multiplies(mat)


def _multiplies(matrix: Tensor) -> None:
    """Raise for bool matrices: only those without elements have a product with a vector."""
    if matrix.dtype is torch.bool and matrix.numel():
        raise not_implemented("addmv_impl_cpu", torch.bool)
