"""Pooling of boxes of an image (`roi_align`, `roi_pool` and their gradients) as weighted sums of rows (`rows.py`).

Boxes are rows ``[image, x1, y1, x2, y2]``. Coordinates are computed in the input's dtype and in the kernels' order, since
another rounding could choose another pixel. Sums are computed in float32 at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp.decomps.libraries.torchvision.checks import check, check_dtype, check_rois
from eagerdecomp.decomps.libraries.torchvision.rows import (
    as_channels,
    as_rows,
    assemble,
    blocks,
    contiguous,
    gather_rows,
    groups,
    joined,
    padded,
    part,
    scatter_rows,
    take,
)
from eagerdecomp.eager.promotion import in_type, number_like, widened
from eagerdecomp.rules.rule import library_rule

aten = torch.ops.aten

#: The start value of maximum pooling in the kernels; in float16 it is minus infinity.
_LOWEST = -3.4028234663852886e38


class _Pooling(NamedTuple):
    """How a call pools.

    Attributes:
        height: the height of the image; `width` is its width.
        bins: how many bins a box has, in height and width.
        sensitive: each bin reads channels of its own (position-sensitive pooling).
        scale: the factor from box coordinates to pixels.
        ratio: samples per bin and dimension; if 0 or less, as many as the bin has pixels.
        offset: what is subtracted from the boxes' corners, in pixels.
        least_one: boxes are at least one pixel wide and high.
    """

    height: int
    width: int
    bins: tuple[int, int]
    sensitive: bool
    scale: float
    ratio: int = 0
    offset: float = 0.0
    least_one: bool = False

    @property
    def parts(self) -> tuple[int, int]:
        """Return into how many parts the channels are split, for height and width."""
        return self.bins if self.sensitive else (1, 1)


# -- positions ----------------------------------------------------------------------------------------------------


def _column(rois: Tensor, number: int) -> Tensor:
    return aten.slice.Tensor(rois, 1, number, number + 1)  # type: ignore[no-any-return]


def _scaled(rois: Tensor, scale: float) -> Tensor:
    """Return the corners x1, y1, x2, y2 in pixels, [K, 4]. Like the kernels, round the scale to the dtype first."""
    return aten.mul.Tensor(aten.slice.Tensor(rois, 1, 1, 5), number_like(rois, scale))  # type: ignore[no-any-return]


def _first_row(rois: Tensor, how: _Pooling) -> Tensor:
    """Return the first row of the table that a bin reads, [K, PH, PW, 1], or [K, 1, 1, 1] if it is the same for all bins."""
    image = aten.view.default(in_type(_column(rois, 0), torch.int64), [-1, 1, 1, 1])
    area, (high, wide) = how.height * how.width, how.parts
    first = aten.mul.Scalar(image, high * wide * area)
    if not how.sensitive:
        return first  # type: ignore[no-any-return]
    of_bin = aten.arange.start_step(0, high * wide * area, area, dtype=torch.int64, device=rois.device)
    return aten.add.Tensor(first, aten.view.default(of_bin, [1, high, wide, 1]))  # type: ignore[no-any-return]


class _Boxes(NamedTuple):
    """Starts and sizes of boxes, and sizes of their bins, in pixels, [K, 1] each."""

    y: Tensor
    x: Tensor
    height: Tensor
    width: Tensor
    bin_height: Tensor
    bin_width: Tensor


def _boxes(rois: Tensor, how: _Pooling) -> _Boxes:
    corners = _scaled(rois, how.scale)
    if how.offset:
        corners = aten.sub.Scalar(corners, how.offset)
    x, y = aten.slice.Tensor(corners, 1, 0, 1), aten.slice.Tensor(corners, 1, 1, 2)
    sides = aten.sub.Tensor(aten.slice.Tensor(corners, 1, 2, 4), aten.slice.Tensor(corners, 1, 0, 2))
    if how.least_one:
        sides = aten.clamp.default(sides, 1)
    width, height = aten.slice.Tensor(sides, 1, 0, 1), aten.slice.Tensor(sides, 1, 1, 2)
    return _Boxes(y, x, height, width, aten.div.Scalar(height, how.bins[0]), aten.div.Scalar(width, how.bins[1]))


class _SamplePixels(NamedTuple):
    """The two pixels next to each sample along one dimension and their weights, [K, P, 2 * samples].

    `near` marks the samples that are inside the image or at most one pixel outside.
    """

    pixel: Tensor
    weight: Tensor
    near: Tensor


def _axis(start: Tensor, bin_size: Tensor, bins: int, samples: int, size: int) -> _SamplePixels:
    dtype, device, count = start.dtype, start.device, start.shape[0]
    start, bin_size = (aten.view.default(one, [-1, 1, 1]) for one in (start, bin_size))
    number = aten.view.default(aten.arange.start_step(0, bins, 1, dtype=dtype, device=device), [1, -1, 1])
    sample = aten.view.default(aten.arange.start_step(0.5, samples + 0.5, 1, dtype=dtype, device=device), [1, 1, -1])
    within = aten.div.Scalar(aten.mul.Tensor(sample, bin_size), samples)
    place = aten.add.Tensor(aten.add.Tensor(start, aten.mul.Tensor(number, bin_size)), within)
    near = aten.logical_and.default(aten.ge.Scalar(place, -1), aten.le.Scalar(place, size))
    place = aten.where.self(near, aten.clamp.default(place, 0), number_like(place, 0))
    low = aten.clamp.default(aten.trunc.default(place), None, size - 1)
    above = aten.where.self(aten.ge.Scalar(low, size - 1), number_like(place, 0), aten.sub.Tensor(place, low))
    index = in_type(low, torch.int64)
    both = aten.stack.default([index, aten.clamp.default(aten.add.Scalar(index, 1), None, size - 1)], 3)
    weight = aten.stack.default([aten.rsub.Scalar(above, 1), above], 3)
    near = aten.expand.default(aten.unsqueeze.default(near, 3), [-1, -1, -1, 2])
    shape = [count, bins, 2 * samples]
    return _SamplePixels(aten.view.default(both, shape), aten.view.default(weight, shape), aten.reshape.default(near, shape))


def _outer(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """View `y` and `x` so that they broadcast to [K, PH, PW, Y, X]."""
    return (
        aten.unsqueeze.default(aten.unsqueeze.default(y, 2), 4),
        aten.unsqueeze.default(aten.unsqueeze.default(x, 1), 3),
    )


def _samples(rois: Tensor, how: _Pooling, high: int, wide: int, past: int | None) -> tuple[Tensor, Tensor]:
    """Return the rows of the table that each bin reads, and their weights, [K * PH * PW, taps] each.

    Args:
        high: samples of a bin in height; `wide` in width.
        past: the row that samples far from the image read with weight 0. If None, they read the first pixel, like `roi_align`: the
            result is NaN if that pixel is infinite.
    """
    boxes = _boxes(rois, how)
    y = _axis(boxes.y, boxes.bin_height, how.bins[0], high, how.height)
    x = _axis(boxes.x, boxes.bin_width, how.bins[1], wide, how.width)
    rows, columns = _outer(aten.mul.Scalar(y.pixel, how.width), x.pixel)
    near = aten.logical_and.default(*_outer(y.near, x.near))
    first = aten.unsqueeze.default(_first_row(rois, how), 4)
    index = aten.add.Tensor(aten.add.Tensor(rows, columns), first)
    index = aten.where.self(near, index, first if past is None else number_like(index, past))
    weight = aten.where.self(near, aten.mul.Tensor(*_outer(y.weight, x.weight)), number_like(y.weight, 0))
    shape = [rois.shape[0] * how.bins[0] * how.bins[1], 4 * high * wide]
    return aten.view.default(index, shape), widened(aten.view.default(weight, shape))


# -- means of samples: roi_align, ps_roi_align --------------------------------------------------------------------


def _grids(rois: Tensor, how: _Pooling) -> tuple[Tensor, Tensor]:
    """Return the number of samples per bin in height and width, [K] each, for `ratio` 0 or less. NaN counts as 0."""
    boxes = _boxes(rois, how)
    return _whole(aten.ceil.default(boxes.bin_height)), _whole(aten.ceil.default(boxes.bin_width))


def _whole(x: Tensor) -> Tensor:
    number = aten.where.self(aten.isnan.default(x), number_like(x, 0), x)
    limit = 65504 if x.dtype is torch.float16 else (1 << 31) - 128
    return aten.view.default(in_type(aten.clamp.default(number, -limit, limit), torch.int64), [-1])  # type: ignore[no-any-return]


def _per_box(rows: Tensor, how: _Pooling) -> Tensor:
    """Return rows of bins, [K * PH * PW, C], as [K, C, PH, PW]."""
    high, wide = how.bins
    count = rows.shape[0] // (high * wide)
    return contiguous(aten.view.default(rows, [count, high, wide, -1]), [0, 3, 1, 2], [count, rows.shape[1], high, wide])


def _aligned(input: Tensor, rois: Tensor, how: _Pooling, *, empty_is_nan: bool) -> Tensor:
    """Return the mean of the samples of each bin."""
    count, channels = rois.shape[0], input.shape[1] // (how.parts[0] * how.parts[1])
    if not count * channels * how.bins[0] * how.bins[1]:
        return aten.full.default([count, channels, *how.bins], 0, dtype=input.dtype, device=input.device)  # type: ignore[no-any-return]
    table = widened(as_rows(input, how.parts))
    past = table.shape[0] if how.sensitive else None
    if past is not None:
        table = padded(table)
    if how.ratio > 0:
        sums = gather_rows(table, *_samples(rois, how, how.ratio, how.ratio, past))
        return in_type(_per_box(aten.div.Scalar(sums, how.ratio * how.ratio), how), input.dtype)
    height, width = _grids(rois, how)
    parts: list[tuple[Tensor, Tensor]] = []
    for high, wide, which in groups(height, width):
        sums = gather_rows(table, *_samples(aten.index_select.default(rois, 0, which), how, high, wide, past))
        parts.append((which, _per_box(aten.div.Scalar(sums, high * wide), how)))
    result = assemble(parts, count, aten.full.default([1, channels, *how.bins], 0, dtype=table.dtype, device=table.device))
    if empty_is_nan:  # the mean of no samples
        none = aten.view.default(aten.eq.Scalar(aten.mul.Tensor(height, width), 0), [-1, 1, 1, 1])
        result = aten.where.self(none, number_like(result, float("nan")), result)
    return in_type(result, input.dtype)


def _aligned_backward(grad: Tensor, rois: Tensor, how: _Pooling, shape: Sequence[int]) -> Tensor:
    channels, (high, wide) = grad.shape[1], how.bins
    if not grad.numel():
        return aten.full.default(shape, 0, dtype=grad.dtype, device=grad.device)  # type: ignore[no-any-return]
    past = shape[0] * how.parts[0] * how.parts[1] * how.height * how.width
    rows = widened(contiguous(grad, [0, 2, 3, 1], [-1, channels]))

    def pieces() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        if how.ratio > 0:
            yield (*_samples(rois, how, how.ratio, how.ratio, past), aten.div.Scalar(rows, how.ratio * how.ratio))
            return
        per_box = aten.view.default(rows, [-1, high * wide * channels])
        for y, x, which in groups(*_grids(rois, how)):
            own = aten.view.default(aten.index_select.default(per_box, 0, which), [-1, channels])
            yield (*_samples(aten.index_select.default(rois, 0, which), how, y, x, past), aten.div.Scalar(own, y * x))

    return in_type(as_channels(scatter_rows(pieces(), past, rows), shape, how.parts), grad.dtype)


@library_rule("torchvision.roi_align.default")
def roi_align(input: Tensor, rois: Tensor, *options: Any) -> Tensor:
    """Return the mean of bilinear samples on a grid in each bin (He et al., "Mask R-CNN", 2017, section 3)."""
    check_rois("roi_align_forward_kernel", input, rois)
    how = _roi_align(input.shape[2], input.shape[3], *options)
    return _aligned(input, rois, how, empty_is_nan=False)


@library_rule("torchvision._roi_align_backward.default")
def roi_align_backward(grad: Tensor, rois: Tensor, *options: Any) -> Tensor:
    """Compute the transpose of `roi_align`: add each sample's share of the gradient to the four pixels next to it."""
    check_rois("roi_align_backward_kernel", grad, rois, "grad")
    shape = options[3:7]
    return _aligned_backward(grad, rois, _roi_align(*shape[2:], *options[:3], *options[7:]), shape)


