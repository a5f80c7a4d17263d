"""Elementwise ops and activations: a function of jax.numpy each, and the dtype that it is computed in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xla.arrays import HALF, Array, Number, Result, Value, check, common, floating, is_floating, known, read, scalar, wide

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


def _divide(x: Array, y: Array) -> Array:
    """Divide real numbers.

    XLA multiplies by the reciprocal of a divisor that it broadcasts. That of the largest numbers is subnormal, and flushed to zero.
    """
    if not _is_float(x) or y.shape == jnp.broadcast_shapes(x.shape, y.shape):
        return x / y
    by = jnp.where(jnp.abs(y) > 2.0 ** (jnp.finfo(y.dtype).maxexp - 3), 0.25, 1).astype(y.dtype)
    return (x * by) / (y * by)


def _truncated(x: Array, y: Array) -> Array:
    if _is_float(x):
        return jnp.trunc(_divide(x, y))
    _refuse_zero(x, y)
    return lax.div(*jnp.broadcast_arrays(x, y))


def _floored(x: Array, y: Array) -> Array:
    """ATen's `div_floor_floating`: the quotient by way of the remainder, which is exact."""
    if not _is_float(x):
        _refuse_zero(x, y)
        return jnp.floor_divide(x, y)
    rest = lax.rem(*jnp.broadcast_arrays(x, y))
    quotient = _divide(x - rest, y)
    quotient = jnp.where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    down = jnp.floor(quotient)
    down = jnp.where(quotient - down > 0.5, down + 1, down)
    unrounded = _divide(x, y)
    found = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(rest), unrounded), down)
    return jnp.where(y == 0, unrounded, found)


def _fmod(x: Array, y: Array) -> Array:
    _refuse_zero(x, y)
    return lax.rem(*jnp.broadcast_arrays(x, y))


