"""Kernels of elementwise ops: a NumPy function for each, and the dtype of its computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp.backends.numpy.arrays import Array, Number, common, compute, floating, read, scalar, store, to_tensor
from eagerdecomp.eager.layouts import iterator_strides, keep_strides
from eagerdecomp.eager.messages import not_implemented

__all__ = ["KERNELS", "clamped"]

aten = torch.ops.aten

Function = Callable[..., Any]


# -- functions that NumPy lacks, or computes differently -------------------------------------------------------------


def _truncated(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.trunc(x / y)
    _refuse_zero(x, y)
    down, rest = np.divmod(x, y)
    return down + ((rest != 0) & ((x < 0) != (y < 0))).astype(down.dtype)


def _floored(x: Array, y: Array) -> Array:
    _refuse_zero(x, y)
    return np.floor_divide(x, y)


def _refuse_zero(x: Array, y: Array) -> None:
    if x.dtype.kind in "iu" and not np.all(y) and np.broadcast(x, y).size:
        raise RuntimeError("ZeroDivisionError")


def _fmod(x: Array, y: Array) -> Array:
    _refuse_zero(x, y)
    return np.fmod(x, y)


def _remainder(x: Array, y: Array) -> Array:
    _refuse_zero(x, y)
    return np.remainder(x, y)


def _power(x: Array, y: Array) -> Array:
    if x.dtype.kind == "i" and np.any(y < 0):
        # 1 over an integer, truncated: 0 except for 1 and -1.
        parity = np.where(y % 2 == 0, 1, x)
        fraction = np.where(x == 1, 1, np.where(x == -1, parity, 0)).astype(x.dtype)
        return np.where(y < 0, fraction, np.power(x, np.maximum(y, 0)))
    return np.power(x, y)


def _angle(x: Array, y: Array) -> Array:
    return np.arctan2(x, y, dtype=np.float64)  # NumPy's float32 function is inexact by one unit


def _log1p(x: Array) -> Array:
    if x.dtype.kind != "c":
        return np.log1p(x)
    # For complex numbers NumPy adds 1 first, which loses small ones.
    x = x.astype(np.complex128)
    size = 0.5 * np.log1p(x.real * (2 + x.real) + x.imag**2)
    return np.where(np.abs(x) < 0.5, size + 1j * np.arctan2(x.imag, 1 + x.real), np.log1p(x))


# -- kinds of kernels ---------------------------------------------------------------------------------------------


def _no_complex(name: str, x: Tensor) -> None:
    if x.dtype.is_complex:
        raise NotImplementedError(f"{name} is not supported for complex inputs")


def _same(function: Function) -> Function:
    """Return a unary kernel that computes in the tensor's own dtype."""
    return lambda x: compute(function, [x], x.dtype)


def _signs(x: Tensor) -> Tensor:
    _no_complex("sign", x)
    return compute(
        lambda values: np.subtract(values > 0, values < 0, dtype=np.int8) if values.dtype.kind != "b" else values, [x], x.dtype
    )


def _real(function: Function) -> Function:
    """Return a unary kernel that computes integers in the default dtype."""
    return lambda x: compute(function, [x], floating(x.dtype))


def _refusing_bool(name: str, function: Function) -> Function:
    def run(x: Tensor) -> Tensor:
        if x.dtype is torch.bool:
            raise RuntimeError(f"\"{name}\" not implemented for 'Bool'")
        return compute(function, [x], x.dtype)

    return run


def _test(function: Function) -> Function:
    """Return a unary kernel with a bool result."""
    return lambda x: compute(function, [x], x.dtype, torch.bool)


def _binary(function: Function) -> Function:
    return lambda x, y: compute(function, [x, y], common(x, y))


def _binary_real(function: Function) -> Function:
    return lambda x, y: compute(function, [x, y], floating(common(x, y)))


def _comparison(function: Function) -> Function:
    return lambda x, y: compute(function, [x, y], common(x, y), torch.bool)


def _logical(function: Function) -> Function:
    return lambda x, y: compute(lambda a, b: function(a != 0, b != 0), [x, y], common(x, y), torch.bool)


def _scaled(function: Function) -> Function:
    """Return the kernel of ``x + alpha * y`` or ``x - alpha * y``."""

    def run(x: Any, y: Any, alpha: Number = 1, **by_name: Any) -> Tensor:
        dtype = common(x, y)
        if isinstance(alpha, bool) and dtype is not torch.bool:
            raise RuntimeError("Boolean alpha only supported for Boolean results.")
        if function is np.subtract and torch.bool in (common(x), common(y)):
            raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
        if isinstance(alpha, float) and not dtype.is_floating_point and not dtype.is_complex:
            raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
        if alpha == 1 and not dtype.is_complex:  # eager multiplies complex numbers by 1, which turns infinities into NaN
            return compute(function, [x, y], dtype)
        scale = scalar(alpha, dtype)
        return compute(lambda a, b: function(a, scale * b), [x, y], dtype)

    return run


_ROUNDED: dict[str, Function] = {"trunc": _truncated, "floor": _floored}


def _unrounded(function: Function, x: Any, y: Any, dtype: torch.dtype) -> Tensor:
    """Compute an elementwise function. Do not round a scalar second operand to float16 or bfloat16 first."""
    if dtype.itemsize != 2 or not dtype.is_floating_point or (isinstance(y, Tensor) and y.dim()):
        return compute(function, [x, y], dtype)
    return to_tensor(function(read(x, dtype), read(y, torch.float32)), dtype, [x, y])


