"""Compute shapes and strides: of broadcast operands, of a tensor, and of the result of `torch.empty_like`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import gt

import torch
from torch import Tensor

from eagerdecomp.eager.verdict import Declined

__all__ = [
    "broadcast_shapes",
    "in_order",
    "inverse",
    "is_channels_last",
    "is_dense",
    "is_expanded",
    "lies_in_order",
    "lies_in_lines",
    "like_strides",
    "memory_order",
    "reach",
    "view_strides",
    "wrapped_dim",
]

_CHANNELS_LAST = {4: [0, 2, 3, 1], 5: [0, 2, 3, 4, 1]}


def broadcast_shapes(*shapes: Sequence[int]) -> list[int]:
    """Return the shape to which all of these broadcast.

    Raises:
        Declined: if they do not.
    """
    found: list[int] = []
    for shape in shapes:
        rank = max(len(found), len(shape))
        left, right = ([1] * (rank - len(one)) + list(one) for one in (found, shape))
        for dim in reversed(range(rank)):
            a, b = left[dim], right[dim]
            if a != b and 1 not in (a, b):
                raise Declined
        found = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
    return found


def wrapped_dim(dim: int, rank: int) -> int:
    """Return a dimension counted from the front; decline one out of range. A 0-dim tensor counts as 1-d."""
    count = rank or 1
    if not -count <= dim < count:
        raise Declined
    return dim + count if dim < 0 else dim


def is_dense(tensor: Tensor) -> bool:
    """Return whether the strides are a permutation of contiguous ones (ATen's `is_non_overlapping_and_dense`)."""
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


def is_channels_last(tensor: Tensor) -> bool:
    """Return whether a tensor is contiguous in the memory format channels last of its rank; it may be contiguous too."""
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return form is not None and tensor.is_contiguous(memory_format=form)


def lies_in_order(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    """Return whether dimensions, from the outermost to the innermost, are dense in this order. Those of size 1 do not count."""
    return all(size == 1 or one == want for size, one, want in zip(shape, strides, in_order(shape, order), strict=True))


def is_expanded(tensor: Tensor) -> bool:
    """Return whether elements surely overlap (the certain case of ATen's ``has_internal_overlap``)."""
    return not is_dense(tensor) and any(not step and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def lies_in_lines(tensor: Tensor) -> bool:
    """Return whether a matrix, or each of a batch, is row- or column-contiguous (ATen's ``is_row_or_column_contiguous``)."""
    rank = tensor.dim()
    columns = in_order(tensor.shape, [*range(rank - 2), rank - 1, rank - 2])
    facts = zip(tensor.shape, tensor.stride(), columns, strict=True)
    return tensor.is_contiguous() or all(size == 1 or step == want for size, step, want in facts)


def reach(size: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements of memory that a view spans."""
    return 0 if 0 in size else 1 + sum((count - 1) * step for count, step in zip(size, stride, strict=True))


def memory_order(tensor: Tensor, memory_format: torch.memory_format | None = None) -> list[int]:
    """Return the dimensions of ``empty_like(tensor, memory_format=...)`` from the outermost to the innermost in memory."""
    dims = list(range(tensor.dim()))
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        return _CHANNELS_LAST[tensor.dim()]
    strides = tensor.stride()
    if memory_format is torch.contiguous_format or tensor.is_contiguous() or all(map(gt, strides, strides[1:])):
        return dims
    # ATen's ``infer_dense_strides``: an insertion sort by stride, innermost first, that never moves past a stride of 0.
    order = dims[::-1]
    sizes = tensor.shape
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


def in_order(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Return the strides of a dense tensor whose dimensions have this order, from the outermost to the innermost in memory."""
    strides, step = [1] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return strides


def like_strides(tensor: Tensor) -> Sequence[int]:
    """Return the strides of ``empty_like(tensor)``: the tensor's own if it is dense, even for dimensions of size 1."""
    return tensor.stride() if is_dense(tensor) else in_order(tensor.shape, memory_order(tensor))


def inverse(order: Sequence[int]) -> list[int]:
    """Return the inverse permutation."""
    undone = [0] * len(order)
    for position, dim in enumerate(order):
        undone[dim] = position
    return undone


def view_strides(x: Tensor, shape: Sequence[int]) -> list[int] | None:
    """Return the strides of a view (ATen's ``computeStride``), or None if none exists. `shape` has as many elements, and no -1.

    Each run of dimensions that is contiguous in memory is split.
    """
    if not x.numel():
        if list(x.shape) == list(shape):
            return list(x.stride())
        strides, step = [1] * len(shape), 1
        for dim in range(len(shape) - 2, -1, -1):
            step *= max(shape[dim + 1], 1)
            strides[dim] = step
        return strides
    sizes, steps = list(x.shape) or [1], list(x.stride()) or [1]
    strides = [1] * len(shape)
    place, step, held, taken = len(shape) - 1, steps[-1], 1, 1
    for dim in range(len(sizes) - 1, -1, -1):
        held *= sizes[dim]
        if dim == 0 or (sizes[dim - 1] != 1 and steps[dim - 1] != held * step):
            while place >= 0 and (taken < held or shape[place] == 1):
                strides[place] = taken * step
                taken *= shape[place]
                place -= 1
            if taken != held:
                return None
            if dim:
                step, held, taken = steps[dim - 1], 1, 1
    return strides if place == -1 else None
