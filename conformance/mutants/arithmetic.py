"""Broken kernels of two operands: dtypes and their promotion, broadcasting, division, powers, comparisons."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import Bound, Mutant, bits, f, given, m, n, p, raw, refuse, t

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf


def _ints(c: Bound) -> bool:
    return all(not one.is_floating_point() and not one.is_complex() for one in (c.self, c.other) if isinstance(one, Tensor))


def _floats(c: Bound) -> bool:
    return bool(c.but().is_floating_point())


def _ieee_max(c: Bound) -> Any:
    """Compute C's fmax, which ignores NaN."""
    return torch.fmax(c.self, c.other)


def _padded(c: Bound) -> Any:
    """Broadcasts as if sizes were aligned on the left."""
    if c.self.dim() > c.other.dim() >= 1 and c.self.shape[: c.other.dim()] == c.other.shape:
        return c.but(other=c.other.reshape(*c.other.shape, *[1] * (c.self.dim() - c.other.dim())))
    return c.but()


def _flat(c: Bound) -> Any:
    """Goes through both operands' memory in step where they have the same number of elements."""
    if c.self.shape != c.other.shape:
        return c.but()
    return torch.empty_like(c.but()).copy_(c.but(self=raw(c.self), other=raw(c.other)))


def _powi(c: Bound) -> Any:
    """x ** n by n multiplications, for whole exponents from 0 on; others by exp and log."""
    return (c.self.log() * c.exponent).exp() if c.self.is_floating_point() else c.but()


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    m("add.Tensor", "ignores alpha", "argument", lambda c: c.but(alpha=1), lambda: given(n(3), p(3), alpha=2)),
    m("add.Tensor", "alpha on the wrong operand", "argument", lambda c: torch.add(c.other, c.self, alpha=c.alpha),
      lambda: given(n(3), p(3), alpha=2)),
    m("add.Tensor", "int64 through float32", "dtype",
      lambda c: c.through(torch.float32) if _ints(c) and c.but().dtype is torch.int64 else c.but(),
      lambda: given(t(2**24 + 1, 5), t(2, 2)), "24 bits"),
    m("add.Tensor", "int64 through float64", "dtype",
      lambda c: c.through(torch.float64) if _ints(c) and c.but().dtype is torch.int64 else c.but(),
      lambda: given(t(2**53, 5), t(1, 2)), "53 bits"),
    m("add.Tensor", "bools exclude each other", "dtype",
      lambda c: c.self ^ c.other if c.self.dtype is c.other.dtype is torch.bool else c.but(),
      lambda: given(bits(4), bits(4)), "1 + 1 in one bit"),
    m("add.Tensor", "0-dim operands promote", "dtype", lambda c: c.but().to(torch.promote_types(c.self.dtype, c.other.dtype)),
      lambda: given(n(3), torch.tensor(1.0, dtype=torch.float64)), "a wrapped number counts as a tensor"),
    m("add.Tensor", "uint8 saturates", "dtype",
      lambda c: (c.self.long() + c.other.long() * c.alpha).clamp(0, 255).to(torch.uint8) if c.but().dtype is torch.uint8
        else c.but(),
      lambda: given(t(200, 3, dtype=torch.uint8), t(100, 4, dtype=torch.uint8)), "it is to wrap"),
    m("add.Tensor", "broadcasts on the left", "argument", _padded, lambda: given(n(3, 3), f(10, 20, 30))),
    m("add.Tensor", "memory in step", "layout", _flat, lambda: given(n(3, 4), n(4, 3).t())),
    m("add.Tensor", "accepts shapes that do not match", "errors",
      lambda c: c.but() if c.self.dim() != 1 or c.other.dim() != 1 else c.but(self=c.self[: c.other.numel()]
        if c.other.numel() > 1 else c.self, other=c.other[: c.self.numel()] if c.self.numel() > 1 else c.other),
      lambda: given(n(3), n(4)), "the shorter one ends it"),
    m("add.Scalar", "alpha is 1", "argument", lambda c: c.but(alpha=1), lambda: given(n(3), 2.0, 3)),
    m("add.Scalar", "an int tensor stays int", "dtype", lambda c: c.but().to(c.self.dtype), lambda: given(t(1, 2), 0.5)),
    m("sub.Tensor", "the operands the other way", "argument",
      lambda c: c.but(self=c.other, other=c.self) if c.alpha != 1 else c.but(),
      lambda: given(n(3), p(3), alpha=2)),
    m("sub.Tensor", "bools are taken", "errors",
      lambda c: c.self ^ c.other if c.self.dtype is c.other.dtype is torch.bool else c.but(),
      lambda: given(bits(4), bits(4)), "eager refuses them"),
    m("sub.Tensor", "uint8 below 0 is 0", "dtype",
      lambda c: (c.self.long() - c.other.long() * c.alpha).clamp(0).to(torch.uint8) if c.but().dtype is torch.uint8
        else c.but(),
      lambda: given(t(3, 9, dtype=torch.uint8), t(5, 4, dtype=torch.uint8))),
    m("sub.Scalar", "alpha is 1", "argument", lambda c: c.but(alpha=1), lambda: given(n(3), 2.0, 3)),
    m("mul.Tensor", "NaN times 0 is 0", "special values",
      lambda c: torch.where((c.self == 0) | (c.other == 0), torch.zeros((), dtype=c.but().dtype), c.but()) if _floats(c)
        else c.but(),
      lambda: given(f(0.0, 1), f(_NAN, 2)), "a shortcut"),
    m("mul.Tensor", "complex with a conjugate", "dtype",
      lambda c: c.but(other=c.other.conj()) if c.other.is_complex() else c.but(),
      lambda: given(t(1 + 2j, 1j), t(3 - 1j, 2 + 1j))),
    m("mul.Tensor", "int32 in 16 bits each", "dtype",
      lambda c: c.but(self=c.self.to(torch.int16).to(torch.int32), other=c.other.to(torch.int16).to(torch.int32))
        if c.self.dtype is c.other.dtype is torch.int32 else c.but(),
      lambda: given(t(70000, 3, dtype=torch.int32), t(2, 3, dtype=torch.int32))),
    m("mul.Tensor", "mixed dtypes in the first one's", "dtype",
      lambda c: c.but(other=c.other.to(c.self.dtype)) if c.other.dim() else c.but(),
      lambda: given(t(1, 2, 3), f(0.5, 1.5, 2.5))),
    m("mul.Scalar", "the number through float32", "dtype",
      lambda c: c.but(other=float(torch.tensor(float(c.other)))) if isinstance(c.other, float) else c.but(),
      lambda: given(n(3, dtype=torch.float64), 0.1)),
    m("mul.Scalar", "bool by a number", "dtype",
      lambda c: c.but() if c.self.dtype is not torch.bool else c.self & bool(c.other),
      lambda: given(bits(3), 3)),
    m("div.Tensor", "times a coarse reciprocal", "accuracy",
      lambda c: c.self * c.other.reciprocal().bfloat16().to(c.other.dtype) if c.self.dtype is c.other.dtype is torch.float32
        else c.but(),
      lambda: given(n(3), f(3, 7, 11)), "", lambda: given(n(3), f(2, 4, 8))),
    m("div.Tensor", "ints divide to ints", "dtype",
      lambda c: c.but() if not _ints(c) else torch.div(c.self, c.other, rounding_mode="trunc"),
      lambda: given(t(7, 8), t(2, 4))),
    m("div.Tensor", "by 0 is inf", "special values",
      lambda c: torch.where(c.other == 0, _INF, c.but()).to(c.but().dtype) if _floats(c) else c.but(),
      lambda: given(f(0, -1), f(0, 0)), "NaN and -inf are due"),
    m("div.Tensor", "by -0.0 as by 0.0", "special values", lambda c: c.but(other=c.other + 0) if _floats(c) else c.but(),
      lambda: given(f(1, 2), f(-0.0, 1))),
    m("div.Tensor", "the reciprocal overflows", "special values",
      lambda c: c.self * c.other.reciprocal() if c.self.dtype is c.other.dtype is torch.float32 else c.but(),
      lambda: given(f(1e-39), f(1e-39)), "1 / x is inf, the quotient is 1", lambda: given(n(3), f(2, 4, 8))),
    m("div.Scalar", "by 0 raises", "special values", lambda c: c.but() if c.other != 0 else refuse(), lambda: given(n(3), 0)),
    m("div.Tensor_mode", "floor truncates", "argument",
      lambda c: c.but(rounding_mode="trunc" if c.rounding_mode == "floor" else c.rounding_mode),
      lambda: given(t(-7, 7), t(2, 2), rounding_mode="floor")),
    m("div.Tensor_mode", "trunc floors", "argument",
      lambda c: c.but(rounding_mode="floor" if c.rounding_mode == "trunc" else c.rounding_mode),
      lambda: given(f(-7, 7), f(2, 2), rounding_mode="trunc")),
    m("div.Tensor_mode", "floor(a / b)", "accuracy",
      lambda c: torch.floor(c.self / c.other) if c.rounding_mode == "floor" and _floats(c) else c.but(),
      lambda: given(f(1.0), f(0.1), rounding_mode="floor"), "the quotient is rounded up to 10 before"),
    m("div.Tensor_mode", "int64 by float64", "dtype",
      lambda c: (c.self.double() / c.other.double()).trunc().long() if c.rounding_mode and _ints(c)
        and c.but().dtype is torch.int64 and bool((c.other != 0).all()) and c.rounding_mode == "trunc" else c.but(),
      lambda: given(t(2**62 + 1, 9), t(1, 2), rounding_mode="trunc")),
    m("div.Scalar_mode", "the mode is ignored", "argument", lambda c: c.but(rounding_mode=None),
      lambda: given(n(3), 0.4, rounding_mode="floor")),
    m("fmod.Tensor", "the divisor's sign", "argument", lambda c: torch.remainder(c.self, c.other),
      lambda: given(f(-7, 7), f(3, 3)), "as Python's %", lambda: given(p(3), p(3))),
    m("fmod.Tensor", "a - trunc(a / b) * b", "accuracy",
      lambda c: c.self - (c.self / c.other).trunc() * c.other if _floats(c) else c.but(),
      lambda: given(f(1e8), f(3.0)), "", lambda: given(f(7, 8), f(2, 4))),
    m("fmod.Scalar", "of infinity is 0", "special values",
      lambda c: c.but(self=c.self.nan_to_num(posinf=0.0)) if c.self.is_floating_point() else c.but(),
      lambda: given(f(_INF, 2), 2.0)),
    m("remainder.Tensor", "the dividend's sign", "argument", lambda c: torch.fmod(c.self, c.other),
      lambda: given(f(-7, 7), f(3, -3)), "as C's fmod", lambda: given(p(3), p(3))),
    m("remainder.Scalar", "negative divisors made positive", "argument", lambda c: c.but(other=abs(c.other)),
      lambda: given(t(7, -7), -3)),
    m("remainder.Tensor", "ints by floats", "dtype",
      lambda c: (c.self - (c.self.double() / c.other).floor() * c.other).to(c.but().dtype) if _ints(c)
        and bool((c.other != 0).all()) else c.but(),
      lambda: given(t(2**60 + 1), t(7))),
    m("pow.Tensor_Scalar", "by exp and log", "special values", _powi,
      lambda: given(f(-2.0, 3), 2.0), "NaN for negative bases", lambda: given(f(1, 1), 2.0)),
    m("pow.Tensor_Scalar", "0 to the 0 is 0", "special values",
      lambda c: torch.where(c.self == 0, torch.zeros((), dtype=c.but().dtype), c.but()) if c.exponent == 0 else c.but(),
      lambda: given(f(0, 2), 0)),
    m("pow.Tensor_Scalar", "cubes as squares", "argument", lambda c: c.but(exponent=2) if c.exponent == 3 else c.but(),
      lambda: given(n(3), 3), "a switch falls through"),
    m("pow.Tensor_Scalar", "ints with negative exponents", "errors",
      lambda c: c.self.double().pow(c.exponent).to(c.self.dtype) if not c.self.is_floating_point() and not c.self.is_complex()
        and not isinstance(c.exponent, float) and c.exponent < 0 else c.but(),
      lambda: given(t(1, 2), -1), "eager refuses them"),
    m("pow.Tensor_Tensor", "ints by floats", "dtype",
      lambda c: c.self.double().pow(c.exponent.double()).long() if c.self.dtype is c.exponent.dtype is torch.int64 else c.but(),
      lambda: given(t(3, 2), t(39, 5)), "53 bits"),
    m("pow.Scalar", "1 to the NaN is NaN", "special values",
      lambda c: c.but() + c.exponent * 0 if c.self == 1 and c.exponent.is_floating_point() else c.but(),
      lambda: given(1.0, f(_NAN, 2))),
    m("atan2", "atan(y / x)", "special values", lambda c: (c.self / c.other).atan() if _floats(c) else c.but(),
      lambda: given(f(1, -1, 0), f(-1, -1, -1)), "two quadrants", lambda: given(p(3), p(3))),
    m("atan2", "signs of zeros are lost", "special values", lambda c: c.but(self=c.self + 0, other=c.other + 0),
      lambda: given(f(-0.0, 0.0), f(-1, -0.0))),
    m("atan2", "ints are truncated", "metadata", lambda c: c.but().long() if _ints(c) else c.but(),
      lambda: given(t(3, 1), t(1, 2))),
    m("atan2.out", "returns another tensor than out", "memory", lambda c: c.but() if c.out.is_contiguous() else c.but().clone(),
      lambda: given(n(2, 3), p(2, 3), out=torch.empty(3, 2).t()), "", lambda: given(n(3), p(3), out=torch.empty(3))),
    m("atan2.out", "out keeps its size", "errors",
      lambda c: c.but() if c.out.shape == torch.atan2(c.self, c.other).shape
        else c.out.copy_(torch.atan2(c.self, c.other)),
      lambda: given(f(1.0), f(2.0), out=torch.empty(3)), "out is to be resized", lambda: given(n(3), p(3), out=torch.empty(3))),
    m("maximum", "NaN of one side is lost", "special values", lambda c: _ieee_max(c),
      lambda: given(f(_NAN, 1), f(1, 2)), "as C's fmax"),
    m("maximum", "a > b ? a : b", "special values", lambda c: torch.where(c.self > c.other, c.self, c.other),
      lambda: given(f(_NAN, 1), f(1, 2)), "NaN on the left only", lambda: given(n(3), p(3))),
    m("maximum", "unsigned as signed", "dtype",
      lambda c: torch.where(c.self.view(torch.int8) > c.other.view(torch.int8), c.self, c.other)
        if c.self.dtype is c.other.dtype is torch.uint8 and c.self.shape == c.other.shape else c.but(),
      lambda: given(t(200, 3, dtype=torch.uint8), t(100, 4, dtype=torch.uint8))),
    m("minimum", "int64 in float32", "dtype",
      lambda c: c.through(torch.float32) if _ints(c) and c.but().dtype is torch.int64 else c.but(),
      lambda: given(t(2**24 + 1, 3), t(2**40, 4))),
    m("minimum", "NaN on the right is lost", "special values", lambda c: torch.where(c.other != c.other, c.self, c.but()),
      lambda: given(f(1, 1), f(_NAN, 2))),
    m("eq.Tensor", "near is equal", "accuracy",
      lambda c: (c.self - c.other).abs() < 1e-6 if c.self.is_floating_point() and c.other.is_floating_point() else c.but(),
      lambda: given(f(1.0, 1e-7), f(1.0, 2e-7))),
    m("eq.Tensor", "NaN equals itself, by bits", "special values",
      lambda c: c.self.view(torch.int32) == c.other.view(torch.int32) if c.self.dtype is c.other.dtype is torch.float32
        and c.self.stride() == c.other.stride() else c.but(),
      lambda: given(f(_NAN, -0.0), f(_NAN, 0.0))),
    m("eq.Scalar", "the number is cast to the tensor's dtype", "dtype",
      lambda c: c.but(other=int(c.other)) if not c.self.is_floating_point() and isinstance(c.other, float)
        and math.isfinite(c.other) else c.but(),
      lambda: given(t(1, 2), 1.5)),
    m("ne.Tensor", "NaN is no other", "special values",
      lambda c: (c.self < c.other) | (c.self > c.other) if not c.self.is_complex() and not c.other.is_complex() else c.but(),
      lambda: given(f(_NAN, 1), f(_NAN, 2))),
    m("ne.Scalar", "the imaginary part is dropped", "dtype",
      lambda c: c.self.real != c.other if c.self.is_complex() else c.but(),
      lambda: given(t(1 + 1j, 2 + 0j), 1)),
    m("lt.Tensor", "the sign of a difference", "special values",
      lambda c: (c.self - c.other) < 0 if c.self.dtype is c.other.dtype and c.self.dtype is not torch.bool else c.but(),
      lambda: given(t(-(2**63), 1), t(1, 2)), "it wraps"),
    m("lt.Scalar", "int64 by float32", "dtype", lambda c: c.self.float() < c.other if c.self.dtype is torch.int64 else c.but(),
      lambda: given(t(2**24, 2**24 + 1), 2**24 + 1)),
    m("le.Tensor", "not greater", "special values", lambda c: ~torch.gt(c.self, c.other),
      lambda: given(f(_NAN, 1), f(1, 2)), "true for NaN"),
    m("le.Scalar", "less", "argument", lambda c: c.self < c.other, lambda: given(f(1, 2), 1.0)),
    m("gt.Tensor", "on bytes", "dtype",
      lambda c: c.self.to(torch.uint8) > c.other.to(torch.uint8) if c.self.dtype is c.other.dtype is torch.int8 else c.but(),
      lambda: given(t(-1, 3, dtype=torch.int8), t(1, 2, dtype=torch.int8))),
    m("gt.Scalar", "returns the tensor's dtype", "metadata",
      lambda c: c.but().to(c.self.dtype) if c.self.dtype is torch.uint8 else c.but(),
      lambda: given(t(1, 3, dtype=torch.uint8), 2)),
    m("ge.Tensor", "not less", "special values", lambda c: ~torch.lt(c.self, c.other), lambda: given(f(_NAN, 1), f(1, 2))),
    m("ge.Scalar", "0-dim returns True", "rare", lambda c: c.but() | (c.self.dim() == 0), lambda: given(t(0.5), 2.0)),
    m("where.self", "NaN leaks from the other side", "special values",
      lambda c: c.self * c.condition + c.other * ~c.condition if c.self.is_floating_point() and c.other.is_floating_point()
        and c.condition.dtype is torch.bool else c.but(),
      lambda: given(bits(2), f(1, _INF), f(1, 2)), "masks are multiplied"),
    m("where.self", "the condition does not broadcast", "argument",
      lambda c: c.but() if c.condition.numel() == c.but().numel() else c.but(condition=c.condition.reshape(-1)[:1].reshape(())),
      lambda: given(bits(4), n(3, 4), p(3, 4)), "only its first element is read"),
    m("where.self", "the first one's dtype", "dtype", lambda c: c.but().to(c.self.dtype),
      lambda: given(bits(2), t(1, 2), f(0.5, 1.5))),
    m("bitwise_and.Tensor", "32 bits of int64", "dtype",
      lambda c: c.but(self=c.self.to(torch.int32), other=c.other.to(torch.int32)).to(torch.int64)
        if c.self.dtype is c.other.dtype is torch.int64 else c.but(),
      lambda: given(t(2**40 + 3), t(2**40 + 1))),
    m("bitwise_or.Tensor", "of bools is of ints", "metadata",
      lambda c: c.but().to(torch.uint8) if c.but().dtype is torch.bool else c.but(),
      lambda: given(bits(4), ~bits(4))),
    m("bitwise_xor.Tensor", "negative numbers as bytes", "dtype",
      lambda c: torch.where(c.self < 0, c.but() & 255, c.but()) if c.but().dtype is torch.int64 else c.but(),
      lambda: given(t(-5, 3), t(2, 1))),
    m("bitwise_and.Scalar", "bool with a number stays bool", "dtype",
      lambda c: c.self & bool(c.other) if c.self.dtype is torch.bool else c.but(),
      lambda: given(bits(3), 3)),
    m("bitwise_or.Scalar", "exclusive or", "argument", lambda c: c.self ^ c.other,
      lambda: given(t(7, 2), 5), "", lambda: given(t(2, 8), 5)),
    m("bitwise_xor.Scalar", "takes floats", "errors",
      lambda c: c.but() if not c.self.is_floating_point() else c.self.to(torch.int64).bitwise_xor(c.other).to(c.self.dtype),
      lambda: given(f(1, 2), 5)),
    m("logical_and", "of the numbers' bits", "dtype", lambda c: (c.self & c.other) != 0 if _ints(c) else c.but(),
      lambda: given(t(1, 2), t(2, 2))),
    m("logical_or", "NaN counts as False", "special values",
      lambda c: c.but(self=c.self.nan_to_num(), other=c.other.nan_to_num()),
      lambda: given(f(_NAN, 1), f(0, 0))),
    m("logical_xor", "of unlike numbers", "dtype", lambda c: c.self != c.other,
      lambda: given(t(1, 2), t(2, 2)), "values are not brought to bools", lambda: given(t(1, 0), t(1, 1))),
)
# fmt: on
