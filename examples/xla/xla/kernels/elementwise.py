"""Elementwise ops and activations: a function of jax.numpy each, and the dtype that it is computed in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xla.arrays import HALF, Array, Number, Value, check, common, floating, known, read, scalar, wide

__all__ = ["KERNELS"]

Function = Callable[..., Any]
lax = jax.lax


# -- functions that JAX has otherwise or not ---------------------------------------------------------------------------


def _is_float(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def _refuse_zero(x: Array, y: Array) -> None:
    if x.dtype.kind in "iu":
        size = jnp.broadcast_shapes(x.shape, y.shape)
        if 0 not in size:
            check(jnp.any(y == 0), RuntimeError, "ZeroDivisionError")


def _truncated(x: Array, y: Array) -> Array:
    if _is_float(x):
        return jnp.trunc(x / y)
    _refuse_zero(x, y)
    return lax.div(*jnp.broadcast_arrays(x, y))


def _floored(x: Array, y: Array) -> Array:
    """ATen's `div_floor_floating`: the quotient by way of the remainder, which is exact."""
    if not _is_float(x):
        _refuse_zero(x, y)
        return jnp.floor_divide(x, y)
    x, y = jnp.broadcast_arrays(x, y)
    rest = lax.rem(x, y)
    quotient = (x - rest) / y
    quotient = jnp.where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    down = jnp.floor(quotient)
    down = jnp.where(quotient - down > 0.5, down + 1, down)
    found = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(x), x / y), down)
    return jnp.where(y == 0, x / y, found)


def _fmod(x: Array, y: Array) -> Array:
    _refuse_zero(x, y)
    return lax.rem(*jnp.broadcast_arrays(x, y))


def _remainder(x: Array, y: Array) -> Array:
    _refuse_zero(x, y)
    x, y = jnp.broadcast_arrays(x, y)
    rest = lax.rem(x, y)
    return jnp.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _power(x: Array, y: Array) -> Array:
    if x.dtype.kind == "i":
        # What is left of 1 over an integer: nothing but for 1 and -1.
        parity = jnp.where(y % 2 == 0, 1, x)
        fraction = jnp.where(x == 1, 1, jnp.where(x == -1, parity, 0)).astype(x.dtype)
        return jnp.where(y < 0, fraction, jnp.power(x, jnp.maximum(y, 0)))
    return jnp.power(x, y)


def _is_subnormal(x: Array) -> Array:
    """Whether a number is subnormal, by its bits: XLA takes such numbers for zero."""
    integer, digits = (jnp.int32, 23) if x.dtype == jnp.float32 else (jnp.int64, 52)
    size = lax.bitcast_convert_type(x, integer) & jnp.iinfo(integer).max
    return (size > 0) & (size < 1 << digits)


def _unsigned(x: Array, found: Array) -> Array:
    """Eager flushes the results for subnormal numbers to 0, also of negative ones."""
    return jnp.where(_is_subnormal(x), 0, found)


def _accurate_log1p(x: Array) -> Array:
    """XLA's is off by 127 units between -0.5 and -0.29, where adding 1 rounds nothing away."""
    return jnp.where(x < -0.25, jnp.log(1 + x), jnp.log1p(x))


def _log1p(x: Array) -> Array:
    if x.dtype.kind != "c":
        return _unsigned(x, _accurate_log1p(x))
    x = x.astype(jnp.complex128)
    near = 0.5 * _accurate_log1p(x.real * (2 + x.real) + x.imag**2)
    size = jnp.where(jnp.abs(x) < 0.5, near, jnp.log(jnp.hypot(1 + x.real, x.imag)))
    return lax.complex(size, jnp.arctan2(x.imag, 1 + x.real))


def _asin(x: Array) -> Array:
    """XLA halves its argument on the way, which flushes the smallest numbers to zero."""
    return jnp.where(jnp.abs(x) < 1e-20, x, jnp.arcsin(x))


