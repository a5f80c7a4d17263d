"""Decompose matrix products with an added term, int8 products, linear combinations and cross products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import HALF, in_type, promoted
from eagerdecomp.eager.scalars import held_number
from eagerdecomp.rules.compute import constant
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.writeback import resize_

aten = torch.ops.aten


#: The dtypes in which eager computes a product and rounds once. For integer dtypes, other rules handle fractional `beta` and
#: `alpha`.
_PLAIN = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})

#: With at least this many multiplications per product, eager calls BLAS. If alpha is 0, BLAS does not read the matrices.
_BY_BLAS = 400

# In float16 and bfloat16, with more multiplications than this in the whole batch, eager calls oneDNN, which does not read them.
_BY_ONEDNN = 4096


def _scaled_alone(self: Tensor, shape: Sequence[int], beta: Any) -> Tensor:
    """Return ``beta * self``, contiguous: the result when the product is unused."""
    self = aten.expand.default(self, shape)
    if beta == 0:
        return aten.full.default(shape, 0, dtype=self.dtype, device=self.device)  # type: ignore[no-any-return]
    self = aten.clone.default(self, memory_format=torch.contiguous_format)
    return self if beta == 1 else aten.mul.Scalar(self, beta)


@rule("aten.addmm.default", recorded=True)
def _addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Skip the product if `alpha` is 0, as BLAS does: not even NaNs have an effect. Kernels of other dtypes read the matrices."""
    dtype = self.dtype
    if alpha != 0 or dtype not in _PLAIN or dtype is not mat1.dtype or dtype is not mat2.dtype:
        return NotImplemented
    return _scaled_alone(self, [mat1.shape[0], mat2.shape[1]], beta)


# Return whether eager skips the product if `alpha` is 0. `narrow`: the dtype is float16 or bfloat16.
def _is_unread(batch1: Tensor, batch2: Tensor, narrow: bool) -> bool:
    once = batch1.shape[1] * batch1.shape[2] * batch2.shape[2]
    return batch1.shape[0] * once > _BY_ONEDNN if narrow else once >= _BY_BLAS


@rule("aten.baddbmm.default")
def _baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    dtype = self.dtype
    narrow = not (dtype is torch.float32 or dtype is torch.float64 or dtype in _PLAIN)
    # Of integers that are multiplied with nothing, eager refuses a fractional `beta`.
    if dtype is not batch1.dtype or (narrow and not batch1.numel()):
        return NotImplemented
    if not beta == 1 == alpha:
        beta, alpha = (held_number(one, torch.float32 if dtype in HALF else dtype) for one in (beta, alpha))
    if narrow and not (dtype in HALF and dtype is batch2.dtype):
        return aten.baddbmm.default(self, batch1, batch2, beta=beta, alpha=alpha)
    if alpha == 0 and _is_unread(batch1, batch2, narrow):
        batch1, batch2 = (aten.full.default(x.shape, 0, dtype=dtype, device=x.device) for x in (batch1, batch2))
    if narrow:
        batch1, batch2 = aten._to_copy.default(batch1, dtype=torch.float32), aten._to_copy.default(batch2, dtype=torch.float32)
    result = aten.bmm.default(batch1, batch2)
    if beta == 1 == alpha and not narrow and result.shape == self.shape:
        return aten.add.Tensor(result, self)
    size = result.numel()
    if alpha != 1:
        result = aten.mul.Scalar(result, alpha)
    if beta == 0:  # not even a NaN goes in; but it must fit
        aten.expand.default(self, list(result.shape))
    else:
        shape = result.shape if not size else None
        # The product is the first operand, so that the sum has its strides.
        result = aten.add.Tensor(result, self) if beta == 1 else aten.add.Tensor(result, self, alpha=beta)
        if result.numel() != size or result.dim() > 3 or (shape is not None and result.shape != shape):
            return NotImplemented  # it has broadcast the product
    return aten._to_copy.default(result, dtype=dtype) if narrow else result


@rule("aten.addbmm.default", recorded=True)
def _addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Compute the sum of a batch of products as one product: the batch is joined to the dimension that is summed over."""
    rows = aten.reshape.default(aten.permute.default(batch1, [1, 0, 2]), [batch1.size(1), batch1.size(0) * batch1.size(2)])
    columns = aten.reshape.default(batch2, [batch2.size(0) * batch2.size(1), batch2.size(2)])
    if not abs(alpha) <= 2.0**32 and batch1.size(0):  # as eager does all: sums of infinities are not their product's
        for one, other in zip(aten.unbind.int(batch1), aten.unbind.int(batch2), strict=True):
            self, beta = aten.addmm.default(self, one, other, beta=beta, alpha=alpha), 1
        return self
    return aten.addmm.default(self, rows, columns, beta=beta, alpha=alpha)


@rule("aten.addbmm_.default")
def _addbmm_in_place(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Resize `self` if it broadcasts to the result, as eager does without a warning. The derived rule covers the other calls."""
    if not batch1.dim() == batch2.dim() == 3 or self.shape == (batch1.size(1), batch2.size(2)):
        return NotImplemented
    if not self.dtype is batch1.dtype is batch2.dtype:
        return NotImplemented
    found = aten.addbmm.default(self, batch1, batch2, beta=beta, alpha=alpha)
    resize_(self, found.shape)
    return aten.copy_.default(self, found)


