"""Windows over space: pools, images folded from columns, padding, sampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xla.arrays import Array, Value, cast, read, scalar

__all__ = ["KERNELS"]

Sizes = Sequence[int]


def _each(value: Sizes | int, dims: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * dims
    return tuple(value) * dims if len(value) == 1 else tuple(value)


def _extent(size: int, width: int, step: int, pad: int, gap: int, ceil_mode: bool) -> int:
    """Return how many windows fit; rounded up, none may begin beyond the padding in front."""
    reach = size + 2 * pad - gap * (width - 1) - 1
    count = -(-reach // step) + 1 if ceil_mode else reach // step + 1
    if ceil_mode and (count - 1) * step >= size + pad:
        count -= 1
    if count < 1:
        raise RuntimeError("pooling: Output size is too small")
    return count


def _padded(values: Array, low: Sizes, high: Sizes, fill: Any) -> Array:
    """Pad the last dimensions; negative numbers crop."""
    still = values.ndim - len(low)
    widths = [(0, 0, 0)] * still + [(one, other, 0) for one, other in zip(low, high, strict=True)]
    return jax.lax.pad(values, jnp.asarray(fill, values.dtype), widths)


class _Pool:
    """A pool's numbers for `dims` dimensions of space."""

    def __init__(self, x: Value, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> None:
        self.dims, self.kernel = dims, _each(kernel, dims)
        self.stride = _each(stride, dims) if not isinstance(stride, int) and len(stride) else self.kernel
        self.padding, self.dilation = _each(padding, dims), _each(dilation, dims)
        self.size = tuple(x.shape[-dims:])
        self.extent = tuple(
            _extent(*one, ceil_mode) for one in zip(self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )
        #: What lies beyond the input at the end: windows reach there where the count is rounded up.
        self.behind = tuple(
            (count - 1) * step + gap * (width - 1) + 1 - size - pad
            for count, step, gap, width, size, pad in zip(
                self.extent, self.stride, self.dilation, self.kernel, self.size, self.padding, strict=True
            )
        )

    def windows(self, values: Array, fill: Any) -> Array:
        """Return [..., *extent, kernel as one]."""
        values = _padded(values, self.padding, [max(0, one) for one in self.behind], fill)
        return jnp.stack([values[cut] for cut in self.cuts()], -1)

    def cuts(self) -> list[tuple[Any, ...]]:
        """Return, for each element of the kernel, where it reads in padded values."""
        return [
            (
                ...,
                *[
                    slice(at * gap, at * gap + (count - 1) * step + 1, step)
                    for at, gap, count, step in zip(place, self.dilation, self.extent, self.stride, strict=True)
                ],
            )
            for place in itertools.product(*map(range, self.kernel))
        ]

    def counted(self, include_pad: bool, divisor: int | None) -> Any:
        """Return by what the sum of each window is divided."""
        if divisor is not None:
            if not divisor:
                raise RuntimeError("divisor must be not zero")
            return np.asarray(float(divisor))
        sides = []
        for size, pad, count, step, width in zip(self.size, self.padding, self.extent, self.stride, self.kernel, strict=True):
            start = np.arange(count) * step - pad
            end = np.minimum(start + width, size + pad)
            if include_pad:
                sides.append(end - start)
            else:
                sides.append(np.minimum(end, size) - np.maximum(start, 0))
        return np.asarray(math.prod(np.ix_(*sides)) if len(sides) > 1 else sides[0], np.float64)


def _sum_windows(values: Array, pool: _Pool) -> Array:
    values = _padded(values, pool.padding, [max(0, one) for one in pool.behind], 0)
    still = values.ndim - pool.dims
    return jax.lax.reduce_window(
        values, np.zeros((), values.dtype), jax.lax.add, (1,) * still + pool.kernel, (1,) * still + pool.stride, "VALID"
    )[(..., *[slice(count) for count in pool.extent])]


def _average(dims: int) -> Callable[..., Array]:
    def run(
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        pool = _Pool(x, dims, kernel, stride, padding, 1, ceil_mode)
        by = pool.counted(count_include_pad, divisor_override)
        values = read(x)
        if x.dtype.is_floating_point:
            return _sum_windows(values, pool) / by.astype(values.dtype)
        summed, count = jnp.broadcast_arrays(_sum_windows(values.astype(jnp.int64), pool), by.astype(np.int64))
        return jax.lax.div(summed, count)  # divided as C++ divides integers

    return run


def _average_backward(
    grad: Value,
    x: Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Array:
    pool = _Pool(x, 2, kernel, stride, padding, 1, ceil_mode)
    gradient = read(grad)
    if not x.numel():
        return jnp.zeros(x.shape, gradient.dtype)
    shared = gradient / pool.counted(count_include_pad, divisor_override).astype(gradient.dtype)
    (made,) = jax.linear_transpose(lambda values: _sum_windows(values, pool), jax.ShapeDtypeStruct(x.shape, gradient.dtype))(shared)
    return made


def _largest(dims: int) -> Callable[..., tuple[Array, Array]]:
    def run(
        x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> tuple[Array, Array]:
        pool = _Pool(x, dims, kernel, stride, padding, dilation, ceil_mode)
        values = read(x)
        is_float = bool(jnp.issubdtype(values.dtype, jnp.floating))
        least = -math.inf if is_float else jnp.iinfo(values.dtype).min
        cut = pool.windows(values, least)
        numbers = pool.windows(jnp.arange(math.prod(pool.size)).reshape(pool.size), -1)
        # Of equal ones the first inside, and of NaN the last, as eager's loop leaves it.
        inside = numbers >= 0
        key = jnp.where(inside, cut, least)
        first = jnp.argmax((key == key.max(-1, keepdims=True)) & inside, axis=-1)
        if is_float:
            nan = jnp.isnan(key)
            last = key.shape[-1] - 1 - jnp.argmax(nan[..., ::-1], axis=-1)
            first = jnp.where(nan.any(-1), last, first)
        place = first[..., None]
        found = jnp.take_along_axis(cut, place, -1)[..., 0]
        return found, jnp.take_along_axis(jnp.broadcast_to(numbers, cut.shape), place, -1)[..., 0]

    return run


def _largest_backward(
    grad: Value, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Value
) -> Array:
    planes, gradient = math.prod(x.shape[:-2]), read(grad)
    made = jnp.zeros((planes, math.prod(x.shape[-2:])), gradient.dtype)
    places = indices.array.reshape(planes, -1)
    return made.at[jnp.arange(planes)[:, None], places].add(gradient.reshape(planes, -1)).reshape(x.shape)


def _adaptive_values(values: Array, output_size: Sizes, dims: int) -> Array:
    """Average windows of sizes that differ by one: a product with a matrix along each dimension, NaN and infinities kept apart."""
    for place, count in enumerate(_each(output_size, dims)):
        along = values.ndim - dims + place
        size = values.shape[along]
        moved = jnp.moveaxis(values, along, -1)
        windows = [(one * size // count, -(-(one + 1) * size // count)) for one in range(count)]
        means = [moved[..., start:end].mean(-1) for start, end in windows]
        made = jnp.stack(means, -1) if means else jnp.zeros((*moved.shape[:-1], 0), values.dtype)
        values = jnp.moveaxis(made, -1, along)
    return values


def _adaptive(dims: int) -> Callable[[Value, Sizes], Array]:
    def run(x: Value, output_size: Sizes) -> Array:
        if 0 in x.shape[-dims:]:
            raise RuntimeError(f"adaptive_avg_pool{dims}d(): cannot take an input of {list(x.shape)}")
        return _adaptive_values(read(x), output_size, dims)

    return run


def _adaptive_backward(grad: Value, x: Value) -> Array:
    gradient = read(grad)
    like = jax.ShapeDtypeStruct(x.shape, gradient.dtype)
    (made,) = jax.linear_transpose(lambda values: _adaptive_values(values, grad.shape[-2:], 2), like)(gradient)
    return made


def _col2im(x: Value, output_size: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Array:
    extent = [
        (size + 2 * pad - gap * (width - 1) - 1) // step + 1
        for size, pad, gap, width, step in zip(output_size, padding, dilation, kernel, stride, strict=True)
    ]
    columns = read(x)
    columns = columns.reshape(*x.shape[:-2], x.shape[-2] // math.prod(kernel), *kernel, *extent)
    room = [size + 2 * pad for size, pad in zip(output_size, padding, strict=True)]
    made = jnp.zeros((*columns.shape[: -2 * len(extent)], *room), columns.dtype)
    for place in itertools.product(*map(range, kernel)):
        cut = tuple(
            slice(at * gap, at * gap + (count - 1) * step + 1, step)
            for at, gap, count, step in zip(place, dilation, extent, stride, strict=True)
        )
        made = made.at[(..., *cut)].add(columns[(..., *place, *[slice(None)] * len(extent))])
    return made[(..., *[slice(pad, pad + size) for pad, size in zip(padding, output_size, strict=True)])]


# -- padding -----------------------------------------------------------------------------------------------------------


def _pairs(pad: Sizes) -> list[tuple[int, int]]:
    """ATen names the last dimension first."""
    return [(pad[place], pad[place + 1]) for place in range(len(pad) - 2, -2, -2)]


def _constant_pad(x: Value, pad: Sizes, value: Any = 0) -> Array:
    pairs = _pairs(pad)
    fill = cast(scalar(value, x.dtype), x.dtype)
    return _padded(x.array, [low for low, _ in pairs], [high for _, high in pairs], fill) if pairs else x.array


def _pad_by(dims: int, place: Callable[[Any, int], Any]) -> Callable[[Value, Sizes], Array]:
    """Pad `dims` dimensions with the tensor's own elements: `place` says which, for places before 0 and beyond the end."""

    def run(x: Value, padding: Sizes) -> Array:
        values = x.array
        for along, (low, high) in enumerate(_pairs(padding), x.dim() - dims):
            size = values.shape[along]
            values = jnp.take(values, place(np.arange(-low, size + high), size), axis=along)
        return values

    return run


def _reflected(dims: int) -> Callable[[Value, Sizes], Array]:
    return _pad_by(dims, lambda place, size: size - 1 - np.abs(size - 1 - np.abs(place)))


def _replicated(dims: int) -> Callable[[Value, Sizes], Array]:
    return _pad_by(dims, lambda place, size: np.clip(place, 0, size - 1))


# -- sampling ----------------------------------------------------------------------------------------------------------


def _unnormalized(grid: Array, size: int, align_corners: bool) -> Array:
    return (grid + 1) / 2 * (size - 1) if align_corners else ((grid + 1) * size - 1) / 2


def _clipped(place: Array, size: int) -> Array:
    return jnp.minimum(size - 1, jnp.maximum(place, 0))


def _reflected_place(place: Array, size: int, align_corners: bool) -> Array:
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    span = high - low
    if not span:
        return jnp.zeros_like(place)
    away = jnp.abs(place - low)
    turns, rest = jnp.floor(away / span), jnp.fmod(away, span)
    return _clipped(jnp.where(turns % 2 == 0, rest + low, span - rest + low), size)


def _source_place(place: Array, size: int, mode: int, align_corners: bool) -> Array:
    if mode == 1:
        place = _clipped(place, size)
    elif mode == 2:
        place = _reflected_place(place, size, align_corners)
    # What no integer holds, and NaN, lies outside.
    return jnp.where((place <= 2.0**31 - 2) & (place >= -(2.0**31)), place, -100.0)


def _grid_sampler(x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Array:
    if x.dtype is not grid.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have the same dtype, but input has {x.dtype} and grid {grid.dtype}"
        )
    values, places = read(x), read(grid)
    height, width = x.shape[-2:]

    def at(row: Array, column: Array) -> Array:
        """The elements at whole places, zero outside: [N, C, H, W]."""
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        rows, columns = (jnp.clip(one, 0, size - 1).astype(jnp.int64) for one, size in ((row, height), (column, width)))
        batch = jnp.arange(x.shape[0])[:, None, None]
        found = jnp.moveaxis(values[batch, :, rows, columns], -1, 1)
        return jnp.where(inside[:, None], found, 0)

    column = _unnormalized(places[..., 0], width, align_corners)
    row = _unnormalized(places[..., 1], height, align_corners)
    if interpolation_mode == 2:
        return _bicubic(at, row, column, height, width, padding_mode, align_corners)
    column = _source_place(column, width, padding_mode, align_corners)
    row = _source_place(row, height, padding_mode, align_corners)
    if interpolation_mode == 1:
        return at(jnp.round(row), jnp.round(column))
    top, left = jnp.floor(row), jnp.floor(column)
    down, right = row - top, column - left
    corners = [
        (top, left, (1 - down) * (1 - right)),
        (top, left + 1, (1 - down) * right),
        (top + 1, left, down * (1 - right)),
        (top + 1, left + 1, down * right),
    ]
    return sum(at(one, other) * weight[:, None] for one, other, weight in corners)


def _cubic(t: Array) -> list[Array]:
    """Keys' weights with A = -0.75, for the four places around."""
    a = -0.75

    def near(x: Array) -> Array:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Array) -> Array:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _bicubic(
    at: Callable[[Array, Array], Array], row: Array, column: Array, height: int, width: int, padding_mode: int, align_corners: bool
) -> Array:
    top, left = jnp.floor(row), jnp.floor(column)
    rows, columns = _cubic(row - top), _cubic(column - left)
    made: Any = 0
    for dy in range(4):
        line: Any = 0
        for dx in range(4):
            y = _source_place(top - 1 + dy, height, padding_mode, align_corners)
            x = _source_place(left - 1 + dx, width, padding_mode, align_corners)
            line = line + at(jnp.trunc(y), jnp.trunc(x)) * columns[dx][:, None]
        made = made + line * rows[dy][:, None]
    return made


KERNELS: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool2d": _adaptive(2),
    "_adaptive_avg_pool2d_backward": _adaptive_backward,
    "_adaptive_avg_pool3d": _adaptive(3),
    "avg_pool2d": _average(2),
    "avg_pool2d_backward": _average_backward,
    "avg_pool3d": _average(3),
    "col2im": _col2im,
    "constant_pad_nd": _constant_pad,
    "grid_sampler_2d": _grid_sampler,
    "max_pool2d_with_indices": _largest(2),
    "max_pool2d_with_indices_backward": _largest_backward,
    "max_pool3d_with_indices": _largest(3),
    "reflection_pad1d": _reflected(1),
    "reflection_pad2d": _reflected(2),
    "reflection_pad3d": _reflected(3),
    "replication_pad2d": _replicated(2),
    "replication_pad3d": _replicated(3),
}
