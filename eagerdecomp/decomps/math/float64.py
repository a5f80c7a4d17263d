"""Identities that replace kernels in small sets, and special functions of real numbers, computed in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.operators import TensorExpr
from eagerdecomp.eager.promotion import computed_in, floating, in_type
from eagerdecomp.eager.scalars import cast_operand
from eagerdecomp.rules.wide_dtype import has_float64, wide_of

__all__ = [
    "acos",
    "acosh",
    "acosh_double",
    "as_number",
    "as_operand",
    "asin",
    "asinh",
    "atan2",
    "atanh",
    "lt",
    "bitwise_and",
    "cosh",
    "cosh_double",
    "differs",
    "expm1",
    "ge",
    "in_common",
    "is_real",
    "is_integral",
    "isnan",
    "le",
    "sub",
    "log1p",
    "log1p_double",
    "log_to",
    "absolute",
    "neg",
    "of_one",
    "rounded_once",
    "sign_of",
    "sinh",
    "sinh_double",
    "tan",
    "tanh",
    "tanh_double",
    "bitwise_xor",
]

aten = torch.ops.aten

_INF = math.inf


def as_number(value: Any, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    made: Tensor = aten.scalar_tensor.default(value, dtype=dtype or like.dtype, device=like.device)
    return made


def as_operand(self: Tensor, number: Any) -> Tensor:
    """Return a Python scalar as a 0-dim tensor that promotes as the scalar does."""
    dtype = computed_in([self, number])
    assert dtype is not None
    return as_number(cast_operand(number, dtype), self, dtype)


def in_common(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor, torch.dtype]:
    """Return both operands in the dtype in which they are computed, and this dtype."""
    dtype = computed_in([self, other])
    assert dtype is not None
    return in_type(self, dtype), in_type(other, dtype), dtype


def is_real(dtype: torch.dtype) -> bool:
    return not dtype.is_complex


# -- comparisons and bits ---------------------------------------------------------------------------------------------------


def differs(self: Tensor, other: Tensor) -> Any:
    return aten.bitwise_not.default(aten.eq.Tensor(self, other))


def lt(self: Tensor, other: Tensor) -> Any:
    return aten.gt.Tensor(other, self)


def ge(self: Tensor, other: Tensor) -> Any:
    return aten.bitwise_or.Tensor(aten.gt.Tensor(self, other), aten.eq.Tensor(self, other))


def le(self: Tensor, other: Tensor) -> Any:
    return ge(other, self)


def isnan(self: Tensor) -> Any:
    return aten.bitwise_not.default(aten.eq.Tensor(self, self))


def is_integral(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex


def bitwise_and(self: Tensor, other: Tensor) -> Any:
    left, right, _ = in_common(self, other)
    inverted = aten.bitwise_or.Tensor(aten.bitwise_not.default(left), aten.bitwise_not.default(right))
    return aten.bitwise_not.default(inverted)


def bitwise_xor(self: Tensor, other: Tensor) -> Any:
    left, right, _ = in_common(self, other)
    return bitwise_and(aten.bitwise_or.Tensor(left, right), aten.bitwise_not.default(bitwise_and(left, right)))


# -- arithmetic -------------------------------------------------------------------------------------------------------------


def sub(self: Tensor, other: Tensor, *, alpha: Any = 1) -> Any:
    """Subtract by adding a negative multiple; for uint8, by adding the multiple modulo 256."""
    negated = -(+alpha)
    return aten.add.Tensor(self, other, alpha=negated % 256 if computed_in([self, other]) is torch.uint8 else negated)


def neg(self: Tensor) -> Any:
    if self.dtype is torch.bool:
        return NotImplemented
    return aten.mul.Tensor(self, as_number(255 if self.dtype is torch.uint8 else -1, self))


def absolute(self: Tensor) -> Any:
    """Return the magnitude. Subtracting a zero from 0 gives the positive zero."""
    if not is_real(self.dtype) or self.dtype is torch.bool:
        return NotImplemented
    if self.dtype is torch.uint8:
        return aten.clone.default(self)
    zero = as_number(0, self)
    return aten.where.self(aten.gt.Tensor(self, zero), self, sub(zero, self))


def sign_of(self: Tensor) -> Any:
    if not is_real(self.dtype):
        return NotImplemented
    if self.dtype is torch.bool:
        return aten.clone.default(self)
    zero = as_number(0, self)
    above, below = (in_type(x, self.dtype) for x in (aten.gt.Tensor(self, zero), aten.gt.Tensor(zero, self)))
    return sub(above, below)


# -- special functions, in float64 and rounded once -------------------------------------------------------------------------


def rounded_once(compute: Callable[..., Tensor], of_float64: Callable[..., Tensor] | None = None) -> Callable[..., Any]:
    """Make a rule from a formula in float64, rounded to eager's result dtype. `of_float64` is the formula for float64 itself.

    Without `of_float64`, the rule declines float64: no dtype is wider, so most formulas would be less accurate than eager's kernel.
    On a backend without float64, `of_float64` computes in float32, or `compute` if there is none.
    """

    def run(self: Tensor, *others: Tensor) -> Any:
        dtype = computed_in([self, *others])
        if dtype is None or dtype.is_complex:
            return NotImplemented
        dtype = floating(dtype)
        if dtype is torch.float64 and of_float64 is None:
            return NotImplemented
        formula = of_float64 if of_float64 is not None and (dtype is torch.float64 or not has_float64()) else compute
        wide = wide_of(dtype)
        # Convert integers to eager's dtype before the wide one: eager rounds them to it.
        return in_type(formula(*(in_type(in_type(x, dtype), wide) for x in (self, *others))), dtype)

    return run


def _series(x: Tensor, small: Tensor, large: Tensor) -> Tensor:
    """Choose `small` near 0, where `large` suffers from cancellation, and `large` elsewhere."""
    near = aten.gt.Tensor(as_number(1e-4, x), absolute(x))
    result: Tensor = aten.where.self(near, small, large)
    return result


def _plus(x: Tensor, other: Any) -> Tensor:
    result: Tensor = aten.add.Tensor(x, as_number(other, x))
    return result


def _times(x: Tensor, other: Any) -> Tensor:
    result: Tensor = aten.mul.Tensor(x, other if isinstance(other, Tensor) else as_number(other, x))
    return result


def expm1(x: Tensor) -> Tensor:
    if not has_float64():
        return _expm1_single(x)
    # x + x^2/2 + x^3/6
    small = _times(x, _plus(_times(x, _plus(_times(x, 1 / 6), 0.5)), 1))
    return _series(x, small, _plus(aten.exp.default(x), -1))


def log1p(x: Tensor) -> Tensor:
    # x - x^2/2 + x^3/3
    small = _times(x, _plus(_times(x, _plus(_times(x, 1 / 3), -0.5)), 1))
    return _series(x, small, aten.log.default(_plus(x, 1)))


def tanh(x: Tensor) -> Tensor:
    """Use the exponential of the negative magnitude, which does not overflow."""
    falling = expm1(_times(absolute(x), -2))
    size = aten.div.Tensor(falling, _plus(falling, 2))
    small = aten.gt.Tensor(as_number(1e-8, x), absolute(x))
    return aten.where.self(small, x, _times(sign_of(x), neg(size)))  # type: ignore[no-any-return]


def sinh(x: Tensor) -> Tensor:
    rising, falling = aten.exp.default(x), aten.exp.default(neg(x))
    small = _times(x, _plus(_times(_times(x, x), 1 / 6), 1))
    return _series(x, small, _times(sub(rising, falling), 0.5))


def cosh(x: Tensor) -> Tensor:
    return _times(aten.add.Tensor(aten.exp.default(x), aten.exp.default(neg(x))), 0.5)


def tan(x: Tensor) -> Tensor:
    return aten.div.Tensor(aten.sin.default(x), aten.cos.default(x))  # type: ignore[no-any-return]


def _expm1_single(x: Tensor) -> Tensor:
    """Return ``u - 1`` for ``u = exp(x)``, corrected by the error of `u`: ``(u - 1) x / log(u)`` (Kahan)."""
    rounded = aten.exp.default(x)
    less = _plus(rounded, -1)
    found = aten.div.Tensor(_times(less, x), aten.log.default(rounded))
    # For infinities, and where all digits of the exponential are lost.
    plain = aten.bitwise_or.Tensor(aten.eq.Tensor(rounded, as_number(_INF, x)), aten.eq.Tensor(less, as_number(-1, x)))
    found = aten.where.self(plain, less, found)
    return aten.where.self(aten.eq.Tensor(less, as_number(0, x)), x, found)  # type: ignore[no-any-return]


def asinh(x: Tensor) -> Tensor:
    if not has_float64():
        return _asinh_single(x)
    size = absolute(x)
    root = aten.sqrt.default(_plus(_times(size, size), 1))
    near = aten.gt.Tensor(as_number(1e-4, x), size)
    large = _times(sign_of(x), aten.log.default(_sum(size, root)))
    return aten.where.self(near, _odd_root(x), large)  # type: ignore[no-any-return]


def _asinh_single(x: Tensor) -> Tensor:
    """Return ``log1p(a + a^2 / (1 + sqrt(1 + a^2)))`` for the magnitude `a`, with the sign of `x`."""
    size = absolute(x)
    small = aten.where.self(aten.gt.Tensor(size, as_number(1e9, x)), as_number(1, x), size)
    square = _times(small, small)
    root = aten.sqrt.default(_plus(square, 1))
    near = log1p_double(_sum(small, aten.div.Tensor(square, _plus(root, 1))))
    far = _plus(aten.log.default(size), math.log(2))
    return _odd(x, aten.where.self(aten.gt.Tensor(size, as_number(1e9, x)), far, near))


def _odd_root(x: Tensor) -> Tensor:
    return _times(x, _plus(_times(_times(x, x), -1 / 6), 1))


def _sum(x: Tensor, other: Tensor) -> Tensor:
    return aten.add.Tensor(x, other)  # type: ignore[no-any-return]


def acosh(x: Tensor) -> Tensor:
    above = _plus(x, -1)
    return log1p(_sum(above, _times(aten.sqrt.default(above), aten.sqrt.default(_plus(x, 1)))))


def atanh(x: Tensor) -> Tensor:
    double = _times(aten.div.Tensor(x, sub(as_number(1, x), x)), 2)
    return _times(log1p(double) if has_float64() else log1p_double(double), 0.5)


def asin(x: Tensor) -> Tensor:
    return aten.atan.default(aten.div.Tensor(x, _beside_circle(x)))  # type: ignore[no-any-return]


def _beside_circle(x: Tensor) -> Tensor:
    """Return ``sqrt(1 - x^2)``, as ``sqrt((1 - x) (1 + x))``."""
    return aten.sqrt.default(_times(sub(as_number(1, x), x), _plus(x, 1)))  # type: ignore[no-any-return]


def acos(x: Tensor) -> Tensor:
    """Use the half-angle formula ``2 atan(sqrt((1 - x) / (1 + x)))``."""
    half = aten.sqrt.default(aten.div.Tensor(sub(as_number(1, x), x), _plus(x, 1)))
    return _times(aten.atan.default(half), 2)


def atan2(y: Tensor, x: Tensor) -> Tensor:
    """Choose by quadrant. Two infinities are on the diagonal, two zeros on the axis. Division by a zero shows the zero's sign."""
    zero, pi = as_number(0, y), as_number(math.pi, y)
    infinite = bitwise_and(aten.eq.Tensor(absolute(y), as_number(_INF, y)), aten.eq.Tensor(absolute(x), as_number(_INF, x)))
    slope = aten.where.self(infinite, _times(sign_of(y), sign_of(x)), aten.div.Tensor(y, x))
    level = aten.eq.Tensor(y, zero)
    slope = aten.where.self(level, y, slope)
    angle = aten.atan.default(slope)
    left = aten.bitwise_or.Tensor(aten.gt.Tensor(zero, x), aten.gt.Tensor(zero, aten.div.Tensor(as_number(1, x), x)))
    below = aten.bitwise_or.Tensor(aten.gt.Tensor(zero, y), aten.gt.Tensor(zero, aten.div.Tensor(as_number(1, y), y)))
    turned = aten.where.self(below, neg(pi), pi)
    # If y is a zero, the angle left of the origin is `turned` itself.
    beside = aten.where.self(level, turned, _sum(angle, turned))
    angle = aten.where.self(left, beside, angle)
    return aten.where.self(aten.bitwise_or.Tensor(isnan(x), isnan(y)), _sum(x, y), angle)  # type: ignore[no-any-return]


