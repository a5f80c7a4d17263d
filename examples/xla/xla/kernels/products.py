"""Products of matrices, convolutions, transforms and distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xla.arrays import Array, Result, Value, read, scalar, wide
from xla.formats import formatted

__all__ = ["KERNELS"]

lax = jax.lax


def _matmul(x: Value, y: Value) -> Array:
    """Multiply in the operands' dtype; the products of float16 and bfloat16 are summed in float32."""
    if x.dtype is not y.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {x.dtype} != {y.dtype}")
    return jnp.matmul(read(x), read(y), precision=lax.Precision.HIGHEST)


def _addmm(bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Array:
    if bias.dtype is not x.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {bias.dtype} and {y.dtype}")
    product = _matmul(x, y)
    if bias.dim() > 2 or jnp.broadcast_shapes(product.shape, tuple(bias.shape)) != product.shape:
        raise RuntimeError(f"self of the shape {list(bias.shape)} does not broadcast to the product, {list(product.shape)}")
    if alpha != 1:
        product = product * scalar(alpha, wide(x.dtype))
    if beta:
        added = read(bias)
        product = product + (added if beta == 1 else added * scalar(beta, wide(x.dtype)))
    return product


# -- convolution -------------------------------------------------------------------------------------------------------


def _spread(value: Sequence[int], dims: int) -> tuple[int, ...]:
    """Return one number for each dimension: a single one stands for all."""
    return tuple(value) * dims if len(value) == 1 else tuple(value)


def _conv(x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> Array:
    dims = w.ndim - 2
    letters = "DHW"[-dims:] if dims <= 3 else "".join(map(chr, range(ord("a"), ord("a") + dims)))
    spec = (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    return lax.conv_general_dilated(
        x, w, tuple(stride), [(one, one) for one in padding], rhs_dilation=tuple(dilation), dimension_numbers=spec,
        feature_group_count=groups, precision=lax.Precision.HIGHEST,
    )  # fmt: skip


def _conv_transposed(
    x: Array,
    w: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    more: Sequence[int],
    groups: int,
) -> Array:
    """The gradient of a convolution by its input: the input dilated by the stride, the kernel turned."""
    dims = w.ndim - 2
    letters = "DHW"[-dims:]
    # [in, out / groups, ...] to [out, in / groups, ...]
    w = jnp.flip(w, tuple(range(2, dims + 2)))
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    w = jnp.swapaxes(w, 1, 2).reshape(-1, w.shape[1], *w.shape[3:])
    edges = [gap * (size - 1) - pad for gap, size, pad in zip(dilation, w.shape[2:], padding, strict=True)]
    spec = (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    return lax.conv_general_dilated(
        x, w, (1,) * dims, [(one, one + extra) for one, extra in zip(edges, more, strict=True)], lhs_dilation=tuple(stride),
        rhs_dilation=tuple(dilation), dimension_numbers=spec, feature_group_count=groups, precision=lax.Precision.HIGHEST,
    )  # fmt: skip


def _convolution(
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Array | Result:
    dims = weight.dim() - 2
    _check_convolution(x, weight, bias, transposed, groups)
    stride, padding, dilation, more = (_spread(one, dims) for one in (stride, padding, dilation, output_padding))
    if min(*padding, *more, 0) < 0 or min(*stride, *dilation, groups) < 1:
        raise RuntimeError("negative padding, and stride, dilation and groups that are not positive, are not supported")
    if transposed and any(one >= max(pair) for one, *pair in zip(more, stride, dilation, strict=True)):
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got {list(more)}")
    values, kernel = read(x), read(weight)
    if not x.numel() or not weight.numel():
        made = jnp.zeros((), values.dtype)
    elif transposed:
        made = _conv_transposed(values, kernel, stride, padding, dilation, more, groups)
    else:
        made = _conv(values, kernel, stride, padding, dilation, groups)
    made = made if bias is None else made + read(bias).reshape(-1, *[1] * dims)
    # Torch's Meta kernel does not follow the memory format of the input. Of an empty result it knows the shape.
    return formatted(made, x.dtype, x, weight) if dims == 2 and made.ndim == x.dim() else made


def _check_convolution(x: Value, weight: Value, bias: Value | None, transposed: bool, groups: int) -> None:
    if groups < 1:
        raise RuntimeError("non-positive groups is not supported")
    if x.dim() != weight.dim():
        raise RuntimeError(f"Expected {weight.dim()}-dimensional input for {weight.dim()}-dimensional weight {list(weight.shape)}")
    if x.dtype is not weight.dtype or (bias is not None and bias.dtype is not x.dtype):
        raise RuntimeError(f"Input type ({x.dtype}) and weight type ({weight.dtype}) should be the same")
    if bias is not None and list(bias.shape) != [weight.shape[1] * groups if transposed else weight.shape[0]]:
        raise RuntimeError(f"Given weight of size {list(weight.shape)}, got a bias of size {list(bias.shape)}")
    if weight.shape[0] % groups or x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups):
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)} does not take an input of size {list(x.shape)}"
        )


def _convolution_backward(
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    dims = weight.dim() - 2
    stride, padding, dilation, more = (_spread(one, dims) for one in (stride, padding, dilation, output_padding))
    gradient, values, kernel = read(grad), read(x), read(weight)

    def forward(values: Array, kernel: Array) -> Array:
        if transposed:
            return _conv_transposed(values, kernel, stride, padding, dilation, more, groups)
        return _conv(values, kernel, stride, padding, dilation, groups)

    of_input = of_weight = None
    if not (x.numel() and weight.numel() and grad.numel()):
        of_input, of_weight = jnp.zeros(x.shape, values.dtype), jnp.zeros(weight.shape, kernel.dtype)
    else:
        # A convolution is linear in each: the transposes, without a forward pass.
        if output_mask[0]:
            (of_input,) = jax.linear_transpose(lambda one: forward(one, kernel), values)(gradient)
        if output_mask[1]:
            (of_weight,) = jax.linear_transpose(lambda one: forward(values, one), kernel)(gradient)
    of_bias = gradient.sum(axis=(0, *range(2, dims + 2))) if output_mask[2] else None
    return of_input if output_mask[0] else None, of_weight if output_mask[1] else None, of_bias


# -- transforms and distances ------------------------------------------------------------------------------------------

#: PyTorch's numbers for how a transform is normalised: by nothing, by the root of the length, by the length.
_SCALES: tuple[Callable[[int], float], ...] = (lambda length: 1.0, math.sqrt, float)


def _fft_r2c(x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    if x.dtype not in (torch.float32, torch.float64):
        raise RuntimeError(f"MKL FFT doesn't support tensors of type: {x.dtype}")
    over = [one % x.dim() for one in dim]
    made = x.array + 0j
    for one in over:
        made = jnp.fft.fft(made, axis=one)
    if onesided:
        made = jnp.take(made, jnp.arange(x.shape[over[-1]] // 2 + 1), axis=over[-1])
    return made / _SCALES[normalization](math.prod(x.shape[one] for one in over))


def _fft_c2r(x: Value, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    if not x.dtype.is_complex:
        raise RuntimeError(f"Only supports complex dtypes, but found: {x.dtype}")
    values = x.array
    over = [one % x.dim() for one in dim]
    scale = _SCALES[normalization](math.prod(x.shape[one] for one in over[:-1]) * last_dim_size)
    for one in over[:-1]:
        values = jnp.fft.ifft(values, axis=one, norm="forward")
    return jnp.fft.irfft(values, n=last_dim_size, axis=over[-1], norm="forward") / scale


def _norms(apart: Array, p: float) -> Array:
    size = jnp.abs(apart)
    if p == 0:
        return (size != 0).sum(-1)
    if math.isinf(p):
        return size.max(-1, initial=0)
    if p == 2:
        most = jnp.max(size, -1, keepdims=True, initial=0)
        safe = jnp.where((most == 0) | jnp.isinf(most), 1, most)
        return safe[..., 0] * jnp.sqrt(jnp.square(size / safe).sum(-1))
    return size.sum(-1) if p == 1 else jnp.power(jnp.power(size, p).sum(-1), 1 / p)


def _cdist(x: Value, y: Value, p: float, compute_mode: int | None) -> Array:
    if x.dtype is not y.dtype:
        raise RuntimeError("cdist: both tensors must have the same dtype")
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"cdist only supports floating-point dtypes, X1 got: {x.dtype}")
    if compute_mode not in (None, 0, 1, 2):
        raise RuntimeError(f"possible modes: 0, 1, 2, but was: {compute_mode}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    return _norms(read(x)[..., :, None, :] - read(y)[..., None, :, :], p)


def _pdist(x: Value, p: float = 2.0) -> Array:
    if x.dim() != 2:
        raise RuntimeError("pdist only supports 2D tensors")
    left, right = jnp.triu_indices(x.shape[0], 1)
    return _norms(read(x)[left] - read(x)[right], p)


KERNELS: dict[str, Callable[..., Any]] = {
    "_cdist_forward": _cdist,
    "_fft_c2r": _fft_c2r,
    "_fft_r2c": _fft_r2c,
    "_pdist_forward": _pdist,
    "addmm": _addmm,
    "bmm": _matmul,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "mm": _matmul,
}
