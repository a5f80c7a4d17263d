"""Normalizations, forward and backward. Statistics of float32, float16 and bfloat16 are computed in float32, about the mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import torch

from xla.arrays import Array, Result, Value, described, read
from xla.formats import formatted, like_operand

__all__ = ["KERNELS"]


def _wide(x: Value | None, *shape: int) -> Array | None:
    if x is None:
        return None
    values = read(x)
    return values.reshape(shape) if shape else values


def _need(x: Value, *shape: int) -> Array:
    found = _wide(x, *shape)
    assert found is not None
    return found


def _statistics(values: Array, over: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """Mean, variance and one over the deviation."""
    mean = values.mean(axis=over, keepdims=True)
    variance = ((values - mean) ** 2).mean(axis=over, keepdims=True)
    return mean, variance, 1 / jnp.sqrt(variance + eps)


def _scaled(values: Array, weight: Array | None, bias: Array | None) -> Array:
    values = values if weight is None else values * weight
    return values if bias is None else values + bias


def _kept_in(x: Value, *others: Value | None) -> torch.dtype:
    """The dtype of what is kept for the backward: float32 beside half inputs whose weights are float32."""
    return torch.float32 if any(one is not None and one.dtype is torch.float32 for one in others) else x.dtype


def _check_kept(x: Value, mean: Value, weight: Value | None) -> None:
    if mean.dtype is not _kept_in(x, weight):
        raise RuntimeError(f"expected scalar type {_kept_in(x, weight)} but found {mean.dtype}")


def _layer_norm(
    x: Value, normalized_shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Result, ...]:
    inner = len(normalized_shape)
    if list(x.shape[x.dim() - inner :]) != list(normalized_shape) or inner < 1:
        raise RuntimeError(f"Given normalized_shape={list(normalized_shape)}, got input of size {list(x.shape)}")
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and list(given.shape) != list(normalized_shape):
            raise RuntimeError(f"Expected {name} to be of shape {list(normalized_shape)}, but got {list(given.shape)}")
    values = _need(x)
    mean, _, scale = _statistics(values, tuple(range(x.dim() - inner, x.dim())), eps)
    kept = _kept_in(x, weight, bias)
    made = _scaled((values - mean) * scale, _wide(weight), _wide(bias))
    return Result(made, x.dtype), Result(mean, kept), Result(scale, kept)


def _layer_norm_backward(
    grad: Value,
    x: Value,
    normalized_shape: Sequence[int],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> tuple[Result | None, ...]:
    if (output_mask[1] and weight is None) or (output_mask[2] and bias is None):
        raise RuntimeError("there is no gradient of a weight or bias that is not there")
    if x.numel():
        _check_kept(x, mean, weight)
    inner = len(normalized_shape)
    over, batch = tuple(range(x.dim() - inner, x.dim())), tuple(range(x.dim() - inner))
    gradient, scale = _need(grad), _need(rstd)
    normal = (_need(x) - _need(mean)) * scale
    through = gradient if weight is None else gradient * _need(weight)
    kept = weight.dtype if weight is not None else bias.dtype if bias is not None and not x.numel() else x.dtype
    return (
        Result(_through_statistics(through, normal, scale, over), x.dtype) if output_mask[0] else None,
        Result((gradient * normal).sum(axis=batch), kept) if output_mask[1] else None,
        Result(gradient.sum(axis=batch), kept) if output_mask[2] else None,
    )


def _through_statistics(through: Array, normal: Array, scale: Array, over: tuple[int, ...]) -> Array:
    """The gradient by what is normalised, which moves mean and deviation too."""
    return scale * (through - through.mean(axis=over, keepdims=True) - normal * (through * normal).mean(axis=over, keepdims=True))


def _group_norm(
    x: Value, weight: Value | None, bias: Value | None, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Result, ...]:
    if group < 1 or c % group:
        raise RuntimeError(f"Expected number of channels in input, {c}, to be divisible by num_groups={group}")
    if x.numel() != n * c * hxw or any(one is not None and list(one.shape) != [c] for one in (weight, bias)):
        raise RuntimeError("Expected as many elements in X as N * C * HxW, and weight and bias to be vectors of C")
    values = _need(x).reshape(n, group, c // group * hxw)
    mean, _, scale = _statistics(values, (2,), eps)
    normal = ((values - mean) * scale).reshape(n, c, hxw)
    made = _scaled(normal, _wide(weight, c, 1), _wide(bias, c, 1)).reshape(x.shape)
    kept = _kept_in(x, weight, bias)
    return like_operand(made, x.dtype, x), Result(mean[..., 0], kept), Result(scale[..., 0], kept)


def _group_norm_backward(
    grad: Value,
    x: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Result | None, ...]:
    if weight is None and (output_mask[1] or output_mask[2]):
        raise RuntimeError("there is no gradient of a weight that is not there")
    gradient = _need(grad).reshape(n, c, hxw)
    scale = _need(rstd, n, group, 1)
    normal = (_need(x).reshape(n, group, c // group * hxw) - _need(mean, n, group, 1)) * scale
    through = (gradient if weight is None else gradient * _need(weight, c, 1)).reshape(n, group, c // group * hxw)
    kept = weight.dtype if weight is not None else x.dtype
    of_input = _through_statistics(through, normal, scale, (2,)).reshape(x.shape)
    return (
        like_operand(of_input, x.dtype, x) if output_mask[0] else None,
        Result((gradient * normal.reshape(n, c, hxw)).sum((0, 2)), kept) if output_mask[1] else None,
        Result(gradient.sum((0, 2)), kept) if output_mask[2] else None,
    )


def _normalized(x: Value, weight: Value | None, bias: Value | None, mean: Array, scale: Array) -> Result:
    shape = (-1, *[1] * (x.dim() - 2))
    normal = (_need(x) - mean.reshape(shape)) * scale.reshape(shape)
    return formatted(_scaled(normal, _wide(weight, *shape), _wide(bias, *shape)), x.dtype, x)


def _batch_norm(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Result, ...]:
    kept = _kept_in(x, weight, bias, running_mean, running_var)
    if not training:
        assert running_mean is not None
        assert running_var is not None
        made = _normalized(x, weight, bias, _need(running_mean), 1 / jnp.sqrt(_need(running_var) + eps))
        return made, Result(jnp.zeros(0), kept), Result(jnp.zeros(0), kept)
    values = _need(x)
    over = (0, *range(2, x.dim()))
    mean, variance, scale = (one.reshape(-1) for one in _statistics(values, over, eps))
    count = math.prod(x.shape[one] for one in over)
    if running_mean is not None:
        running_mean.write((1 - momentum) * _need(running_mean) + momentum * mean)
    if running_var is not None:
        unbiased = variance * (count / (count - 1) if count != 1 else math.nan)
        running_var.write((1 - momentum) * _need(running_var) + momentum * unbiased)
    return _normalized(x, weight, bias, mean, scale), Result(mean, kept), Result(scale, kept)


_TABLE: dict[str, Callable[..., Any]] = {
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit.no_stats": lambda x, weight, bias, training, momentum, eps: _batch_norm(
        x, weight, bias, None, None, True, momentum, eps
    ),
    "_native_batch_norm_legit_no_training": lambda x, weight, bias, mean, var, momentum, eps: _batch_norm(
        x, weight, bias, mean, var, False, momentum, eps
    ),
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
}

KERNELS = {name: described(kernel) for name, kernel in _TABLE.items()}