def _remainder(x: Array, y: Array) -> Array:
    _refuse_zero(x, y)
    x, y = jnp.broadcast_arrays(x, y)
    rest = lax.rem(x, y)
    return jnp.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _quotient(x: Array, y: Array) -> Array:
    """Divide complex numbers as c10 does (Smith's method): XLA's results differ for zeros, infinities and NaN."""
    if x.dtype.kind != "c":
        return _divide(x, y)
    (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
    straight = jnp.abs(c) >= jnp.abs(d)
    large, small = jnp.where(straight, c, d), jnp.where(straight, d, c)
    ratio = small / large
    by = large + small * ratio
    real = jnp.where(straight, a + b * ratio, a * ratio + b) / by
    imag = jnp.where(straight, b - a * ratio, b * ratio - a) / by
    zero = (c == 0) & (d == 0)
    return lax.complex(jnp.where(zero, a / jnp.abs(c), real), jnp.where(zero, b / jnp.abs(d), imag))


def _power(x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":
        return _complex_power(*jnp.broadcast_arrays(x, y))
    if x.dtype.kind == "i":
        # What is left of 1 over an integer: nothing but for 1 and -1.
        parity = jnp.where(y % 2 == 0, 1, x)
        fraction = jnp.where(x == 1, 1, jnp.where(x == -1, parity, 0)).astype(x.dtype)
        return jnp.where(y < 0, fraction, jnp.power(x, jnp.maximum(y, 0)))
    return jnp.power(x, y)


def _complex_power(x: Array, y: Array) -> Array:
    """``exp(y * log(x))``, as C computes it: XLA's differs where `x` is zero."""
    by = y.real
    nan = jnp.full_like(by, jnp.nan)
    of_zero = lax.complex(jnp.where(by > 0, 0, jnp.where(by < 0, jnp.inf, nan)), jnp.where(by > 0, 0, nan))
    return jnp.where(x == 0, of_zero, jnp.power(x, y))


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


def _complex_log(x: Array, base: float) -> Array:
    """XLA's rounds the square of the absolute value."""
    wide = x.astype(jnp.complex128)
    near = 0.5 * _accurate_log1p((wide.real - 1) * (wide.real + 1) + wide.imag**2)
    size = jnp.hypot(wide.real, wide.imag)
    real = jnp.where((size > 0.7) & (size < 1.4), near, jnp.log(size))
    unit = math.log(base)
    return lax.complex(real / unit, jnp.arctan2(wide.imag, wide.real) / unit).astype(x.dtype)


def _sided(function: Function, real: int = 0, imag: int = 1) -> Function:
    """Return a function of complex numbers that takes the signs of its result from its argument.

    The sign of a zero says on which side of a branch cut a number is, and XLA loses it.

    Args:
        function: XLA's.
        real: the sign of the result's real part relative to that of the argument's; 0 if it does not depend on it.
        imag: the same for the imaginary parts.
    """

    def run(x: Array) -> Array:
        found = function(x)
        if x.dtype.kind != "c":
            return found
        return lax.complex(jnp.copysign(found.real, real * x.real) if real else found.real, jnp.copysign(found.imag, imag * x.imag))

    return run


def _asin(x: Array) -> Array:
    """XLA halves its argument on the way, which flushes the smallest numbers to zero."""
    return jnp.where(jnp.abs(x) < 1e-20, x, jnp.arcsin(x))


_sqrt = _sided(jnp.sqrt)


def _reciprocal(x: Array) -> Array:
    return _quotient(jnp.ones_like(x), x)


def _atanh(x: Array) -> Array:
    """Half of log1p(2x / (1 - x)): XLA's difference of logarithms is off where they cancel."""
    if x.dtype.kind == "c":
        return jnp.arctanh(x)
    size = jnp.abs(x)
    return jnp.where(size < 1e-20, x, jnp.copysign(0.5 * jnp.log1p(2 * size / (1 - size)), x))


def _cosh(x: Array) -> Array:
    if x.dtype.kind == "c":
        return lax.complex(_cosh_times(x.real, jnp.cos(x.imag)), _sinh_times(x.real, jnp.sin(x.imag)))
    return _cosh_times(x, 1)


def _sinh(x: Array) -> Array:
    if x.dtype.kind == "c":
        return lax.complex(_sinh_times(x.real, jnp.cos(x.imag)), _cosh_times(x.real, jnp.sin(x.imag)))
    return _sinh_times(x, 1)


def _cosh_times(x: Array, factor: Array) -> Array:
    """Compute from the exponential of half of x: XLA adds a rounded log(2) to x, which is off near the end of the range."""
    root = jnp.exp(jnp.abs(x) * 0.5)
    found = root * (0.5 * factor) * root + 0.5 * factor / root / root
    return jnp.where(factor == 0, factor, found)


def _sinh_times(x: Array, factor: Array) -> Array:
    """The formula of `_cosh_times`, where the difference of the exponentials cancels nothing.

    XLA computes the hyperbolic sine of small complex numbers as a difference, which cancels.
    """
    root = jnp.exp(jnp.abs(x) * 0.5)
    far = jnp.copysign(1, x) * (root * (0.5 * factor) * root - 0.5 * factor / root / root)
    found = jnp.where(jnp.abs(x) < 2, jnp.sinh(x) * factor, far)
    return jnp.where((x == 0) | (factor == 0), jnp.copysign(jnp.zeros_like(x), x) * jnp.copysign(1, factor), found)


def _expm1(x: Array) -> Array:
    """XLA loses the sign of the smallest numbers."""
    return jnp.expm1(x) if x.dtype.kind == "c" else _unsigned(x, jnp.where(jnp.abs(x) < 1e-20, x, jnp.expm1(x)))


def _of_subnormals(function: Function, rescaled: Callable[[Array, int], Array]) -> Function:
    """Return a function that reads subnormal numbers by their bits: XLA takes them for zero, and eager's MKL does not.

    Eager converts bfloat16 first, which flushes them.

    Args:
        function: the function of other numbers.
        rescaled: returns the result for a number divided by 2 to an exponent.
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
        return jnp.where(tiny, rescaled(whole, exponent), found)

    return run


def _logarithm(base: float) -> Function:
    def log(x: Array) -> Array:
        return _complex_log(x, base) if x.dtype.kind == "c" else {10: jnp.log10, 2: jnp.log2}.get(base, jnp.log)(x)

    return _of_subnormals(log, lambda x, exponent: log(x) - exponent * math.log(2) / math.log(base))


_square_root = _of_subnormals(_sqrt, lambda x, exponent: jnp.sqrt(x * 2 ** (exponent % 2)) * 2.0 ** -((exponent + 1) // 2))


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
    """A function of bools."""
    return lambda x, y: function(read(x, torch.bool), read(y, torch.bool))


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
        return _unrounded(_quotient, x, y, floating(dtype))
    return _unrounded(_ROUNDED[rounding_mode], x, y, dtype)


def _multiplied(x: Any, y: Any) -> Array:
    return _unrounded(jnp.multiply, x, y, common(x, y))


def _raised(x: Any, y: Any) -> Array:
    dtype = common(x, y)
    if isinstance(y, Value):
        return _power(read(x, dtype), read(y, dtype))
    if not is_floating(dtype) and known(y) < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    scalar(y, dtype)
    if y == 0.5:
        return _square_root(x)
    values = read(x, dtype)
    by_products: dict[Any, Function] = {0: jnp.ones_like, 1: jnp.asarray, 2: jnp.square, 3: lambda a: a * a * a}
    if is_floating(dtype):
        by_products[-1] = _reciprocal
    if dtype.is_complex:
        by_products |= {-0.5: lambda a: _reciprocal(_sqrt(a)), -2: lambda a: _reciprocal(a * a)}
    found = by_products.get(y)
    return found(values) if found is not None else _power(values, read(y, dtype))


def _number_raised(x: Any, y: Value) -> Result:
    """Eager's result is contiguous, and that of torch's Meta kernel is not."""
    return Result(_raised(x, y), common(x, y))


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
    # Eager multiplies the factors first, so that the product with the smallest numbers is not flushed to zero.
    return jnp.where(values <= 0, _expm1(values * slope) * (height * by), values * by)


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
    "acos": _sided(jnp.arccos, imag=-1),
    "acosh": _sided(jnp.arccosh),
    "asin": _sided(_asin, real=1),
    "asinh": _sided(jnp.arcsinh, real=1),
    "atan": jnp.arctan,
    "atanh": _atanh,
    "cos": jnp.cos,
    "cosh": _cosh,
    "erf": lax.erf,
    "exp": jnp.exp,
    "expm1": _expm1,
    "log1p": _log1p,
    "reciprocal": _reciprocal,
    "rsqrt": lambda x: _reciprocal(_sqrt(x)),
    "sigmoid": lambda x: 1 / (1 + jnp.exp(-x)),
    "sinh": _sinh,
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
    "log": _logarithm(math.e),
    "log10": _logarithm(10),
    "log2": _logarithm(2),
    "logical_and": _logical(jnp.logical_and),
    "logical_not": lambda x: ~read(x, torch.bool),
    "logical_or": _logical(jnp.logical_or),
    "logical_xor": _logical(jnp.logical_xor),
    "maximum": _ordered("maximum", jnp.maximum),
    "minimum": _ordered("minimum", jnp.minimum),
    "neg": _same(jnp.negative),
    "pow.Scalar": _number_raised,
    "pow.Tensor_Scalar": _raised,
    "pow.Tensor_Tensor": _raised,
    "relu": _relu,
    "sign": _sign,
    "sin": _by_way_of_float(jnp.sin),
    "sqrt": _square_root,
    "tan": _by_way_of_float(jnp.tan),
    "where.self": _chosen,
}

KERNELS: dict[str, Function] = {
    **{name: _real(function) for name, function in _REAL.items()},
    **{name: _rounding(function) for name, function in _WHOLE.items()},
    **{f"{name}.{kind}": function for name, function in _BINARY.items() for kind in ("Tensor", "Scalar")},
    **_OTHERS,
}
