"""Values of a kernel while JAX traces it: tensors and scalars as jax arrays with torch's dtypes, and conversions between dtypes.

A kernel is a pure function of `Value` and `Number` objects. It returns jax arrays in the shape of the op's result; the caller
converts them to the result's dtype. float16 and bfloat16 are computed in float32 and rounded once at the end, as eager does.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch

__all__ = [
    "Array",
    "HALF",
    "JAX_TYPES",
    "Number",
    "Result",
    "Unsupported",
    "Value",
    "cast",
    "check",
    "common",
    "computed_in",
    "described",
    "floating",
    "is_floating",
    "known",
    "promoted",
    "read",
    "scalar",
    "take_checks",
    "wide",
]

Array: TypeAlias = Any

#: The dtype that an array of a torch dtype is held in.
JAX_TYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex32: np.dtype(np.complex64),  # JAX has no narrower one: `cast` rounds its parts to float16
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
}

HALF = (torch.float16, torch.bfloat16)


class Unsupported(NotImplementedError):
    """The device has no way to do this."""


class Value:
    """A tensor while a kernel is traced.

    Attributes:
        array: its elements, in its own shape. `write` replaces it.
        base: the value that this one is a view of, which a write would have to reach.
        written: whether a kernel wrote it.
        stride: the tensor's strides; None for one made inside a program.
    """

    __slots__ = ("array", "base", "dtype", "shape", "stride", "written")

    def __init__(self, array: Array, dtype: torch.dtype, stride: Sequence[int] | None = None, base: Value | None = None) -> None:
        self.array = array
        self.dtype = dtype
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.stride = stride
        self.base = base
        self.written = False

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    def write(self, array: Array) -> None:
        """Replace the elements."""
        if self.base is not None:
            raise Unsupported("a write to a view inside a compiled program")
        self.array = jnp.broadcast_to(cast(array, self.dtype), self.shape)
        self.written = True


class Result:
    """A result whose dtype and strides the kernel knows better than torch's Meta kernel of the op.

    Attributes:
        stride: its strides; None for a contiguous one.
    """

    __slots__ = ("array", "dtype", "stride")

    def __init__(self, array: Array, dtype: torch.dtype, stride: Sequence[int] | None = None) -> None:
        self.array = array
        self.dtype = dtype
        self.stride = stride


def described(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a kernel whose results are all `Result` objects: torch's Meta kernel is not asked."""
    kernel.described = True  # type: ignore[attr-defined]
    return kernel


class Number:
    """A Python number whose value is an argument of the compiled function.

    Attributes:
        kind: its Python type, by which it takes part in type promotion.
        sample: a number of the same kind, sign and range: what a check of the range may look at.
    """

    __slots__ = ("array", "kind", "sample")

    def __init__(self, array: Array, kind: type, sample: Any) -> None:
        self.array = array
        self.kind = kind
        self.sample = sample


# -- dtypes ------------------------------------------------------------------------------------------------------------


