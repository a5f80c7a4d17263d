"""Kernels of matrix products, convolutions (as matrix products), Fourier transforms and distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp.backends.numpy.arrays import Array, Number, allocate, formatted, read, scalar, store, to_tensor
from eagerdecomp.backends.numpy.reductions import axis
from eagerdecomp.backends.numpy.windows import check_gradient, folded, unfolded
from eagerdecomp.eager.messages import not_implemented
from eagerdecomp.eager.strides import in_order

__all__ = ["KERNELS"]


# -- matrices -----------------------------------------------------------------------------------------------------


def _product(name: str, dims: int) -> Callable[[Tensor, Tensor], Tensor]:
    def run(x: Tensor, y: Tensor) -> Tensor:
        _check(name, dims, x, y)
        return to_tensor(np.matmul(read(x), read(y)), x.dtype)

    return run


def _check(name: str, dims: int, x: Tensor, y: Tensor) -> None:
    if x.dim() != dims or y.dim() != dims:
        raise RuntimeError(f"{name}: self must be a matrix" if dims == 2 else f"batch1 must be a {dims}D tensor")
    if x.dtype is not y.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {x.dtype} != {y.dtype}")
    if x.dtype is torch.bool:
        raise not_implemented("addmm_impl_cpu_", x.dtype)
    if x.shape[-1] != y.shape[-2] or x.shape[:-2] != y.shape[:-2]:
        raise RuntimeError(f"{name}: shapes cannot be multiplied ({_by(x)} and {_by(y)})")


def _by(x: Tensor) -> str:
    return "x".join(map(str, x.shape))


def _addmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    _check("addmm", 2, x, y)
    if bias.dtype is not x.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {bias.dtype} and {y.dtype}")
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    product = np.matmul(read(x), read(y))
    if not alpha and wide is x.dtype:
        product = np.zeros_like(product)  # as in BLAS, not even NaN has an effect
    elif alpha != 1:
        product = product * scalar(alpha, wide)
    added = np.broadcast_to(read(bias), product.shape)
    if beta:
        product = product + (added if beta == 1 else added * scalar(beta, wide))
    return to_tensor(product, x.dtype)


# -- convolution --------------------------------------------------------------------------------------------------


def _spread(value: Sequence[int], dims: int) -> tuple[int, ...]:
    """Repeat a single value for all dimensions."""
    if len(value) not in (1, dims):
        raise RuntimeError(f"expected a single integer value or a list of {dims} values, but got {list(value)}")
    return tuple(value) * dims if len(value) == 1 else tuple(value)


class _Shape:
    """The parameters of a convolution for each spatial dimension, and its three matrix products.

    Windows slide over `wide`, and `narrow` has one element for each. A convolution computes `narrow` from `wide`; a transposed one
    computes `wide` from `narrow`.
    """

    def __init__(self, weight: Tensor, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: int) -> None:
        self.kernel = tuple(weight.shape[2:])
        given = (stride, padding, dilation, output_padding)
        self.stride, self.padding, self.dilation, self.more = (_spread(one, len(self.kernel)) for one in given)
        self.groups = groups
        if min(*self.padding, *self.more, 0) < 0 or min(*self.stride, *self.dilation) < 1:
            raise RuntimeError("negative padding, and stride and dilation that are not positive, are not supported")

    def columns(self, wide: Array, extent: Sequence[int]) -> Array:
        """Return the inputs of each position of `narrow`, with shape [batch, group, channels * kernel, positions]."""
        cut = unfolded(wide, self.kernel, self.stride, self.padding, self.dilation, extent)
        rows = wide.shape[1] // self.groups * math.prod(self.kernel)
        return cut.reshape(wide.shape[0], self.groups, rows, math.prod(extent))

    def narrow_extent(self, size: Sequence[int]) -> list[int]:
        reach = [
            one + 2 * pad - gap * (width - 1) - 1
            for one, pad, gap, width in zip(size, self.padding, self.dilation, self.kernel, strict=True)
        ]
        if min(reach) < 0:
            raise RuntimeError("Calculated padded input size per channel is smaller than the kernel size")
        return [one // step + 1 for one, step in zip(reach, self.stride, strict=True)]

    def wide_extent(self, size: Sequence[int], more: Sequence[int]) -> list[int]:
        numbers = zip(size, self.stride, self.padding, self.dilation, self.kernel, more, strict=True)
        found = [(one - 1) * step - 2 * pad + gap * (width - 1) + extra + 1 for one, step, pad, gap, width, extra in numbers]
        if min(found) < 0:
            raise RuntimeError(f"the padding {list(self.padding)} leaves a result of {found}")
        return found

    def narrow(self, wide: Array, weight: Array, extent: Sequence[int]) -> Array:
        made = np.matmul(self._matrix(weight), self.columns(wide, extent))
        return made.reshape(wide.shape[0], weight.shape[0], *extent)

    def wide(self, narrow: Array, weight: Array, extent: Sequence[int]) -> Array:
        batch, places = narrow.shape[0], math.prod(narrow.shape[2:])
        by_group = narrow.reshape(batch, self.groups, narrow.shape[1] // self.groups, places)
        columns = np.matmul(np.swapaxes(self._matrix(weight), 1, 2), by_group)
        columns = columns.reshape(batch, weight.shape[1] * self.groups, *self.kernel, *narrow.shape[2:])
        return folded(columns, extent, self.stride, self.padding, self.dilation)

    def weight(self, wide: Array, narrow: Array, shape: Sequence[int]) -> Array:
        columns = self.columns(wide, narrow.shape[2:])
        by_group = narrow.reshape(narrow.shape[0], self.groups, shape[0] // self.groups, math.prod(narrow.shape[2:]))
        return np.matmul(by_group, np.swapaxes(columns, 2, 3)).sum(0).reshape(tuple(shape))

    def _matrix(self, weight: Array) -> Array:
        return weight.reshape(self.groups, weight.shape[0] // self.groups, math.prod(weight.shape[1:]))


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    dims = weight.dim() - 2
    _check_convolution(x, weight, bias, transposed, groups)
    shape = _Shape(weight, stride, padding, dilation, output_padding, groups)
    values, more = read(x), shape.more
    if transposed and any(one >= max(pair) for one, *pair in zip(more, shape.stride, shape.dilation, strict=True)):
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got {list(more)}")
    if transposed:
        made = shape.wide(values, read(weight), shape.wide_extent(values.shape[2:], more))
    else:
        made = shape.narrow(values, read(weight), shape.narrow_extent(values.shape[2:]))
    if bias is not None:
        made = made + read(bias).reshape(-1, *[1] * dims)
    return formatted(made, x.dtype, *_givers(x, weight, transposed))


def _givers(x: Tensor, weight: Tensor, transposed: bool) -> tuple[Tensor, ...]:
    """Return the tensors that decide the memory format of results; eager's transposed 3-d kernel returns contiguous results."""
    return () if transposed and weight.dim() == 5 else (x, weight)


