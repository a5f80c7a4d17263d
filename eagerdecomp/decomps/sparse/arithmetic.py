"""Sums, products and functions of sparse tensors that map zero to zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp.decomps.sparse.compressed import (
    as_coo,
    is_compressed,
    is_matrix,
    of_coo,
    stored_values,
    with_stored_values,
    write_parts,
)
from eagerdecomp.decomps.sparse.conversions import gathered
from eagerdecomp.decomps.sparse.parts import (
    OF_SPARSE,
    add_to_dense,
    coalesced,
    flat_indices,
    is_coo,
    like,
    make_coo,
    parts,
    positions_of,
    take_over,
    times_number,
    unflattened,
    with_values,
)
from eagerdecomp.eager.promotion import in_type
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def broadcast_shapes(one: Sequence[int], other: Sequence[int]) -> Any:
    """Return the shape to which both shapes broadcast."""
    return torch.broadcast_shapes(one, other)  # type: ignore[no-untyped-call]


def _coo_or_strided(*values: Any) -> bool:
    return all(not isinstance(one, Tensor) or one.layout in (torch.strided, torch.sparse_coo) for one in values)


# -- sums ----------------------------------------------------------------------------------------------------------------------


def sum_of(self: Tensor, other: Tensor, alpha: Any) -> Any:
    """Concatenate the elements of both.

    The sum of coalesced tensors is coalesced, and tensors with equal indices keep them, unless values are not contiguous. In other
    cases eager's CPU kernel interleaves the elements in an order of its own, while CUDA's kernel concatenates them.
    """
    dtype = torch.promote_types(self.dtype, other.dtype)
    if not other._nnz():
        return with_values(self, _changed(aten._values.default(self), dtype))
    (left, one), (right, two) = parts(self), parts(other)
    apart = not (one.is_contiguous() and two.is_contiguous())
    one, two = in_type(one, dtype), in_type(two, dtype)
    if alpha != 1:
        two = times_number(two, alpha)
    if not self._nnz():
        return make_coo(self.shape, aten.clone.default(right), aten.clone.default(two) if alpha == 1 else two, other.is_coalesced())
    both = self.is_coalesced() and other.is_coalesced()
    if (
        not apart
        and left.shape == right.shape
        and not aten._local_scalar_dense.default(aten.any.default(aten.ne.Tensor(left, right)))
    ):
        return make_coo(self.shape, aten.clone.default(left), aten.add.Tensor(one, two), both)
    found = like(self, aten.cat.default([left, right], 1), aten.cat.default([one, two], 0))
    return coalesced(found) if both and not apart else found


def _changed(values: Tensor, dtype: torch.dtype) -> Any:
    return aten.clone.default(values) if values.dtype is dtype else aten._to_copy.default(values, dtype=dtype)


def _can_add(self: Tensor, other: Any, alpha: Any) -> bool:
    """Return whether eager adds these: a sparse tensor to a tensor of the same size."""
    if not (isinstance(self, Tensor) and is_coo(other) and self.shape == other.shape):
        return False
    if is_coo(self) and (self.sparse_dim() != other.sparse_dim() or self.dense_dim() != other.dense_dim()):
        return False
    dtype = torch.promote_types(self.dtype, other.dtype)
    # Eager's kernel for sums does not support bool, and its kernel for products by alpha does not support float16.
    if is_coo(self) and other._nnz() and (dtype is torch.bool or (dtype is torch.float16 and self._nnz())):
        return False
    if dtype is torch.bool:
        return type(alpha) in (int, bool)
    whole = not (dtype.is_floating_point or dtype.is_complex)
    return not (isinstance(alpha, complex) and not dtype.is_complex) and not (whole and isinstance(alpha, float))


def _added(self: Any, other: Any, alpha: Any, sign: int) -> Any:
    if is_matrix(self) and is_matrix(other):
        known = self.layout is other.layout is torch.sparse_csr and self.dtype is other.dtype and self.dtype in OF_SPARSE
        found = _added(as_coo(self), as_coo(other), alpha, sign) if known and sign > 0 else NotImplemented
        return found if found is NotImplemented else of_coo(found, self.layout)
    if is_matrix(self) and isinstance(other, Tensor) and other.layout is torch.strided and sign > 0:
        self, other = other, self  # so eager multiplies the sparse one by alpha
    if is_matrix(other) and isinstance(self, Tensor) and self.layout is torch.strided:
        other = as_coo(other)
    if not _coo_or_strided(self, other) or not _can_add(self, other, alpha) or (sign < 0 and self.dtype is torch.bool):
        return NotImplemented
    alpha = alpha if sign > 0 else -alpha
    return sum_of(self, other, alpha) if is_coo(self) else add_to_dense(self, other, alpha)


def _added_in_place(self: Any, other: Any, alpha: Any, sign: int) -> Any:
    if is_matrix(other) and isinstance(self, Tensor) and self.layout is torch.strided:
        other = as_coo(other)
    if not _coo_or_strided(self, other):
        return NotImplemented
    if not _can_add(self, other, alpha) or not torch.can_cast(torch.promote_types(self.dtype, other.dtype), self.dtype):
        return NotImplemented
    found = _added(self, other, alpha, sign)
    if found is NotImplemented:
        return found
    if not is_coo(self):
        return aten.copy_.default(self, found)
    indices, values = parts(found)
    return take_over(self, like(found, indices, in_type(values, self.dtype), found.is_coalesced()))


@rule("aten.add.Tensor", source="sparse")
def _add(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    return _added(self, other, alpha, 1)


@rule("aten.sub.Tensor", source="sparse")
def _sub(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    return _added(self, other, alpha, -1)


@rule("aten.add_.Tensor", source="sparse")
def _add_in_place(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    return _added_in_place(self, other, alpha, 1)


@rule("aten.sub_.Tensor", source="sparse")
def _sub_in_place(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    return _added_in_place(self, other, alpha, -1)


# -- products ------------------------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    """Return whether a value scales all elements alike: a scalar or a 0-dim dense tensor."""
    return not isinstance(value, Tensor) or (value.layout is torch.strided and value.dim() == 0)


def _times_number(self: Tensor, other: Any) -> Any:
    """Multiply the values as a tensor with dimensions: a 0-dim sparse tensor promotes like one with dimensions."""
    values = stored_values(self)
    dtype = torch.result_type(self, other)
    if isinstance(other, Tensor):
        other = in_type(other, dtype)
        found = aten.mul.Tensor(in_type(values, dtype), other)
    else:
        found = aten.mul.Scalar(in_type(values, dtype), other)
    return with_stored_values(self, found)


def _times_dense(self: Tensor, dense: Tensor) -> Any:
    """Multiply the sparse tensor's values by the elements of a dense tensor, which broadcasts, at their indices."""
    dtype = torch.result_type(self, dense)
    size = broadcast_shapes(self.shape, dense.shape)
    if size != self.shape:
        was, self = self.is_coalesced(), _broadcast(self, size)
        if was and not self.is_coalesced():
            self = _in_order(self)
    dense = aten.expand.default(dense, list(self.shape))
    indices, values = parts(self)
    values = in_type(values, dtype)
    if not indices.shape[1] or not self.numel():
        return with_values(self, aten.clone.default(values))
    return with_values(self, aten.mul.Tensor(values, in_type(gathered(dense, indices), dtype)))


