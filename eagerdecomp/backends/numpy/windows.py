"""Kernels of pooling, col2im and padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.backends.numpy.arrays import Array, Number, alike, formatted, read, scalar, store, to_tensor
from eagerdecomp.backends.numpy.views import sliced

__all__ = ["KERNELS", "check_gradient", "folded", "unfolded"]

Ints = Sequence[int]


def _padded(values: Array, padding: Ints, fill: Any) -> Array:
    if not any(padding):
        return values
    still = values.ndim - len(padding)
    return np.pad(values, [(0, 0)] * still + [(pad, pad) for pad in padding], constant_values=fill)


def unfolded(values: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, extent: Ints, fill: Any = 0) -> Array:
    """Return all windows over the last dimensions, as a view of shape [..., *kernel, *extent].

    Elements outside the input are `fill`, even beyond the padding.
    """
    values = _padded(values, padding, fill)
    still = values.ndim - len(kernel)
    lack = [
        max(0, (count - 1) * step + gap * (width - 1) + 1 - size)
        for size, count, step, gap, width in zip(values.shape[still:], extent, stride, dilation, kernel, strict=True)
    ]
    if any(lack):
        values = np.pad(values, [(0, 0)] * still + [(0, more) for more in lack], constant_values=fill)
    steps = values.strides[still:]
    strides = [step * gap for step, gap in zip(steps, dilation, strict=True)] + [
        step * by for step, by in zip(steps, stride, strict=True)
    ]
    shape = (*values.shape[:still], *kernel, *extent)
    return np.lib.stride_tricks.as_strided(values, shape, (*values.strides[:still], *strides), writeable=False)


def folded(columns: Array, size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Array:
    """Add each element of [..., *kernel, *extent] to the position from which `unfolded` reads it (its transpose)."""
    dims = len(size)
    still = columns.ndim - 2 * dims
    kernel, extent = columns.shape[still : still + dims], columns.shape[still + dims :]
    room = [
        max(whole + 2 * pad, (count - 1) * step + gap * (width - 1) + 1)
        for whole, pad, count, step, gap, width in zip(size, padding, extent, stride, dilation, kernel, strict=True)
    ]
    made: Array = np.zeros((*columns.shape[:still], *room), columns.dtype)
    for place in np.ndindex(*kernel):
        cut = tuple(
            slice(one * gap, one * gap + (count - 1) * step + 1, step)
            for one, gap, count, step in zip(place, dilation, extent, stride, strict=True)
        )
        if all(extent):
            made[(..., *cut)] += columns[(..., *place, *[slice(None)] * dims)]
    inner = tuple(slice(pad, pad + whole) for pad, whole in zip(padding, size, strict=True))
    return made[(..., *inner)]


def _each(value: Ints | int, dims: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * dims
    return tuple(value) * dims if len(value) == 1 else tuple(value)


def _extent(size: int, width: int, step: int, pad: int, gap: int, ceil_mode: bool) -> int:
    """Return the number of windows. With `ceil_mode`, none may begin after the input and its left padding."""
    reach = size + 2 * pad - gap * (width - 1) - 1
    count = -(-reach // step) + 1 if ceil_mode else reach // step + 1
    if ceil_mode and (count - 1) * step >= size + pad:
        count -= 1
    if count < 1:
        raise RuntimeError("pooling: Output size is too small")
    return count


def check_gradient(grad: Tensor, x: Tensor, expected: Sequence[int]) -> None:
    """Check the dtype and shape of a result's gradient."""
    if list(grad.shape) != list(expected) or grad.dtype is not x.dtype:
        raise RuntimeError(f"expected a gradient of {x.dtype} with the shape {expected}, but got {grad.dtype} {list(grad.shape)}")