def _check_convolution(x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool, groups: int) -> None:
    if x.dim() != weight.dim():
        raise RuntimeError(f"Expected {weight.dim()}-dimensional input for {weight.dim()}-dimensional weight {list(weight.shape)}")
    if groups < 1:
        raise RuntimeError("non-positive groups is not supported")
    channels = x.shape[1]
    if x.dtype is not weight.dtype or (bias is not None and bias.dtype is not x.dtype):
        raise RuntimeError(f"Input type ({x.dtype}) and weight type ({weight.dtype}) should be the same")
    if bias is not None and list(bias.shape) != [weight.shape[1] * groups if transposed else weight.shape[0]]:
        raise RuntimeError(f"Given weight of size {list(weight.shape)}, got a bias of size {list(bias.shape)}")
    if weight.shape[0] % groups or channels != (weight.shape[0] if transposed else weight.shape[1] * groups):
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)} does not take an input of size {list(x.shape)}"
        )


def _convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dims = weight.dim() - 2
    _check_convolution(x, weight, None, transposed, groups)
    shape = _Shape(weight, stride, padding, dilation, output_padding, groups)
    extent = shape.wide_extent(x.shape[2:], shape.more) if transposed else shape.narrow_extent(x.shape[2:])
    expected = [x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0], *extent]
    if not transposed and any(shape.more):
        raise RuntimeError(f"output_padding is not supported for non-transposed convolutions; got: {list(shape.more)}")
    check_gradient(grad, x, expected)
    values, gradient = read(x), read(grad)
    of_input: Array | None = None
    if output_mask[0]:
        of_input = (shape.narrow if transposed else shape.wide)(gradient, read(weight), values.shape[2:])
    of_weight: Array | None = None
    if output_mask[1]:
        wide, narrow = (gradient, values) if transposed else (values, gradient)
        of_weight = shape.weight(wide, narrow, weight.shape)
    of_bias = gradient.sum(axis=(0, *range(2, dims + 2))) if output_mask[2] else None
    givers = _givers(x, weight, transposed)
    return (
        None if of_input is None else formatted(of_input, x.dtype, *givers),
        None if of_weight is None else formatted(of_weight, weight.dtype, *givers),
        None if of_bias is None else to_tensor(of_bias, x.dtype),
    )


