"""Dimensions of sparse tensors: permuted, added, selected, joined. Sparse and dense dimensions are handled separately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.sparse.compressed import (
    as_coo,
    compressed_parts,
    is_compressed,
    is_matrix,
    make_compressed,
    of_coo,
    stored_values,
)
from eagerdecomp.decomps.sparse.parts import (
    add_to_dense,
    coalesced,
    flat_indices,
    is_coo,
    make_coo,
    parts,
    positions_of,
    unflattened,
)
from eagerdecomp.eager.promotion import HALF, in_type
from eagerdecomp.eager.strides import wrapped_dim
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


# -- dimensions ----------------------------------------------------------------------------------------------------------------


def _transposed(self: Tensor, one: int, other: int) -> Any:
    dims = list(range(self.dim()))
    dims[one], dims[other] = other, one
    indices, values = parts(self)
    count = indices.shape[0]
    if one == other:
        return make_coo(self.shape, indices, values, self.is_coalesced(), exactly=True)
    rows = [aten.slice.Tensor(indices, 0, dim, dim + 1) for dim in dims[:count]]
    # Eager flags an empty tensor as coalesced.
    size, moved = [self.shape[dim] for dim in dims], aten.cat.default(rows, 0)
    return make_coo(size, moved, aten.clone.default(values), not self._nnz(), exactly=True)


def _flipped(self: Tensor) -> Any:
    """Transpose by exchanging the layouts: compressed rows are the compressed columns of the transpose."""
    layout = torch.sparse_csc if self.layout is torch.sparse_csr else torch.sparse_csr
    return make_compressed(*compressed_parts(self), [self.shape[1], self.shape[0]], layout)


@rule("aten.transpose.int", source="sparse")
def _transpose(self: Tensor, dim0: int, dim1: int) -> Any:
    if is_matrix(self) and {wrapped_dim(dim0, 2), wrapped_dim(dim1, 2)} == {0, 1}:
        return _flipped(self)
    if not is_coo(self) or not self.dim():
        return NotImplemented
    one, other = wrapped_dim(dim0, self.dim()), wrapped_dim(dim1, self.dim())
    if one != other and max(one, other) >= self.sparse_dim():
        return NotImplemented
    return _transposed(self, one, other)


@rule("aten.t.default", source="sparse")
def _t(self: Tensor) -> Any:
    if is_matrix(self):
        return _flipped(self)
    if not is_coo(self) or self.dim() > 2 or self.sparse_dim() > 2 or self.dense_dim():
        return NotImplemented
    return _transposed(self, 0, 1) if self.dim() == 2 else self


@rule("aten.permute.default", source="sparse")
def _permute(self: Tensor, dims: Sequence[int]) -> Any:
    """Permute sparse dimensions among themselves, and dense dimensions among themselves."""
    if not is_coo(self):
        return NotImplemented
    wrapped = [wrapped_dim(dim, self.dim()) for dim in dims]
    count = self.sparse_dim()
    if not len(set(wrapped)) == self.dim() == len(dims) or any(dim >= count for dim in wrapped[:count]):
        return NotImplemented
    indices, values = parts(self)
    rows = [aten.slice.Tensor(indices, 0, dim, dim + 1) for dim in wrapped[:count]]
    indices = aten.cat.default(rows, 0) if rows else aten.clone.default(indices)
    if len(dims) > count:
        values = aten.permute.default(values, [0, *(dim - count + 1 for dim in wrapped[count:])])
    # Eager looks at the first dimension only, as it was passed.
    kept = not dims or (dims[0] == 0 and self.is_coalesced())
    return make_coo([self.shape[dim] for dim in wrapped], indices, values, kept, exactly=True)


@rule("aten.unsqueeze.default", source="sparse")
def _unsqueeze(self: Tensor, dim: int) -> Any:
    if not is_coo(self):
        return NotImplemented
    at = wrapped_dim(dim, self.dim() + 1)
    indices, values = parts(self)
    count = indices.shape[0]
    size = [*self.shape[:at], 1, *self.shape[at:]]
    if at <= count:
        row = aten.full.default([1, indices.shape[1]], 0, dtype=torch.int64, device=indices.device)
        ends = (aten.slice.Tensor(indices, 0, 0, at), row, aten.slice.Tensor(indices, 0, at, count))
        return make_coo(size, aten.cat.default(list(ends), 0), values, False)
    return make_coo(size, indices, aten.unsqueeze.default(values, at - count + 1), False)


# -- selection -----------------------------------------------------------------------------------------------------------------


@rule("aten.select.int", source="sparse")
def _select(self: Tensor, dim: int, index: int) -> Any:
    """Select as ``select_sparse`` of ``TensorShape.cpp``: without the only sparse dimension, the result is dense."""
    in_order = is_matrix(self)
    if in_order:
        self = as_coo(self)
    if not is_coo(self):
        return NotImplemented
    at = wrapped_dim(dim, self.dim())
    if not -self.shape[at] <= index < self.shape[at]:
        return NotImplemented
    index %= self.shape[at]
    indices, values = parts(self)
    count = indices.shape[0]
    size = [*self.shape[:at], *self.shape[at + 1 :]]
    if at >= count:
        return make_coo(size, indices, aten.select.int(values, at - count + 1, index), False)
    found = positions_of(aten.eq.Scalar(aten.select.int(indices, 0, at), index))
    if count == 1:
        kept = aten.index_select.default(values, 0, found)
        if self.is_coalesced() and found.shape[0] == 1:
            return aten.reshape.default(kept, size)
        return aten.sum.dim_IntList(kept, [0], dtype=values.dtype)
    others = [aten.slice.Tensor(indices, 0, 0, at), aten.slice.Tensor(indices, 0, at + 1, count)]
    left = aten.index_select.default(aten.cat.default(others, 0), 1, found)
    return make_coo(size, left, aten.index_select.default(values, 0, found), in_order)


@rule("aten.narrow_copy.default", source="sparse")
def _narrow(self: Tensor, dim: int, start: int, length: int) -> Any:
    if not is_coo(self):
        return NotImplemented
    at = wrapped_dim(dim, self.dim())
    if length < 0 or start < 0 or start + length > self.shape[at]:
        return NotImplemented
    indices, values = parts(self)
    count = indices.shape[0]
    size = [*self.shape[:at], length, *self.shape[at + 1 :]]
    if at >= count:
        inner = at - count + 1
        values = aten.clone.default(aten.slice.Tensor(values, inner, start, start + length), memory_format=torch.contiguous_format)
        return make_coo(size, indices, values, self.is_coalesced())
    row = aten.select.int(indices, 0, at)
    inside = aten.logical_and.default(aten.ge.Scalar(row, start), aten.lt.Scalar(row, start + length))
    found = positions_of(inside)
    left = aten.index_select.default(indices, 1, found)
    shifted = aten.sub.Scalar(aten.slice.Tensor(left, 0, at, at + 1), start)
    ends = [aten.slice.Tensor(left, 0, 0, at), shifted, aten.slice.Tensor(left, 0, at + 1, count)]
    return make_coo(size, aten.cat.default(ends, 0), aten.index_select.default(values, 0, found), self.is_coalesced(), exactly=True)


@rule("aten.index_select.default", source="sparse")
def _index_select(self: Tensor, dim: int, index: Tensor) -> Any:
    """Return each element once per occurrence of its index in `index`, in the order of `index`.

    Along a dense dimension, the elements keep their order.
    """
    at = wrapped_dim(dim, self.dim())
    if not is_coo(self) or index.layout is not torch.strided:
        return NotImplemented
    if index.dim() != 1 or index.dtype not in (torch.int64, torch.int32):
        return NotImplemented
    size = self.shape[at]
    wrong = aten.logical_or.default(aten.lt.Scalar(index, -size), aten.ge.Scalar(index, size))
    if index.shape[0] and aten._local_scalar_dense.default(aten.any.default(wrong)):
        return NotImplemented
    index = in_type(index, torch.int64)
    index = aten.where.self(aten.lt.Scalar(index, 0), aten.add.Scalar(index, size), index)
    indices, values = parts(self)
    count, chosen = indices.shape[0], index.shape[0]
    sizes = [*self.shape[:at], chosen, *self.shape[at + 1 :]]
    if at >= count:
        return make_coo(sizes, indices, aten.index_select.default(values, at - count + 1, index), False)
    if not chosen or not indices.shape[1]:
        indices = aten.full.default([count, 0], 0, dtype=torch.int64, device=indices.device)
        return make_coo(sizes, indices, aten.slice.Tensor(values, 0, 0, 0), not chosen)
    row = aten.select.int(indices, 0, at)
    ordered, order = aten.sort.stable(row, stable=True)
    begin, end = aten.searchsorted.Tensor(ordered, index), aten.searchsorted.Tensor(ordered, index, right=True)
    many = aten.sub.Tensor(end, begin)
    place = aten.repeat_interleave.Tensor(many)
    total = place.shape[0]
    starts = aten.sub.Tensor(aten.cumsum.default(many, 0), many)
    within = aten.sub.Tensor(aten.arange.start_step(0, total, 1, device=index.device), aten.index_select.default(starts, 0, place))
    seat = aten.index_select.default(order, 0, aten.add.Tensor(aten.index_select.default(begin, 0, place), within))
    left = aten.index_select.default(indices, 1, seat)
    rows = [
        aten.slice.Tensor(left, 0, 0, at),
        aten.unsqueeze.default(place, 0),
        aten.slice.Tensor(left, 0, at + 1, count),
    ]
    return make_coo(sizes, aten.cat.default(rows, 0), aten.index_select.default(values, 0, seat), False)


# -- joining -------------------------------------------------------------------------------------------------------------------


@rule("aten.cat.default", source="sparse")
def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Concatenate: along a sparse dimension, shift the indices; along a dense dimension, pad each tensor's values with zeros."""
    if any(one.layout not in (torch.strided, torch.sparse_coo) for one in tensors):
        return NotImplemented
    first = tensors[0]
    at = wrapped_dim(dim, first.dim())
    alike = all(is_coo(one) and one.dim() == first.dim() for one in tensors)
    if not alike:
        return NotImplemented
    for one in tensors:
        others = [n for n in range(first.dim()) if n != at]
        if one.sparse_dim() != first.sparse_dim() or any(one.shape[n] != first.shape[n] for n in others):
            return NotImplemented
    dtype = first.dtype
    for one in tensors:
        dtype = torch.promote_types(dtype, one.dtype)
    count, total = first.sparse_dim(), sum(one.shape[at] for one in tensors)
    size = [*first.shape[:at], total, *first.shape[at + 1 :]]
    all_indices, all_values, passed = [], [], 0
    for one in tensors:
        indices, values = parts(one)
        values = in_type(values, dtype)
        if at < count:
            moved = aten.add.Scalar(aten.slice.Tensor(indices, 0, at, at + 1), passed)
            indices = aten.cat.default(
                [aten.slice.Tensor(indices, 0, 0, at), moved, aten.slice.Tensor(indices, 0, at + 1, count)], 0
            )
        else:
            behind = [0, 0] * (first.dim() - 1 - at)
            values = aten.constant_pad_nd.default(values, [*behind, passed, total - passed - one.shape[at]], 0)
        all_indices.append(indices)
        all_values.append(values)
        passed += one.shape[at]
    return make_coo(size, aten.cat.default(all_indices, 1), aten.cat.default(all_values, 0), False)