def _broadcast(self: Tensor, size: Any) -> Any:
    """Broadcast as ``sparse_broadcast_to`` of ``TensorConversions.cpp``: add dimensions in front, expand sparse ones of size 1."""
    indices, values = parts(self)
    fresh = len(size) - self.dim()
    sparse_dim, count = indices.shape[0], indices.shape[1]
    stretched = [n for n in range(sparse_dim) if self.shape[n] == 1 and size[fresh + n] != 1]
    wanted = [*size[:fresh], *(size[fresh + n] for n in stretched)]
    inner = [*size[fresh + sparse_dim :]]
    values = aten.expand.default(values, [count, *inner])
    total = 1
    for one in wanted:
        total *= one
    indices = aten.repeat_interleave.self_int(indices, total, 1)
    values = aten.repeat_interleave.self_int(values, total, 0)
    each = unflattened(aten.arange.start_step(0, total, 1, device=indices.device), wanted)
    each = aten.repeat.default(each, [1, count])
    rows = [aten.slice.Tensor(each, 0, n, n + 1) for n in range(fresh)]
    for n in range(sparse_dim):
        if n in stretched:
            at = fresh + stretched.index(n)
            rows.append(aten.slice.Tensor(each, 0, at, at + 1))
        else:
            rows.append(aten.slice.Tensor(indices, 0, n, n + 1))
    # If the indices were in order, they stay so when all expanded dimensions come after the others.
    untouched = [fresh + n for n in range(sparse_dim) if n not in stretched]
    first = 0 if fresh else min((fresh + n for n in stretched), default=len(size))
    kept = self.is_coalesced() and (not untouched or max(untouched) < first)
    return make_coo(size, aten.cat.default(rows, 0), values, kept)


