"""Gathers and scatters: along one dimension, by several indices, in slices, in tables of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xla.arrays import Array, Unsupported, Value, cast, check, read, scalar
from xla.kernels.reductions import axis

__all__ = ["KERNELS"]

Indices = Sequence["Value | None"]


def _checked(index: Array, size: int, kind: type[Exception] = RuntimeError, negative: bool = False) -> Array:
    """Return the index; where it is out of range the call raises once data is read. JAX would clamp it."""
    if index.size:
        failed = jnp.any((index < (-size if negative else 0)) | (index >= size))
        check(failed, kind, f"index out of range: expected from {-size if negative else 0} to {size - 1}")
    return jnp.where(index < 0, index + size, index) if negative else index


def _same_rank(name: str, x: Value, index: Value) -> None:
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    if max(x.dim(), 1) != max(index.dim(), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")


def _grid(index: Array, along: int) -> tuple[Array, ...]:
    """Return an index along one dimension as one for each: every element keeps its own place along the others."""
    grid = [jnp.arange(size).reshape([-1 if at == dim else 1 for at in range(index.ndim)]) for dim, size in enumerate(index.shape)]
    grid[along] = index
    return tuple(grid)


def _gather(x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Array:
    along = axis(dim, x.dim())
    if not index.numel():
        return jnp.zeros(index.shape, x.array.dtype)
    _same_rank("gather", x, index)
    values = x.array.reshape(x.shape or (1,))
    places = index.array.reshape(index.shape or (1,))
    for one in range(values.ndim):
        if one != along and places.shape[one] > values.shape[one]:
            raise RuntimeError(f"index {list(index.shape)} is larger than {list(x.shape)} apart from dimension {along}")
    return values[_grid(_checked(places, values.shape[along]), along)].reshape(index.shape)


def _index_select(x: Value, dim: int, index: Value) -> Array:
    along = axis(dim, x.dim())
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index.dtype not in (torch.int32, torch.int64):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    places = _checked(index.array.reshape(-1), x.shape[along] if x.dim() else 1, IndexError)
    return jnp.take(x.array, places, axis=along) if x.dim() else x.array


# -- by several indices ------------------------------------------------------------------------------------------------


def _indices(x: Value, indices: Indices) -> tuple[Any, ...]:
    """Return the indices as NumPy takes them: its rule for where the indexed dimensions go is ATen's."""
    made: list[Any] = []
    for dim, index in enumerate(indices):
        if index is None:
            made.append(slice(None))
        elif index.dtype in (torch.bool, torch.uint8):
            raise Unsupported("a mask as an index inside a compiled function: its count of elements is data")
        elif index.dtype not in (torch.int64, torch.int32):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        else:
            if dim >= max(x.dim(), 1):
                raise IndexError(f"too many indices for tensor of dimension {x.dim()}")
            made.append(_checked(index.array.astype(jnp.int64), x.shape[dim] if x.dim() else 1, IndexError, negative=True))
    if len(made) > max(x.dim(), 1):
        raise IndexError(f"too many indices for tensor of dimension {x.dim()}")
    return tuple(made)


def _index(x: Value, indices: Indices) -> Array:
    return x.array[_indices(x, indices)] if indices else x.array


def _index_put(x: Value, indices: Indices, values: Value, accumulate: bool = False) -> Array:
    if values.dtype is not x.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, not {x.dtype} and {values.dtype}")
    target = read(x)
    places = _indices(x, indices)
    wanted = _indexed_shape(x, places)
    if values.dim() > len(wanted):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to {list(wanted)}")
    given = jnp.broadcast_to(read(values), wanted)
    if target.dtype == jnp.bool_ and accumulate:
        return target.at[places].max(given)
    return target.at[places].add(given) if accumulate else target.at[places].set(given)


def _indexed_shape(x: Value, places: tuple[Any, ...]) -> tuple[int, ...]:
    found = jax.eval_shape(
        lambda a, b: a[tuple(slice(None) if one is None else one for one in b)],
        x.array,
        [None if isinstance(one, slice) else one for one in places],
    )
    return tuple(found.shape)


def _masked_scatter(x: Value, mask: Value, source: Value) -> Array:
    if x.dtype is not source.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got {x.dtype} and {source.dtype}")
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    where = jnp.broadcast_to(mask.array, shape)
    rank = jnp.cumsum(where.reshape(-1)) - 1
    check(
        rank[-1] >= source.numel() if rank.size else jnp.asarray(False),
        RuntimeError,
        "Number of elements of source < number of ones in mask",
    )
    if not source.numel():
        return jnp.broadcast_to(x.array, shape)
    given = source.array.reshape(-1)[jnp.clip(rank, 0, source.numel() - 1)].reshape(shape)
    return jnp.where(where, given, x.array)


def _embedding(
    weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Array:
    _row_numbers("embedding", indices)
    return weight.array[_checked(indices.array, weight.shape[0], IndexError)]


def _row_numbers(name: str, indices: Value) -> None:
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"Expected argument 'indices' of {name} to be of type Long or Int; but got {indices.dtype}")