@rule("aten.addmv.default")
def _addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    dtype, rank = self.dtype, self.dim()
    if rank > 1 or mat.dim() != 2 or vec.shape != mat.shape[1:] or self.numel() not in (1, mat.size(0)):
        return NotImplemented
    if not dtype is mat.dtype is vec.dtype or (dtype is torch.bool and mat.numel()):
        return NotImplemented
    if dtype is torch.bool:
        if beta == 0:
            return aten.full.default([mat.size(0)], False, dtype=dtype, device=self.device)
        return aten.clone.default(self)  # a single number stays in its own shape, as in eager
    lone = beta != 0 and not mat.numel() and self.numel() == 1
    if not beta == 1 == alpha:
        beta, alpha = held_number(beta, dtype), held_number(alpha, dtype)
    if lone:
        return aten.mul.Scalar(self, beta)  # as in eager, a single number stays in its own shape where there is no product
    if not (dtype in _PLAIN or dtype in HALF) or (alpha == 0 and dtype.is_complex):  # which is multiplied all the same
        return aten.addmv.default(self, mat, vec, beta=beta, alpha=alpha)
    added, column = aten.unsqueeze.default(self, 1) if rank else self, aten.unsqueeze.default(vec, 1)
    if beta == alpha == 1:
        return aten.squeeze.dim(aten.addmm.default(added, mat, column), 1)
    return aten.squeeze.dim(aten.addmm.default(added, mat, column, beta=beta, alpha=alpha), 1)


