"""Strides: how a tensor lies in memory, and how `torch.empty_like` would lay out another like it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["inverse", "is_dense", "memory_order"]

_CHANNELS_LAST = {4: [0, 2, 3, 1], 5: [0, 2, 3, 4, 1]}


def is_dense(tensor: Tensor) -> bool:
    """ATen's `is_non_overlapping_and_dense`: the strides are a permutation of contiguous ones."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def memory_order(tensor: Tensor, memory_format: torch.memory_format | None = None) -> list[int]:
    """The dimensions of ``empty_like(tensor, memory_format=...)`` from the outermost in memory to the innermost."""
    dims = list(range(tensor.dim()))
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        return _CHANNELS_LAST[tensor.dim()]
    if memory_format is torch.contiguous_format or tensor.is_contiguous():
        return dims
    # ATen's `infer_dense_strides`: an insertion sort by stride, innermost first, that never moves past a stride of 0.
    order = dims[::-1]
    sizes, strides = tensor.shape, tensor.stride()
    for start in range(1, len(order)):
        here = start
        for other in range(start - 1, -1, -1):
            left, right = order[other], order[here]
            if strides[left] == 0 or strides[right] == 0:
                continue
            if strides[left] < strides[right]:
                break
            if strides[left] > strides[right] or sizes[left] > sizes[right]:
                order[other], order[here] = right, left
                here = other
    return order[::-1]


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes another."""
    undone = [0] * len(order)
    for position, dim in enumerate(order):
        undone[dim] = position
    return undone
