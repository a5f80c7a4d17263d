"""Sampling at grid points, forward and backward, in two and three dimensions; and the grid of an affine map.

Everything is computed for all dimensions and all taps at once: coordinates [N, P, D], taps [N, P, D, T], and one index into the
flattened input [N, P, T ** D]. P is the number of points, D the number of dimensions, and T the number of taps per dimension (two
for linear interpolation, four for cubic). A grid lists the last dimension of the input first; D is in this order throughout. A
gradient takes some hundred kernel calls, a third of them views, because the op clips, reflects, masks and weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import HALF, in_type, number_like, widened
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_TAPS = {_BILINEAR: 2, _NEAREST: 1, _BICUBIC: 4}
_CUBIC = -0.75


@dataclass(frozen=True)
class _Sampling:
    """How a call samples: the sizes of the input in the grid's order, and the op's options.

    `vectorized` is set for the 2-D op with vectorized kernels, whose rounding and NaN handling differ from the others'.
    """

    sizes: tuple[int, ...]
    mode: int
    padding: int
    align_corners: bool
    vectorized: bool

    @property
    def dims(self) -> int:
        return len(self.sizes)

    @property
    def skips(self) -> bool:
        """Return whether taps outside the input are skipped. If not, zeros are multiplied by their weights, which may be NaN."""
        return not self.vectorized and self.mode != _BICUBIC

    def vector(self, values: Sequence[float], like: Tensor) -> Tensor:
        """Return a tensor [D] with a value per dimension, or a 0-dim tensor if all values are equal."""
        if all(value == values[0] for value in values):
            return aten.full.default([], values[0], dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]
        if len(values) == 2:  # two numbers are a range
            first, last = values
            return aten.arange.start_step(first, last + (last - first) / 2, last - first, dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]
        parts = [aten.full.default([1], value, dtype=like.dtype, device=like.device) for value in values]
        return aten.cat.default(parts)  # type: ignore[no-any-return]


# -- from the grid to points in the input ------------------------------------------------------------------------


def _unnormalized(grid: Tensor, how: _Sampling) -> Tensor:
    """Return coordinates in elements of the input, rounded as the kernels round. 2-D and 3-D kernels differ in the last bit."""
    moved = aten.add.Scalar(grid, 1)
    spans = [size - 1 if how.align_corners else size for size in how.sizes]
    if how.vectorized:
        scaled = aten.mul.Tensor(moved, how.vector([span / 2 for span in spans], grid))
        return scaled if how.align_corners else aten.sub.Scalar(scaled, 0.5)  # type: ignore[no-any-return]
    if how.align_corners:
        return aten.mul.Tensor(aten.div.Scalar(moved, 2), how.vector(spans, grid))  # type: ignore[no-any-return]
    return aten.div.Scalar(aten.sub.Scalar(aten.mul.Tensor(moved, how.vector(spans, grid)), 1), 2)  # type: ignore[no-any-return]


def _clipped(x: Tensor, how: _Sampling) -> Tensor:
    """Clip coordinates to the input. As in the kernels, NaN becomes the first element in 2-D and the last element in 3-D."""
    last = _over_taps(how.vector([size - 1 for size in how.sizes], x), x)
    if how.vectorized:
        return aten.minimum.default(aten.where.self(aten.gt.Scalar(x, 0), x, number_like(x, 0)), last)  # type: ignore[no-any-return]
    return aten.clamp.default(aten.where.self(aten.lt.Tensor(x, last), x, last), 0)  # type: ignore[no-any-return]


def _over_taps(vector: Tensor, x: Tensor) -> Tensor:
    """Broadcast a vector [D] over the taps [N, P, D, T]; for coordinates [N, P, D] return it unchanged."""
    return aten.unsqueeze.default(vector, 1) if x.dim() == 4 and vector.dim() else vector


def _reflected(x: Tensor, how: _Sampling) -> tuple[Tensor, Callable[[], Tensor]]:
    """Return `x` reflected into the input, and a function that returns the sign of its derivative."""
    low = 0.0 if how.align_corners else -0.5
    spans = [2 * (size - 1) if how.align_corners else 2 * size for size in how.sizes]
    twice = _over_taps(how.vector([span or 1 for span in spans], x), x)
    moved = aten.sub.Scalar(x, low) if low else x
    extra = aten.fmod.Tensor(aten.abs.default(moved), twice)
    rest = aten.sub.Tensor(twice, extra)
    nearer = aten.minimum.default(extra, rest)
    if not all(spans):  # in a dimension of one element every coordinate is reflected to it
        nearer = aten.mul.Tensor(nearer, _over_taps(how.vector([1 if span else 0 for span in spans], x), x))

    def sign() -> Tensor:
        turned = aten.logical_xor.default(aten.gt.Tensor(extra, rest), aten.lt.Scalar(moved, 0))
        return aten.add.Scalar(aten.mul.Scalar(aten._to_copy.default(turned, dtype=x.dtype), -2), 1)  # type: ignore[no-any-return]

    return aten.add.Scalar(nearer, low) if low else nearer, sign


def _padded(x: Tensor, how: _Sampling) -> Tensor:
    if how.padding == _ZEROS:
        return x
    return _clipped(_reflected(x, how)[0] if how.padding == _REFLECTION else x, how)


def _slope(grid: Tensor, how: _Sampling) -> Tensor:
    """Return the derivative of a point by its grid coordinate. It is zero on the border of a clipped dimension."""
    scales = [(size - 1 if how.align_corners else size) / 2 for size in how.sizes]
    slope = how.vector(scales, grid)
    if how.padding == _ZEROS or how.mode == _BICUBIC:
        return slope
    x = _unnormalized(grid, how)
    if how.padding == _REFLECTION:
        x, sign = _reflected(x, how)
        slope = aten.mul.Tensor(slope, sign())
    last = how.vector([size - 1 for size in how.sizes], grid)
    inside = aten.logical_and.default(aten.gt.Scalar(x, 0), aten.lt.Tensor(x, last))
    return aten.where.self(inside, slope, number_like(grid, 0))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Taps:
    """The input elements that a call reads, [N, P, T ** D].

    Attributes:
        index: into the flattened input; 0 for taps outside it.
        inside: which taps are inside the input.
        offset: the distance of each point from its lower neighbour, [N, P, D, 1]; None for nearest-neighbour sampling.
    """

    index: Tensor
    inside: Tensor
    offset: Tensor | None


def _taps(grid: Tensor, how: _Sampling) -> _Taps:
    x, count = _unnormalized(grid, how), _TAPS[how.mode]
    if how.mode != _BICUBIC:
        x = _padded(x, how)
    if how.mode == _NEAREST:
        first, offset = aten.unsqueeze.default(aten.round.default(x), 3), None
        taps = first
    else:
        low = aten.floor.default(x)
        offset = aten.unsqueeze.default(aten.sub.Tensor(x, low), 3)
        steps = aten.arange.start_step(1 - count // 2, 1 + count // 2, dtype=x.dtype, device=x.device)
        taps = aten.add.Tensor(aten.unsqueeze.default(low, 3), steps)
        if how.mode == _BICUBIC:
            taps = _padded(taps, how)
    size = _over_taps(how.vector(how.sizes, taps), taps)
    inside = aten.logical_and.default(aten.ge.Scalar(taps, 0), aten.lt.Tensor(taps, size))
    # Compare before the conversion to integers: coordinates far outside, or NaN, have no integer value.
    safe = aten._to_copy.default(aten.where.self(inside, taps, number_like(taps, 0)), dtype=torch.int64)
    index, within, stride = None, None, 1
    for dim, (at, has) in enumerate(zip(_each(safe, how), _each(inside, how), strict=True)):
        step = aten.mul.Scalar(at, stride) if dim else at
        index = step if index is None else aten.add.Tensor(index, step)
        within = has if within is None else aten.logical_and.default(within, has)
        stride *= how.sizes[dim]
    assert index is not None
    assert within is not None
    return _Taps(_joined(index, how), _joined(within, how), offset)


def _each(x: Tensor, how: _Sampling) -> list[Tensor]:
    """Split [N, P, D, T] into a tensor per dimension, with its taps along its own axis and size 1 along the others'."""
    batch, places, dims, taps = x.shape
    if taps == 1:
        return [aten.select.int(x, 2, dim) for dim in range(dims)]
    shapes = [[batch, places, *(taps if at == dim else 1 for at in range(dims))] for dim in range(dims)]
    return [aten.reshape.default(aten.select.int(x, 2, dim), shape) for dim, shape in enumerate(shapes)]