def _embedding_backward(grad: Value, indices: Value, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Array:
    _row_numbers("embedding_backward", indices)
    places = indices.array.reshape(-1)
    rows = read(grad).reshape(places.size, grad.shape[-1])
    if grad.dtype.is_complex:
        rows = rows * rows.dtype.type(1)  # eager scales complex numbers, by 1 too, which makes infinities NaN
    if scale_grad_by_freq:
        often = jnp.zeros(num_weights, jnp.int64).at[places].add(1)
        rows = rows / often[places][:, None]
    places = jnp.where(places == padding_idx, num_weights, places)  # beyond the end: dropped
    return jnp.zeros((num_weights, grad.shape[-1]), rows.dtype).at[places].add(rows, mode="drop")


# -- scatters ----------------------------------------------------------------------------------------------------------


def _scatter(x: Value, dim: int, index: Value, source: Any, reduce: str = "", include_self: bool = True) -> Array:
    """`x` with the source's elements put along a dimension, or combined with what is there."""
    along = axis(dim, x.dim())
    target = read(x) if reduce else x.array
    if not index.numel():
        if not isinstance(source, Value):
            scalar(source, x.dtype)
        return target
    _same_rank("scatter", x, index)
    if isinstance(source, Value) and source.dtype is not x.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    target, places = target.reshape(x.shape or (1,)), index.array.reshape(index.shape or (1,))
    _check_sizes(target.shape, along, places.shape, source)
    places = _checked(places, target.shape[along])
    if isinstance(source, Value):
        given = read(source) if reduce else source.array
        given = given.reshape(source.shape or (1,))[tuple(slice(size) for size in places.shape)]
    else:
        given = jnp.broadcast_to(cast(scalar(source, x.dtype), x.dtype), places.shape)
    if not reduce and places.shape == (*target.shape[:along], 1, *target.shape[along + 1 :]):
        # One element of each row, as the gradient of a loss of classes: a selection, which XLA fuses with what reads it.
        chosen = jax.lax.broadcasted_iota(places.dtype, target.shape, along) == places
        return jnp.where(chosen, given, target).reshape(x.shape)
    return _combined(target, _grid(places, along), given, reduce, include_self).reshape(x.shape)


def _check_sizes(sizes: Sequence[int], along: int, index: Sequence[int], source: Any) -> None:
    """An index may be no larger than what is written, except along `along`, nor than what is read."""
    beyond = any(size > held for dim, (size, held) in enumerate(zip(index, sizes, strict=False)) if dim != along)
    more = isinstance(source, Value) and any(size > held for size, held in zip(index, source.shape or (1,), strict=False))
    if beyond or more:
        raise RuntimeError(f"Expected index {list(index)} to be no larger than self {list(sizes)} apart from dimension {along}")


def _combined(target: Array, places: tuple[Array, ...], given: Array, reduce: str, include_self: bool) -> Array:
    if not reduce:
        return target.at[places].set(given)
    boolean = target.dtype == jnp.bool_
    if not include_self:
        neutral = {"sum": 0, "mean": 0, "add": 0, "prod": 1, "multiply": 1}
        target = target.at[places].set(neutral[reduce] if reduce in neutral else _bound(target.dtype, reduce == "amax"))
    if boolean:
        return target.at[places].min(given) if reduce in ("amin", "prod", "multiply") else target.at[places].max(given)
    if reduce in ("sum", "add", "mean"):
        summed = target.at[places].add(given)
        if reduce != "mean":
            return summed
        count = jnp.full(target.shape, int(include_self), jnp.int64).at[places].add(1)
        if summed.dtype.kind in "iu":
            count = count.astype(summed.dtype)  # wraps as eager's
            return jnp.floor_divide(summed, jnp.where(count == 0, 1, count))
        return summed / jnp.maximum(count, 1).astype(summed.real.dtype)
    if reduce in ("prod", "multiply"):
        return target.at[places].multiply(given)
    return target.at[places].max(given) if reduce == "amax" else target.at[places].min(given)


def _bound(dtype: Any, least: bool) -> Any:
    if dtype == jnp.bool_:
        return not least
    if jnp.issubdtype(dtype, jnp.floating):
        return -math.inf if least else math.inf
    return jnp.iinfo(dtype).min if least else jnp.iinfo(dtype).max


def _same_shape(src: Value, wanted: Sequence[int]) -> None:
    if src.shape != tuple(wanted):
        raise RuntimeError(f"expected src to have a size equal to the slice of self: {list(src.shape)} for {list(wanted)}")


def _slice_scatter(x: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    along = axis(dim, x.dim())
    cut = slice(*slice(start, end, step).indices(x.shape[along]))
    _same_shape(src, (*x.shape[:along], len(range(*cut.indices(x.shape[along]))), *x.shape[along + 1 :]))
    return x.array.at[(slice(None),) * along + (cut,)].set(cast(src.array, x.dtype))


def _select_scatter(x: Value, src: Value, dim: int, index: int) -> Array:
    along = axis(dim, x.dim())
    _same_shape(src, (*x.shape[:along], *x.shape[along + 1 :]))
    if not -x.shape[along] <= index < x.shape[along]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")
    return x.array.at[(slice(None),) * along + (index,)].set(cast(src.array, x.dtype))


KERNELS: dict[str, Callable[..., Any]] = {
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _gather,
    "index.Tensor": _index,
    "index_put": _index_put,
    "index_select": _index_select,
    "masked_scatter": _masked_scatter,
    "scatter.src": _scatter,
    "scatter.value": _scatter,
    "scatter_add": lambda x, dim, index, src: _scatter(x, dim, index, src, "add"),
    "scatter_reduce.two": lambda x, dim, index, src, reduce, *, include_self=True: _scatter(
        x, dim, index, src, reduce, include_self
    ),
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
}
