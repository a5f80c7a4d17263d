"""The product of a CSR matrix and a dense one whose rows are sums, means or extremes: ``torch.sparse.mm(csr, dense, "mean")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.sparse.compressed import is_matrix, with_compressed_values
from eagerdecomp.eager.promotion import HALF, in_type
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_REDUCES = ("sum", "mean", "amax", "amin")


def _elements(self: Tensor) -> tuple[Any, Any, Any]:
    """Return the rows, the columns and the values of a CSR matrix; float16 and bfloat16 as float32, in which eager computes."""
    rows = aten.repeat_interleave.Tensor(in_type(_lengths(self), torch.int64))
    return rows, in_type(aten.col_indices.default(self), torch.int64), _wide(aten.values.default(self))


def _wide(x: Tensor) -> Any:
    return in_type(x, torch.float32) if x.dtype in HALF else x


def _lengths(self: Tensor) -> Any:
    """Return the number of elements of each row."""
    ends = aten.crow_indices.default(self)
    return aten.sub.Tensor(aten.slice.Tensor(ends, 0, 1), aten.slice.Tensor(ends, 0, 0, -1))


def _means(sums: Tensor, self: Tensor) -> Any:
    """Return the sums of the rows divided by their numbers of elements."""
    counts = in_type(aten.clamp.default(_lengths(self), 1), sums.dtype)
    return aten.div.Tensor(sums, aten.unsqueeze.default(counts, 1))


def _zeros(like: Tensor, *shape: int) -> Any:
    return aten.full.default(list(shape), 0, dtype=like.dtype, device=like.device)


@rule("aten._sparse_mm_reduce_impl.default", takes_sparse=True)
def _reduced(self: Tensor, other: Tensor, reduce: str) -> Any:
    """Reduce ``value * other[column]`` over the elements of each row; a row without elements is zero.

    The second result is the element that gave each extreme (for gradients): the first of equal ones, or the last NaN.
    """
    fits = is_matrix(self) and self.layout is torch.sparse_csr and other.layout is torch.strided and other.dim() == 2
    if not fits or reduce not in _REDUCES or self.shape[1] != other.shape[0]:
        return NotImplemented
    if self.dtype is not other.dtype or not self.dtype.is_floating_point:
        return NotImplemented
    count, height, width = self._nnz(), self.shape[0], other.shape[1]
    none = aten.full.default([0], 0, dtype=aten.col_indices.default(self).dtype, device=self.device)
    if not count or not width:
        return _zeros(other, height, width), none
    rows, columns, values = _elements(self)
    products = aten.mul.Tensor(aten.unsqueeze.default(values, 1), _wide(aten.index_select.default(other, 0, columns)))
    zeros, at = _zeros(products, height, width), aten.expand.default(aten.unsqueeze.default(rows, 1), [count, width])
    if reduce in ("sum", "mean"):
        found = aten.index_put.default(zeros, [rows], products, True)
        if reduce == "mean":
            found = _means(found, self)
        return in_type(found, other.dtype), none
    found = aten.scatter_reduce.two(zeros, 0, at, products, reduce, include_self=False)
    if not torch.is_grad_enabled() or not (self.requires_grad or other.requires_grad):
        return in_type(found, other.dtype), none
    order = aten.unsqueeze.default(aten.arange.start_step(0, count, device=self.device), 1)
    fill = aten.full.default([height, width], count, dtype=torch.int64, device=self.device)
    equal = aten.eq.Tensor(products, aten.index_select.default(found, 0, rows))
    first = aten.scatter_reduce.two(fill, 0, at, aten.where.self(equal, order, aten.full_like.default(order, count)), "amin")
    nans = aten.where.self(aten.isnan.default(products), order, aten.full_like.default(order, -1))
    last = aten.scatter_reduce.two(aten.full_like.default(fill, -1), 0, at, nans, "amax")
    places = aten.where.self(aten.ge.Scalar(last, 0), last, first)
    return in_type(found, other.dtype), in_type(places, none.dtype)


@rule("aten._sparse_mm_reduce_impl_backward.default", takes_sparse=True)
def _reduced_backward(
    self: Tensor, grad_out: Tensor, weight: Tensor, reduce: str, arg_out: Tensor, output_mask: Sequence[bool]
) -> Any:
    fits = is_matrix(self) and self.layout is torch.sparse_csr and grad_out.layout is weight.layout is torch.strided
    if not fits or reduce not in _REDUCES or not self.dtype is grad_out.dtype is weight.dtype:
        return NotImplemented
    rows, columns, values = _elements(self)
    grads, dense, count = _wide(grad_out), _wide(weight), self._nnz()
    to_self, to_weight = _zeros(dense, count), _zeros(dense, *dense.shape)
    if not count:
        pass
    elif reduce in ("amax", "amin"):
        if arg_out.shape != grads.shape:
            return NotImplemented
        found = aten.lt.Scalar(arg_out, count)  # not in a row without elements
        grads = aten.where.self(found, grads, aten.full.default([], 0, dtype=grads.dtype, device=grads.device))
        flat = aten.reshape.default(aten.where.self(found, arg_out, aten.full_like.default(arg_out, 0)), [-1])
        seats, chosen = (aten.view.default(aten.index_select.default(x, 0, flat), grads.shape) for x in (columns, values))
        each = aten.mul.Tensor(grads, aten.gather.default(dense, 0, seats))
        to_self = aten.index_put.default(to_self, [flat], aten.reshape.default(each, [-1]), True)
        to_weight = aten.scatter_add.default(to_weight, 0, seats, aten.mul.Tensor(grads, chosen))
    else:
        if reduce == "mean":
            grads = _means(grads, self)
        flows = aten.index_select.default(grads, 0, rows)
        to_self = aten.sum.dim_IntList(aten.mul.Tensor(flows, aten.index_select.default(dense, 0, columns)), [1])
        to_weight = aten.index_put.default(to_weight, [columns], aten.mul.Tensor(flows, aten.unsqueeze.default(values, 1)), True)
    return (
        with_compressed_values(self, in_type(to_self, self.dtype)) if output_mask[0] else None,
        in_type(to_weight, weight.dtype) if output_mask[1] else None,
    )