def _joined(x: Tensor, how: _Sampling) -> Tensor:
    return x if x.dim() == 3 else aten.reshape.default(x, [x.size(0), x.size(1), _TAPS[how.mode] ** how.dims])


# -- weights ------------------------------------------------------------------------------------------------------


def _weights(offset: Tensor, how: _Sampling) -> Tensor:
    """Return the weights of each tap in each dimension, [N, P, D, T]."""
    if how.mode == _BILINEAR:
        return aten.abs.default(aten.add.Tensor(offset, _steps(offset, -1, 1)))  # type: ignore[no-any-return]
    far = aten.abs.default(aten.sub.Tensor(offset, _steps(offset, -1, 3)))
    near_value = _polynomial(far, (_CUBIC + 2, -(_CUBIC + 3), 0, 1))
    far_value = _polynomial(far, (_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC))
    return aten.where.self(aten.le.Scalar(far, 1), near_value, far_value)  # type: ignore[no-any-return]


def _weight_slopes(offset: Tensor, how: _Sampling) -> Tensor:
    """Return the derivatives of the weights by the point's coordinate."""
    if how.mode == _BILINEAR:
        return _steps(offset, -1, 2, 2)
    signed = aten.sub.Tensor(offset, _steps(offset, -1, 3))
    far = aten.abs.default(signed)
    near_slope = _polynomial(far, (3 * (_CUBIC + 2), -2 * (_CUBIC + 3), 0))
    far_slope = _polynomial(far, (3 * _CUBIC, -10 * _CUBIC, 8 * _CUBIC))
    slope = aten.where.self(aten.le.Scalar(far, 1), near_slope, far_slope)
    return aten.mul.Tensor(slope, aten.sign.default(signed))  # type: ignore[no-any-return]