# -- sums along dimensions -----------------------------------------------------------------------------------------------------


def _summed(self: Tensor, dims: Sequence[int]) -> Any:
    """Sum as ``_sparse_sum`` of ``SparseTensorMath.cpp``: dense if no sparse dimension is left, coalesced if one is summed."""
    indices, values = parts(self)
    count = indices.shape[0]
    inner = [dim - count + 1 for dim in dims if dim >= count]
    if inner:
        values = aten.sum.dim_IntList(values, inner, dtype=values.dtype)
    left = [dim for dim in range(count) if dim not in dims]
    if not left:
        return aten.sum.dim_IntList(values, [0])
    size = [self.shape[dim] for dim in range(self.dim()) if dim not in dims]
    if len(left) == count:
        return make_coo(size, aten.clone.default(indices), values if inner else aten.clone.default(values), self.is_coalesced())
    rows = [aten.slice.Tensor(indices, 0, dim, dim + 1) for dim in left]
    return coalesced(make_coo(size, aten.cat.default(rows, 0), values, False))


@rule("aten._sparse_sum.dim", takes_sparse=True)
def _sparse_sum(self: Tensor, dim: Sequence[int]) -> Any:
    if not is_coo(self):
        return NotImplemented
    dims = [wrapped_dim(one, self.dim()) for one in dim]
    if not dims or not self.dim() or len(set(dims)) < len(dims):
        return NotImplemented
    whole = set(range(self.sparse_dim())) <= set(dims)
    return _summed(self if whole else coalesced(self), dims)


