"""Random ops as functions of a key: JAX's counter-based generator, seeded by a number that the device's generator draws for each
call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xla.arrays import JAX_TYPES, Array, Result, Value, cast, is_floating, read, wide

__all__ = ["RANDOM"]


def _drawn(draw: Callable[..., Array], key: Array, size: Sequence[int], dtype: torch.dtype | None) -> Array:
    dtype = dtype or torch.get_default_dtype()
    if dtype.is_complex:
        parts = draw(key, (*size, 2), JAX_TYPES[dtype.to_real()])
        parts = parts * math.sqrt(0.5) if draw is jax.random.normal else parts  # of variance 1 altogether
        return jax.lax.complex(parts[..., 0], parts[..., 1])
    if not dtype.is_floating_point:
        raise NotImplementedError(f"\"check_uniform_bounds\" not implemented for '{dtype}'")
    return draw(key, tuple(size), JAX_TYPES[wide(dtype)])


def _rand(key: Array, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    made = _drawn(jax.random.uniform, key, size, dtype)
    if dtype in (torch.float16, torch.bfloat16):  # what would be rounded up to 1 is 0
        made = jnp.where(made.astype(JAX_TYPES[dtype]) == 1, 0, made)
    return made


def _randn(key: Array, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return _drawn(jax.random.normal, key, size, dtype)


def _randperm(key: Array, n: int, *, dtype: torch.dtype | None = None, **_: Any) -> Result:
    dtype = dtype or torch.int64
    if dtype is torch.bool or dtype.is_complex:
        raise NotImplementedError(f'"randperm" not implemented for {dtype}')
    precise = dtype.is_floating_point and dtype is not torch.bfloat16  # eager does not check bfloat16
    most = 1 + 2 / torch.finfo(dtype).eps if precise else math.inf if dtype.is_floating_point else torch.iinfo(dtype).max + 1
    if n > most:
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow")
    return Result(cast(jax.random.permutation(key, n), dtype), dtype)


def _dropout(key: Array, x: Value, p: float, train: bool | None) -> tuple[Array, Array]:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if train is not False and not is_floating(x.dtype):
        raise RuntimeError(f"result type Float can't be cast to the desired output type {x.dtype}")
    values = read(x)
    if train is False or not p:
        return values, jnp.ones(x.shape, bool)
    mask = jax.random.uniform(key, x.shape, jnp.float32) >= p
    return values * mask * jnp.asarray(1 / (1 - p) if p < 1 else 0.0, values.dtype), mask


#: op -> a function of a key and of the op's arguments.
RANDOM: dict[str, Callable[..., Any]] = {"native_dropout": _dropout, "rand": _rand, "randn": _randn, "randperm": _randperm}
