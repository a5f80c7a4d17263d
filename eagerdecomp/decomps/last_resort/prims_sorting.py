"""Sorting and indices of extremes for sets of prims. Sorting compares all pairs of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp.decomps.math.one_hot_indexing import along, in_blocks, positions, taken, writers
from eagerdecomp.eager.promotion import WIDE_UNSIGNED, number_like
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


# -- indices of minima and maxima ---------------------------------------------------------------------------------


def _place(self: Tensor, dim: int, extreme: Tensor) -> Tensor:
    """Return the first index along `dim` of the extreme or of a NaN. The dimension is kept with size 1."""
    size = self.size(dim)
    hit = aten.eq.Tensor(self, extreme)
    if self.dtype.is_floating_point:
        hit = aten.logical_or.default(hit, aten.ne.Tensor(self, self))
    place = positions(0, size, self)
    where = aten.where.self(hit, along(place, dim, self.dim()), number_like(place, size))
    return aten.amin.default(where, [dim], True)  # type: ignore[no-any-return]


def _extreme_with_place(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Tensor, dim: int, keepdim: bool = False) -> Any:
        if not self.dim():
            return aten.clone.default(self), aten.full.default([], 0, dtype=torch.int64, device=self.device)
        dim %= self.dim()
        if not self.size(dim):
            return NotImplemented
        where = _place(self, dim, reduce(self, [dim], True))
        found = taken(self, dim, where)  # of zeros and NaNs the one that stands there
        return (found, where) if keepdim else (aten.squeeze.dim(found, dim), aten.squeeze.dim(where, dim))

    return run


def _argument(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if not self.dim():
            return aten.full.default([], 0, dtype=torch.int64, device=self.device)
        given = self if dim is not None else aten.reshape.default(self, [-1])
        along_dim = 0 if dim is None else dim % self.dim()
        if not given.size(along_dim):
            return NotImplemented
        where = _place(given, along_dim, reduce(given, [along_dim], True))
        if dim is None:
            return aten.reshape.default(where, [1] * self.dim() if keepdim else [])
        return where if keepdim else aten.squeeze.dim(where, dim)

    return run


# -- sorting ------------------------------------------------------------------------------------------------------


def _comparable(x: Tensor) -> Tensor:
    """Map uint16, uint32 and uint64, which no kernel compares, to signed integers in the same order."""
    if x.dtype not in WIDE_UNSIGNED:
        return x
    if x.dtype is torch.uint64:
        return aten.bitwise_xor.Scalar(aten.view.dtype(x, torch.int64), torch.iinfo(torch.int64).min)  # type: ignore[no-any-return]
    return aten._to_copy.default(x, dtype=torch.int64)  # type: ignore[no-any-return]


def _order(x: Tensor, dim: int, descending: bool) -> Tensor:
    """Return the stable sort order along `dim`. NaN is the greatest."""
    x, size, rank = _comparable(x), x.size(dim), x.dim()
    first, numbers = (aten.gt if descending else aten.lt).Tensor, x.dtype.is_floating_point
    others = aten.unsqueeze.default(x, dim + 1)
    odd = aten.ne.Tensor(others, others) if numbers else None
    place = along(positions(0, size, x), dim, rank + 1)

    def block(start: int, end: int) -> Tensor:
        """Return how many elements come before each element from `start` to `end`."""
        mine = aten.unsqueeze.default(aten.slice.Tensor(x, dim, start, end), dim)
        before, same = first(others, mine), aten.eq.Tensor(others, mine)
        if odd is not None:
            is_odd = aten.ne.Tensor(mine, mine)
            ahead = (odd, aten.logical_not.default(is_odd)) if descending else (aten.logical_not.default(odd), is_odd)
            before = aten.logical_or.default(before, aten.logical_and.default(*ahead))
            same = aten.logical_or.default(same, aten.logical_and.default(odd, is_odd))
        earlier = aten.lt.Tensor(place, along(positions(start, end, x), dim + 1, rank + 1))
        ahead_of = aten.logical_or.default(before, aten.logical_and.default(same, earlier))
        return aten.sum.dim_IntList(ahead_of, [dim])  # type: ignore[no-any-return]

    return writers(in_blocks(block, size, dim, x.numel()), dim, size)


def _sort(self: Tensor, dim: int = -1, descending: bool = False) -> Any:
    if not self.dim() or not self.numel():
        return aten.clone.default(self), aten.full.default(list(self.shape), 0, dtype=torch.int64, device=self.device)
    dim %= self.dim()
    order = _order(self, dim, descending)
    return taken(self, dim, order), order


@rule("aten.topk.default", recorded=True, source="prims")
def _topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not self.dim():
        return aten.clone.default(self), aten.full.default([], 0, dtype=torch.int64, device=self.device)
    dim %= self.dim()
    if k > self.size(dim):
        return NotImplemented
    if not self.numel() or not k:
        shape = [k if at == dim else size for at, size in enumerate(self.shape)]
        empty = aten.empty.memory_format
        return empty(shape, dtype=self.dtype, device=self.device), empty(shape, dtype=torch.int64, device=self.device)
    order = aten.slice.Tensor(_order(self, dim, largest), dim, 0, k)
    return taken(self, dim, order), aten.clone.default(order, memory_format=torch.contiguous_format)


rule("aten.max.dim", recorded=True, source="prims")(_extreme_with_place(op_called("aten.amax.default")))
rule("aten.min.dim", recorded=True, source="prims")(_extreme_with_place(op_called("aten.amin.default")))
rule("aten.argmax.default", recorded=True, source="prims")(_argument(op_called("aten.amax.default")))
rule("aten.argmin.default", recorded=True, source="prims")(_argument(op_called("aten.amin.default")))
rule("aten.sort.default", recorded=True, source="prims")(_sort)