def log_to(base: float) -> Callable[[Tensor], Tensor]:
    return lambda x: aten.div.Tensor(aten.log.default(x), as_number(math.log(base), x))


# -- special functions of float64, off by three units in the last place at most ---------------------------------------------


#: Above this, exp(x) overflows although exp(x) / 2 does not.
_LARGE_EXPONENT = {torch.float64: 709.0, torch.float32: 88.0}
#: From this on, the 1 in the formula of acosh does not matter.
_LARGE = {torch.float64: 1e150, torch.float32: 1e15}


def log1p_double(x: Tensor) -> Tensor:
    """Return the log of the rounded ``1 + x``, corrected by the rounding error divided by that sum."""
    total = _plus(x, 1)
    kept = _plus(total, -1)
    logarithm = aten.log.default(total)
    fixed = sub(logarithm, aten.div.Tensor(sub(kept, x), total))
    found = aten.where.self(aten.eq.Tensor(kept, x), logarithm, fixed)  # infinities, and -1
    return aten.where.self(aten.eq.Tensor(total, as_number(1, x)), x, found)  # type: ignore[no-any-return]


def tanh_double(x: Tensor) -> Tensor:
    falling = aten.expm1.default(_times(absolute(x), -2))
    size = neg(aten.div.Tensor(falling, _plus(falling, 2)))
    return _odd(x, size)