def _roi_align(height: int, width: int, scale: float, pooled_height: int, pooled_width: int, ratio: int, aligned: bool) -> _Pooling:
    offset = 0.5 if aligned else 0.0
    return _Pooling(height, width, (pooled_height, pooled_width), False, scale, ratio, offset, least_one=not aligned)


@library_rule("torchvision.ps_roi_align.default")
def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """Run `roi_align` with channels of its own for each bin (Li et al., "Light-Head R-CNN", 2017)."""
    check_rois("ps_roi_align_forward_kernel", input, rois)
    _check_channels(input, pooled_height, pooled_width)
    how = _Pooling(input.shape[2], input.shape[3], (pooled_height, pooled_width), True, spatial_scale, sampling_ratio, 0.5)
    return _aligned(input, rois, how, empty_is_nan=True), _channel_mapping(input, rois, how)


@library_rule("torchvision._ps_roi_align_backward.default")
def ps_roi_align_backward(
    grad: Tensor, rois: Tensor, mapping: Tensor, scale: float, pooled_height: int, pooled_width: int, ratio: int, *shape: int
) -> Tensor:
    """Compute the transpose of `ps_roi_align`."""
    check_rois("ps_roi_align_backward_kernel", grad, rois, "grad")
    how = _Pooling(shape[2], shape[3], (pooled_height, pooled_width), True, scale, ratio, 0.5)
    return _aligned_backward(grad, rois, how, shape)


