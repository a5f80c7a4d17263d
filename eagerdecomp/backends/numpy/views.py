"""Kernels of views. Each computes sizes and strides, and calls `aten.as_strided`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.backends.numpy.reductions import axes, axis
from eagerdecomp.eager.strides import view_strides

__all__ = ["KERNELS", "selected", "sliced"]

aten = torch.ops.aten


def _view(x: Tensor, shape: Sequence[int], strides: Sequence[int], offset: Any = None) -> Tensor:
    made: Tensor = aten.as_strided.default(x, list(shape), list(strides), x.storage_offset() if offset is None else offset)
    return made


def _expand(x: Tensor, size: Sequence[int], *, implicit: bool = False) -> Tensor:
    new = len(size) - x.dim()
    if new < 0:
        raise RuntimeError(f"expand: the number of sizes provided ({len(size)}) must be at least that of the tensor ({x.dim()})")
    shape, strides = list(size[:new]), [0] * new
    if any(one < 0 for one in shape):
        raise RuntimeError(f"The expanded size of the tensor ({min(shape)}) isn't allowed in a leading, non-existing dimension 0")
    for place in range(new - 1, -1, -1):  # a new dimension gets the stride of a dimension outside the next one
        later = (x.shape[0] * x.stride(0)) if place == new - 1 and x.dim() else 1
        strides[place] = later if size[place] == 1 and place == new - 1 else 0
    for dim, wanted in enumerate(size[new:]):
        have, stride = x.shape[dim], x.stride(dim)
        wanted = have if wanted == -1 else wanted
        if have not in (1, wanted):
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({have}) at non-singleton dimension "
                f"{dim + new}.  Target sizes: {list(size)}.  Tensor sizes: {list(x.shape)}"
            )
        shape.append(wanted)
        strides.append(0 if have != wanted else stride)
    return _view(x, shape, strides)


def _permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    order = [axis(dim, x.dim()) for dim in dims]
    if sorted(order) != list(range(x.dim())):
        if len(order) != x.dim():
            raise RuntimeError(
                f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering "
                f"of dimensions i.e. input.dim() = {x.dim()} is not equal to len(dims) = {len(order)}"
            )
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return _view(x, [x.shape[dim] for dim in order], [x.stride(dim) for dim in order])


def selected(x: Tensor, dim: int, index: int) -> Tensor:
    if not x.dim():
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    along = axis(dim, x.dim())
    size = x.shape[along]
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")
    shape, strides = list(x.shape), list(x.stride())
    del shape[along], strides[along]
    return _view(x, shape, strides, x.storage_offset() + index % size * x.stride(along))


def sliced(x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    if not x.dim():
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    along = axis(dim, x.dim())
    size = x.shape[along]
    first, last, _ = slice(start, end, step).indices(size)
    shape, strides = list(x.shape), list(x.stride())
    shape[along] = max(0, -(-(max(last, first) - first) // step))
    strides[along] *= step
    return _view(x, shape, strides, x.storage_offset() + first * x.stride(along))


def _squeeze(x: Tensor, dim: int | Sequence[int]) -> Tensor:
    gone = set(axes(dim, x.dim(), none_is_all=False))
    kept = [one for one in range(x.dim()) if one not in gone or x.shape[one] != 1]
    return _view(x, [x.shape[one] for one in kept], [x.stride(one) for one in kept])


def _unsqueeze(x: Tensor, dim: int) -> Tensor:
    place = axis(dim, x.dim() + 1)
    shape, strides = list(x.shape), list(x.stride())
    strides.insert(place, shape[place] * strides[place] if place < x.dim() else 1)
    shape.insert(place, 1)
    return _view(x, shape, strides)


def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    rows, columns = axis(dim1, x.dim()), axis(dim2, x.dim())
    if rows == columns:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    down, right = max(-offset, 0), max(offset, 0)
    length = max(0, min(x.shape[rows] - down, x.shape[columns] - right))
    kept = [dim for dim in range(x.dim()) if dim not in (rows, columns)]
    start = x.storage_offset() + (down * x.stride(rows) + right * x.stride(columns) if length else 0)
    shape, strides = [x.shape[dim] for dim in kept], [x.stride(dim) for dim in kept]
    return _view(x, [*shape, length], [*strides, x.stride(rows) + x.stride(columns)], start)


def _split(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    along = axis(dim, x.dim())
    if any(size < 0 for size in split_sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(split_sizes)}"
        )
    if sum(split_sizes) != x.shape[along]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {x.shape[along]} (input tensor's size at dimension {dim}), "
            f"but got split_sizes={list(split_sizes)}"
        )
    parts, start = [], 0
    for size in split_sizes:
        parts.append(sliced(x, along, start, start + size))
        start += size
    return parts


def _viewed(x: Tensor, size: Sequence[int]) -> Tensor:
    shape = _filled_in(list(size), x.numel())
    strides = view_strides(x, shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
            "subspaces). Use .reshape(...) instead."
        )
    return _view(x, shape, strides)


def _filled_in(shape: list[int], count: int) -> list[int]:
    """Return the shape with -1 replaced by the inferred size."""
    known = 1
    for size in shape:
        known *= size if size != -1 else 1
    unknown = shape.count(-1)
    if unknown == 1 and known and count % known == 0:
        return [count // known if size == -1 else size for size in shape]
    if unknown or known != count or min(shape, default=0) < 0:
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {count}")
    return shape


KERNELS: dict[str, Callable[..., Any]] = {
    "diagonal": _diagonal,
    "expand": _expand,
    "permute": _permute,
    "select.int": selected,
    "slice.Tensor": sliced,
    "split_with_sizes": _split,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "unsqueeze": _unsqueeze,
    "view": _viewed,
}