@rule("aten.sum.default", source="sparse")
def _sum(self: Tensor, *, dtype: Any = None) -> Any:
    return aten.sum.default(stored_values(self), dtype=dtype) if is_coo(self) or is_compressed(self) else NotImplemented


@rule("aten.sum.dim_IntList", source="sparse")
def _sum_dim(self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if is_matrix(self):
        return _sum_matrix(self, dim, keepdim, dtype=dtype)
    if not is_coo(self):
        return NotImplemented
    if dtype is not None and dtype is not self.dtype:
        self = make_coo(self.shape, self._indices(), in_type(self._values(), dtype), self.is_coalesced())
    dims = [wrapped_dim(one, self.dim()) for one in (dim or range(self.dim()))]
    if len(set(dims)) < len(dims) or not self.dim():
        return NotImplemented
    if dtype is None and not (self.dtype.is_floating_point or self.dtype.is_complex):
        self = make_coo(self.shape, self._indices(), in_type(self._values(), torch.int64), self.is_coalesced())
    found = _summed(coalesced(self), dims)
    if keepdim:
        for one in sorted(dims):
            found = _unsqueeze(found, one) if is_coo(found) else aten.unsqueeze.default(found, one)
    return found


@rule("aten._sparse_csr_sum.dim_dtype", takes_sparse=True)
def _sum_matrix(self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    return _reduced_matrix(self, dim, keepdim, dtype, "sum")


@rule("aten._sparse_csr_prod.dim_dtype", takes_sparse=True)
def _product_matrix(self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    return _reduced_matrix(self, dim, keepdim, dtype, "prod")


def _reduced_matrix(self: Tensor, dim: Sequence[int] | None, keepdim: bool, dtype: torch.dtype | None, reduce: str) -> Any:
    """Reduce a CSR matrix to a CSR row, column or number, which stores the sums or products of stored elements only."""
    if self.layout is not torch.sparse_csr or self.dim() != 2 or not self._nnz() or not keepdim:
        return NotImplemented
    dims = {wrapped_dim(one, 2) for one in dim or (0, 1)}
    indices, values = parts(as_coo(self))
    integers = aten.crow_indices.default(self).dtype
    wanted = self.dtype if dtype is None else dtype
    if len(dims) < len(dim or (0, 1)) or wanted is torch.bool:
        return NotImplemented
    dtype = wanted if wanted.is_floating_point or wanted.is_complex else torch.int64
    rows = [aten.select.int(indices, 0, one) for one in range(2)]
    rows = [aten.full_like.default(row, 0) if one in dims else row for one, row in enumerate(rows)]
    size = [1 if one in dims else self.shape[one] for one in range(2)]
    computed = wanted if reduce == "prod" else dtype  # eager's products of integers overflow
    values = in_type(in_type(values, computed), torch.float32 if computed in HALF else computed)
    if reduce == "prod":
        flat, place = aten._unique2.default(flat_indices(aten.stack.default(rows, 0), size), return_inverse=True)[:2]
        ones = aten.full.default([flat.shape[0]], 1, dtype=values.dtype, device=values.device)
        rows = list(aten.unbind.int(unflattened(flat, size), 0))
        values = aten.scatter_reduce.two(ones, 0, place, values, "prod")
    found = of_coo(make_coo(size, aten.stack.default(rows, 0), values, reduce == "prod"), torch.sparse_csr)
    ends, places, values = compressed_parts(found)
    return make_compressed(in_type(ends, integers), in_type(places, integers), in_type(values, dtype), size, torch.sparse_csr)


@rule("aten._sparse_sum_backward.default", takes_sparse=True)
def _sparse_sum_backward(grad: Tensor, self: Tensor, dim: Sequence[int]) -> Any:
    """Return the gradient of each element: the gradient of the sum that contains it. Equal indices of `self` get one gradient."""
    if not is_coo(self):
        return NotImplemented
    self = coalesced(self)
    rank, count = self.dim(), self.sparse_dim()
    dims = sorted({one % rank for one in dim})
    indices, values = parts(self)
    inner = [one - count + 1 for one in dims if one >= count]
    left = [one for one in range(count) if one not in dims]
    if is_coo(grad):
        found, width = coalesced(grad), grad.sparse_dim()
        rows = aten.cat.default([aten.slice.Tensor(indices, 0, one, one + 1) for one in left], 0)
        dense = add_to_dense(aten.full.default(list(found.shape), 0, dtype=found.dtype, device=found.device), found)
        flat = aten.reshape.default(dense, [math.prod(found.shape[:width]), *found.shape[width:]])
        grads = aten.index_select.default(flat, 0, flat_indices(rows, found.shape[:width]))
    else:
        grads = aten.unsqueeze.default(grad, 0)
    for one in sorted(inner):
        grads = aten.unsqueeze.default(grads, one)
    grads = aten.clone.default(aten.expand.default(grads, list(values.shape)), memory_format=torch.contiguous_format)
    return make_coo(self.shape, aten.clone.default(indices), in_type(grads, self.dtype), True)


@rule("aten.any.default", source="sparse")
def _any(self: Tensor) -> Any:
    return aten.any.default(aten._values.default(self)) if is_coo(self) else NotImplemented


@rule("aten.norm.ScalarOpt_dim", "aten.norm.ScalarOpt_dim_dtype", source="sparse")
def _norm(self: Tensor, p: Any, dim: Sequence[int], keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Compute the norm of all values after duplicates are summed."""
    if not is_coo(self):
        return NotImplemented
    floats = self.dtype.is_floating_point or self.dtype.is_complex
    if keepdim or len(dim) not in (0, self.dim()) or dtype is not None or not floats:
        return NotImplemented
    values = aten._values.default(coalesced(self))
    return aten.linalg_vector_norm.default(aten.reshape.default(values, [-1]), 2 if p is None else p)


@rule("aten.native_norm.default", "aten.native_norm.ScalarOpt_dim_dtype", takes_sparse=True)
def _native_norm(self: Tensor, p: Any = 2, dim: Sequence[int] = (), keepdim: bool = False, dtype: Any = None) -> Any:
    if not is_coo(self):
        return NotImplemented
    return _norm(self, p, dim, keepdim, dtype=dtype)