def _check_channels(input: Tensor, pooled_height: int, pooled_width: int) -> None:
    check(
        input.shape[1] % (pooled_height * pooled_width) == 0,
        "input channels must be a multiple of pooling height * pooling width",
    )


def _channel_mapping(input: Tensor, rois: Tensor, how: _Pooling) -> Tensor:
    """Return the input channel of each result: for each box, all channels in order."""
    channels = input.shape[1]
    number = aten.arange.start_step(0, channels, 1, dtype=torch.int32, device=input.device)
    shape = [rois.shape[0], channels // (how.bins[0] * how.bins[1]), *how.bins]
    return aten.clone.default(  # type: ignore[no-any-return]
        aten.expand.default(aten.view.default(number, [1, *shape[1:]]), shape), memory_format=torch.contiguous_format
    )


# -- whole pixels: roi_pool, ps_roi_pool --------------------------------------------------------------------------


def _rounded(x: Tensor) -> Tensor:
    """Round like C's `round`: halves away from zero."""
    whole = aten.trunc.default(x)
    rest = aten.sub.Tensor(x, whole)
    up = in_type(aten.ge.Scalar(rest, 0.5), x.dtype)
    down = in_type(aten.le.Scalar(rest, -0.5), x.dtype)
    return aten.sub.Tensor(aten.add.Tensor(whole, up), down)  # type: ignore[no-any-return]


class _Spans(NamedTuple):
    """Each bin's first pixel, and the pixel after its last one, along one dimension, [K, P] each, as integers."""

    first: Tensor
    past: Tensor


def _spans(start: Tensor, end: Tensor, bins: int, limit: int, extra: int) -> _Spans:
    """Return the pixels of each bin along one dimension. `extra` is 1 if the box includes its last pixel, else 0."""
    size = aten.sub.Tensor(end, start)
    size = aten.clamp.default(aten.add.Scalar(size, extra) if extra else size, 1)
    bin_size = aten.div.Scalar(size, bins)
    number = aten.view.default(aten.arange.start_step(0, bins, 1, dtype=start.dtype, device=start.device), [1, -1])
    first = aten.floor.default(aten.mul.Tensor(number, bin_size))
    past = aten.ceil.default(aten.mul.Tensor(aten.add.Scalar(number, 1), bin_size))
    whole_start = in_type(start, torch.int64)
    first, past = (aten.clamp.default(aten.add.Tensor(in_type(one, torch.int64), whole_start), 0, limit) for one in (first, past))
    return _Spans(first, past)


def _bins(rois: Tensor, how: _Pooling, extra: int, edge: int, *, rounds_float: bool = False) -> tuple[_Spans, _Spans]:
    """Return the pixel rows and the pixel columns of all bins.

    Args:
        edge: the number of last rows and columns of the image that no bin reads.
        rounds_float: round corners to float32 first, like ``roundf``.
    """
    corners = _scaled(rois, how.scale)
    if rounds_float and corners.dtype is torch.float64:
        corners = in_type(in_type(corners, torch.float32), torch.float64)
    x, y, x_end, y_end = (aten.slice.Tensor(_rounded(corners), 1, at, at + 1) for at in range(4))
    return (
        _spans(y, y_end, how.bins[0], how.height - edge, extra),
        _spans(x, x_end, how.bins[1], how.width - edge, extra),
    )


def _extent(spans: _Spans) -> Tensor:
    """Return the number of pixels of each box's largest bin, [K]."""
    return aten.amax.default(aten.sub.Tensor(spans.past, spans.first), [1])  # type: ignore[no-any-return]


def _select(spans: _Spans, which: Tensor) -> _Spans:
    return _Spans(aten.index_select.default(spans.first, 0, which), aten.index_select.default(spans.past, 0, which))


class _Window(NamedTuple):
    """The pixels and weights that the bins of a group of boxes read.

    Attributes:
        row: rows of the table, [K * PH * PW, taps]. A bin with fewer pixels than the largest one reads the row past the table.
        pixel: the index of each pixel in its image.
        area: the number of pixels of each bin, [K * PH * PW, 1].
    """

    row: Tensor
    pixel: Tensor
    area: Tensor


def _window(rois: Tensor, rows: _Spans, columns: _Spans, high: int, wide: int, how: _Pooling, past: int) -> _Window:
    def reached(spans: _Spans, count: int) -> tuple[Tensor, Tensor]:
        step = aten.view.default(aten.arange.start_step(0, count, 1, dtype=torch.int64, device=rois.device), [1, 1, -1])
        pixel = aten.add.Tensor(aten.unsqueeze.default(spans.first, 2), step)
        return pixel, aten.lt.Tensor(pixel, aten.unsqueeze.default(spans.past, 2))

    (y, y_in), (x, x_in) = reached(rows, high), reached(columns, wide)
    pixel = aten.add.Tensor(*_outer(aten.mul.Scalar(y, how.width), x))
    index = aten.add.Tensor(pixel, aten.unsqueeze.default(_first_row(rois, how), 4))
    inside = aten.logical_and.default(*_outer(y_in, x_in))
    index = aten.where.self(inside, index, number_like(index, past))
    sides = (aten.sub.Tensor(spans.past, spans.first) for spans in (rows, columns))
    area = aten.mul.Tensor(aten.unsqueeze.default(next(sides), 2), aten.unsqueeze.default(next(sides), 1))
    shape = [rois.shape[0] * how.bins[0] * how.bins[1], high * wide]
    return _Window(aten.view.default(index, shape), aten.view.default(pixel, shape), aten.view.default(area, [-1, 1]))


def _windows(rois: Tensor, rows: _Spans, columns: _Spans, how: _Pooling, past: int) -> Iterator[tuple[Tensor, _Window]]:
    """Yield the positions of boxes with bins of about one size, and the pixels of their bins."""
    for high, wide, which in groups(_extent(rows), _extent(columns)):
        own = aten.index_select.default(rois, 0, which)
        yield which, _window(own, _select(rows, which), _select(columns, which), high, wide, how, past)


@library_rule("torchvision.roi_pool.default")
def roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Tensor, Tensor]:
    """Return each bin's maximum and its index (Girshick, "Fast R-CNN", 2015, section 2.1); 0 and -1 for an empty bin."""
    check(input.dtype == rois.dtype, "input should have the same type as rois")
    check_dtype("roi_pool_forward_kernel", input)
    how = _Pooling(input.shape[2], input.shape[3], (pooled_height, pooled_width), False, spatial_scale)
    count, channels = rois.shape[0], input.shape[1]
    shape = [count, channels, pooled_height, pooled_width]
    zeros = aten.full.default([1, *shape[1:]], 0, dtype=input.dtype, device=input.device)
    nowhere = aten.full.default([1, *shape[1:]], -1, dtype=torch.int32, device=input.device)
    if not count * channels * pooled_height * pooled_width:
        empty = aten.full.default(shape, 0, dtype=torch.int32, device=input.device)
        return aten.full.default(shape, 0, dtype=input.dtype, device=input.device), empty
    past = input.shape[0] * how.height * how.width
    table = padded(as_rows(input), float("-inf"))
    rows, columns = _bins(rois, how, 1, 0)
    largest: list[tuple[Tensor, Tensor]] = []
    pixels: list[tuple[Tensor, Tensor]] = []
    for which, window in _windows(rois, rows, columns, how, past):
        value, pixel = _largest(table, window)
        largest.append((which, _per_box(value, how)))
        pixels.append((which, _per_box(pixel, how)))
    return assemble(largest, count, zeros), assemble(pixels, count, nowhere)