def _in_order(self: Tensor) -> Any:
    """Sort a tensor without duplicates, and mark it as coalesced."""
    indices, values = parts(self)
    order = aten.sort.stable(flat_indices(indices, self.shape[: indices.shape[0]]), stable=True)[1]
    return like(self, aten.index_select.default(indices, 1, order), aten.index_select.default(values, 0, order), True)


def _times_sparse(self: Tensor, other: Tensor) -> Any:
    """Multiply where both tensors store an element.

    If one of them is not coalesced, the result has its order; the other is searched.
    """
    dtype = torch.promote_types(self.dtype, other.dtype)
    if self.is_coalesced() and not other.is_coalesced():
        searched, source = self, other
    elif other.is_coalesced() and not self.is_coalesced():
        searched, source = other, self
    else:
        searched, source = (self, other) if self._nnz() >= other._nnz() else (other, self)
    searched = coalesced(searched)
    sizes = source.shape[: source.sparse_dim()]
    indices, values = parts(source)
    held, wanted = flat_indices(searched._indices(), sizes), flat_indices(indices, sizes)
    if held.shape[0] and wanted.shape[0]:
        found = positions_of(aten.isin.Tensor_Tensor(wanted, held))
        at = aten.searchsorted.Tensor(held, aten.index_select.default(wanted, 0, found))
        indices, values = aten.index_select.default(indices, 1, found), aten.index_select.default(values, 0, found)
        values = aten.mul.Tensor(
            in_type(values, dtype), in_type(aten.index_select.default(aten._values.default(searched), 0, at), dtype)
        )
        return make_coo(source.shape, indices, values, source.is_coalesced())
    indices = aten.full.default([len(sizes), 0], 0, dtype=torch.int64, device=indices.device)
    values = aten.full.default([0, *values.shape[1:]], 0, dtype=dtype, device=values.device)
    return make_coo(source.shape, indices, values, source.is_coalesced())


def _product_by_rows(self: Tensor, other: Tensor) -> Any:
    """Multiply CSR matrices, or one by a COO or dense one: the elements that both store, or that the CSR matrix stores."""
    one, two = (as_coo(x) if is_matrix(x) and x.layout is torch.sparse_csr else x for x in (self, other))
    if self.shape != other.shape or is_coo(self) or not _coo_or_strided(one, two):
        return NotImplemented
    found = _product(one, two)
    return found if found is NotImplemented else of_coo(found, torch.sparse_csr)


