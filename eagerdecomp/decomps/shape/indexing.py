"""Gather and scatter by masks, indices and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import HALF, RARE, WIDE_UNSIGNED
from eagerdecomp.eager.strides import broadcast_shapes, inverse, memory_order
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.compute import constant
from eagerdecomp.rules.no_route import IfRouted, NoRoute
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


@rule("aten.masked_select.default")
def _masked_select(self: Tensor, mask: Tensor) -> Any:
    if mask.dtype is not torch.bool:
        return NotImplemented
    shape = broadcast_shapes(mask.shape, self.shape) or [1]
    found = aten.index.Tensor(aten.expand.default(self, shape), [aten.expand.default(mask, shape)])
    return NotImplemented if self.dtype in WIDE_UNSIGNED and found.numel() else found


_GATHER = IfRouted(op_called("aten.gather.default"))


@rule("aten.index_select.default")
def _index_select(self: Tensor, dim: int, at: Tensor) -> Any:
    """Call `index`. It counts negative indices from the end, so clear their sign bit: they are then out of range, as in eager.

    In the second dimension, eager uses another kernel, which raises the errors of `gather`. Call `gather` there if it is supported.
    """
    rank = self.dim()
    bound = max(rank, 1)
    if not -bound <= dim < bound or at.dim() > 1 or (at.dtype is not torch.int64 and at.dtype is not torch.int32):
        return NotImplemented
    if (rank <= 1 and self.dtype in WIDE_UNSIGNED) or (not rank and at.numel() != 1):
        return NotImplemented
    if not rank:
        self = aten.view.default(self, [1])
    if not at.dim():
        at = aten.view.default(at, [1])
    dim %= bound
    if rank > 1 and at.numel() and not self.size(dim):
        return NotImplemented
    if dim == 1 and _GATHER is not None and self.dtype not in RARE:
        if at.dtype is not torch.int64:
            at = aten._to_copy.default(at, dtype=torch.int64)
        picked = [at.size(0) if one == 1 else size for one, size in enumerate(self.shape)]
        return _GATHER(self, 1, aten.expand.default(aten.view.default(at, [1, at.size(0), *[1] * (rank - 2)]), picked))
    found = aten.index.Tensor(self, [*[None] * dim, aten.bitwise_and.Scalar(at, torch.iinfo(at.dtype).max)])
    found = as_contiguous(found)
    return found if rank else aten.view.default(found, [])


@rule("aten.nonzero_static.default")
def _nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Any:
    if size < 0:
        return NotImplemented
    if self.dtype in RARE and (not size or not self.dim()):
        return aten.full.default([size, self.dim()], fill_value, dtype=torch.int64, device=self.device)
    found = aten.nonzero.default(self)
    missing = max(size - found.size(0), 0)
    rest = aten.full.default([missing, self.dim()], fill_value, dtype=torch.int64, device=self.device)
    return aten.cat.default([aten.slice.Tensor(found, 0, 0, size), rest])


@rule("aten.put.default", recorded=True)
def _put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    if index.numel() != source.numel():
        return NotImplemented
    flat = aten.reshape.default(self, [-1])
    written = aten.index_put.default(flat, [aten.reshape.default(index, [-1])], aten.reshape.default(source, [-1]), accumulate)
    shaped, order = aten.view.default(written, list(self.shape)), memory_order(self)
    if order == sorted(order):
        return shaped
    copied = aten.clone.default(aten.permute.default(shaped, order), memory_format=torch.contiguous_format)
    return aten.permute.default(copied, inverse(order))


@rule("aten.index_reduce.default", recorded=True)
def _index_reduce(self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    if self.dim() == 0:
        row = _index_reduce(
            aten.view.default(self, [1]), 0, index, aten.view.default(source, [1]), reduce, include_self=include_self
        )
        return aten.view.default(row, [])
    if reduce == "mean" and self.dtype is torch.bool:
        return NotImplemented if source.numel() else aten.clone.default(self, memory_format=torch.contiguous_format)
    dim %= self.dim()
    rows = aten.view.default(index, [-1 if at == dim else 1 for at in range(self.dim())])
    rows = aten.expand.default(aten._to_copy.default(rows, dtype=torch.int64), list(source.shape))
    return aten.scatter_reduce.two(self, dim, rows, source, reduce, include_self=include_self)


_OLDER_REDUCTIONS = {"add": "sum", "multiply": "prod"}


@rule("aten.scatter.reduce", recorded=True)
def _scatter_reduce(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Any:
    """Compute the old form of `scatter_reduce`."""
    return aten.scatter_reduce.two(self, dim, index, src, _OLDER_REDUCTIONS[reduce])


@rule("aten.scatter.value_reduce", recorded=True)
def _scatter_value_reduce(self: Tensor, dim: int, index: Tensor, value: Any, *, reduce: str) -> Any:
    src = aten.full.default(list(index.shape), value, dtype=self.dtype, device=self.device)
    return _scatter_reduce(self, dim, index, src, reduce=reduce)


@rule("aten.repeat_interleave.Tensor")
def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Any:
    if repeats.dim() != 1 or repeats.dtype not in (torch.int32, torch.int64):
        return NotImplemented
    count, device = repeats.size(0), repeats.device
    if not count:
        return aten.full.default([0], 0, dtype=repeats.dtype, device=device)
    if aten._local_scalar_dense.default(aten.amin.default(repeats)) < 0:
        return NotImplemented
    ends = aten.cumsum.default(repeats, 0)
    total = int(aten._local_scalar_dense.default(aten.select.int(ends, 0, -1)))
    if output_size is not None and output_size != total:
        return NotImplemented
    # The index steps up where an element begins, by more than one if elements before it have no repeats.
    steps = aten.full.default([total + 1], 0, dtype=torch.int64, device=device)
    steps = aten.scatter_add.default(
        steps, 0, aten.slice.Tensor(ends, 0, 0, count - 1), aten.full.default([count - 1], 1, dtype=torch.int64, device=device)
    )
    places = aten.cumsum.default(aten.slice.Tensor(steps, 0, 0, total), 0)
    return places if repeats.dtype is torch.int64 else aten._to_copy.default(places, dtype=repeats.dtype)


@rule("aten.bincount.default")
def _bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    if self.dtype.is_floating_point or self.dtype.is_complex or self.dtype is torch.bool or minlength < 0 or self.dim() != 1:
        return NotImplemented
    if not self.numel():
        return aten.full.default([minlength], 0, dtype=torch.int64, device=self.device)
    if aten._local_scalar_dense.default(aten.amin.default(self)) < 0 or (weights is not None and weights.shape != self.shape):
        return NotImplemented
    size = max(int(aten._local_scalar_dense.default(aten.amax.default(self))) + 1, minlength)
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype is torch.float32 else torch.float64
    if weights is None:
        weights = aten.full.default([self.size(0)], 1, dtype=dtype, device=self.device)
    elif weights.dtype is not dtype:
        weights = aten._to_copy.default(weights, dtype=dtype)
    places = self if self.dtype is torch.int64 else aten._to_copy.default(self, dtype=torch.int64)
    return aten.scatter_add.default(aten.full.default([size], 0, dtype=dtype, device=self.device), 0, places, weights)


def _edges(self: Tensor, least: float, greatest: float) -> tuple[Tensor, Tensor]:
    """Return the range as tensors of the input's dtype; by default the range of the data, widened if it is a single point.

    The range of the data is read, as in eager, because infinite ends must be rejected.
    """
    if least != greatest:
        first, last = (aten.full.default([], edge, dtype=self.dtype, device=self.device) for edge in (least, greatest))
        return first, last
    if not self.numel():
        first = aten.full.default([], 0, dtype=self.dtype, device=self.device)
        last = first
    else:
        first, last = aten.amin.default(self), aten.amax.default(self)
        if not all(math.isfinite(aten._local_scalar_dense.default(edge)) for edge in (first, last)):
            raise Declined
    point = aten.eq.Tensor(first, last)
    low, high = aten.sub.Scalar(first, 1), aten.add.Scalar(last, 1)
    return aten.where.self(point, low, first), aten.where.self(point, high, last)


@rule("aten.histc.default", recorded=True)
def _histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Count by `scatter_add`. Values outside the range, and NaN, add 0 to some bin.

    Only the CPU rejects integers, so other devices support them.
    """
    least, greatest = float(min), float(max)
    dtype, exact = self.dtype, not self.dtype.is_floating_point
    if bins <= 0 or (exact and (dtype is torch.bool or self.device.type == "cpu")):
        return NotImplemented
    if least != greatest:
        held = torch.finfo(dtype) if dtype in HALF else torch.iinfo(dtype) if exact else torch.finfo(torch.float64)
        if not held.min <= least < greatest <= held.max:
            return NotImplemented
    if exact:
        self = aten._to_copy.default(self, dtype=torch.int64)
    self = aten.reshape.default(self, [-1])
    whole = all(edge.is_integer() and abs(edge) <= 2**23 for edge in (least, greatest))
    if least != greatest and whole and self.dtype in (torch.float32, torch.float64):
        # Both edges and their distance are exact as Python numbers.
        shifted = self if least == 0 else aten.sub.Scalar(self, least)
        places = aten.div.Scalar(aten.mul.Scalar(shifted, bins), greatest - least)
        inside = aten.logical_and.default(aten.ge.Scalar(self, least), aten.le.Scalar(self, greatest))
    else:
        first, last = _edges(self, least, greatest)
        shifted = aten.mul.Scalar(aten.sub.Tensor(self, first), bins)
        apart = aten.sub.Tensor(last, first)
        places = aten.div.Tensor_mode(shifted, apart, rounding_mode="trunc") if exact else aten.div.Tensor(shifted, apart)
        inside = aten.logical_and.default(aten.ge.Tensor(self, first), aten.le.Tensor(self, last))
    # The cast of a value outside the range may be any integer. The clamp makes it a valid bin, to which the value adds 0.
    places = aten.clamp.default(aten._to_copy.default(places, dtype=torch.int64), 0, bins - 1)
    worth = aten._to_copy.default(inside, dtype=dtype)
    counts = aten.full.default([bins], 0, dtype=dtype, device=self.device)
    return aten.scatter_add.default(counts, 0, places, worth)