def is_floating(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def floating(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of functions of real numbers: the default dtype for integers."""
    return dtype if is_floating(dtype) else torch.get_default_dtype()


def computed_in(dtype: torch.dtype) -> np.dtype[Any]:
    """Return the jax dtype that values of a torch dtype are computed in."""
    return JAX_TYPES[torch.float32 if dtype in HALF else dtype]


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for float16 and bfloat16, and other dtypes themselves."""
    return torch.float32 if dtype in HALF else dtype


def _kind(value: Any) -> type:
    return value.kind if isinstance(value, Number) else type(value)


def common(*operands: Any) -> torch.dtype:
    """Return the dtype to which operands promote: tensors with dimensions, then those without, then numbers."""
    tensors = [one for one in operands if isinstance(one, Value)]
    found = promoted(tensors) if tensors else torch.bool
    for kind in map(_kind, operands):
        if kind is complex and not found.is_complex:
            found = torch.complex128 if torch.float64 in (found, torch.get_default_dtype()) else torch.complex64
            if tensors and promoted(tensors) in HALF:
                found = torch.complex64
        elif kind is float and not is_floating(found):
            found = torch.get_default_dtype()
        elif kind is int and found is torch.bool:
            found = torch.int64
    return found


def promoted(tensors: Sequence[Value]) -> torch.dtype:
    """Return the dtype to which tensors promote: those with dimensions, unless one without is of a higher kind."""
    ranked = [one.dtype for one in tensors if one.shape]
    others = [one.dtype for one in tensors if not one.shape]
    low = functools.reduce(torch.promote_types, others) if others else None
    if not ranked:
        assert low is not None
        return low
    top = functools.reduce(torch.promote_types, ranked)
    return top if low is None or _category(low) <= _category(top) else torch.promote_types(top, low)


def _category(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1


# -- values ------------------------------------------------------------------------------------------------------------


def cast(values: Array, dtype: torch.dtype) -> Array:
    """Convert an array as torch converts a tensor: floats to narrow integers wrap by way of int64."""
    target = JAX_TYPES[dtype]
    values = jnp.asarray(values)
    if dtype is torch.complex32:
        values = values.astype(target)
        # Without a barrier XLA may leave out a conversion to float16 and back.
        parts = jax.lax.optimization_barrier((values.real.astype(jnp.float16), values.imag.astype(jnp.float16)))
        return jax.lax.complex(*(part.astype(jnp.float32) for part in parts))
    if values.dtype == target:
        return values
    if target.kind == "b":
        # Of bfloat16, XLA compares the bits, and so does not flush subnormal numbers to zero as it does others.
        return ~(jnp.abs(values) < jnp.finfo(jnp.float32).tiny) if values.dtype == jnp.bfloat16 else values != 0
    if values.dtype.kind == "c" and target.kind != "c":
        values = values.real
    if target.kind in "iu" and jnp.issubdtype(values.dtype, jnp.floating):
        # C++ converts by way of int64, where NaN and what is out of range become the least number.
        inside = (values >= -(2.0**63)) & (values < 2.0**63)
        whole = jnp.where(inside, values, 0).astype(jnp.int64)
        values = jnp.where(inside, whole, jnp.int64(-(2**63)))
    if values.dtype.kind == "b" and target.kind not in "iu":
        # XLA makes a selection of a product with a converted bool, in which the sign of zero and NaN are lost.
        return jax.lax.optimization_barrier(values.astype(target))
    return values.astype(target)


def read(operand: Any, dtype: torch.dtype | None = None) -> Array:
    """Return an operand's values, converted to `dtype` if given, in the dtype that they are computed in."""
    if isinstance(operand, Value):
        values, held = operand.array, operand.dtype
    elif isinstance(operand, Number):
        values, held = operand.array, None
    else:
        values, held = _constant(operand), None
    if dtype is None:
        return values.astype(jnp.float32) if held in HALF else values
    if held is not dtype:
        values = cast(values, dtype)
    return values.astype(jnp.float32) if dtype in HALF else values


def _constant(value: Any) -> Array:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 2**63:
        return jnp.asarray(np.uint64(value))
    return jnp.asarray(value)


def scalar(value: Any, dtype: torch.dtype) -> Array:
    """Return a number that the op converts to `dtype` by ``Scalar::to``.

    Raises:
        RuntimeError: where the dtype cannot hold it.
    """
    if not _fits(value.sample if isinstance(value, Number) else value, dtype):
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow")
    return read(value, dtype)


def known(value: Any) -> Any:
    """Return a number whose value is part of the compiled function."""
    if isinstance(value, Number):
        raise TypeError("this kernel needs the value of a number while it is compiled")
    return value


def _fits(value: Any, dtype: torch.dtype) -> bool:
    if dtype is torch.bool or isinstance(value, bool):
        return True
    if dtype.is_complex:
        value = complex(value)
        return _fits(value.real, dtype.to_real()) and _fits(value.imag, dtype.to_real())
    if isinstance(value, complex):
        return value.imag == 0 and _fits(value.real, dtype)
    if dtype.is_floating_point:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    most, least = int(torch.iinfo(dtype).max), int(torch.iinfo(dtype).min)
    if not least and isinstance(value, int):
        least = -most  # a byte takes -1 for 255
    return bool(least <= value <= most)


# -- checks that need data ---------------------------------------------------------------------------------------------


class _Checks(threading.local):
    """Checks of kernels in this thread's trace: whether it failed, the error's type, its message."""

    def __init__(self) -> None:
        self.noted: list[tuple[Array, type[Exception], str]] = []


_checks = _Checks()


def check(failed: Array, kind: type[Exception], message: str) -> None:
    """Have the call raise where `failed`, an array of one bool, is true: when data is read next, since this needs data."""
    _checks.noted.append((failed, kind, message))


def take_checks() -> list[tuple[Array, type[Exception], str]]:
    """Return the checks noted since the last call of this."""
    found, _checks.noted = _checks.noted, []
    return found