def _product(self: Any, other: Any) -> Any:
    if is_compressed(self) and _is_number(other):
        return _times_number(self, other)
    if is_compressed(other) and _is_number(self):
        return _times_number(other, self)
    if is_compressed(self) or is_compressed(other):
        return _product_by_rows(self, other)
    if not _coo_or_strided(self, other):
        return NotImplemented
    if is_coo(self) and _is_number(other):
        return _times_number(self, other)
    if is_coo(other) and _is_number(self):
        return _times_number(other, self)
    if is_coo(self) and is_coo(other):
        both = self.is_coalesced() and other.is_coalesced()
        if both and torch.promote_types(self.dtype, other.dtype) is torch.bool:
            return NotImplemented
        alike = self.sparse_dim() == other.sparse_dim() and self.dim() == other.dim() and self.shape == other.shape
        if not alike or not self.dim():
            return NotImplemented
        return _times_sparse(self, other)
    sparse, dense = (self, other) if is_coo(self) else (other, self)
    broadcast_shapes(sparse.shape, dense.shape)
    return _times_dense(sparse, dense)


@rule("aten.mul.Tensor", "aten.mul.Scalar", source="sparse")
def _mul(self: Any, other: Any) -> Any:
    return _product(self, other)


@rule("aten.mul_.Tensor", "aten.mul_.Scalar", source="sparse")
def _mul_in_place(self: Any, other: Any) -> Any:
    if is_compressed(self) and _is_number(other) and torch.can_cast(torch.result_type(self, other), self.dtype):
        aten.copy_.default(stored_values(self), stored_values(_times_number(self, other)))
        return self
    if not torch.can_cast(torch.result_type(self, other), self.dtype):
        return NotImplemented
    if is_compressed(self):
        found = _product(self, other)
        return self if found is not NotImplemented and write_parts(self, found) else NotImplemented
    if not _coo_or_strided(self, other):
        return NotImplemented
    found = _product(self, other)
    if found is NotImplemented or found.shape != self.shape:
        return NotImplemented
    if not is_coo(self):
        zeros = aten.full.default(list(self.shape), 0, dtype=self.dtype, device=self.device)
        return aten.copy_.default(self, add_to_dense(zeros, found))
    return _into(self, found, found.is_coalesced() and is_coo(other))  # else eager forgets that it was


def _into(self: Tensor, found: Tensor, coalesced: bool) -> Tensor:
    """Write a result into `self`, in the dtype of `self`."""
    indices, values = parts(found)
    return take_over(self, like(found, indices, in_type(values, self.dtype), coalesced))


# -- quotients -----------------------------------------------------------------------------------------------------------------


def _quotient(self: Any, other: Any, rounding_mode: str | None) -> Any:
    if not _coo_or_strided(self, other):
        return NotImplemented
    if not is_coo(self) or not (_is_number(other) or (is_coo(other) and other.dim() == 0)):
        return NotImplemented
    if is_coo(other):
        return NotImplemented
    if rounding_mode is not None:
        self = coalesced(self)
    values = aten._values.default(self)
    dtype = torch.result_type(self, other)
    if rounding_mode is None and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    values = in_type(values, dtype)
    if not isinstance(other, Tensor):
        other = aten.scalar_tensor.default(other, dtype=dtype, device=values.device)
    other = in_type(other, dtype)
    if rounding_mode is None:
        return with_values(self, aten.div.Tensor(values, other))
    return with_values(self, aten.div.Tensor_mode(values, other, rounding_mode=rounding_mode))


@rule("aten.div.Tensor", "aten.div.Scalar", source="sparse")
def _div(self: Any, other: Any) -> Any:
    return _quotient(self, other, None)


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode", source="sparse")
def _div_mode(self: Any, other: Any, *, rounding_mode: str | None) -> Any:
    return _quotient(self, other, rounding_mode)


@rule("aten.floor_divide.default", source="sparse")
def _floor_divide(self: Any, other: Any) -> Any:
    return _quotient(self, other, "floor")


