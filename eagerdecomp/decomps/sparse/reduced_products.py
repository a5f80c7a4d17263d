"""The product of a CSR matrix and a dense one whose rows are sums, means or extremes: ``torch.sparse.mm(csr, dense, "mean")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.sparse.compressed import as_coo, is_matrix, with_compressed_values
from eagerdecomp.decomps.sparse.parts import retyped
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_REDUCES = ("sum", "mean", "amax", "amin")


def _elements(self: Tensor) -> tuple[Any, Any, Any]:
    """Return the rows, the columns and the values of a CSR matrix; float16 and bfloat16 as float32, in which eager computes."""
    indices, values = aten._indices.default(as_coo(self)), aten.values.default(self)
    return aten.select.int(indices, 0, 0), aten.select.int(indices, 0, 1), _wide(values)


def _wide(x: Tensor) -> Any:
    return retyped(x, torch.float32) if x.dtype in HALF else x


def _counts(self: Tensor) -> Any:
    """Return the number of elements of each row, at least 1, as numbers of the matrix's (wide) dtype."""
    ends = aten.crow_indices.default(self)
    counts = aten.sub.Tensor(aten.slice.Tensor(ends, 0, 1), aten.slice.Tensor(ends, 0, 0, -1))
    return retyped(aten.clamp.default(counts, 1), torch.float32 if self.dtype in HALF else self.dtype)


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
            found = aten.div.Tensor(found, aten.unsqueeze.default(_counts(self), 1))
        return retyped(found, other.dtype), none
    found = aten.scatter_reduce.two(zeros, 0, at, products, reduce, include_self=False)
    if not torch.is_grad_enabled() or not (self.requires_grad or other.requires_grad):
        return retyped(found, other.dtype), none
    order = aten.unsqueeze.default(aten.arange.start_step(0, count, device=self.device), 1)
    fill = aten.full.default([height, width], count, dtype=torch.int64, device=self.device)
    equal = aten.eq.Tensor(products, aten.index_select.default(found, 0, rows))
    first = aten.scatter_reduce.two(fill, 0, at, aten.where.self(equal, order, aten.full_like.default(order, count)), "amin")
    nans = aten.where.self(aten.isnan.default(products), order, aten.full_like.default(order, -1))
    last = aten.scatter_reduce.two(aten.full_like.default(fill, -1), 0, at, nans, "amax")
    places = aten.where.self(aten.ge.Scalar(last, 0), last, first)
    return retyped(found, other.dtype), retyped(places, none.dtype)


@rule("aten._sparse_mm_reduce_impl_backward.default", takes_sparse=True)
def _reduced_backward(
    self: Tensor, grad_out: Tensor, weight: Tensor, reduce: str, arg_out: Tensor, output_mask: Sequence[bool]
) -> Any:
    fits = is_matrix(self) and self.layout is torch.sparse_csr and grad_out.layout is weight.layout is torch.strided
    if not fits or reduce not in _REDUCES or not self.dtype is grad_out.dtype is weight.dtype:
        return NotImplemented
    rows, columns, values = _elements(self)
    grads, dense = _wide(grad_out), _wide(weight)
    if reduce == "mean":
        grads = aten.div.Tensor(grads, aten.unsqueeze.default(_counts(self), 1))
    # The gradient that flows to each element, per column of the result: of an extreme, only to the element that gave it.
    flows = aten.index_select.default(grads, 0, rows)
    if reduce in ("amax", "amin"):
        order = aten.unsqueeze.default(aten.arange.start_step(0, rows.shape[0], device=self.device), 1)
        chosen = aten.eq.Tensor(aten.index_select.default(arg_out, 0, rows), order)
        flows = aten.where.self(chosen, flows, aten.full.default([], 0, dtype=flows.dtype, device=flows.device))
    to_self = to_weight = None
    if output_mask[0]:
        each = aten.sum.dim_IntList(aten.mul.Tensor(flows, aten.index_select.default(dense, 0, columns)), [1])
        to_self = with_compressed_values(self, retyped(each, self.dtype))
    if output_mask[1]:
        zeros = _zeros(dense, *dense.shape)
        each = aten.mul.Tensor(flows, aten.unsqueeze.default(values, 1))
        to_weight = retyped(aten.index_put.default(zeros, [columns], each, True), weight.dtype)
    return to_self, to_weight