def _rows(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor | None:
    """Return the index expanded to the shape of `source`, as `scatter` takes it; None if the dtypes or shapes do not fit."""
    ours, theirs = self.shape, source.shape
    rank = len(theirs)
    if not index.dim() and rank:  # one place, said in another way
        index = aten.view.default(index, [1])
    if not -rank <= dim < rank or self.dtype is not source.dtype or index.dim() != 1 or index.size(0) != theirs[dim]:
        return None
    if ours != theirs and (len(ours) != rank or any(ours[at] != theirs[at] for at in range(rank) if at != dim % rank)):
        return None
    if index.dtype is not torch.int64:
        if index.dtype is not torch.int32:
            return None
        index = aten._to_copy.default(index, dtype=torch.int64)
    behind = rank - 1 - dim if dim >= 0 else -1 - dim
    if behind == 1:
        index = aten.unsqueeze.default(index, 1)
    elif behind:
        index = aten.view.default(index, [-1, *[1] * behind] if index.numel() else [0, *[1] * behind])
    return index if rank == 1 else aten.expand.default(index, [*theirs])  # of a `torch.Size` the call takes half as long again


def _scatter_by(scatter: OpOverload, self: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """Compute ``scatter(self, dim, index, source)``; complex32 by real and imaginary parts, because no kernel supports it."""
    if self.dtype is not torch.complex32:
        return scatter(self, dim, index, source)
    of_both = aten.expand.default(aten.unsqueeze.default(index, -1), [*source.shape, 2])
    return aten.view_as_complex.default(
        scatter(aten.view_as_real.default(self), dim % source.dim(), of_both, aten.view_as_real.default(source))
    )


def _added_in_steps(self: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> Any:
    """Add ``alpha * source`` at the indices, rounded after each element."""
    if alpha != 1:  # rounded to the dtype first, as a tensor is
        source = aten.mul.Tensor(source, aten.full.default([], alpha, dtype=source.dtype, device=source.device))
    # `index_select` rejects negative indices; `index_put` would count them from the end.
    places = aten.index_select.default(aten.arange.start_step(0, self.size(dim), 1, device=self.device), 0, index)
    if not self.is_contiguous():  # `index_put` would keep its strides
        self = aten.clone.default(self, memory_format=torch.contiguous_format)
    return aten.index_put.default(self, [*[None] * (dim % self.dim()), places], source, True)


_IN_STEPS = IfRouted(_added_in_steps)


@rule("aten.index_add.default")
def _index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    """Use `scatter_add`, which rejects negative indices as eager does; torch's table entry counts them from the end.

    ATen's kernel calls `scatter_add` too, for the first and the last of several dimensions, int64 indices and `alpha=1`. In all
    other calls it rounds the sum after each element. `scatter_add` may sum float16 and bfloat16 in float32 and round once, so these
    dtypes use `index_put`, which rounds as eager does.
    """
    found = _rows(self, dim, index, source)
    if self.dtype is torch.bool and source.dtype is torch.bool and isinstance(alpha, int):
        # `alpha` counts as a bool: False makes all of `source` False, by a comparison that is never true.
        return aten.index_add.default(self, dim, index, source if alpha else aten.gt.Scalar(source, 1))
    if found is None or self.dtype is torch.bool:
        return aten.index_add.default(self, dim, index, source, alpha=alpha)
    rank = self.dim()
    if not self.numel() and rank > 1:  # no row is looked for
        return aten._to_copy.default(self, dtype=self.dtype)
    scatters = rank > 1 and dim in (0, -rank, rank - 1, -1) and alpha == 1 and index.dtype is torch.int64
    if _IN_STEPS is not None and not scatters and self.dtype in HALF and rank:
        try:
            return _IN_STEPS(self, dim, index, source, alpha)
        except NoRoute:  # a set without `index_put`, where the sum is rounded as `scatter_add` does it
            pass
    return _scatter_by(aten.scatter_add.default, self, dim, found, source if alpha == 1 else aten.mul.Scalar(source, alpha))


@rule("aten.take.default")
def _take(self: Tensor, index: Tensor) -> Any:
    """Return a copy for a 0-dim index, where torch's table entry returns a view."""
    if index.dtype is not torch.int64 or (self.dtype in RARE and index.numel()):
        return NotImplemented
    flat = aten.view.default(self, [-1]) if self.is_contiguous() else aten.reshape.default(self, [-1])
    if index.is_contiguous():
        return aten.index.Tensor(flat, [index])
    return aten.view.default(aten.index.Tensor(flat, [aten.reshape.default(index, [-1])]), list(index.shape))


@rule("aten._index_put_impl.default", recorded=True)
def _put_unchecked(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Any:
    """Compute the op that autograd calls for the gradient of indexing. `unsafe` only permits omitting checks."""
    return aten.index_put.default(self, indices, values, accumulate)


def _clamped(x: Tensor, mask: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None] | None:
    """Return the indices clamped to the elements of `x`; None where eager refuses them or nothing can be picked."""
    given = [at for at in indices if at is not None]
    if mask.dtype is not torch.bool or not x.numel() or any(at.dtype not in (torch.int64, torch.int32) for at in given):
        return None
    return [None if at is None else aten.clamp.default(at, -x.size(dim), x.size(dim) - 1) for dim, at in enumerate(indices)]


@rule("aten._unsafe_masked_index.default", recorded=True)
def _unsafe_masked_index(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any) -> Any:
    """Leave the caller's list of indices as it is, which torch's entry changes."""
    clamped = _clamped(self, mask, indices)
    if clamped is None:
        return NotImplemented
    return aten.masked_fill.Scalar(aten._unsafe_index.Tensor(self, clamped), aten.logical_not.default(mask), fill)


@rule("aten._unsafe_masked_index_put_accumulate.default", recorded=True)
def _unsafe_masked_index_put_accumulate(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> Any:
    clamped = _clamped(self, mask, indices)
    if clamped is None:
        return NotImplemented
    added = aten.masked_fill.Scalar(values, aten.logical_not.default(mask), 0)
    return aten._unsafe_index_put.default(self, clamped, added, True)


def _index_fill(op: OpOverload) -> None:
    @rule(op)
    def index_fill(self: Tensor, dim: int, index: Tensor, value: Any) -> Any:
        rank = self.dim()
        if index.dtype is not torch.int64 or index.dim() > 1 or not -(rank or 1) <= dim < (rank or 1) or not self.numel():
            return op(self, dim, index, value)
        if isinstance(value, Tensor):
            if value.dim() or value.device != self.device or (value.dtype.is_complex and not self.dtype.is_complex):
                return op(self, dim, index, value)
            if value.dtype is not self.dtype:
                value = aten._to_copy.default(value, dtype=self.dtype)
        elif isinstance(value, complex):
            return op(self, dim, index, value)
        else:
            value = constant(self, value)
        if not rank:
            return aten.view.default(aten.index_put.default(aten.view.default(self, [1]), [index], value), [])
        return aten.index_put.default(self, [None] * (dim % rank) + [index], value)


_index_fill(op_called("aten.index_fill.int_Scalar"))
_index_fill(op_called("aten.index_fill.int_Tensor"))


@rule("aten._rowwise_prune.default", recorded=True)
def _rowwise_prune(weight: Tensor, mask: Tensor, compressed_indices_dtype: torch.dtype) -> Any:
    """Return the rows that the mask keeps, and for each row its position among them, or -1."""
    if mask.numel() != weight.size(0):
        return NotImplemented
    places = aten.sub.Scalar(aten.cumsum.default(aten._to_copy.default(mask, dtype=torch.int64), 0), 1)
    gone = aten.full.default([], -1, dtype=torch.int64, device=mask.device)
    places = aten._to_copy.default(aten.where.self(mask, places, gone), dtype=compressed_indices_dtype)
    return aten.index.Tensor(weight, [mask]), places