@rule("aten.addr.default")
def _addr(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Compute the outer product in the promoted dtype.

    torch's decomposition multiplies in the vectors' own dtype, and accepts factors that eager refuses. Eager rounds the factors to
    the dtype, and rounds ``alpha * vec1`` before it multiplies by `vec2`.
    """
    dtype = self.dtype
    if dtype is not vec1.dtype or dtype is not vec2.dtype:
        dtype = promoted((self, vec1, vec2))
        self, vec1, vec2 = (one if one.dtype is dtype else aten._to_copy.default(one, dtype=dtype) for one in (self, vec1, vec2))
    for factor in (beta, alpha):
        if isinstance(factor, bool):
            fits = dtype is torch.bool
        else:
            fits = isinstance(factor, int) or dtype.is_floating_point or dtype.is_complex
        if not fits:
            return NotImplemented
    beta, alpha = held_number(beta, dtype), held_number(alpha, dtype)
    if dtype.is_floating_point:
        if alpha != 1:
            vec1, alpha = aten.mul.Tensor(vec1, constant(vec1, alpha)), 1
        if beta not in (0, 1):
            self, beta = aten.mul.Tensor(self, constant(self, beta)), 1
    return aten.addr.default(self, vec1, vec2, beta=beta, alpha=alpha)


@rule("aten.linalg_cross.default", recorded=True)
def _linalg_cross(self: Tensor, other: Tensor, *, dim: int = -1) -> Any:
    """Return the difference of two products, each rounded to the operands' dtype as in ATen's kernel.

    PyTorch's own decomposition computes float16 and bfloat16 in float32 and rounds once.
    """
    rank = self.dim()
    if rank != other.dim() or not -rank <= dim < rank or self.size(dim) != 3 or other.size(dim) != 3:
        return NotImplemented
    after, before = (aten.remainder.Scalar(aten.arange.start_step(start, start + 3, 1, device=self.device), 3) for start in (1, 2))
    first = aten.mul.Tensor(aten.index_select.default(self, dim, after), aten.index_select.default(other, dim, before))
    second = aten.mul.Tensor(aten.index_select.default(self, dim, before), aten.index_select.default(other, dim, after))
    return aten.sub.Tensor(first, second)


def _of_two_conj_views(self: Tensor, other: Tensor) -> bool:
    """Return whether both vectors are conj views. torch's reference then calls the op again, which a decomposition may not do."""
    alike = self.dtype is other.dtype and self.dim() == other.dim() == 1 and self.shape == other.shape
    return alike and self.is_conj() and other.is_conj()


@rule("aten.dot.default", recorded=True)
def _dot(self: Tensor, other: Tensor) -> Any:
    """Multiply the vectors without their conj bits, and set the bit on the result as eager does."""
    if not _of_two_conj_views(self, other):
        return NotImplemented
    product = aten.mul.Tensor(aten._conj.default(self), aten._conj.default(other))
    return aten._conj.default(aten.sum.default(product))


@rule("aten.vdot.default", recorded=True)
def _vdot(self: Tensor, other: Tensor) -> Any:
    if not _of_two_conj_views(self, other):
        return NotImplemented
    return aten.sum.default(aten.mul.Tensor(aten._conj.default(self), other))


@rule("aten._int_mm.default", recorded=True)
def _int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """Multiply int8 matrices and sum in int32."""
    left, right = (aten._to_copy.default(one, dtype=torch.int32) for one in (self, mat2))
    return aten.mm.default(left, right)  # type: ignore[no-any-return]


@rule("aten._weight_int8pack_mm.default", recorded=True)
def _weight_int8pack_mm(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """Return ``[m, k]`` times the transpose of int8 ``[n, k]``, with a scale per column: computed in float32 and rounded once."""
    if self.stride(-1) != 1 or not mat2.is_contiguous() or scales.size(0) != mat2.size(0):
        return NotImplemented  # type: ignore[no-any-return]
    weight = aten.permute.default(aten._to_copy.default(mat2, dtype=torch.float32), [1, 0])
    product = aten.mm.default(in_type(self, torch.float32), weight)
    return in_type(aten.mul.Tensor(product, in_type(scales, torch.float32)), self.dtype)


@rule("aten._compute_linear_combination.default", recorded=True)
def _combined(input: Tensor, coefficients: Tensor) -> Any:
    """Return ``[m, ...]``: sums over the first dimension of `input`, ``[n, ...]``, weighted by coefficients ``[m, n]``."""
    if coefficients.dim() != 2 or input.dim() == 0 or input.size(0) < coefficients.size(1):
        return NotImplemented  # eager reads past the end of them
    if coefficients.dtype is not input.dtype.to_real():
        return NotImplemented  # eager reads the memory of the coefficients as if it were of that dtype
    dtype, (outputs, count) = input.dtype, coefficients.shape
    if input.size(0) > count:
        input = aten.slice.Tensor(input, 0, 0, count)
    parts = aten.view_as_real.default(input) if dtype.is_complex else input
    shape = [outputs, *parts.shape[1:]]
    if not parts.numel() or not outputs:
        return aten.full.default([outputs, *input.shape[1:]], 0, dtype=dtype, device=input.device)
    if dtype in HALF:
        return _summed_stepwise(input, coefficients, shape)
    computed = torch.int32 if dtype is torch.bool else parts.dtype
    factors, terms = in_type(coefficients, computed), in_type(parts, computed)
    summed = aten.mm.default(factors, aten.reshape.default(terms, [count, math.prod(parts.shape[1:])]))
    summed = aten.view.default(aten.ne.Scalar(summed, 0) if dtype is torch.bool else in_type(summed, parts.dtype), shape)
    return aten.view_as_complex.default(summed) if dtype.is_complex else summed


def _summed_stepwise(input: Tensor, coefficients: Tensor, shape: Sequence[int]) -> Tensor:
    """Sum term by term: eager rounds each product and each sum to float16 or bfloat16."""
    total: Tensor = aten.full.default(shape, 0, dtype=input.dtype, device=input.device)
    for at in range(coefficients.size(1)):
        column = aten.reshape.default(aten.select.int(coefficients, 1, at), [shape[0], *[1] * (len(shape) - 1)])
        total = aten.add.Tensor(total, aten.mul.Tensor(column, aten.select.int(input, 0, at)))
    return total


@rule("aten._compute_linear_combination.out", recorded=True)
def _compute_linear_combination_out(input: Tensor, coefficients: Tensor, *, out: Tensor) -> Any:
    """Add the combination to `out`, as eager does, and never resize it."""
    combined = _combined(input, coefficients)
    if combined is NotImplemented or not out.dim() or out.dtype is not input.dtype:
        return combined
    add = aten.logical_or.default if out.dtype is torch.bool else aten.add.Tensor
    return aten.copy_.default(out, add(out, combined))


@rule("aten.mv.default")
def _mv(self: Tensor, vec: Tensor) -> Any:
    """Multiply matrices: torch's entry sums a product as large as the matrix."""
    dtype = self.dtype
    if self.dim() != 2 or vec.shape != self.shape[1:] or (dtype is torch.bool and (self.numel() or vec.dtype is not dtype)):
        return NotImplemented
    if dtype is torch.bool:
        return aten.full.default([self.size(0)], False, dtype=dtype, device=self.device)
    return aten.squeeze.dim(aten.mm.default(self, aten.unsqueeze.default(vec, 1)), 1)
