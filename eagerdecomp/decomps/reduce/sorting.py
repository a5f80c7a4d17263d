"""Stable sorts, unique values, modes and binary search. They call `sort.default`, which need not be stable."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import computed_in, in_type
from eagerdecomp.eager.scalars import cast_number
from eagerdecomp.eager.strides import inverse, memory_order
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

# Eager sorts rows up to this length by insertion, so the positions of NaNs in its result are known.
_INSERTED = 16


def _positions(length: int, like: Tensor) -> Any:
    return aten.arange.start_step(0, length, 1, device=like.device)


def _differs_from_previous(ordered: Tensor, dim: int, *, nan_equal: bool) -> Any:
    """Return, for each position after the first along `dim`, whether its value differs from the previous one."""
    length = ordered.size(dim)
    later, earlier = aten.slice.Tensor(ordered, dim, 1, length), aten.slice.Tensor(ordered, dim, 0, length - 1)
    differs = aten.ne.Tensor(later, earlier)
    if nan_equal and ordered.dtype.is_floating_point:
        both = aten.logical_and.default(aten.isnan.default(later), aten.isnan.default(earlier))
        differs = aten.logical_and.default(differs, aten.logical_not.default(both))
    return differs


def _first_column(like: Tensor, dim: int, value: Any, dtype: torch.dtype) -> Any:
    shape = [1 if at == dim else size for at, size in enumerate(like.shape)]
    return aten.full.default(shape, value, dtype=dtype, device=like.device)


def _runs(ordered: Tensor, dim: int, *, nan_equal: bool) -> Any:
    """Return the run number of each position of a sorted tensor. Equal values form a run."""
    starts = _differs_from_previous(ordered, dim, nan_equal=nan_equal)
    starts = aten._to_copy.default(starts, dtype=torch.int64)
    return aten.cumsum.default(aten.cat.default([_first_column(ordered, dim, 0, torch.int64), starts], dim), dim)


def _in_memory_order_of(x: Tensor, like: Tensor) -> Any:
    order = memory_order(like)
    if order == sorted(order):
        return x
    copied = aten.clone.default(aten.permute.default(x, order), memory_format=torch.contiguous_format)
    return aten.permute.default(copied, inverse(order))


@rule("aten.sort.stable", recorded=True)
def _stable_sort(self: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    """Sort stably by a second sort, of the unique keys ``run number * length + index``."""
    if not stable or self.dim() == 0 or self.size(dim) < 2:
        return aten.sort.default(self, dim, descending)
    dim %= self.dim()
    length = self.size(dim)
    ordered, places = aten.sort.default(self, dim, descending)
    keys = aten.add.Tensor(aten.mul.Scalar(_runs(ordered, dim, nan_equal=True), length), places)
    indices = aten.remainder.Scalar(aten.sort.default(keys, dim)[0], length)
    # Zeros of both signs are equal, so gather the values again in the final order.
    values = aten.gather.default(self, dim, indices) if self.dtype.is_floating_point else ordered
    return _in_memory_order_of(values, self), _in_memory_order_of(indices, self)


@rule("aten.mode.default", recorded=True)
def _mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the most frequent value (the smallest, if there are several) and the last index at which it occurs."""
    if self.dim() and not self.numel():
        return _mode_of_none(self, dim % self.dim(), keepdim)
    if self.dim() == 0:
        return aten.clone.default(self), aten.full.default([], 0, dtype=torch.int64, device=self.device)
    dim %= self.dim()
    length = self.size(dim)
    if self.dtype.is_floating_point and length <= _INSERTED:
        return _mode_of_few(self, dim, keepdim)
    ordered, _ = aten.sort.default(self, dim)
    runs = _runs(ordered, dim, nan_equal=False)
    none = aten.full.default(list(self.shape), 0, dtype=torch.int64, device=self.device)
    counts = aten.scatter_add.default(none, dim, runs, aten.full_like.default(runs, 1))
    counts = aten.gather.default(counts, dim, runs)
    # Among equal counts the earliest position wins. No two keys are equal.
    row = [length if at == dim else 1 for at in range(self.dim())]
    places = aten.view.default(_positions(length, self), row)
    best = aten.argmax.default(aten.sub.Tensor(aten.mul.Scalar(counts, length), places), dim, True)
    value = aten.gather.default(ordered, dim, best)
    least = aten.full.default([], -1, dtype=torch.int64, device=self.device)
    index = aten.argmax.default(aten.where.self(aten.eq.Tensor(self, value), places, least), dim, True)
    if self.dtype.is_floating_point:  # zeros of both signs are equal: that of the place
        found = aten.gather.default(self, dim, index)
        value = aten.where.self(aten.eq.Tensor(found, value), found, value)
    return (value, index) if keepdim else (aten.squeeze.dim(value, dim), aten.squeeze.dim(index, dim))