def _atanh(x: Array) -> Array:
    """Half of log1p(2x / (1 - x)): XLA's difference of logarithms is off where they cancel."""
    if x.dtype.kind == "c":
        return jnp.arctanh(x)
    size = jnp.abs(x)
    return jnp.where(size < 1e-20, x, jnp.copysign(0.5 * jnp.log1p(2 * size / (1 - size)), x))


def _cosh(x: Array) -> Array:
    """Compute from the exponential of half of x: XLA adds a rounded log(2) to x, which is off near the end of the range."""
    if x.dtype.kind == "c":
        return jnp.cosh(x)
    root = jnp.exp(jnp.abs(x) * 0.5)
    return root * 0.5 * root + 0.5 / root / root


def _sinh(x: Array) -> Array:
    """The formula of `_cosh`, where the difference of the exponentials cancels nothing."""
    if x.dtype.kind == "c":
        return jnp.sinh(x)
    root = jnp.exp(jnp.abs(x) * 0.5)
    return jnp.where(jnp.abs(x) < 2, jnp.sinh(x), jnp.copysign(root * 0.5 * root - 0.5 / root / root, x))


def _expm1(x: Array) -> Array:
    """XLA loses the sign of the smallest numbers."""
    return jnp.expm1(x) if x.dtype.kind == "c" else _unsigned(x, jnp.where(jnp.abs(x) < 1e-20, x, jnp.expm1(x)))


def _logarithm(function: Function, base: float) -> Function:
    """A logarithm that reads subnormal numbers by their bits: XLA takes them for zero, of which eager's does not.

    Eager converts bfloat16 first, which flushes them.
    """

    def run(given: Value) -> Array:
        x = read(given, floating(given.dtype))
        if x.dtype.kind == "c" or given.dtype in HALF:
            return function(x)
        integer, digits, exponent = (jnp.int32, 23, 149) if x.dtype == jnp.float32 else (jnp.int64, 52, 1074)
        bits = lax.bitcast_convert_type(x, integer)
        tiny = (bits > 0) & (bits < 1 << digits)
        whole = jnp.where(tiny, bits, 1).astype(x.dtype)
        found = jnp.where(_is_subnormal(x), jnp.nan, function(x))
        return jnp.where(tiny, function(whole) - exponent * math.log(2) / math.log(base), found)

    return run


# -- kinds of kernels --------------------------------------------------------------------------------------------------


def _same(function: Function) -> Function:
    """Wrap a function of one tensor, in its own dtype."""
    return lambda x: function(read(x))


def _real(function: Function) -> Function:
    """Wrap a function of one tensor of real numbers: integers are computed in the default dtype."""
    return lambda x: function(read(x, floating(x.dtype)))


def _rounding(function: Function) -> Function:
    """Integers are whole already."""
    return lambda x: function(read(x)) if x.dtype.is_floating_point else x.array


def _binary(function: Function) -> Function:
    def run(x: Any, y: Any) -> Array:
        dtype = common(x, y)
        return function(read(x, dtype), read(y, dtype))

    return run


def _logical(function: Function) -> Function:
    """A function of bools. Subnormal numbers of bfloat16 are zero, as they are in eager once they are flushed."""

    def true(operand: Any) -> Array:
        values = read(operand)
        half = isinstance(operand, Value) and operand.dtype is torch.bfloat16
        return ~(jnp.abs(values) < jnp.finfo(jnp.float32).tiny) if half else values != 0

    return lambda x, y: function(true(x), true(y))


def _by_way_of_float(function: Function) -> Function:
    """A function of real numbers; eager computes it of bfloat16 in float32, where the sign of subnormal numbers is lost."""

    def run(x: Value) -> Array:
        values = read(x, floating(x.dtype))
        return _unsigned(values, function(values)) if x.dtype is torch.bfloat16 else function(values)

    return run


def _ordered(name: str, function: Function) -> Function:
    run = _binary(function)

    def checked(x: Value, y: Value) -> Array:
        if common(x, y).is_complex:
            raise RuntimeError(f"{name} not implemented for complex tensors.")
        return run(x, y)

    return checked


