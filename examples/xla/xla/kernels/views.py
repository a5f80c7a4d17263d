"""Views as functions of elements: what they are inside a compiled program. In eager a view is a layout, see `memory`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xla.arrays import Array, Unsupported, Value, cast
from xla.kernels.reductions import axes, axis
from xla.memory import contiguous, read_layout

__all__ = ["VIEWS"]


def _expand(x: Value, size: Sequence[int], *, implicit: bool = False) -> Array:
    new = len(size) - x.dim()
    return jnp.broadcast_to(x.array, [x.shape[at - new] if one == -1 else one for at, one in enumerate(size)])


def _slice(x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    along = axis(dim, x.dim())
    return x.array[(slice(None),) * along + (slice(*slice(start, end, step).indices(x.shape[along])),)]


def _select(x: Value, dim: int, index: int) -> Array:
    along = axis(dim, x.dim())
    return jax.lax.index_in_dim(x.array, index % x.shape[along], along, keepdims=False)


def _squeeze(x: Value, dim: int | Sequence[int]) -> Array:
    gone = set(axes(dim, x.dim(), none_is_all=False))
    return x.array.reshape([size for at, size in enumerate(x.shape) if at not in gone or size != 1])


def _diagonal(x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    return jnp.diagonal(x.array, offset, axis(dim1, x.dim()), axis(dim2, x.dim()))


def _split(x: Value, split_sizes: Sequence[int], dim: int = 0) -> list[Array]:
    along, start, parts = axis(dim, x.dim()), 0, []
    for size in split_sizes:
        parts.append(jax.lax.slice_in_dim(x.array, start, start + size, axis=along))
        start += size
    return parts


def _view(x: Value, size: Sequence[int]) -> Array:
    if -1 in size:
        rest = -math.prod(size)
        size = [x.numel() // rest if one == -1 else one for one in size]
    return x.array.reshape(tuple(size))


def _as_strided(x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Array:
    if storage_offset or (x.stride is not None and tuple(x.stride) != contiguous(x.shape)):
        raise Unsupported("as_strided of memory that a program cannot see")
    home = (x.dtype, 0, x.shape, contiguous(x.shape))
    return read_layout(x.array, home, (x.dtype, 0, tuple(size), tuple(stride)))


def _parts(x: Value) -> Array:
    return jnp.stack([x.array.real, x.array.imag], -1)


#: op -> the elements of the view.
VIEWS: dict[str, Callable[..., Any]] = {
    "_conj": lambda x: jnp.conj(x.array),
    "_neg_view": lambda x: -x.array,
    "_reshape_alias": lambda x, size, stride: x.array.reshape(tuple(size)),
    "alias": lambda x: x.array,
    "as_strided": _as_strided,
    "detach": lambda x: x.array,
    "diagonal": _diagonal,
    "expand": _expand,
    "lift_fresh": lambda x: x.array,
    "permute": lambda x, dims: jnp.transpose(x.array, [axis(dim, x.dim()) for dim in dims]),
    "select.int": _select,
    "slice.Tensor": _slice,
    "split_with_sizes": _split,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "unsqueeze": lambda x, dim: jnp.expand_dims(x.array, axis(dim, x.dim() + 1)),
    "view": _view,
    "view_as_complex": lambda x: jax.lax.complex(x.array[..., 0], x.array[..., 1]),
    "view_as_real": _parts,
}


def to_copy(x: Value, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return x.array if dtype is None else cast(x.array, dtype)