# -- transforms and distances -------------------------------------------------------------------------------------

#: PyTorch's normalization modes 0, 1 and 2: divide by 1, by the square root of the length, by the length.
_SCALES: tuple[Callable[[int], float], ...] = (lambda length: 1.0, math.sqrt, float)


def _strides_of_transform(strides: Sequence[int], over: Sequence[int]) -> list[int]:
    """Return the memory order of the dimensions of a transform: batch dimensions by stride, then the transformed ones."""
    batch = sorted((dim for dim in range(len(strides)) if dim not in over), key=lambda dim: -strides[dim])
    return [*batch, *over]


def _by_stride(strides: Sequence[int], over: Sequence[int]) -> list[int]:
    return sorted(over, key=lambda dim: -strides[dim])


def _dims(dim: Sequence[int], dims: int) -> list[int]:
    found = [axis(one, dims) for one in dim]
    if len({*found}) < len(found):
        raise RuntimeError(f"duplicate dims are not allowed: {list(dim)}")
    return found


def _fft_r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    if x.dtype not in (torch.float32, torch.float64):
        raise RuntimeError(f"MKL FFT doesn't support tensors of type: {x.dtype}")
    over = _dims(dim, x.dim())
    made = np.fft.fftn(read(x), axes=over)
    if onesided:
        made = np.take(made, np.arange(x.shape[over[-1]] // 2 + 1), axis=over[-1])
    made = made / _SCALES[normalization](math.prod(x.shape[one] for one in over))
    order = _strides_of_transform(x.stride(), [*_by_stride(x.stride(), over[:-1]), over[-1]])
    return store(allocate(made.shape, x.dtype.to_complex(), order), made)


def _fft_c2r(x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    if not x.dtype.is_complex:
        raise RuntimeError(f"Only supports complex dtypes, but found: {x.dtype}")
    values, strides = read(x), x.stride()
    over = _dims(dim, x.dim())
    if min(dim) < 0:
        raise RuntimeError(f"negative dims are not supported: {list(dim)}")
    if x.shape[over[-1]] not in (last_dim_size, last_dim_size // 2 + 1):
        raise RuntimeError(f"{x.shape[over[-1]]} numbers do not transform to {last_dim_size}")
    scale = _SCALES[normalization](math.prod(x.shape[one] for one in over[:-1]) * last_dim_size)
    if len(over) > 1:
        values = np.fft.ifftn(values, axes=over[:-1], norm="forward")
        strides = tuple(in_order(x.shape, _strides_of_transform(strides, _by_stride(strides, over[:-1]))))
    made = np.fft.irfft(values, n=last_dim_size, axis=over[-1], norm="forward") / scale
    return store(allocate(made.shape, x.dtype.to_real(), _strides_of_transform(strides, over[-1:])), made)


def _norms(apart: Array, p: float) -> Array:
    size = np.abs(apart).astype(np.float64)
    if p == 0:
        return (size != 0).sum(-1)
    if math.isinf(p):
        return size.max(-1, initial=0)
    return np.power(np.power(size, p).sum(-1), 1 / p)


def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    if x.dtype is not y.dtype:
        raise RuntimeError("cdist: both tensors must have the same dtype")
    if x.shape[-1:] != y.shape[-1:]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {list(x.shape)} X2: {list(y.shape)}")
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"cdist only supports floating-point dtypes, X1 got: {x.dtype}")
    if compute_mode not in (None, 0, 1, 2):
        raise RuntimeError(f"possible modes: 0, 1, 2, but was: {compute_mode}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    return to_tensor(_norms(read(x)[..., :, None, :] - read(y)[..., None, :, :], p), x.dtype)


def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    if x.dim() != 2:
        raise RuntimeError("pdist only supports 2D tensors")
    if not x.is_contiguous():
        raise RuntimeError("_pdist_forward requires contiguous input")
    left, right = np.triu_indices(x.shape[0], 1)
    return to_tensor(_norms(read(x)[left] - read(x)[right], p), x.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "_cdist_forward": _cdist,
    "_fft_c2r": _fft_c2r,
    "_fft_r2c": _fft_r2c,
    "_pdist_forward": _pdist,
    "addmm": _addmm,
    "bmm": _product("bmm", 3),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "mm": _product("mm", 2),
}