def _largest(table: Tensor, window: _Window) -> tuple[Tensor, Tensor]:
    """Return the largest value of each bin and its pixel. Skip NaN, and values up to the kernels' start value."""
    lowest = float("-inf") if table.dtype is torch.float16 else _LOWEST
    values, pixels = [], []
    for first, last in blocks(window.row, table.shape[1]):
        taken = take(table, part(window.row, first, last))
        taken = aten.where.self(aten.gt.Scalar(taken, lowest), taken, number_like(taken, float("-inf")))
        value, where = aten.max.dim(taken, 1)
        found = aten.gt.Scalar(value, lowest)
        least = aten.where.self(
            aten.gt.Scalar(part(window.area, first, last), 0), number_like(value, lowest), number_like(value, 0)
        )
        values.append(aten.where.self(found, value, least))
        pixel = in_type(aten.gather.default(part(window.pixel, first, last), 1, where), torch.int32)
        pixels.append(aten.where.self(found, pixel, number_like(pixel, -1)))
    return joined(values), joined(pixels)


@library_rule("torchvision._roi_pool_backward.default")
def roi_pool_backward(
    grad: Tensor, rois: Tensor, argmax: Tensor, scale: float, pooled_height: int, pooled_width: int, *shape: int
) -> Tensor:
    """Add the gradient of each bin to its largest pixel."""
    check_rois("roi_pool_backward_kernel", grad, rois, "grad")
    _, channels, height, width = shape
    size = math.prod(shape)
    zeros = aten.full.default([size + 1], 0, dtype=grad.dtype, device=grad.device)
    if grad.numel():
        image = aten.view.default(in_type(_column(rois, 0), torch.int64), [-1, 1, 1, 1])
        channel = aten.arange.start_step(0, channels * height * width, height * width, dtype=torch.int64, device=grad.device)
        plane = aten.add.Tensor(aten.mul.Scalar(image, channels * height * width), aten.view.default(channel, [1, -1, 1, 1]))
        index = aten.add.Tensor(in_type(argmax, torch.int64), plane)
        index = aten.where.self(aten.eq.Scalar(argmax, -1), number_like(index, size), index)
        flat = aten.view.default(aten.clone.default(grad, memory_format=torch.contiguous_format), [-1])
        zeros = aten.scatter_add.default(zeros, 0, aten.reshape.default(index, [-1]), flat)
    return aten.view.default(aten.slice.Tensor(zeros, 0, 0, size), list(shape))  # type: ignore[no-any-return]


