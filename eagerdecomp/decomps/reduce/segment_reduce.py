"""Reductions of consecutive segments, and their gradients.

Data is viewed as [batch, positions, inner]. Each position gets the number of its segment, counted from 1: the cumulative sum of
ones at the segments' offsets. Positions before the first segment get 0, positions after the last one get ``count + 1``; both are
cut off. The rest is a scatter to these numbers, or a gather from them.

Unless the call is ``unsafe``, lengths must be non-negative and sum to the size of the axis, and offsets must not decrease in any
call. Eager reads them to check this. The linked rule reads them too, and then calls the op with ``unsafe=True``; the recorded rule
decomposes only that call, which ignores positions outside all segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.eager.promotion import in_type, widened
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.ops.passthrough import READ
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: For each reduction: the `reduce` argument of `scatter_reduce`, and the initial value.
_REDUCTIONS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "prod": ("prod", 1.0),
    "max": ("amax", -math.inf),
    "amax": ("amax", -math.inf),
    "min": ("amin", math.inf),
    "amin": ("amin", math.inf),
}


@dataclass(frozen=True)
class _Segments:
    """The segments of a call: each position's segment number, [batch, positions, inner], and the lengths, [batch, count, 1]."""

    shape: tuple[int, int, int]
    count: int
    numbers: Tensor
    lengths: Tensor

    def flat(self, data: Tensor) -> Tensor:
        return widened(aten.reshape.default(data, list(self.shape)))

    def scattered(self, values: Tensor, how: str, start: float) -> Tensor:
        """Reduce `values` by segment number, including the numbers 0 and ``count + 1`` outside all segments."""
        batch, _, inner = self.shape
        room = aten.full.default([batch, self.count + 2, inner], start, dtype=values.dtype, device=values.device)
        return aten.scatter_reduce.two(room, 1, self.numbers, values, how)  # type: ignore[no-any-return]

    def spread(self, numbered: Tensor) -> Tensor:
        """Gather to each position the value of its segment."""
        return aten.gather.default(numbered, 1, self.numbers)  # type: ignore[no-any-return]

    def numbered(self, results: Tensor) -> Tensor:
        """Widen results per segment, and pad them with 0 for the numbers 0 and ``count + 1``, so that `spread` can index them."""
        batch, _, inner = self.shape
        wide = widened(aten.reshape.default(results, [batch, self.count, inner]))
        return aten.constant_pad_nd.default(wide, [0, 0, 1, 1])  # type: ignore[no-any-return]