def _mode_of_few(self: Tensor, dim: int, keepdim: bool) -> Any:
    """Return the mode of short rows, NaN included, by comparing all pairs of elements.

    Eager sorts such rows by insertion. An element less than the first one moves to the front. Any other moves down while it is less
    than its neighbour, so never past a NaN. Equal elements without a NaN between them form a run; each NaN is a run.
    """
    x = self
    if dim != self.dim() - 1:
        x = aten.permute.default(x, [*(at for at in range(self.dim()) if at != dim), dim])
    x = as_contiguous(x)
    nan = aten.isnan.default(x)
    nans = aten._to_copy.default(nan, dtype=torch.int64)
    mine, other = _each_with_each(x)
    places = _positions(x.size(-1), x)
    later, earlier = _each_with_each(places)
    behind = aten.any.dim(aten.logical_and.default(aten.ge.Tensor(mine, other), aten.gt.Tensor(later, earlier)), -1)
    stays = aten.logical_or.default(behind, aten.logical_or.default(nan, aten.slice.Tensor(nan, -1, 0, 1)))
    # The part of an element: the number of NaNs before it, or 0 if it moves to the front.
    part = aten.mul.Tensor(aten.sub.Tensor(aten.cumsum.default(nans, -1), nans), stays)
    together = aten.logical_and.default(aten.eq.Tensor(mine, other), aten.eq.Tensor(*_each_with_each(part)))
    counts = aten.clamp.default(aten.sum.dim_IntList(together, [-1]), 1)
    # Rank by count, then by earliest part, then by smallest value. A NaN ends its part.
    rank = aten.sub.Tensor(aten.mul.Scalar(counts, 4 * _INSERTED), aten.add.Tensor(nans, part, alpha=2))
    my_rank, other_rank = _each_with_each(rank)
    less = aten.logical_and.default(aten.eq.Tensor(other_rank, my_rank), aten.lt.Tensor(other, mine))
    beaten = aten.any.dim(aten.logical_or.default(aten.gt.Tensor(other_rank, my_rank), less), -1)
    none = aten.full.default([], -1, dtype=torch.int64, device=self.device)
    index = aten.amax.default(aten.where.self(beaten, none, places), [-1])
    value = aten.squeeze.dim(aten.gather.default(x, -1, aten.unsqueeze.default(index, -1)), -1)
    return (aten.unsqueeze.default(value, dim), aten.unsqueeze.default(index, dim)) if keepdim else (value, index)


