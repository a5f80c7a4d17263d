"""Functions of Triton that expressions of the tables call. Each works in the interpreter, so none calls a device's libraries."""

from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def divide(a, b):
    # The operator of float32 is not rounded correctly on a GPU.
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def inverse(a):
    return divide(tl.full(a.shape, 1, a.dtype), a)


@triton.jit
def root(a):
    if a.dtype == tl.float32:
        return tl.sqrt_rn(a)
    else:
        return tl.sqrt(a)


@triton.jit
def exp_minus_1(a):
    # W. Kahan's: the rounding errors of exp and log cancel. Where exp(a) is 1 or -1 + it is -1, nothing is left to correct.
    e = tl.exp(a)
    return tl.where(e == 1, a, tl.where((e - 1 == -1) | (e == float("inf")), e - 1, (e - 1) * divide(a, tl.log(e))))


@triton.jit
def log_plus_1(a):
    u = 1 + a
    return tl.where(u == 1, a, tl.where(u == float("inf"), u, tl.log(u) * divide(a, u - 1)))


@triton.jit
def hyperbolic_tangent(a):
    e = exp_minus_1(-2 * tl.abs(a))
    t = divide(-e, 2 + e)
    return tl.where(a < 0, -t, tl.where(a == 0, a, t))


@triton.jit
def logistic(a):
    # Of negative numbers only exp, which does not overflow.
    e = tl.exp(-tl.abs(a))
    return divide(tl.where(a < 0, e, 1.0), 1 + e)


@triton.jit
def maximum(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def minimum(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def modulo(a, b, mask):
    if b.dtype.is_int():
        tl.device_assert((b != 0) | ~mask, "ZeroDivisionError")
    return a % b


@triton.jit
def convert(a, dtype: tl.constexpr):
    if a.dtype == dtype:
        return a
    elif dtype == tl.int1:
        return a != 0
    elif INTERPRETED and a.dtype == tl.bfloat16:
        return convert((a.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True), dtype)
    elif INTERPRETED and dtype == tl.bfloat16:
        # The interpreter cuts digits off: round to even.
        bits = a.to(tl.float32).to(tl.uint32, bitcast=True)
        rounded = tl.where(a != a, 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        return rounded.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    elif dtype.is_int() and a.dtype.is_floating():
        return a.to(tl.int64).to(dtype)  # as C++ converts to narrow integers
    else:
        return a.to(dtype)


@triton.jit
def number(bits, real: tl.constexpr, dtype: tl.constexpr):
    # Triton passes a Python float as float32, so a number comes as the bits of a float64, or as an integer.
    whole = tl.full([1], bits, tl.int64)
    if real:
        return convert(whole.to(tl.float64, bitcast=True), dtype)
    else:
        return convert(whole, dtype)