def sinh_double(x: Tensor) -> Tensor:
    size = absolute(x)
    rising = aten.expm1.default(size)
    near = _times(_sum(rising, aten.div.Tensor(rising, _plus(rising, 1))), 0.5)
    return _odd(x, _beyond_exponents(size, near))


def cosh_double(x: Tensor) -> Tensor:
    size = absolute(x)
    rising = aten.exp.default(size)
    near = _times(_sum(rising, aten.div.Tensor(as_number(1, x), rising)), 0.5)
    return _beyond_exponents(size, near)


def acosh_double(x: Tensor) -> Tensor:
    above = _plus(x, -1)
    near = log1p_double(_sum(above, _times(aten.sqrt.default(above), aten.sqrt.default(_plus(x, 1)))))
    far = _plus(aten.log.default(x), math.log(2))
    return aten.where.self(aten.gt.Tensor(x, as_number(_LARGE[x.dtype], x)), far, near)  # type: ignore[no-any-return]


def _beyond_exponents(size: Tensor, near: Tensor) -> Tensor:
    root = aten.exp.default(_times(size, 0.5))
    far = _times(_times(root, 0.5), root)
    return aten.where.self(aten.gt.Tensor(size, as_number(_LARGE_EXPONENT[size.dtype], size)), far, near)  # type: ignore[no-any-return]


def _odd(x: Tensor, size: Tensor) -> Tensor:
    """Return an odd function of `x` from its value `size` at ``abs(x)``. For `size` 0 or NaN, return `x` unless `x` is below 0."""
    zero = as_number(0, x)
    found = aten.where.self(aten.gt.Tensor(size, zero), size, x)
    return aten.where.self(aten.gt.Tensor(zero, x), neg(size), found)  # type: ignore[no-any-return]


def of_one(
    formula: Callable[[TensorExpr], TensorExpr], short: Callable[[TensorExpr], TensorExpr] | None = None
) -> Callable[[Tensor], Any]:
    """Make the rule of a formula in float64. Integers become the default dtype.

    Dtypes narrower than float64 may use a `short` formula, which need not be exact to the last bit of float64.
    """

    def run(self: Tensor) -> Any:
        dtype = floating(self.dtype)
        chosen = formula if short is None or dtype is torch.float64 else short
        return chosen(TensorExpr(self).to(wide_of(dtype))).to(dtype).tensor

    return run