def _scaled(function: Function) -> Function:
    """``x + alpha * y`` and ``x - alpha * y``."""

    def run(x: Any, y: Any, alpha: Any = 1, **by_name: Any) -> Array:
        dtype = common(x, y)
        kind = alpha.kind if isinstance(alpha, Number) else type(alpha)
        if kind is bool and dtype is not torch.bool:
            raise RuntimeError("Boolean alpha only supported for Boolean results.")
        if function is jnp.subtract and torch.bool in (common(x), common(y)):
            raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
        if kind is float and not dtype.is_floating_point and not dtype.is_complex:
            raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
        left, right = read(x, dtype), read(y, dtype)
        if dtype is torch.bool and function is jnp.add:
            return left | (right & scalar(alpha, dtype))
        if kind is not int or isinstance(alpha, Number) or alpha != 1 or dtype.is_complex:
            right = scalar(alpha, dtype) * right  # eager multiplies complex numbers by 1, which makes infinities NaN
        return function(left, right)

    return run


def _unrounded(function: Function, x: Any, y: Any, dtype: torch.dtype) -> Array:
    """Elementwise, but a number as the second operand is not rounded to a half dtype first."""
    if dtype not in (torch.float16, torch.bfloat16) or (isinstance(y, Value) and y.shape):
        return function(read(x, dtype), read(y, dtype))
    return function(read(x, dtype), read(y, torch.float32))


_ROUNDED: dict[str, Function] = {"trunc": _truncated, "floor": _floored}


def _divided(x: Any, y: Any, *, rounding_mode: str | None = None) -> Array:
    dtype = common(x, y)
    if rounding_mode is None:
        return _unrounded(jnp.true_divide, x, y, floating(dtype))
    return _unrounded(_ROUNDED[rounding_mode], x, y, dtype)


def _multiplied(x: Any, y: Any) -> Array:
    return _unrounded(jnp.multiply, x, y, common(x, y))


def _raised(x: Any, y: Any) -> Array:
    dtype = common(x, y)
    if not isinstance(y, Value):
        if not dtype.is_floating_point and not dtype.is_complex and known(y) < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        scalar(y, dtype)
        values = read(x, dtype)
        small = {0.5: jnp.sqrt, 1: jnp.asarray, 2: jnp.square, 3: lambda a: a * a * a, -1: jnp.reciprocal}
        found = small.get(y) if not isinstance(y, complex) and (dtype.is_floating_point or y in (1, 2, 3)) else None
        if found is not None and not dtype.is_complex:
            return found(values)
    return _power(read(x, dtype), read(y, dtype))


def _absolute(x: Value) -> Array:
    return x.array if x.dtype is torch.bool else jnp.abs(read(x))


def _sign(x: Value) -> Array:
    values = read(x)
    return values if values.dtype.kind == "b" else (values > 0).astype(jnp.int8) - (values < 0).astype(jnp.int8)


def clamped(x: Value, min: Any = None, max: Any = None) -> Array:
    bounds = [one for one in (min, max) if one is not None]
    dtype = common(x, *bounds)
    if dtype.is_complex:
        raise NotImplementedError("clamp is not supported for complex types")
    limits = [read(one, dtype) if isinstance(one, Value) else scalar(one, dtype) for one in bounds]
    found = read(x, dtype)
    found = found if min is None else jnp.maximum(found, limits[0])
    return found if max is None else jnp.minimum(found, limits[-1])


def _chosen(condition: Value, x: Any, y: Any) -> Array:
    if condition.dtype not in (torch.bool, torch.uint8):
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}")
    dtype = common(x, y)
    return jnp.where(read(condition, torch.bool), read(x, dtype), read(y, dtype))


# -- activations -------------------------------------------------------------------------------------------------------


def _gelu(x: Value, *, approximate: str = "none") -> Array:
    values = read(x)
    if approximate == "tanh":
        return 0.5 * values * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values * values * values)))
    # Far left of 0 one plus erf is all cancellation: what is left there is erfc.
    return 0.5 * values * lax.erfc(-values * math.sqrt(0.5))


