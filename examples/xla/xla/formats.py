"""Memory formats of results, by the rules that ATen's kernels have."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from xla.arrays import Array, Result, Value

__all__ = ["channels_last", "formatted", "like_operand"]


def channels_last(x: Value) -> bool:
    """Whether ATen takes a tensor's memory format for channels last: `is_channels_last_strides`, by sizes and strides alone."""
    order = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}.get(x.dim())
    if order is None or x.stride is None or not x.stride[1]:
        return False
    least = 0
    for dim in order:
        if not x.shape[dim] or x.stride[dim] < least or (dim == 0 and least == x.stride[1]):
            return False
        least = x.stride[dim] * max(x.shape[dim], 1) if x.shape[dim] > 1 else x.stride[dim]
    return True


def last_strides(shape: Sequence[int]) -> list[int]:
    """Return the strides of a channels last tensor."""
    strides, step = [0] * len(shape), 1
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return strides


def formatted(array: Array, dtype: torch.dtype, *givers: Value) -> Result:
    """Return a result that is channels last where one of the givers is, else contiguous."""
    last = any(one.dim() == array.ndim and channels_last(one) for one in givers)
    return Result(array, dtype, last_strides(array.shape) if last else None)


def like_operand(array: Array, dtype: torch.dtype, x: Value) -> Result:
    """Return a result with the strides of `x`, or with its order of dimensions where `x` has gaps or overlaps."""
    if x.stride is None:
        return Result(array, dtype)
    order = sorted(range(x.dim()), key=lambda dim: (-x.stride[dim], dim)) if x.stride is not None else []
    strides, step = [0] * x.dim(), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(x.shape[dim], 1)
    return Result(array, dtype, strides)