def _each_with_each(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return two views that broadcast each element along the last dimension against each other element."""
    return aten.unsqueeze.default(x, -1), aten.unsqueeze.default(x, -2)


def _mode_of_none(self: Tensor, dim: int, keepdim: bool) -> Any:
    """Return the empty results of a tensor without rows."""
    if not self.size(dim):
        return NotImplemented
    shape = [1 if at == dim else size for at, size in enumerate(self.shape) if keepdim or at != dim]
    return tuple(aten.full.default(shape, 0, dtype=dtype, device=self.device) for dtype in (self.dtype, torch.int64))


# -- uniqueness -----------------------------------------------------------------------------------------------------------


def _distinct(ordered: Tensor, numbered: bool, counted: bool) -> tuple[Tensor, Any, Any]:
    """Return the value of each run of a flat tensor, each element's run number, and each run's length.

    Run numbers are None without `numbered`, lengths are None without `counted`.
    """
    length, device = ordered.size(0), ordered.device
    first = aten.full.default([min(length, 1)], True, dtype=torch.bool, device=device)
    starts = (
        aten.cat.default(
            [first, aten.ne.Tensor(aten.slice.Tensor(ordered, 0, 1, length), aten.slice.Tensor(ordered, 0, 0, length - 1))]
        )
        if length
        else first
    )
    values = aten.index.Tensor(ordered, [starts])
    runs = aten.sub.Scalar(aten.cumsum.default(aten._to_copy.default(starts, dtype=torch.int64), 0), 1) if numbered else None
    counts = None
    if counted:
        at = aten.view.default(aten.nonzero.default(starts), [-1])
        ends = aten.cat.default(
            [aten.slice.Tensor(at, 0, 1, 2**63 - 1), aten.full.default([min(length, 1)], length, dtype=torch.int64, device=device)]
        )
        counts = aten.sub.Tensor(ends, at)
    return values, runs, counts


@rule("aten._unique2.default")
def _unique2(self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    if self.dtype.is_complex:
        return NotImplemented
    ordered, places = aten.sort.default(aten.reshape.default(self, [-1]))
    values, runs, counts = _distinct(ordered, return_inverse, return_counts)
    absent = None if return_inverse and return_counts else aten.full.default([0], 0, dtype=torch.int64, device=self.device)
    if return_inverse:
        runs = aten.view.default(
            aten.scatter.src(aten.full.default([self.numel()], 0, dtype=torch.int64, device=self.device), 0, places, runs),
            list(self.shape),
        )
    return values, runs if return_inverse else absent, counts if return_counts else absent


@rule("aten._unique.default")
def _unique(self: Tensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    return NotImplemented if self.dtype.is_complex else _unique2(self, sorted, return_inverse)[:2]


@rule("aten.unique_consecutive.default")
def _unique_consecutive(self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    if dim is not None:
        return _distinct_slices(self, dim, in_order=False)
    if self.dtype.is_complex:
        return NotImplemented
    values, runs, counts = _distinct(aten.reshape.default(self, [-1]), return_inverse, return_counts)
    inverse, numbers = aten.view.default(runs, list(self.shape)) if return_inverse else None, counts if return_counts else None
    found = (
        one if one is not None else aten.full.default([0], 0, dtype=torch.int64, device=self.device) for one in (inverse, numbers)
    )
    return values, *found


def _distinct_slices(self: Tensor, dim: int, in_order: bool) -> Any:
    """Return the distinct slices along a dimension, each slice's index among them, and their counts.

    Without `in_order`, only equal neighbours are merged. With it, slices are sorted first: one stable sort per element of a slice,
    from the last to the first, some 12 kernel calls each.
    """
    length, device = self.size(dim), self.device  # raises for the dimensions that eager refuses
    if self.dtype.is_complex or (0 in self.shape and (length or list(self.shape).count(0) > 1)):
        return NotImplemented
    dim %= self.dim()
    if not length:
        return aten.clone.default(self), *(aten.full.default([0], 0, dtype=torch.int64, device=device) for _ in range(2))
    forth = [dim, *(at for at in range(self.dim()) if at != dim)]
    moved = aten.permute.default(self, forth)
    rows = aten.reshape.default(moved, [length, -1])
    order = aten.arange.start_step(0, length, 1, device=device)
    if in_order:
        for column in reversed(range(rows.size(1))):
            order = aten.index_select.default(
                order, 0, aten.sort.stable(aten.index.Tensor(aten.select.int(rows, 1, column), [order]), stable=True, dim=0)[1]
            )
        rows = aten.index.Tensor(rows, [order])  # which unlike `index_select` takes the wide unsigned types
    starts = aten.any.dim(aten.ne.Tensor(aten.slice.Tensor(rows, 0, 1, length), aten.slice.Tensor(rows, 0, 0, length - 1)), 1)
    starts = aten.cat.default([aten.full.default([1], True, dtype=torch.bool, device=device), starts])
    at = aten.cat.default(
        [aten.view.default(aten.nonzero.default(starts), [-1]), aten.full.default([1], length, dtype=torch.int64, device=device)]
    )
    counts = aten.sub.Tensor(aten.slice.Tensor(at, 0, 1, 2**63 - 1), aten.slice.Tensor(at, 0, 0, -1))
    runs = aten.sub.Scalar(aten.cumsum.default(aten._to_copy.default(starts, dtype=torch.int64), 0), 1)
    runs = aten.scatter.src(aten.full.default([length], 0, dtype=torch.int64, device=device), 0, order, runs)
    values = aten.view.default(aten.index.Tensor(rows, [starts]), [-1, *moved.shape[1:]])
    return aten.permute.default(values, inverse(forth)), runs, counts


@rule("aten.unique_dim.default")
def _unique_dim(self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return _distinct_slices(self, dim, in_order=True)


@rule("aten.unique_dim_consecutive.default")
def _unique_dim_consecutive(self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return _distinct_slices(self, dim, in_order=False)


# -- search ---------------------------------------------------------------------------------------------------------------


@rule("aten.searchsorted.Tensor", recorded=True)
def _searchsorted(
    sorted_sequence: Tensor,
    self: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            return NotImplemented
        sorted_sequence = aten.gather.default(sorted_sequence, -1, sorter)
    dtype = torch.result_type(sorted_sequence, self)
    sorted_sequence, self = in_type(sorted_sequence, dtype), in_type(self, dtype)
    reached = aten.gt.Tensor if right or side == "right" else aten.ge.Tensor
    length = sorted_sequence.size(-1)
    whole_row = sorted_sequence.dim() == 1
    if not whole_row and sorted_sequence.shape[:-1] != self.shape[:-1]:
        return NotImplemented
    values = aten.reshape.default(self, [-1]) if whole_row else self
    if not self.numel() or not length:
        result = aten.full.default(list(self.shape), 0, dtype=torch.int64, device=self.device)
    else:
        result = _halving(sorted_sequence, values, reached, length)
    result = aten.reshape.default(result, list(self.shape))
    return aten._to_copy.default(result, dtype=torch.int32) if out_int32 else result


def _halving(row: Tensor, values: Tensor, reached: Any, length: int) -> Any:
    """Run eager's binary search probe by probe.

    For rows that are not sorted or contain NaN, the result depends on which elements are probed.
    """
    start = aten.full.default(list(values.shape), 0, dtype=torch.int64, device=values.device)
    end = aten.full.default(list(values.shape), length, dtype=torch.int64, device=values.device)
    parts, last = 1, False
    while not last:
        last = 2 * parts > length
        middle = aten.div.Scalar_mode(aten.add.Tensor(start, end), 2, rounding_mode="trunc")
        place = aten.clamp.default(middle, None, length - 1) if last else middle
        seen = reached(aten.gather.default(row, -1, place), values)
        if last:  # the only probe before which some are through
            seen = aten.logical_or.default(seen, aten.ge.Tensor(middle, end))
        start = aten.where.self(seen, start, aten.add.Scalar(middle, 1))
        end = end if last else aten.where.self(seen, middle, end)
        parts *= 2
    return start


@rule("aten.searchsorted.Scalar", recorded=True)
def _searchsorted_scalar(sorted_sequence: Tensor, self: Any, **options: Any) -> Any:
    """Convert the scalar to the dtype of the boundaries if it is of their kind: for uint8 boundaries, -1 is 255."""
    kept = _computed_in(sorted_sequence.dtype, self)
    if kept.is_floating_point:
        number = aten.full.default([], cast_number(float(self), kept), dtype=kept, device=sorted_sequence.device)
    else:
        number = in_type(aten.full.default([], self, dtype=torch.int64, device=sorted_sequence.device), kept)
    if sorted_sequence.dtype is not kept:
        sorted_sequence = aten._to_copy.default(sorted_sequence, dtype=kept)
    return _searchsorted(sorted_sequence, number, **options)


def _computed_in(dtype: torch.dtype, number: Any) -> torch.dtype:
    if dtype.is_floating_point or dtype.is_complex:
        return dtype
    if isinstance(number, float):
        return torch.get_default_dtype()
    return torch.int64 if dtype is torch.bool and not isinstance(number, bool) else dtype


@rule("aten.bucketize.Tensor", "aten.bucketize.Scalar", recorded=True)
def _bucketize(self: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    if boundaries.dim() != 1:
        return NotImplemented
    search = _searchsorted if isinstance(self, Tensor) else _searchsorted_scalar
    return search(boundaries, self, out_int32=out_int32, right=right)


@rule("aten.isin.Tensor_Scalar")
def _isin_number(elements: Tensor, test_element: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    if elements.is_complex() or elements.dtype is torch.bool or isinstance(test_element, (bool, complex)):
        return NotImplemented
    found = aten.ne.Scalar(elements, test_element) if invert else aten.eq.Scalar(elements, test_element)
    return as_contiguous(found)


@rule("aten.isin.Tensor_Tensor", recorded=True)
def _isin(elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return membership with NaN equal to nothing.

    torch's decomposition searches sorted values, which NaN misleads. Here the search sees infinity instead of NaN.
    """
    if assume_unique or not test_elements.dtype.is_floating_point or test_elements.numel() < 10 * elements.numel() ** 0.145:
        return NotImplemented
    dtype = computed_in((elements, test_elements))
    if dtype is None or not elements.numel():
        return NotImplemented
    sought, found = in_type(elements, dtype), in_type(test_elements, dtype)
    found, _ = aten.sort.default(aten.reshape.default(found, [-1]))
    ends = aten.full.default([], float("inf"), dtype=dtype, device=found.device)
    ordered = aten.where.self(aten.isnan.default(found), ends, found)
    flat = aten.clone.default(aten.reshape.default(sought, [-1]), memory_format=torch.contiguous_format)
    place = aten.clamp.default(aten.searchsorted.Tensor(ordered, flat), None, found.numel() - 1)
    same = (aten.ne if invert else aten.eq).Tensor(aten.index_select.default(found, 0, place), flat)
    return aten.view.default(same, list(elements.shape))