@library_rule("torchvision.ps_roi_pool.default")
def ps_roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Tensor, Tensor]:
    """Return the mean of the pixels of each bin, in channels of its own (Dai et al., "R-FCN", 2016, section 2.2).

    The kernel never reads the last row and column of the image; its gradient does.
    """
    check_rois("ps_roi_pool_forward_kernel", input, rois)
    _check_channels(input, pooled_height, pooled_width)
    how = _Pooling(input.shape[2], input.shape[3], (pooled_height, pooled_width), True, spatial_scale)
    count, channels = rois.shape[0], input.shape[1] // (pooled_height * pooled_width)
    mapping = _channel_mapping(input, rois, how)
    if not mapping.numel():
        return aten.full.default(mapping.shape, 0, dtype=input.dtype, device=input.device), mapping
    table = padded(widened(as_rows(input, how.bins)))
    rows, columns = _bins(rois, how, 0, 1)
    parts: list[tuple[Tensor, Tensor]] = []
    for which, window in _windows(rois, rows, columns, how, table.shape[0] - 1):
        ones = aten.full.default(window.row.shape, 1, dtype=table.dtype, device=table.device)
        means = aten.div.Tensor(gather_rows(table, window.row, ones), aten.clamp.default(window.area, 1))
        parts.append((which, _per_box(means, how)))
    zeros = aten.full.default([1, channels, *how.bins], 0, dtype=table.dtype, device=table.device)
    return in_type(assemble(parts, count, zeros), input.dtype), mapping


