"""Gather and scatter by comparing positions, for sets without indexing: no prim gathers, scatters or sorts.

Each index is compared with every position of the dimension, so time grows with its size. Memory does not, since results are
computed in blocks. Elements are moved as bits, so zeros keep their signs and NaNs their payloads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import number_like
from eagerdecomp.eager.verdict import Declined

__all__ = ["BLOCK", "along", "combined", "in_blocks", "positions", "check_range", "taken", "writers"]

aten = torch.ops.aten

#: Elements of the largest temporary. A result that needs more is computed in blocks.
BLOCK = 1 << 24

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def along(x: Tensor, dim: int, rank: int) -> Tensor:
    """View a vector along one of `rank` dimensions."""
    shape = [1] * rank
    shape[dim] = x.size(0)
    return aten.view.default(x, shape)  # type: ignore[no-any-return]


def positions(start: int, end: int, like: Tensor) -> Tensor:
    return aten.arange.start_step(start, end, 1, dtype=torch.int64, device=like.device)  # type: ignore[no-any-return]


def in_blocks(make: Callable[[int, int], Tensor], size: int, dim: int, each: int) -> Tensor:
    """Compute ``make(start, end)`` over `size` positions of `dim`, in blocks with temporaries of `each` elements per position."""
    step = max(1, BLOCK // max(1, each))
    if size <= step:
        return make(0, size)
    return aten.cat.default([make(at, min(at + step, size)) for at in range(0, size, step)], dim)  # type: ignore[no-any-return]


def taken(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return the result of `gather` for an index within range, whose other dimensions broadcast with those of `x`."""
    if x.is_conj() or x.is_neg():
        x = aten.clone.default(x)
    if x.dtype is torch.complex128:  # no integer is as wide
        halves = [aten.select.int(aten.view_as_real.default(x), -1, part) for part in (0, 1)]
        joined = aten.stack.default([taken(half, dim, index) for half in halves], -1)
        return aten.view_as_complex.default(joined)  # type: ignore[no-any-return]
    for other in range(index.dim()):  # compare once along a dimension in which the index is expanded
        if other != dim and index.size(other) > 1 and not index.stride(other):
            index = aten.slice.Tensor(index, other, 0, 1)
    integer = _INTEGERS[x.dtype.itemsize]
    bits = x if x.dtype is integer else aten.view.dtype(x, integer)
    low, size, rank = number_like(bits, torch.iinfo(integer).min), x.size(dim), x.dim()
    row, values = along(positions(0, size, x), dim + 1, rank + 1), aten.unsqueeze.default(bits, dim)

    def block(start: int, end: int) -> Tensor:
        part = aten.unsqueeze.default(aten.slice.Tensor(index, dim, start, end), dim + 1)
        return aten.amax.default(aten.where.self(aten.eq.Tensor(part, row), values, low), [dim + 1])  # type: ignore[no-any-return]

    each = max(1, x.numel(), size * (index.numel() // max(1, index.size(dim))))
    found = in_blocks(block, index.size(dim), dim, each)
    return found if x.dtype is integer else aten.view.dtype(found, x.dtype)


def writers(index: Tensor, dim: int, size: int) -> Tensor:
    """Return, for each of `size` positions of `dim`, the last position of `index` that refers to it, or -1."""
    rank, count = index.dim(), index.size(dim)
    column = along(positions(0, count, index), dim, rank + 1)
    named, none = aten.unsqueeze.default(index, dim + 1), number_like(index, -1)

    def block(start: int, end: int) -> Tensor:
        hit = aten.eq.Tensor(named, along(positions(start, end, index), dim + 1, rank + 1))
        return aten.amax.default(aten.where.self(hit, column, none), [dim])  # type: ignore[no-any-return]

    return in_blocks(block, size, dim, index.numel())


def combined(
    index: Tensor, dim: int, size: int, values: Tensor, nothing: float, reduce: Callable[[Tensor, list[int]], Tensor]
) -> Tensor:
    """Reduce, for each of `size` positions of `dim`, the values whose index refers to it. `nothing` is the identity element."""
    rank = values.dim()
    named, moved = aten.unsqueeze.default(index, dim + 1), aten.unsqueeze.default(values, dim + 1)
    blank = number_like(values, nothing)

    def block(start: int, end: int) -> Tensor:
        hit = aten.eq.Tensor(named, along(positions(start, end, index), dim + 1, rank + 1))
        return reduce(aten.where.self(hit, moved, blank), [dim])

    return in_blocks(block, size, dim, values.numel())


def check_range(index: Tensor, size: int, least: int = 0) -> None:
    """Decline the call if an index is out of ``[least, size)``. No kernel of such a set checks it, so the index is read."""
    if index.numel():
        outside = aten.logical_or.default(aten.lt.Scalar(index, least), aten.ge.Scalar(index, size))
        if aten._local_scalar_dense.default(aten.any.default(outside)):
            raise Declined