def _steps(like: Tensor, *bounds: int) -> Tensor:
    return aten.arange.start_step(*bounds, dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    value = aten.mul.Scalar(x, coefficients[0])
    for number, coefficient in enumerate(coefficients[1:], 1):
        if coefficient:
            value = aten.add.Scalar(value, coefficient)
        if number < len(coefficients) - 1:
            value = aten.mul.Tensor(value, x)
    return value  # type: ignore[no-any-return]


def _product(factors: Sequence[Tensor], taps: _Taps, how: _Sampling) -> Tensor:
    """Return the product of the weights over all dimensions, [N, P, T ** D]."""
    product = factors[0]
    for factor in factors[1:]:
        product = aten.mul.Tensor(product, factor)
    product = _joined(product, how)
    return aten.where.self(taps.inside, product, number_like(product, 0)) if how.skips else product


# -- the ops ------------------------------------------------------------------------------------------------------


def _values(input: Tensor, taps: _Taps) -> Tensor:
    """Return the input's values at every tap, [N, C, P, T ** D]. They are arbitrary outside the input."""
    batch, channels = input.shape[:2]
    flat = aten.reshape.default(input, [batch, channels, math.prod(input.shape[2:])])
    _, places, count = taps.index.shape
    read = aten.gather.default(flat, 2, _over_channels(taps.index, channels))
    return aten.view.default(read, [batch, channels, places, count])  # type: ignore[no-any-return]


def _over_channels(index: Tensor, channels: int) -> Tensor:
    batch, places, count = index.shape
    row = aten.reshape.default(index, [batch, 1, places * count])
    return aten.expand.default(row, [batch, channels, places * count])  # type: ignore[no-any-return]


def _stepwise(values: Tensor, taps: _Taps, how: _Sampling) -> Tensor:
    """Sample in float16 and bfloat16 as the 3-D kernel does, which rounds each product and each sum."""
    assert taps.offset is not None
    weights = _product(_each(_weights(taps.offset, how), how), taps, how)
    terms = aten.mul.Tensor(values, aten.unsqueeze.default(weights, 1))
    first, *others = (4 * x + 2 * y + z for z, y, x in itertools.product(range(2), repeat=3))
    total: Tensor = aten.select.int(terms, 3, first)
    for tap in others:
        total = aten.add.Tensor(total, aten.select.int(terms, 3, tap))
    return total


def _sampler(dims: int, *, vectorized: bool) -> Callable[..., Any]:
    def run(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
        if not _fits(input, grid, interpolation_mode, padding_mode, dims):
            return NotImplemented
        shape = [*input.shape[:2], *grid.shape[1:-1]]
        if not math.prod(shape):
            return aten.full.default(shape, 0, dtype=input.dtype, device=input.device)
        how = _Sampling(tuple(input.shape[:1:-1]), interpolation_mode, padding_mode, bool(align_corners), vectorized)
        taps = _taps(_listed(grid), how)
        values = _values(input, taps)
        values = aten.where.self(aten.unsqueeze.default(taps.inside, 1), values, number_like(values, 0))
        if taps.offset is None:
            return aten.view.default(values, shape)
        if dims == 3 and input.dtype in HALF:
            return aten.view.default(_stepwise(values, taps, how), shape)
        weights = _product(_each(_weights(widened(taps.offset), how), how), taps, how)
        summed = aten.sum.dim_IntList(aten.mul.Tensor(widened(values), aten.unsqueeze.default(weights, 1)), [3])
        return in_type(aten.view.default(summed, shape), input.dtype)

    return run


def _sampler_backward(dims: int, *, vectorized: bool) -> Callable[..., Any]:
    def run(
        grad_output: Tensor,
        input: Tensor,
        grid: Tensor,
        interpolation_mode: int,
        padding_mode: int,
        align_corners: bool,
        output_mask: Sequence[bool],
    ) -> Any:
        if not _fits(input, grid, interpolation_mode, padding_mode, dims):
            return NotImplemented
        if list(grad_output.shape) != [*input.shape[:2], *grid.shape[1:-1]]:
            return NotImplemented  # eager reads past the end of it
        how = _Sampling(tuple(input.shape[:1:-1]), interpolation_mode, padding_mode, bool(align_corners), vectorized)
        if not grad_output.numel():
            grad_input = aten.full.default(list(input.shape), 0, dtype=input.dtype, device=input.device)
            return (grad_input if output_mask[0] else None), _no_grid_gradient(grid)
        listed = _listed(grid)
        taps = _taps(listed, how)
        batch, channels, places = *grad_output.shape[:2], taps.index.size(1)
        grad = aten.reshape.default(widened(grad_output), [batch, channels, places, 1])
        offset = None if taps.offset is None else widened(taps.offset)
        each = [] if offset is None else _each(_weights(offset, how), how)
        grad_input = _input_gradient(grad, input, taps, each, how) if output_mask[0] else None
        if offset is None or not output_mask[1]:
            return grad_input, _no_grid_gradient(grid)
        # `worth` is the gradient of each tap's weight, summed over channels; `growth` is that of each point's coordinates.
        values = _values(input, taps)
        if not how.skips:
            values = aten.where.self(aten.unsqueeze.default(taps.inside, 1), values, number_like(values, 0))
        worth = aten.sum.dim_IntList(aten.mul.Tensor(grad, widened(values)), [1])
        if how.skips:
            worth = aten.where.self(taps.inside, worth, number_like(worth, 0))
        growth = _growth(worth, offset, taps, how)
        grad_grid = aten.mul.Tensor(growth, widened(_slope(listed, how)))
        return grad_input, in_type(aten.view.default(grad_grid, list(grid.shape)), grid.dtype)

    return run


def _growth(worth: Tensor, offset: Tensor, taps: _Taps, how: _Sampling) -> Tensor:
    """Return the gradient of each coordinate of the points, [N, P, D]. `worth` is the gradient of each tap's weight.

    A tap's weight is a product over dimensions. For each coordinate, the derivative of its factor replaces the factor.
    """
    weights, slopes = aten.unsqueeze.default(_weights(offset, how), 2), _weight_slopes(offset, how)
    if slopes.dim() > 1:
        slopes = aten.unsqueeze.default(slopes, 2)
    order = aten.arange.start_step(0, how.dims, device=offset.device)
    own = aten.eq.Tensor(aten.view.default(order, [-1, 1, 1]), aten.view.default(order, [-1, 1]))
    factors = aten.where.self(own, slopes, weights)  # [N, P, D, D, T]
    batch, places, dims, _, count = factors.shape
    product = None
    for dim in range(dims):
        shape = [batch, places, dims, *(count if at == dim else 1 for at in range(dims))]
        factor = aten.reshape.default(aten.select.int(factors, 3, dim), shape)
        product = factor if product is None else aten.mul.Tensor(product, factor)
    joined = aten.reshape.default(product, [batch, places, dims, count**dims])
    grown = aten.mul.Tensor(joined, aten.unsqueeze.default(worth, 2))
    if how.skips:
        grown = aten.where.self(aten.unsqueeze.default(taps.inside, 2), grown, number_like(grown, 0))
    return aten.sum.dim_IntList(grown, [3])  # type: ignore[no-any-return]


def _no_grid_gradient(grid: Tensor) -> Tensor:
    return aten.full.default(list(grid.shape), 0, dtype=grid.dtype, device=grid.device)  # type: ignore[no-any-return]


def _input_gradient(grad: Tensor, input: Tensor, taps: _Taps, each: Sequence[Tensor], how: _Sampling) -> Tensor:
    batch, channels = input.shape[:2]
    if each:
        grad = aten.mul.Tensor(grad, aten.unsqueeze.default(_product(each, taps, how), 1))
    sent = aten.where.self(aten.unsqueeze.default(taps.inside, 1), grad, number_like(grad, 0))
    zeros = aten.full.default([batch, channels, math.prod(how.sizes)], 0, dtype=grad.dtype, device=grad.device)
    sent = aten.reshape.default(sent, [batch, channels, taps.index.size(1) * taps.index.size(2)])
    summed = aten.scatter_add.default(zeros, 2, _over_channels(taps.index, channels), sent)
    return in_type(aten.view.default(summed, list(input.shape)), input.dtype)


def _listed(grid: Tensor) -> Tensor:
    """Flatten the points of a grid to one row, [N, P, D]."""
    return aten.reshape.default(grid, [grid.size(0), math.prod(grid.shape[1:-1]), grid.size(-1)])  # type: ignore[no-any-return]


def _fits(input: Tensor, grid: Tensor, mode: int, padding: int, dims: int) -> bool:
    known = mode in _TAPS and padding in (_ZEROS, _BORDER, _REFLECTION)
    return known and grid.size(0) == input.size(0) and grid.size(-1) == dims


_SCALAR_SAMPLER_BACKWARD = _sampler_backward(2, vectorized=False)


@rule("aten._grid_sampler_2d_cpu_fallback_backward.default", recorded=True)
def _fallback_backward(grad_output: Tensor, input: Tensor, grid: Tensor, *options: Any) -> Any:
    if not grad_output.numel():
        shapes = ((input, input.shape), (grid, grid.shape))
        return tuple(aten.full.default(list(shape), 0, dtype=one.dtype, device=one.device) for one, shape in shapes)
    return _SCALAR_SAMPLER_BACKWARD(grad_output, input, grid, *options, [True, True])


# -- affine grids -------------------------------------------------------------------------------------------------


def _from_minus_one(theta: Tensor, steps: int, align_corners: bool) -> Tensor:
    """Return the coordinates of `steps` pixels between -1 and 1. With `align_corners`, the first and last are -1 and 1."""
    if steps <= 1:
        return aten.full.default([steps], 0, dtype=theta.dtype, device=theta.device)  # type: ignore[no-any-return]
    between = aten.linspace.default(-1, 1, steps, dtype=theta.dtype, device=theta.device)
    if align_corners:
        return between  # type: ignore[no-any-return]
    return in_type(aten.div.Scalar(aten.mul.Scalar(between, steps - 1), steps), theta.dtype)


@rule("aten.affine_grid_generator.default", recorded=True)
def _affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Any:
    """Multiply the homogeneous coordinates of all pixels, [N, pixels, dimensions + 1], by the transposed maps, as ATen does."""
    batch, spatial = size[0], list(size[2:])
    dims, shape = len(spatial), [batch, *spatial, 1]
    columns = []
    for at in reversed(range(dims)):
        along = _from_minus_one(theta, spatial[at], align_corners)
        along = aten.view.default(along, [1, *(spatial[at] if here == at else 1 for here in range(dims)), 1])
        columns.append(aten.expand.default(along, shape))
    columns.append(aten.full.default(shape, 1, dtype=theta.dtype, device=theta.device))
    points = aten.view.default(aten.cat.default(columns, -1), [batch, math.prod(spatial), dims + 1])
    mapped = aten.bmm.default(points, aten.transpose.int(theta, 1, 2))
    return aten.view.default(mapped, [batch, *spatial, dims])


# The scalar 2-D kernel computes like the 3-D kernel.
rule("aten._grid_sampler_2d_cpu_fallback.default", recorded=True)(_sampler(2, vectorized=False))
rule("aten.grid_sampler_2d.default", recorded=True)(_sampler(2, vectorized=True))
rule("aten.grid_sampler_3d.default", recorded=True)(_sampler(3, vectorized=False))
rule("aten.grid_sampler_2d_backward.default", recorded=True)(_sampler_backward(2, vectorized=True))
rule("aten.grid_sampler_3d_backward.default", recorded=True)(_sampler_backward(3, vectorized=False))