class _Pool:
    """The parameters of a pool for `dims` spatial dimensions."""

    def __init__(self, x: Tensor, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> None:
        self.dims, self.kernel = dims, _each(kernel, dims)
        self.stride = _each(stride, dims) if not isinstance(stride, int) and len(stride) else self.kernel
        self.padding, self.dilation = _each(padding, dims), _each(dilation, dims)
        if min(*self.kernel, *self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            raise RuntimeError("pooling: kernel, stride and dilation should be greater than zero, pad must be non-negative")
        if any(2 * pad > width for pad, width in zip(self.padding, self.kernel, strict=True)):
            raise RuntimeError("pad should be at most half of effective kernel size")
        if x.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(f"pooling: expected {dims + 1}D or {dims + 2}D input, but got: {list(x.shape)}")
        if 0 in x.shape[int(x.dim() == dims + 2) :]:
            raise RuntimeError(
                f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got: "
                f"{list(x.shape)}"
            )
        self.size = tuple(x.shape[-dims:])
        self.extent = tuple(
            _extent(*one, ceil_mode) for one in zip(self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )

    def check_gradient(self, grad: Tensor, x: Tensor) -> None:
        check_gradient(grad, x, [*x.shape[: -self.dims], *self.extent])

    def windows(self, values: Array, fill: Any) -> Array:
        """Return the windows with shape [..., *extent, product of kernel]."""
        cut = unfolded(values, self.kernel, self.stride, self.padding, self.dilation, self.extent, fill)
        still = cut.ndim - 2 * self.dims
        order = [*range(still), *range(still + self.dims, cut.ndim), *range(still, still + self.dims)]
        return cut.transpose(order).reshape(*values.shape[: -self.dims], *self.extent, math.prod(self.kernel))

    def counted(self, include_pad: bool, divisor: int | None) -> Array:
        """Return the divisor of each window's sum."""
        if divisor is not None:
            if not divisor:
                raise RuntimeError("divisor must be not zero")
            return np.asarray(float(divisor))
        inside = np.pad(np.ones(self.size), [(pad, pad) for pad in self.padding], constant_values=float(include_pad))
        free = _Free(self)
        return free.windows(inside).sum(-1)


class _Free:
    """The same windows over values that are already padded."""

    def __init__(self, pool: _Pool) -> None:
        self.pool = pool

    def windows(self, values: Array) -> Array:
        pool = self.pool
        cut = unfolded(values, pool.kernel, pool.stride, [0] * pool.dims, pool.dilation, pool.extent)
        return cut.transpose([*range(pool.dims, cut.ndim), *range(pool.dims)]).reshape(*pool.extent, -1)


def _average(dims: int) -> Callable[..., Tensor]:
    def run(
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        pool = _Pool(x, dims, kernel, stride, padding, 1, ceil_mode)
        if dims == 3 and any(size < width for size, width in zip(pool.size, pool.kernel, strict=True)):
            raise RuntimeError(f"input image {list(pool.size)} smaller than kernel size {list(pool.kernel)}")
        cut, by = pool.windows(read(x), 0), pool.counted(count_include_pad, divisor_override)
        if x.dtype.is_floating_point:
            made = cut.sum(-1, dtype=np.float64) / by
        else:  # integer division as in C++
            summed, count = cut.sum(-1, dtype=np.int64), by.astype(np.int64)
            down, rest = np.divmod(summed, count)
            made = down + ((rest != 0) & ((summed < 0) != (count < 0)))
        return to_tensor(made, x.dtype) if dims == 3 else formatted(made, x.dtype, x)

    return run


def _average_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    pool = _Pool(x, 2, kernel, stride, padding, 1, ceil_mode)
    pool.check_gradient(grad, x)
    shared = read(grad) / pool.counted(count_include_pad, divisor_override)
    columns = np.broadcast_to(shared[..., None, None, :, :], (*x.shape[:-2], *pool.kernel, *pool.extent))
    return formatted(folded(columns, pool.size, pool.stride, pool.padding, pool.dilation), x.dtype, x)


def _largest(dims: int) -> Callable[..., tuple[Tensor, Tensor]]:
    def run(
        x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> tuple[Tensor, Tensor]:
        pool = _Pool(x, dims, kernel, stride, padding, dilation, ceil_mode)
        if dims == 3 and x.dim() == 4 and suggested_memory_format(x) is not torch.contiguous_format:
            raise RuntimeError("Unsupported memory format. Supports only ChannelsLast3d, Contiguous")
        last = suggested_memory_format(x) is not torch.contiguous_format  # then eager stores indices in the input's dtype
        if last and not x.dtype.is_floating_point and math.prod(pool.size) > torch.iinfo(x.dtype).max:
            raise RuntimeError(f"an index into {math.prod(pool.size)} elements must be representable in {x.dtype}")
        values = read(x)
        least = -np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).min
        cut = pool.windows(values, least)
        numbers = pool.windows(np.arange(math.prod(pool.size)).reshape(pool.size), -1)
        # The first of equal maxima, and the last NaN, as in eager's loop.
        inside = np.broadcast_to(numbers >= 0, cut.shape)
        key = np.where(inside, cut, least)
        first = np.argmax((key == key.max(-1, keepdims=True)) & inside, axis=-1)
        nan = np.isnan(key) if values.dtype.kind == "f" else np.zeros(key.shape, bool)
        last = key.shape[-1] - 1 - np.argmax(nan[..., ::-1], axis=-1)
        place = np.where(nan.any(-1), last, first)[..., None]
        found = np.take_along_axis(cut, place, -1)[..., 0]
        return (
            formatted(found, x.dtype, x),
            formatted(np.take_along_axis(np.broadcast_to(numbers, cut.shape), place, -1)[..., 0], torch.int64, x),
        )

    return run


def _largest_backward(
    grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Tensor
) -> Tensor:
    _Pool(x, 2, kernel, stride, padding, dilation, ceil_mode).check_gradient(grad, x)
    if indices.shape != grad.shape:
        raise RuntimeError(f"expected indices with the shape {list(grad.shape)} of the gradient, but got {list(indices.shape)}")
    planes = math.prod(x.shape[:-2])
    made = np.zeros((planes, math.prod(x.shape[-2:])), read(grad).dtype)
    places = read(indices).reshape(planes, -1)
    np.add.at(made, (np.arange(planes)[:, None], places), read(grad).reshape(planes, -1))
    return formatted(made.reshape(tuple(x.shape)), x.dtype, x)


def _adaptive_windows(size: int, count: int) -> list[slice]:
    return [slice(one * size // count, -(-(one + 1) * size // count)) for one in range(count)]


def _adaptive(dims: int) -> Callable[[Tensor, Ints], Tensor]:
    def run(x: Tensor, output_size: Ints) -> Tensor:
        if len(output_size) != dims or min(output_size) < 0:
            raise RuntimeError(f"adaptive_avg_pool{dims}d: output_size must be {dims} sizes from 0 on, but got {list(output_size)}")
        if x.dim() not in (dims + 1, dims + 2) or 0 in x.shape[-dims:]:
            raise RuntimeError(f"adaptive_avg_pool{dims}d(): cannot take an input of {list(x.shape)}")
        values = read(x).astype(np.float64)
        for place, count in enumerate(_each(output_size, dims)):
            turned = np.moveaxis(values, values.ndim - dims + place, 0)
            means = [turned[window].mean(0) for window in _adaptive_windows(len(turned), count)]
            made = np.stack(means) if means else np.empty((0, *turned.shape[1:]))
            values = np.moveaxis(made, 0, values.ndim - dims + place)
        return to_tensor(values, x.dtype) if dims == 3 else formatted(values, x.dtype, x)

    return run


def _adaptive_backward(grad: Tensor, x: Tensor) -> Tensor:
    if grad.dtype is not x.dtype or grad.dim() != x.dim():
        raise RuntimeError(f"Expected a gradient of {x.dtype} with {x.dim()} dimensions, but got {grad.dtype} {list(grad.shape)}")
    values = read(grad).astype(np.float64)
    for along in (values.ndim - 2, values.ndim - 1):
        turned = np.moveaxis(values, along, 0)
        made = np.zeros((x.shape[along], *turned.shape[1:]))
        for one, window in enumerate(_adaptive_windows(len(made), len(turned))):
            made[window] += turned[one] / (window.stop - window.start)
        values = np.moveaxis(made, 0, along)
    return formatted(values, x.dtype, x)


def _col2im(x: Tensor, output_size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Tensor:
    if x.dim() not in (2, 3) or min(*kernel, *dilation, *stride) < 1 or min(padding) < 0:
        raise RuntimeError("col2im: expected 2D or 3D input, positive kernel_size, dilation and stride, and padding from 0 on")
    extent = [
        (size + 2 * pad - gap * (width - 1) - 1) // step + 1
        for size, pad, gap, width, step in zip(output_size, padding, dilation, kernel, stride, strict=True)
    ]
    if min(*extent, *output_size, x.shape[-1]) < 1 or x.shape[-1] != math.prod(extent):
        raise RuntimeError(f"col2im: {x.shape[-1]} columns are not those of windows of {list(extent)}")
    columns = read(x).reshape(*x.shape[:-2], x.shape[-2] // math.prod(kernel), *kernel, *extent)
    return to_tensor(folded(columns, output_size, stride, padding, dilation), x.dtype)


# -- padding ------------------------------------------------------------------------------------------------------


def _pairs(pad: Ints) -> list[tuple[int, int]]:
    """Return the padding as pairs, the first dimension first; ATen lists the last one first."""
    return [(pad[place], pad[place + 1]) for place in range(len(pad) - 2, -2, -2)]


def _constant_pad(x: Tensor, pad: Ints, value: Number = 0) -> Tensor:
    if len(pad) % 2 or len(pad) > 2 * x.dim():
        raise RuntimeError("Length of pad must be even and no more than twice the number of dimensions of the input.")
    widths = [(0, 0)] * (x.dim() - len(pad) // 2) + _pairs(pad)
    shape = [size + sum(pair) for size, pair in zip(x.shape, widths, strict=True)]
    cropped_sizes = [size + min(low, 0) + min(high, 0) for size, (low, high) in zip(x.shape, widths, strict=True)]
    if min((*shape, *cropped_sizes), default=0) < 0:
        raise RuntimeError(f"The input size {list(x.shape)}, plus padding {list(pad)}, resulted in a negative output size")
    made = np.full(shape, scalar(value, x.dtype))
    into = tuple(slice(max(low, 0), size - max(high, 0)) for (low, high), size in zip(widths, shape, strict=True))
    cut = tuple(slice(max(-low, 0), size - max(-high, 0)) for (low, high), size in zip(widths, x.shape, strict=True))
    made[into] = read(x)[cut]
    if max(pad, default=0) <= 0:
        cropped = x
        for along, part in enumerate(cut):
            cropped = sliced(cropped, along, part.start, part.stop)
        return store(alike(cropped, x.dtype), made)
    return formatted(made, x.dtype, x)


def _pad_by(dims: int, place: Callable[[Array, int], Array], farthest: Callable[[int], float]) -> Callable[[Tensor, Ints], Tensor]:
    """Return a kernel that pads `dims` dimensions with the tensor's own elements.

    `place` maps an index outside the tensor to one inside.
    """

    def run(x: Tensor, padding: Ints) -> Tensor:
        if len(padding) != 2 * dims:
            raise RuntimeError(f"padding size is expected to be {2 * dims}, but got: {len(padding)}")
        whole = x.shape[1:] if x.dim() == dims + 2 else x.shape
        if x.dim() not in (dims + 1, dims + 2) or 0 in whole:
            raise RuntimeError(
                f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions "
                f"for input, but got: {list(x.shape)}"
            )
        sizes = [size + low + high for size, (low, high) in zip(x.shape[-dims:], _pairs(padding), strict=True)]
        if min(sizes) < 0 or max(sizes) < 1:
            raise RuntimeError(f"padding {list(padding)} leaves nothing of an input of {list(x.shape)}")
        values = read(x)
        for along, (low, high) in enumerate(_pairs(padding), x.dim() - dims):
            size = values.shape[along]
            wanted = np.arange(-low, size + high)
            if max(low, high) > farthest(size):
                raise RuntimeError(f"padding {list(padding)} does not fit an input of {list(x.shape)}")
            values = np.take(values, place(wanted, size), axis=along)
        return formatted(values, x.dtype, x)

    return run


def _reflected(dims: int) -> Callable[[Tensor, Ints], Tensor]:
    return _pad_by(dims, lambda place, size: size - 1 - np.abs(size - 1 - np.abs(place)), lambda size: size - 1)


def _replicated(dims: int) -> Callable[[Tensor, Ints], Tensor]:
    return _pad_by(dims, lambda place, size: np.clip(place, 0, size - 1), lambda size: math.inf)


KERNELS: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool2d": _adaptive(2),
    "_adaptive_avg_pool2d_backward": _adaptive_backward,
    "_adaptive_avg_pool3d": _adaptive(3),
    "adaptive_avg_pool1d": _adaptive(1),
    "avg_pool1d": _average(1),
    "avg_pool2d": _average(2),
    "avg_pool2d_backward": _average_backward,
    "avg_pool3d": _average(3),
    "col2im": _col2im,
    "constant_pad_nd": _constant_pad,
    "max_pool2d_with_indices": _largest(2),
    "max_pool2d_with_indices_backward": _largest_backward,
    "max_pool3d_with_indices": _largest(3),
    "reflection_pad1d": _reflected(1),
    "reflection_pad2d": _reflected(2),
    "reflection_pad3d": _reflected(3),
    "replication_pad2d": _replicated(2),
    "replication_pad3d": _replicated(3),
}