def _elu(x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Array:
    dtype = wide(x.dtype)
    height, by, slope = (scalar(one, dtype) for one in (alpha, scale, input_scale))
    values = read(x)
    return jnp.where(values <= 0, jnp.expm1(values * slope) * height, values) * by


def _hardtanh(x: Value, min_val: Any = -1, max_val: Any = 1) -> Array:
    if x.dtype is torch.bool:
        raise NotImplementedError("Bool inputs not supported for hardtanh")
    if x.dtype is torch.uint8 and min(min_val, max_val) < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return jnp.minimum(jnp.maximum(read(x), scalar(min_val, x.dtype)), scalar(max_val, x.dtype))


def _leaky_relu(x: Value, negative_slope: Any = 0.01) -> Array:
    values = read(x)
    return jnp.where(values > 0, values, values * scalar(negative_slope, wide(x.dtype)))


def _relu(x: Value) -> Array:
    if x.dtype is torch.bool:
        raise RuntimeError("Boolean inputs not supported for relu")
    return jnp.maximum(read(x), 0)


_REAL: dict[str, Function] = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": _asin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": _atanh,
    "cos": jnp.cos,
    "cosh": _cosh,
    "erf": lax.erf,
    "exp": jnp.exp,
    "expm1": _expm1,
    "log1p": _log1p,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / jnp.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + jnp.exp(-x)),
    "sinh": _sinh,
    "sqrt": jnp.sqrt,
    "tanh": jnp.tanh,
}

_WHOLE: dict[str, Function] = {"ceil": jnp.ceil, "floor": jnp.floor, "round": jnp.round, "trunc": jnp.trunc}

#: Each in two overloads, of a tensor and of a number.
_BINARY: dict[str, Function] = {
    "add": _scaled(jnp.add),
    "sub": _scaled(jnp.subtract),
    "mul": _multiplied,
    "div": _divided,
    "fmod": _binary(_fmod),
    "remainder": _binary(_remainder),
    "bitwise_and": _binary(jnp.bitwise_and),
    "bitwise_or": _binary(jnp.bitwise_or),
    "bitwise_xor": _binary(jnp.bitwise_xor),
    "eq": _binary(jnp.equal),
    "ne": _binary(jnp.not_equal),
    "lt": _binary(jnp.less),
    "le": _binary(jnp.less_equal),
    "gt": _binary(jnp.greater),
    "ge": _binary(jnp.greater_equal),
}

_OTHERS: dict[str, Function] = {
    "abs": _absolute,
    "atan2": lambda x, y: jnp.arctan2(read(x, floating(common(x, y))), read(y, floating(common(x, y)))),
    "bitwise_not": _same(jnp.invert),
    "clamp": clamped,
    "clamp.Tensor": clamped,
    "div.Scalar_mode": _divided,
    "div.Tensor_mode": _divided,
    "elu": _elu,
    "gelu": _gelu,
    "hardtanh": _hardtanh,
    "isinf": _same(jnp.isinf),
    "isnan": _same(jnp.isnan),
    "leaky_relu": _leaky_relu,
    "log": _logarithm(jnp.log, math.e),
    "log10": _logarithm(jnp.log10, 10),
    "log2": _logarithm(jnp.log2, 2),
    "logical_and": _logical(jnp.logical_and),
    "logical_not": _same(lambda x: x == 0),
    "logical_or": _logical(jnp.logical_or),
    "logical_xor": _logical(jnp.logical_xor),
    "maximum": _ordered("maximum", jnp.maximum),
    "minimum": _ordered("minimum", jnp.minimum),
    "neg": _same(jnp.negative),
    "pow.Scalar": _raised,
    "pow.Tensor_Scalar": _raised,
    "pow.Tensor_Tensor": _raised,
    "relu": _relu,
    "sign": _sign,
    "sin": _by_way_of_float(jnp.sin),
    "tan": _by_way_of_float(jnp.tan),
    "where.self": _chosen,
}

KERNELS: dict[str, Function] = {
    **{name: _real(function) for name, function in _REAL.items()},
    **{name: _rounding(function) for name, function in _WHOLE.items()},
    **{f"{name}.{kind}": function for name, function in _BINARY.items() for kind in ("Tensor", "Scalar")},
    **_OTHERS,
}
