"""Reductions, scans, softmax and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import torch

from xla.arrays import Array, Value, is_floating, read, wide

__all__ = ["KERNELS", "axes", "axis"]


def axis(dim: int, dims: int) -> int:
    """Return a dimension counted from the first; a tensor without dimensions has one to name."""
    room = max(dims, 1)
    if not -room <= dim < room:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-room}, {room - 1}], but got {dim})")
    return dim % room


def axes(dim: int | Sequence[int] | None, dims: int, none_is_all: bool = True) -> tuple[int, ...]:
    """Return the dimensions to reduce: all, where none are named."""
    if dim is None or (none_is_all and not isinstance(dim, int) and not len(dim)):
        return tuple(range(dims))
    named = tuple(axis(one, dims) for one in ([dim] if isinstance(dim, int) else dim))
    if len(set(named)) < len(named):
        raise RuntimeError(f"dim {named} appears multiple times in the list of dims")
    return named if dims else ()


def _sum(x: Value, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Array:
    asked = dtype or (x.dtype if is_floating(x.dtype) else torch.int64)
    values = read(x, asked)
    return jnp.sum(values, axis=axes(dim, x.dim()), keepdims=keepdim, dtype=values.dtype if is_floating(asked) else jnp.int64)


def _mean(x: Value, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Array:
    asked = dtype or x.dtype
    over = axes(dim, x.dim())
    count = math.prod(x.shape[one] for one in over)
    total = jnp.sum(read(x, wide(asked)), axis=over, keepdims=keepdim)
    return total / count if count else total * math.nan


def _prod(x: Value, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Array:
    asked = dtype or (x.dtype if is_floating(x.dtype) else torch.int64)
    values = read(x, asked)
    return jnp.prod(values, axis=axes(dim, x.dim()), keepdims=keepdim, dtype=values.dtype)


def _extreme(name: str, function: Callable[..., Any]) -> Callable[..., Array]:
    def run(x: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Array:
        over = axes(dim, x.dim())
        if not x.numel():
            _refuse_empty(x, over, name, bool(dim))
            return jnp.zeros((), x.array.dtype)
        values = read(x)
        found = function(values, axis=over, keepdims=keepdim)
        if not jnp.issubdtype(values.dtype, jnp.floating):
            return found
        # XLA on the CPU reduces thousands of elements in parts, and loses a NaN in one of them beside an infinity in another.
        return jnp.where(jnp.isnan(values).any(axis=over, keepdims=keepdim), jnp.nan, found).astype(found.dtype)

    return run


def _refuse_empty(x: Value, over: tuple[int, ...], name: str, named: bool) -> None:
    for one in over:
        if x.dim() and not x.shape[one]:
            if not named:
                raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            raise IndexError(f"{name}(): Expected reduction dim {one} to have non-zero size.")


def _with_indices(name: str, place: Callable[..., Any]) -> Callable[..., tuple[Array, Array]]:
    """The extreme along a dimension, and the index where it is first."""

    def run(x: Value, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        along = axis(dim, x.dim())
        values = read(x)
        if not x.dim():
            return values, jnp.zeros((), jnp.int64)
        _refuse_empty(x, (along,), name, True)
        if not x.numel():
            shape = [size for at, size in enumerate(x.shape) if at != along or keepdim]
            shape = [1 if keepdim and at == along else size for at, size in enumerate(shape)]
            return jnp.zeros(shape, values.dtype), jnp.zeros(shape, jnp.int64)
        places = jnp.expand_dims(place(values, axis=along), along)
        found = jnp.take_along_axis(values, places, along)
        return (found, places) if keepdim else (found.squeeze(along), places.squeeze(along))

    return run


def _place(name: str, function: Callable[..., Any]) -> Callable[..., Array]:
    def run(x: Value, dim: int | None = None, keepdim: bool = False) -> Array:
        if x.dtype is torch.bool:
            raise NotImplementedError(f"{name}(): does not support bool input")
        if x.dtype.is_complex:
            raise RuntimeError(f"{name}(): does not support complex input")
        values = read(x)
        if dim is None:
            if not x.numel():
                raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            found = function(values)
            return found.reshape([1] * x.dim()) if keepdim else found
        along = axis(dim, x.dim())
        if not x.dim():
            return jnp.zeros((), jnp.int64)
        _refuse_empty(x, (along,), name, True)
        if not x.numel():
            return jnp.zeros((), jnp.int64)
        return function(values, axis=along, keepdims=keepdim)

    return run


def _any(x: Value, dim: Any = None, keepdim: bool = False) -> Array:
    return jnp.any(read(x, torch.bool), axis=axes(dim, x.dim(), none_is_all=False), keepdims=keepdim)


def _var(x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Array:
    if not is_floating(x.dtype):
        raise RuntimeError("std and var only support floating point and complex dtypes")
    over = axes(dim, x.dim())
    values = read(x)
    count = math.prod(x.shape[one] for one in over)
    if not x.numel():
        return jnp.full((), math.nan)
    apart = values - jnp.mean(values, axis=over, keepdims=True)
    apart = apart.real**2 + apart.imag**2 if values.dtype.kind == "c" else apart**2
    freedom = max(count - float(1 if correction is None else correction.real), 0.0)
    return jnp.sum(apart, axis=over, keepdims=keepdim) / freedom


def _cumsum(x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Array:
    asked = dtype or (x.dtype if is_floating(x.dtype) else torch.int64)
    values, along = read(x, asked), axis(dim, x.dim())
    if not x.dim():
        return values
    return jnp.cumsum(values, axis=along, dtype=values.dtype)


def _softmax(x: Value, dim: int, half_to_float: bool) -> Array:
    shifted, total = _shifted(x, dim)
    return jnp.exp(shifted) / total


def _log_softmax(x: Value, dim: int, half_to_float: bool) -> Array:
    shifted, total = _shifted(x, dim)
    return shifted - jnp.log(total)


def _shifted(x: Value, dim: int) -> tuple[Array, Array]:
    values, along = read(x), axis(dim, x.dim())
    if not values.size:
        return values, jnp.ones((), values.dtype)
    values = values if x.dim() else values.reshape(1)
    shifted = values - jnp.max(values, axis=along, keepdims=True)
    total = jnp.sum(jnp.exp(shifted), axis=along, keepdims=True)
    return (shifted, total) if x.dim() else (shifted.reshape(()), total.reshape(()))


def _order(values: Array, along: int, descending: bool) -> Array:
    """A stable order; NaN counts as the largest."""
    if not descending:
        return jnp.argsort(values, axis=along, stable=True)
    turned = jnp.argsort(jnp.flip(values, along), axis=along, stable=True)
    return jnp.flip(values.shape[along] - 1 - turned, along)


def _sort(x: Value, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    along = axis(dim, x.dim())
    if not x.dim():
        return x.array, jnp.zeros((), jnp.int64)
    order = _order(read(x), along, descending)
    return jnp.take_along_axis(x.array, order, along), order


def _topk(x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    along = axis(dim, x.dim())
    if not x.dim():
        return x.array, jnp.zeros((), jnp.int64)
    order = jnp.take(_order(read(x), along, largest), jnp.arange(k), axis=along)
    return jnp.take_along_axis(x.array, order, along), order


KERNELS: dict[str, Callable[..., Any]] = {
    "_log_softmax": _log_softmax,
    "_softmax": _softmax,
    "amax": _extreme("amax", jnp.max),
    "amin": _extreme("amin", jnp.min),
    "any": _any,
    "any.dim": _any,
    "any.dims": _any,
    "argmax": _place("argmax", jnp.argmax),
    "argmin": _place("argmin", jnp.argmin),
    "cumsum": _cumsum,
    "max.dim": _with_indices("max", jnp.argmax),
    "mean": _mean,
    "mean.dim": _mean,
    "min.dim": _with_indices("min", jnp.argmin),
    "prod": lambda x, *, dtype=None: _prod(x, dtype=dtype),
    "prod.dim_int": _prod,
    "sort": _sort,
    "sum.dim_IntList": _sum,
    "topk": _topk,
    "var.correction": _var,
}