def _divided(x: Any, y: Any, *, rounding_mode: str | None = None) -> Tensor:
    dtype = common(x, y)
    if rounding_mode is None:
        return _unrounded(np.true_divide, x, y, floating(dtype))
    if dtype is torch.bool or dtype.is_complex:
        raise not_implemented(f"div_{rounding_mode}_cpu", dtype)
    if rounding_mode not in _ROUNDED:
        raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")
    return _unrounded(_ROUNDED[rounding_mode], x, y, dtype)


def _raised(x: Any, y: Any) -> Tensor:
    dtype = common(x, y)
    if not isinstance(y, Tensor) and not dtype.is_floating_point and not dtype.is_complex and y < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    if dtype is torch.bool and isinstance(y, Tensor):
        raise not_implemented("pow", dtype)
    return compute(_power, [x, y if isinstance(y, Tensor) else scalar(y, dtype).item()], dtype)


def _absolute(x: Tensor) -> Tensor:
    if not x.dtype.is_complex:
        return compute(np.abs, [x], x.dtype)
    return to_tensor(np.abs(read(x)), torch.float64 if x.dtype is torch.complex128 else torch.float32, [x])


def _rounding(function: Function) -> Function:
    def run(x: Tensor) -> Tensor:
        _no_complex("rounding", x)
        # Integers need no rounding.
        return compute(function if x.dtype.is_floating_point else np.copy, [x], x.dtype)

    return run


def clamped(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    bounds = [bound for bound in (min, max) if bound is not None]
    if not bounds:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    dtype = common(x, *bounds)
    if dtype.is_complex:
        raise NotImplementedError("clamp is not supported for complex types")

    if dtype is torch.bool and not (isinstance(bounds[0], Tensor) and len(bounds) == 1):
        raise not_implemented("clamp_scalar_cpu", dtype)

    def run(values: Array, *limits: Array) -> Array:
        found = values if min is None else np.maximum(values, limits[0])
        return found if max is None else np.minimum(found, limits[-1])

    limits = [bound if isinstance(bound, Tensor) else scalar(bound, dtype).item() for bound in bounds]
    return compute(run, [x, *limits], dtype)


def _chosen(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if condition.dtype not in (torch.bool, torch.uint8):
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}")
    dtype = common(x, y)
    return to_tensor(np.where(read(condition, torch.bool), read(x, dtype), read(y, dtype)), dtype, [condition, x, y])


def _atan2_out(x: Tensor, y: Tensor, *, out: Tensor) -> Tensor:
    shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
    if not torch.can_cast(floating(common(x, y)), out.dtype):
        raise RuntimeError(f"result type {floating(common(x, y))} can't be cast to the desired output type {out.dtype}")
    if tuple(out.shape) != shape and (out is x or out is y):
        raise RuntimeError(f"output with shape {list(out.shape)} doesn't match the broadcast shape {list(shape)}")
    if tuple(out.shape) != shape:
        out.resize_(shape)
        if not keep_strides([x, y]):
            aten.as_strided_.default(out, shape, iterator_strides(shape, [x, y]))
    return store(out, read(_binary_real(_angle)(x, y)))


_SAME = {
    "neg": _refusing_bool("neg", np.negative),
    "bitwise_not": _same(np.invert),
    "sign": _signs,
    "abs": _absolute,
}

_REAL: dict[str, Function] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log10": np.log10,
    "log1p": _log1p,
    "log2": np.log2,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}

_WHOLE: dict[str, Function] = {"ceil": np.ceil, "floor": np.floor, "round": np.round, "trunc": np.trunc}

#: Each has two overloads: with a tensor and with a scalar.
_BINARY: dict[str, Function] = {
    "add": _scaled(np.add),
    "sub": _scaled(np.subtract),
    "mul": lambda x, y: _unrounded(np.multiply, x, y, common(x, y)),
    "div": _divided,
    "fmod": _binary(_fmod),
    "remainder": _binary(_remainder),
    "bitwise_and": _binary(np.bitwise_and),
    "bitwise_or": _binary(np.bitwise_or),
    "bitwise_xor": _binary(np.bitwise_xor),
    "eq": _comparison(np.equal),
    "ne": _comparison(np.not_equal),
    "lt": _comparison(np.less),
    "le": _comparison(np.less_equal),
    "gt": _comparison(np.greater),
    "ge": _comparison(np.greater_equal),
}

_OTHERS: dict[str, Function] = {
    "isnan": _test(np.isnan),
    "isinf": _test(np.isinf),
    "logical_not": _test(lambda x: x == 0),
    "logical_and": _logical(np.logical_and),
    "logical_or": _logical(np.logical_or),
    "logical_xor": _logical(np.logical_xor),
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    "atan2": _binary_real(_angle),
    "atan2.out": _atan2_out,
    "div.Tensor_mode": _divided,
    "div.Scalar_mode": _divided,
    "pow.Tensor_Tensor": _raised,
    "pow.Tensor_Scalar": _raised,
    "pow.Scalar": lambda x, y: to_tensor(read(_raised(x, y)), common(x, y)),
    "clamp": clamped,
    "clamp.Tensor": clamped,
    "where.self": _chosen,
}

KERNELS: dict[str, Function] = {
    **_SAME,
    **{name: _real(function) for name, function in _REAL.items()},
    **{name: _rounding(function) for name, function in _WHOLE.items()},
    **{f"{name}.{kind}": kernel for name, kernel in _BINARY.items() for kind in ("Tensor", "Scalar")},
    **_OTHERS,
}
