"""Fills, ranges, copies and conversions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import torch

from xla.arrays import Array, Number, Result, Value, cast, common, read, scalar
from xla.kernels.reductions import axes, axis

__all__ = ["KERNELS"]


def _dtype_of(value: Any) -> torch.dtype:
    kind = value.kind if isinstance(value, Number) else type(value)
    if kind is complex:
        return torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    return {bool: torch.bool, int: torch.int64}.get(kind, torch.get_default_dtype())


def _filled(shape: Sequence[int], value: Any, dtype: torch.dtype) -> Array:
    # Eager fills one element by another way, which lets numbers too large for float16 and bfloat16 be infinite.
    half = dtype in (torch.float16, torch.bfloat16)
    single = half and math.prod(shape) == 1 and not isinstance(value, complex)
    return jnp.broadcast_to(cast(read(value, dtype) if single else scalar(value, dtype), dtype), tuple(shape))


def _full(size: Sequence[int], value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return _filled(size, value, dtype or _dtype_of(value))


def _scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return _filled([], value, dtype or torch.get_default_dtype())


def _full_like(x: Value, value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return _filled(x.shape, value, dtype or x.dtype)


def _arange(start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **_: Any) -> Result:
    """Eager counts elements of other dtypes than int64 in float64, and torch's Meta kernel counts in integers."""
    whole = all(isinstance(one, int) for one in (start, end, step))
    dtype = dtype or (torch.int64 if whole else torch.get_default_dtype())
    if not all(math.isfinite(one) for one in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if dtype is torch.int64:
        first, last, by = int(start), int(end), int(step)
        return Result(first + by * jnp.arange(-(-(last - first) // by), dtype=jnp.int64), dtype)
    count = math.ceil((float(end) - float(start)) / float(step))
    if not dtype.is_floating_point:
        return Result(int(start) + int(step) * jnp.arange(count, dtype=jnp.int64), dtype)
    return Result(float(start) + float(step) * jnp.arange(count, dtype=jnp.float64), dtype)


def _flip(x: Value, dims: Sequence[int]) -> Array:
    return jnp.flip(x.array, axes(list(dims), x.dim(), none_is_all=False))


def _repeat(x: Value, repeats: Sequence[int]) -> Array:
    if len(repeats) < x.dim():
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    return jnp.tile(x.array, tuple(repeats)) if repeats else x.array


def _cat(tensors: Sequence[Value], dim: int = 0) -> Array:
    dtype = common(*tensors)
    joined = [one for one in tensors if one.dim() != 1 or one.shape[0]]  # of old, empty vectors fit everything
    if not joined:
        return jnp.zeros(0)
    return jnp.concatenate([cast(one.array, dtype) for one in joined], axis=axis(dim, joined[0].dim()))


KERNELS: dict[str, Callable[..., Any]] = {
    "arange.start_step": _arange,
    "cat": _cat,
    "clone": lambda x, *, memory_format=None: x.array,
    "copy": lambda x, source, non_blocking=False: jnp.broadcast_to(cast(source.array, x.dtype), x.shape),
    "fill.Scalar": _full_like,
    "flip": _flip,
    "full": _full,
    "full_like": _full_like,
    "repeat": _repeat,
    "scalar_tensor": _scalar_tensor,
}
