"""Eager's checks of the operands of products, and of the added term, in its order and with its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.messages import cpp_name, no_cast, not_implemented, scalar_type_name, shape_text
from eagerdecomp.eager.promotion import can_cast, computed_in

__all__ = ["PRODUCT_CHECKS", "check_addmv", "check_baddbmm"]


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


def _addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, **factors: Any) -> None:
    for name, one in (("self", self), ("mat1", mat1)):
        if one.dtype is not mat2.dtype:
            first, second = scalar_type_name(one.dtype), scalar_type_name(mat2.dtype)
            raise RuntimeError(f"{name} and mat2 must have the same dtype, but got {first} and {second}")
    if mat1.dim() == mat2.dim() == 2 and mat1.size(1) == mat2.size(0):
        _fits(self, (mat1.size(0), mat2.size(1)))
        if _sums_nothing(mat1.size(0), mat1.size(1), mat2.size(1)):
            _scales(self, beta)


def _addr(self: Tensor, vec1: Tensor, vec2: Tensor, **factors: Any) -> None:
    for name, one in (("vec1", vec1), ("vec2", vec2)):
        if one.dim() != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {one.dim()}-D")
    _fits(self, (vec1.numel(), vec2.numel()))


def _addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, **factors: Any) -> None:
    batch1.size(1), batch2.size(2)
    for name, one in (("batch1", batch1), ("batch2", batch2)):
        if one.dim() != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    (batches, rows, inner), (others, theirs, columns) = batch1.shape, batch2.shape
    if batches != others:
        raise RuntimeError(f"batch1 and batch2 must have same number of batches, got {batches} and {others}")
    if inner != theirs:
        raise RuntimeError(f"Incompatible matrix sizes for bmm ({rows}x{inner} and {theirs}x{columns})")
    _fits(self, (rows, columns))
    if self.dtype is batch1.dtype is batch2.dtype and (not batches or _sums_nothing(rows, inner, columns)):
        _scales(self, beta)
        if batches > 1:
            _scales(self, 1)  # eager adds the products of the batch one by one, from the second on to the sum itself


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


def _mv(self: Tensor, vec: Tensor) -> None:
    rows = self.size(0)
    if self.dim() != 2 or vec.dim() != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {self.dim()}, {vec.dim()}")
    if self.size(1) != vec.size(0):
        raise RuntimeError(f"size mismatch, got input ({rows}), mat ({rows}x{self.size(1)}), vec ({vec.size(0)})")
    if self.dtype is not vec.dtype:
        first, second = scalar_type_name(vec.dtype), scalar_type_name(self.dtype)
        raise RuntimeError(f"addmv input tensors must have the same dtype, but got {first}, {second}, and {first}")
    _multiplies(self)


def _int_mm(self: Tensor, mat2: Tensor) -> None:
    self.size(0), mat2.size(1)
    _int_operands(self, mat2)


def _int_operands(self: Tensor, mat2: Tensor) -> None:
    for name, one in (("self", self), ("mat2", mat2)):
        if one.dim() != 2:
            raise RuntimeError(f"int_mm_out_cpu: Expected {name} to be of dimension 2 but got {one.dim()}")
    if self.size(1) != mat2.size(0):
        raise RuntimeError(f"int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got {self.size(1)} and {mat2.size(0)}")
    if self.dtype not in (torch.int8, torch.uint8):
        raise RuntimeError(f"int_mm_out_cpu: Expected self dtype to be int8 or uint8 but got {cpp_name(self.dtype)}")
    if mat2.dtype is not torch.int8:
        raise RuntimeError(f"int_mm_out_cpu: Expected mat2 dtype to be of type int8 but got {cpp_name(mat2.dtype)}")


def _int_mm_out(self: Tensor, mat2: Tensor, *, out: Tensor) -> None:
    _int_operands(self, mat2)
    if out.dtype is not torch.int32:
        raise RuntimeError(f"int_mm_out_cpu: Expected result dtype to be of type kInt but got {cpp_name(out.dtype)}")
    for dim, size in enumerate((self.size(0), mat2.size(1))):
        if out.size(dim) != size:
            raise RuntimeError(f"int_mm_out_cpu: Expected result.size({dim}) to be {size} but got {out.size(dim)}")
    if out.dim() != 2:
        raise RuntimeError(f"int_mm_out_cpu: Expected result to be of dimension 2 but got {out.dim()}")
    if not out.is_contiguous():
        raise RuntimeError("int_mm_out_cpu: Expected result to be contiguous.")


#: op -> a function of its arguments that raises eager's error.
PRODUCT_CHECKS: dict[str, Callable[..., None]] = {
    "aten._int_mm.default": _int_mm,
    "aten._int_mm.out": _int_mm_out,
    "aten.addbmm.default": _addbmm,
    "aten.addmm.default": _addmm,
    "aten.addmv.default": check_addmv,
    "aten.addr.default": _addr,
    "aten.baddbmm.default": check_baddbmm,
    "aten.mv.default": _mv,
}