@rule("aten.div_.Tensor", "aten.div_.Scalar", "aten.div_.Tensor_mode", "aten.div_.Scalar_mode", source="sparse")
def _div_in_place(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    if not is_coo(self) or not _coo_or_strided(self, other) or not _is_number(other):
        return NotImplemented
    inexact = rounding_mode is None and not (self.dtype.is_floating_point or self.dtype.is_complex)
    if inexact or not torch.can_cast(torch.result_type(self, other), self.dtype):
        return NotImplemented
    found = _quotient(self, other, rounding_mode)
    return found if found is NotImplemented else _into(self, found, found.is_coalesced())


@rule("aten.floor_divide_.Tensor", "aten.floor_divide_.Scalar", source="sparse")
def _floor_divide_in_place(self: Any, other: Any) -> Any:
    return _div_in_place(self, other, rounding_mode="floor")


# -- functions of each element -------------------------------------------------------------------------------------------------

#: Ops that ATen implements with ``coalesced_unary_ufunc`` (``SparseUnaryOps.cpp``).
OF_COALESCED = (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor", "frac", "isinf", "isnan"),
    *("isneginf", "isposinf", "log1p", "nan_to_num", "rad2deg", "relu", "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt"),
    *("tan", "tanh", "trunc"),
)
_WITHOUT_IN_PLACE = ("isinf", "isnan", "isneginf", "isposinf", "signbit")


def _of_each(dense: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_compressed(self) and dense is not aten.nan_to_num.default:
            return with_stored_values(self, dense(stored_values(self), *args, **kwargs))
        if not is_coo(self):
            return NotImplemented
        self = coalesced(self)
        return with_values(self, dense(aten._values.default(self), *args, **kwargs))

    return run


def _of_each_in_place(dense: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        compressed = is_compressed(self) and dense is not aten.nan_to_num_.default
        if not compressed and not (is_coo(self) and self.is_coalesced()):
            return NotImplemented
        dense(stored_values(self), *args, **kwargs)
        return self

    return run


for _name in OF_COALESCED:
    rule(f"aten.{_name}.default", source="sparse")(_of_each(op_called(f"aten.{_name}.default")))
    if _name in _WITHOUT_IN_PLACE:
        continue
    _in_place = f"aten.{_name}_.default"
    rule(_in_place, source="sparse")(_of_each_in_place(op_called(_in_place)))


@rule("aten.neg.default", source="sparse")
def _neg(self: Tensor) -> Any:
    return (
        with_stored_values(self, aten.neg.default(stored_values(self))) if is_coo(self) or is_compressed(self) else NotImplemented
    )


@rule("aten.neg_.default", source="sparse")
def _neg_in_place(self: Tensor) -> Any:
    if not is_coo(self) and not is_compressed(self):
        return NotImplemented
    aten.neg_.default(stored_values(self))
    return self


@rule("aten.conj_physical.default", "aten._conj_physical.default", source="sparse")
def _conj(self: Tensor) -> Any:
    return with_values(self, aten.conj_physical.default(aten._values.default(self))) if is_coo(self) else NotImplemented


@rule("aten.view_as_real.default", source="sparse")
def _view_as_real(self: Tensor) -> Any:
    if not is_coo(self):
        return NotImplemented
    indices, values = parts(self)
    if not values.dtype.is_complex:
        return NotImplemented
    return make_coo([*self.shape, 2], indices, aten.view_as_real.default(values), self.is_coalesced())


@rule("aten.view_as_complex.default", source="sparse")
def _view_as_complex(self: Tensor) -> Any:
    if not is_coo(self):
        return NotImplemented
    indices, values = parts(self)
    if not self.dense_dim() or self.shape[-1] != 2 or values.dtype not in (torch.float16, torch.float32, torch.float64):
        return NotImplemented
    return make_coo(self.shape[:-1], indices, aten.view_as_complex.default(values), self.is_coalesced())


@rule("aten.pow.Tensor_Scalar", source="sparse")
def _pow(self: Tensor, exponent: Any) -> Any:
    if not is_coo(self) or exponent == 0 or not torch.can_cast(torch.result_type(self, exponent), self.dtype):
        return NotImplemented
    self = coalesced(self)
    return with_values(self, in_type(aten.pow.Tensor_Scalar(aten._values.default(self), exponent), self.dtype))


@rule("aten._sparse_broadcast_to.default", takes_sparse=True)
def _sparse_broadcast_to(self: Tensor, size: Any) -> Any:
    return _broadcast(self, size) if is_coo(self) else NotImplemented
