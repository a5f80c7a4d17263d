"""Kernels of normalizations, forward and backward, computed in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.backends.numpy.arrays import Array, formatted, read, store, to_tensor
from eagerdecomp.eager.messages import not_implemented

__all__ = ["KERNELS"]


def _float64_or_none(x: Tensor | None, *shape: int) -> Array | None:
    """Convert a tensor to a float64 array, with this shape if given; None stays None."""
    if x is None:
        return None
    values = read(x).astype(np.float64)
    return values.reshape(shape) if shape else values


def _float64(x: Tensor, *shape: int) -> Array:
    found = _float64_or_none(x, *shape)
    assert found is not None
    return found


def _statistics(values: Array, over: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """Return mean, variance and ``1 / sqrt(variance + eps)``."""
    mean = values.mean(axis=over, keepdims=True)
    variance = ((values - mean) ** 2).mean(axis=over, keepdims=True)
    return mean, variance, 1 / np.sqrt(variance + eps)


def _scaled(values: Array, weight: Array | None, bias: Array | None) -> Array:
    values = values if weight is None else values * weight
    return values if bias is None else values + bias


def _statistics_dtype(x: Tensor, *others: Tensor | None) -> torch.dtype:
    """Return the dtype of the saved statistics: float32 for float16 and bfloat16 inputs with float32 weights."""
    return torch.float32 if any(one is not None and one.dtype is torch.float32 for one in others) else x.dtype


def _check_parameters(x: Tensor, *parameters: Tensor | None) -> None:
    """Check that parameters and statistics have the dtype of the input, or float32 if that is shorter."""
    kinds = {one.dtype for one in parameters if one is not None} - {x.dtype}
    if kinds and (kinds != {torch.float32} or x.dtype not in (torch.float16, torch.bfloat16)):
        raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")


def _check_statistics_dtype(x: Tensor, mean: Tensor, weight: Tensor | None) -> None:
    if mean.dtype is not _statistics_dtype(x, weight):
        raise RuntimeError(f"expected scalar type {_statistics_dtype(x, weight)} but found {mean.dtype}")


def _inner(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None) -> int:
    """Return how many dimensions are normalized, after a check of the shapes."""
    inner = len(normalized_shape)
    if list(x.shape[x.dim() - inner :]) != list(normalized_shape) or inner < 1:
        raise RuntimeError(f"Given normalized_shape={list(normalized_shape)}, got input of size {list(x.shape)}")
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and list(given.shape) != list(normalized_shape):
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape {list(given.shape)} and "
                f"normalized_shape = {list(normalized_shape)}"
            )
    return inner


def _layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    inner = _inner(x, normalized_shape, weight, bias)
    _check_parameters(x, weight, bias)
    values = _float64(x)
    over = tuple(range(x.dim() - inner, x.dim()))
    mean, _, scale = _statistics(values, over, eps)
    kept = _statistics_dtype(x, weight, bias)
    made = _scaled((values - mean) * scale, _float64_or_none(weight), _float64_or_none(bias))
    return to_tensor(made, x.dtype), to_tensor(mean, kept), to_tensor(scale, kept)


def _layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    if (output_mask[1] and weight is None) or (output_mask[2] and bias is None):
        raise RuntimeError("output_mask requests the gradient of a weight or bias that is None")
    if x.numel():
        _check_statistics_dtype(x, mean, weight)
        _check_parameters(x, mean, rstd, weight, bias)
    inner = _inner(x, normalized_shape, weight, bias)
    if grad.dtype is not x.dtype:
        raise RuntimeError(f"expected scalar type {x.dtype} but found {grad.dtype}")
    over, batch = tuple(range(x.dim() - inner, x.dim())), tuple(range(x.dim() - inner))
    gradient, scale = _float64(grad), _float64(rstd)
    kept = weight.dtype if weight is not None else bias.dtype if bias is not None and not x.numel() else x.dtype
    normal = (_float64(x) - _float64(mean)) * scale
    through = gradient if weight is None else gradient * _float64(weight)
    of_input = scale * (
        through - through.mean(axis=over, keepdims=True) - normal * (through * normal).mean(axis=over, keepdims=True)
    )
    return (
        to_tensor(of_input, x.dtype) if output_mask[0] else None,
        to_tensor((gradient * normal).sum(axis=batch), weight.dtype) if output_mask[1] and weight is not None else None,
        to_tensor(gradient.sum(axis=batch), kept) if output_mask[2] else None,
    )


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if not x.is_contiguous(memory_format=suggested_memory_format(x)):
        raise RuntimeError("Expected X.is_contiguous(memory_format) to be true, but got false.")
    if group < 1 or c % group:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(x.shape)} and "
            f"num_groups={group}"
        )
    if x.numel() != n * c * hxw or any(one is not None and list(one.shape) != [c] for one in (weight, bias)):
        raise RuntimeError("Expected as many elements in X as N * C * HxW, and weight and bias to be vectors of C")
    _check_parameters(x, weight, bias)
    values = _float64(x).reshape(n, group, c // group * hxw)
    mean, _, scale = _statistics(values, (2,), eps)
    normal = ((values - mean) * scale).reshape(n, c, hxw)
    made = _scaled(normal, _float64_or_none(weight, c, 1), _float64_or_none(bias, c, 1)).reshape(tuple(x.shape))
    kept = _statistics_dtype(x, weight, bias)
    return to_tensor(made, x.dtype, [x]), to_tensor(mean[..., 0], kept), to_tensor(scale[..., 0], kept)


def _group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    if weight is None and (output_mask[1] or output_mask[2]):
        raise RuntimeError("output_mask requests the gradient of a weight or bias, but weight is None")
    if grad.dtype is not x.dtype or not grad.numel() == x.numel() == n * c * hxw or min(n, c, hxw) < 0:
        raise RuntimeError("Expected X and dY to have the same scalar type, and as many elements as N * C * HxW")
    _check_parameters(x, mean, rstd, weight)
    gradient = _float64(grad).reshape(n, c, hxw)
    scale = _float64(rstd, n, group, 1)
    normal = (_float64(x).reshape(n, group, -1) - _float64(mean, n, group, 1)) * scale
    through = (gradient if weight is None else gradient * _float64(weight, c, 1)).reshape(n, group, -1)
    of_input = scale * (through - through.mean(2, keepdims=True) - normal * (through * normal).mean(2, keepdims=True))
    kept = weight.dtype if weight is not None else x.dtype
    return (
        to_tensor(of_input.reshape(tuple(x.shape)), x.dtype, [x]) if output_mask[0] else None,
        to_tensor((gradient * normal.reshape(n, c, hxw)).sum((0, 2)), kept) if output_mask[1] else None,
        to_tensor(gradient.sum((0, 2)), kept) if output_mask[2] else None,
    )


def _normalized(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Array, scale: Array) -> Tensor:
    shape = (-1, *[1] * (x.dim() - 2))
    normal = (_float64(x) - mean.reshape(shape)) * scale.reshape(shape)
    return formatted(_scaled(normal, _float64_or_none(weight, *shape), _float64_or_none(bias, *shape)), x.dtype, x)


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if not x.dtype.is_floating_point:
        raise not_implemented("batch_norm", x.dtype)
    _check_parameters(x, weight, bias, running_mean, running_var)
    if any(one is not None and list(one.shape) != [x.shape[1]] for one in (weight, bias, running_mean, running_var)):
        raise RuntimeError(f"expected weight, bias and statistics to be vectors of {x.shape[1]}")
    kept = _statistics_dtype(x, weight, bias, running_mean, running_var)
    if not training:
        assert running_mean is not None
        assert running_var is not None
        made = _normalized(x, weight, bias, _float64(running_mean), 1 / np.sqrt(_float64(running_var) + eps))
        return made, to_tensor(np.empty(0), kept), to_tensor(np.empty(0), kept)
    values = _float64(x)
    over = (0, *range(2, x.dim()))
    mean, variance, scale = (one.reshape(-1) for one in _statistics(values, over, eps))
    count = math.prod(x.shape[one] for one in over)
    if running_mean is not None:
        store(running_mean, (1 - momentum) * _float64(running_mean) + momentum * mean)
    if running_var is not None:
        store(running_var, (1 - momentum) * _float64(running_var) + momentum * np.divide(variance * count, count - 1))
    return _normalized(x, weight, bias, mean, scale), to_tensor(mean, kept), to_tensor(scale, kept)


def _batch_norm_no_training(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps)


def _batch_norm_no_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _batch_norm(x, weight, bias, None, None, True, momentum, eps)


KERNELS: dict[str, Callable[..., Any]] = {
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_norm_no_stats,
    "_native_batch_norm_legit_no_training": _batch_norm_no_training,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
}
