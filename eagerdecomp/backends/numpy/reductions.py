"""Kernels of reductions, scans and sorts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp.backends.numpy.arrays import Array, Number, is_floating, read, to_tensor

__all__ = ["KERNELS", "axes", "axis"]


def axis(dim: int, dims: int) -> int:
    """Return a non-negative dimension; a 0-dim tensor accepts dimension 0."""
    room = max(dims, 1)
    if not -room <= dim < room:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-room}, {room - 1}], but got {dim})")
    return dim % room


def axes(dim: int | Sequence[int] | None, dims: int, none_is_all: bool = True) -> tuple[int, ...]:
    """Return the dimensions to reduce: all if none are given."""
    if dim is None or (none_is_all and not isinstance(dim, int) and not len(dim)):
        return tuple(range(dims))
    named = tuple(axis(one, dims) for one in ([dim] if isinstance(dim, int) else dim))
    for one in named:
        if named.count(one) > 1:
            raise RuntimeError(f"dim {one} appears multiple times in the list of dims")
    return named if dims else ()


def _summed(values: Array, over: tuple[int, ...], keepdim: bool) -> Array:
    # Sum in float64 or complex128, because NumPy's order of summation differs from eager's.
    wide = {"f": np.float64, "c": np.complex128}.get(values.dtype.kind, np.int64)
    return np.sum(values, axis=over, keepdims=keepdim, dtype=wide)


def _sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    asked = dtype or (x.dtype if is_floating(x.dtype) else torch.int64)
    return to_tensor(_summed(read(x, asked), axes(dim, x.dim()), keepdim), asked)


def _mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    asked = dtype or x.dtype
    if not is_floating(asked):
        raise RuntimeError("mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype.")
    over = axes(dim, x.dim())
    count = float(np.prod([x.shape[one] for one in over], dtype=np.float64))
    values = read(
        x, torch.float32 if asked.itemsize == 2 else asked
    )  # unlike in `sum`, the float16 and bfloat16 sum is not rounded
    return to_tensor(np.divide(_summed(values, over, keepdim), count), asked)


def _prod(x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    asked = dtype or (x.dtype if is_floating(x.dtype) else torch.int64)
    values = read(x, asked)
    return to_tensor(np.prod(values, axis=axes(dim, x.dim()), keepdims=keepdim, dtype=values.dtype), asked)


def _extreme(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    def run(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
        over = axes(dim, x.dim())
        if not x.numel():
            _refuse_empty(x, over, name, bool(dim))
        return to_tensor(function(read(x), axis=over, keepdims=keepdim, **({} if x.numel() else {"initial": 0})), x.dtype)

    return run


def _refuse_empty(x: Tensor, over: tuple[int, ...], name: str, named: bool) -> None:
    for one in over:
        if x.dim() and not x.shape[one]:
            if not named:
                raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            raise IndexError(f"{name}(): Expected reduction dim {one} to have non-zero size.")


def _with_places(name: str, place: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the maximum or minimum along a dimension, and its first index."""

    def run(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        along = axis(dim, x.dim())
        if x.dtype.is_complex:
            raise RuntimeError(f"{name}(): does not support complex input")
        values = read(x)
        if not x.dim():
            return to_tensor(values, x.dtype), to_tensor(0, torch.int64)
        _refuse_empty(x, (along,), name, True)
        places = np.expand_dims(place(values, axis=along), along)
        found = np.take_along_axis(values, places, along)
        if not keepdim:
            found, places = found.squeeze(along), places.squeeze(along)
        return to_tensor(found, x.dtype), to_tensor(places, torch.int64)

    return run


def _place(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    def run(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if x.dtype is torch.bool:
            raise NotImplementedError(f"{name}(): does not support bool input")
        if x.dtype.is_complex:
            raise RuntimeError(f"{name}(): does not support complex input")
        values = read(x)
        if dim is None:
            if not x.numel():
                raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            found = np.asarray(function(values))
            return to_tensor(found.reshape([1] * x.dim()) if keepdim else found, torch.int64)
        along = axis(dim, x.dim())
        if not x.dim():
            return to_tensor(0, torch.int64)
        _refuse_empty(x, (along,), name, True)
        return to_tensor(function(values, axis=along, keepdims=keepdim), torch.int64)

    return run


def _any(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    found = np.any(read(x) != 0, axis=axes(dim, x.dim()), keepdims=keepdim)
    return to_tensor(found, torch.uint8 if x.dtype is torch.uint8 else torch.bool)


def _any_dims(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    found = np.any(read(x) != 0, axis=axes(dim, x.dim(), none_is_all=False), keepdims=keepdim)
    return to_tensor(found, torch.uint8 if x.dtype is torch.uint8 else torch.bool)


def _var(x: Tensor, dim: Any = None, correction: Number | None = None, keepdim: bool = False) -> Tensor:
    if not is_floating(x.dtype):
        raise RuntimeError("std and var only support floating point and complex dtypes")
    over = axes(dim, x.dim())
    values = read(x).astype(np.complex128 if x.dtype.is_complex else np.float64)
    count = float(np.prod([x.shape[one] for one in over], dtype=np.float64))
    apart = np.abs(values - np.mean(values, axis=over, keepdims=True)) ** 2
    freedom = max(count - float(1 if correction is None else correction.real), 0.0)
    real = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(x.dtype, x.dtype)
    freedom = freedom if x.numel() else math.nan
    return to_tensor(np.divide(np.sum(apart, axis=over, keepdims=keepdim), freedom), real)


def _var_dim(x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return _var(x, dim, int(unbiased), keepdim)


def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    asked = dtype or (x.dtype if is_floating(x.dtype) else torch.int64)
    values, along = read(x, asked), axis(dim, x.dim())
    wide = {"f": np.float64, "c": np.complex128}.get(values.dtype.kind, values.dtype.type)
    return to_tensor(np.cumsum(values, axis=along, dtype=wide) if x.dim() else values, asked)


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    shifted, total, dtype = _shifted(x, dim, half_to_float)
    return to_tensor(np.exp(shifted) / total, dtype)


def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    shifted, total, dtype = _shifted(x, dim, half_to_float)
    return to_tensor(shifted - np.log(total), dtype)


def _shifted(x: Tensor, dim: int, half_to_float: bool) -> tuple[Array, Array, torch.dtype]:
    values, along = read(x), axis(dim, x.dim())
    if not x.dim():
        values, along = values.reshape(1), 0
    values = values.astype(np.float64)
    if not values.size:
        return values.reshape(x.shape), np.ones(()), torch.float32 if half_to_float else x.dtype
    shifted = values - values.max(axis=along, keepdims=True)
    total = np.exp(shifted).sum(axis=along, keepdims=True)
    return shifted.reshape(x.shape), total.reshape(()) if not x.dim() else total, torch.float32 if half_to_float else x.dtype


def _order(values: Array, along: int, descending: bool) -> Array:
    """Return a stable argsort; NaN counts as the largest."""
    if not descending:
        return np.argsort(values, axis=along, kind="stable")
    turned = np.argsort(np.flip(values, along), axis=along, kind="stable")
    return np.flip(values.shape[along] - 1 - turned, along)


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    along = axis(dim, x.dim())
    if not x.dim():
        return to_tensor(read(x), x.dtype), to_tensor(0, torch.int64)
    order = _order(read(x), along, descending)
    return to_tensor(np.take_along_axis(read(x), order, along), x.dtype, [x]), to_tensor(order, torch.int64, [x])


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    along = axis(dim, x.dim())
    if not 0 <= k <= (x.shape[along] if x.dim() else 1):
        raise RuntimeError("selected index k out of range")
    if not x.dim():
        return to_tensor(read(x), x.dtype), to_tensor(0, torch.int64)
    order = np.take(_order(read(x), along, largest), np.arange(k), axis=along)
    return to_tensor(np.take_along_axis(read(x), order, along), x.dtype), to_tensor(order, torch.int64)


KERNELS: dict[str, Callable[..., Any]] = {
    "sum.dim_IntList": _sum,
    "mean": _mean,
    "mean.dim": _mean,
    "prod": lambda x, *, dtype=None: _prod(x, dtype=dtype),
    "prod.dim_int": _prod,
    "amax": _extreme("amax", np.max),
    "amin": _extreme("amin", np.min),
    "max.dim": _with_places("max", np.argmax),
    "min.dim": _with_places("min", np.argmin),
    "argmax": _place("argmax", np.argmax),
    "argmin": _place("argmin", np.argmin),
    "any": lambda x: _any(x),
    "any.dim": _any,
    "any.dims": _any_dims,
    "var.correction": lambda x, dim=None, *, correction=None, keepdim=False: _var(x, dim, correction, keepdim),
    "var.dim": _var_dim,
    "cumsum": _cumsum,
    "sort": _sort,
    "topk": _topk,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
}
