"""Kernels of gather, index_select, index and index_put."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp.backends.numpy.arrays import Array, allocate, read, store, to_tensor
from eagerdecomp.backends.numpy.reductions import axis
from eagerdecomp.eager.layouts import iterator_strides

__all__ = ["KERNELS", "like_operand", "places_along", "row_numbers", "same_rank"]

aten = torch.ops.aten

Indices = Sequence["Tensor | None"]


def _checked(index: Array, size: int, what: str = "index") -> Array:
    """Return the index, or raise if it is out of range; NumPy would accept negative indices for all ops."""
    if index.size and (index.min() < 0 or index.max() >= size):
        worst = index.min() if index.min() < 0 else index.max()
        raise RuntimeError(f"{what} {worst} is out of bounds for dimension with size {size}")
    return index


# -- one dimension ------------------------------------------------------------------------------------------------


def places_along(index: Tensor, along: int, size: int) -> tuple[Array, ...]:
    """Convert an index along one dimension to a NumPy index for all dimensions."""
    values = _checked(read(index), size)
    grid = list(np.ogrid[tuple(slice(extent) for extent in index.shape)])
    grid[along] = values
    return tuple(grid)


def _gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    along = axis(dim, x.dim())
    if not index.numel():
        return to_tensor(np.empty(tuple(index.shape)), x.dtype)
    same_rank("gather", x, index)
    values = read(x)
    if not x.dim():
        _checked(read(index), 1)
        return to_tensor(np.broadcast_to(values, tuple(index.shape)), x.dtype)
    if not index.dim():
        return to_tensor(values[_checked(read(index), values.shape[0])], x.dtype)
    for one in range(x.dim()):
        if one != along and index.shape[one] > x.shape[one]:
            raise RuntimeError(f"index {list(index.shape)} is larger than {list(x.shape)} apart from dimension {along}")
    return to_tensor(values[places_along(index, along, x.shape[along])], x.dtype)


def same_rank(name: str, x: Tensor, index: Tensor) -> None:
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    if max(x.dim(), 1) != max(index.dim(), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")


def _index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    along = axis(dim, x.dim())
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index.dtype not in (torch.int32, torch.int64):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    places = read(index).reshape(-1)
    if places.size and (places.min() < 0 or places.max() >= (x.shape[along] if x.dim() else 1)):
        raise IndexError("index out of range in self")
    if not x.dim():
        if places.size > 1:
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {places.size} value(s)")
        return to_tensor(read(x), x.dtype)
    return to_tensor(np.take(read(x), places, axis=along), x.dtype)


# -- several indices ----------------------------------------------------------------------------------------------


def _indices(x: Tensor, indices: Indices) -> tuple[Any, ...]:
    """Convert indices for NumPy, which orders the indexed dimensions like ATen."""
    made: list[Any] = []
    dim = 0
    for index in indices:
        if index is None:
            made.append(slice(None))
            dim += 1
            continue
        if index.dtype in (torch.bool, torch.uint8):
            mask = read(index, torch.bool)
            if not mask.ndim:
                raise RuntimeError("a mask of a tensor with dimensions must have a dimension")
            if mask.shape != tuple(x.shape[dim : dim + mask.ndim]) or dim + mask.ndim > x.dim():
                raise IndexError(f"The shape of the mask {list(mask.shape)} does not match {list(x.shape)} at index {dim}")
            made += np.nonzero(mask)
            dim += mask.ndim
            continue
        if index.dtype not in (torch.int64, torch.int32):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        made.append(read(index, torch.int64))
        dim += 1
    if len(made) > max(x.dim(), 1):
        raise IndexError(f"too many indices for tensor of dimension {x.dim()}")
    return tuple(made)


_MASKS = (torch.bool, torch.uint8)


def _check_masks_of_scalar(indices: Indices) -> None:
    """Check that a 0-dim tensor is indexed by a 0-dim mask, if at all."""
    if len(indices) > 1 or any(one is not None and (one.dim() or one.dtype not in _MASKS) for one in indices):
        raise IndexError(f"too many indices for tensor of dimension 0 (got {len(indices)})")


def _index(x: Tensor, indices: Indices) -> Tensor:
    if not x.dim():
        _check_masks_of_scalar(indices)
        mask = bool(read(indices[0], torch.bool)) if indices and indices[0] is not None else True
        return to_tensor(read(x)[np.newaxis][: int(mask)] if indices and indices[0] is not None else read(x), x.dtype)
    places = _indices(x, indices)
    values = read(x)[places]
    return store(allocate(values.shape, x.dtype, _order_of_indexed(x, places, values.shape)), values)


def _order_of_indexed(x: Tensor, places: tuple[Any, ...], shape: Sequence[int]) -> Sequence[int] | None:
    """Return the memory order of the dimensions of an indexing result, as ATen computes it; None if contiguous."""
    if x.is_contiguous():
        return None
    indexed = [dim for dim, place in enumerate(places) if not isinstance(place, slice)]
    before = [dim for dim in range(x.dim()) if dim not in indexed]
    together = indexed == list(range(indexed[0], indexed[-1] + 1)) if indexed else True
    position = indexed[0] if indexed and together else 0
    new = len(shape) - len(before)
    strides = [x.stride(dim) for dim in before]
    strides[position:position] = [0] * new
    found = iterator_strides(shape, [aten.as_strided.default(x, list(shape), strides)])
    return sorted(range(len(shape)), key=lambda dim: -found[dim])


def like_operand(x: Tensor) -> Tensor:
    """Allocate a tensor with the strides of an elementwise result of `x`."""
    return to_tensor(np.empty(tuple(x.shape)), x.dtype, [x])


def _index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Tensor:
    if values.dtype is not x.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, not {x.dtype} and {values.dtype}")
    kinds = {one.dtype for one in indices if one is not None}
    if values.numel() == 1 and not accumulate and torch.uint8 in kinds and kinds <= {*_MASKS}:
        raise RuntimeError("masked_fill_ only supports boolean masks, but got mask with dtype unsigned char")
    if not x.dim():
        _check_masks_of_scalar(indices)
    wide = np.array(read(x))
    target = wide if x.dim() else wide.reshape(1)
    places = _indices(x, indices) if x.dim() else (read(indices[0], torch.bool).reshape(1),)
    given = read(values)
    wanted = target[places].shape
    if given.ndim > len(wanted):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(given.shape)} cannot be broadcast to {list(wanted)}")
    if accumulate:
        np.add.at(target, places, given)
    else:
        target[places] = given
    return store(like_operand(x), wide)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    if x.dtype is not source.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got {x.dtype} and {source.dtype}")
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    shape = np.broadcast_shapes(tuple(x.shape), tuple(mask.shape))
    values = np.array(np.broadcast_to(read(x), shape))
    where = np.broadcast_to(read(mask), shape)
    count = int(where.sum())
    if source.numel() < count:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    values[where] = read(source).reshape(-1)[:count]
    return to_tensor(values, x.dtype)


def _nonzero(x: Tensor) -> Tensor:
    values = read(x)
    found = np.argwhere(values != 0) if x.dim() else np.empty((int(bool(values)), 0), np.int64)
    places = to_tensor(found.T, torch.int64)  # eager's result is the transpose of a contiguous one
    made: Tensor = torch.ops.aten.as_strided.default(places, list(found.shape), [1, max(found.shape[0], 1)])
    return made


def row_numbers(name: str, argument: int, indices: Tensor) -> None:
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            f"Expected tensor for argument #{argument} 'indices' to have one of the following scalar types: Long, Int; but got "
            f"{indices.dtype} instead (while checking arguments for {name})"
        )


def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    row_numbers("embedding", 1, indices)
    places = read(indices)
    if places.size and (places.min() < 0 or places.max() >= weight.shape[0]):
        raise IndexError("index out of range in self")
    return to_tensor(read(weight)[places], weight.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "embedding": _embedding,
    "gather": _gather,
    "index.Tensor": _index,
    "index_put": _index_put,
    "index_select": _index_select,
    "masked_scatter": _masked_scatter,
    "nonzero": _nonzero,
}