@library_rule("torchvision._ps_roi_pool_backward.default")
def ps_roi_pool_backward(
    grad: Tensor, rois: Tensor, channel_mapping: Tensor, scale: float, pooled_height: int, pooled_width: int, *shape: int
) -> Tensor:
    """Divide the gradient of each bin equally among its pixels."""
    check_rois("ps_roi_pool_backward_kernel", grad, rois, "grad")
    batch_size, _, height, width = shape
    how = _Pooling(height, width, (pooled_height, pooled_width), True, scale)
    if not grad.numel():
        return aten.full.default(shape, 0, dtype=grad.dtype, device=grad.device)  # type: ignore[no-any-return]
    bins, past = pooled_height * pooled_width, batch_size * pooled_height * pooled_width * height * width
    per_box = widened(contiguous(grad, [0, 2, 3, 1], [-1, bins * grad.shape[1]]))
    rows, columns = _bins(rois, how, 0, 0, rounds_float=True)

    def pieces() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for which, window in _windows(rois, rows, columns, how, past):
            ones = aten.full.default(window.row.shape, 1, dtype=per_box.dtype, device=per_box.device)
            share = aten.view.default(aten.index_select.default(per_box, 0, which), [-1, grad.shape[1]])
            yield window.row, ones, aten.div.Tensor(share, aten.clamp.default(window.area, 1))

    like = aten.view.default(per_box, [-1, grad.shape[1]])
    return in_type(as_channels(scatter_rows(pieces(), past, like), shape, how.bins), grad.dtype)