def _segments(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> _Segments:
    batch, inner = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    places = data.size(axis)
    bounds = lengths if offsets is None else offsets
    if bounds is None or bounds.shape[:axis] != data.shape[:axis]:
        raise Declined
    sizes = bounds = aten.reshape.default(bounds, [batch, bounds.size(-1)])
    if offsets is None:
        bounds = aten.constant_pad_nd.default(aten.cumsum.default(sizes, 1), [1, 0])
    else:
        sizes = aten.sub.Tensor(aten.slice.Tensor(bounds, 1, 1), aten.slice.Tensor(bounds, 1, 0, -1))
    count = sizes.size(1)
    options = {"dtype": torch.int64, "device": data.device}
    marks = aten.full.default([batch, places + 1], 0, **options)
    ones = aten.full.default([batch, count + 1], 1, **options)
    marks = aten.scatter_add.default(marks, 1, in_type(bounds, torch.int64), ones)
    numbers = aten.slice.Tensor(aten.cumsum.default(marks, 1), 1, 0, places)
    numbers = aten.expand.default(aten.unsqueeze.default(numbers, 2), [batch, places, inner])
    return _Segments((batch, places, inner), count, numbers, aten.unsqueeze.default(sizes, 2))


@rule("aten.segment_reduce.default")
def _checked_segment_reduce(
    data: Tensor, reduce: str, *, lengths: Any = None, offsets: Any = None, axis: int = 0, unsafe: bool = False, **rest: Any
) -> Any:
    if not unsafe and offsets is None and lengths is not None:
        sums = aten.sum.dim_IntList(lengths, [-1])
        if READ(aten.amin.default(lengths)) <= -1 or READ(aten.any.default(aten.ne.Scalar(sums, data.size(axis)))):
            return NotImplemented
    if offsets is not None and offsets.numel() > 1 and offsets.size(-1) > 1:
        sizes = aten.sub.Tensor(aten.slice.Tensor(offsets, -1, 1), aten.slice.Tensor(offsets, -1, 0, -1))
        if READ(aten.amin.default(sizes)) <= -1:
            raise RuntimeError("a segment ends before it begins")
    return aten.segment_reduce.default(data, reduce, lengths=lengths, offsets=offsets, axis=axis, unsafe=True, **rest)


@rule("aten.segment_reduce.default", by_schema=True)
def _segment_reduce(call: Any) -> Any:
    data, initial = call.data, call.initial
    if not call.unsafe if call.offsets is None else not call.offsets.size(-1):
        return NotImplemented
    axis = call.axis % data.dim()
    how, start = _REDUCTIONS[call.reduce]
    segments = _segments(data, call.lengths, call.offsets, axis)
    result = segments.scattered(segments.flat(data), how, start if initial is None else float(initial))
    result = aten.clone.default(aten.slice.Tensor(result, 1, 1, segments.count + 1), memory_format=torch.contiguous_format)
    if call.reduce == "mean":  # the mean of an empty segment is NaN or `initial`
        sizes = segments.lengths if initial is None else aten.clamp.default(segments.lengths, 1)
        result = aten.div.Tensor(result, sizes)
    shape = [*data.shape[:axis], segments.count, *data.shape[axis + 1 :]]
    return in_format_of(in_type(aten.reshape.default(result, shape), data.dtype), None)


@rule("aten._segment_reduce_backward.default", by_schema=True)
def _segment_reduce_backward(call: Any) -> Any:
    data = call.data
    how, _ = _REDUCTIONS[call.reduce]
    segments = _segments(data, call.lengths, call.offsets, call.axis % data.dim())
    gradient = _GRADIENTS["mean" if call.reduce == "mean" else how]
    result = gradient(segments, segments.numbered(call.grad), call.output, data, call.initial)
    return in_format_of(in_type(aten.reshape.default(result, list(data.shape)), data.dtype), None)


def _of_sum(segments: _Segments, grad: Tensor, output: Tensor, data: Tensor, initial: Any) -> Tensor:
    return segments.spread(grad)


def _of_mean(segments: _Segments, grad: Tensor, output: Tensor, data: Tensor, initial: Any) -> Tensor:
    return segments.spread(aten.div.Tensor(grad, aten.constant_pad_nd.default(segments.lengths, [0, 0, 1, 1], 1)))


def _of_extremum(segments: _Segments, grad: Tensor, output: Tensor, data: Tensor, initial: Any) -> Tensor:
    """Share the gradient among equal values as eager does: a positive one is divided, a negative one is given to each in full."""
    values = segments.flat(data)
    hit = aten.logical_or.default(aten.eq.Tensor(values, segments.spread(segments.numbered(output))), aten.isnan.default(values))
    zero = aten.full.default([], 0, dtype=values.dtype, device=values.device)
    share = aten.where.self(hit, segments.spread(grad), zero)
    hits = segments.spread(segments.scattered(in_type(hit, values.dtype), "sum", 0))
    return aten.where.self(aten.gt.Scalar(share, 0), aten.div.Tensor(share, hits), share)  # type: ignore[no-any-return]


def _of_product(segments: _Segments, grad: Tensor, output: Tensor, data: Tensor, initial: Any) -> Tensor:
    """Return ``grad * output / value``; for values 0 and NaN, the gradient times the product of the other elements.

    Further zeros or NaNs in the segment make that product 0 or NaN.
    """
    values = segments.flat(data)
    scalar = {"dtype": values.dtype, "device": values.device}
    one = aten.full.default([], 1, **scalar)
    product = segments.scattered
    zeros, nans = aten.eq.Scalar(values, 0), aten.isnan.default(values)
    apart = aten.logical_or.default(zeros, nans)
    others = product(aten.where.self(apart, one, values), "prod", 1.0 if initial is None else float(initial))
    exclusive = segments.spread(others)
    for mask, factor in ((zeros, 0.0), (nans, math.nan)):
        counted = in_type(mask, values.dtype)
        further = aten.sub.Tensor(segments.spread(segments.scattered(counted, "sum", 0)), counted)
        value = aten.full.default([], factor, **scalar)
        exclusive = aten.mul.Tensor(exclusive, aten.where.self(aten.gt.Scalar(further, 0), value, one))
    grads = segments.spread(grad)
    divided = segments.spread(aten.mul.Tensor(grad, segments.numbered(output)))
    return aten.where.self(apart, aten.mul.Tensor(grads, exclusive), aten.div.Tensor(divided, values))  # type: ignore[no-any-return]


_GRADIENTS: dict[str, Callable[..., Tensor]] = {
    "sum": _of_sum,
    "mean": _of_mean,
    "amax": _of_extremum,
    "amin": _of_extremum,
    "prod": _of_product,
}
