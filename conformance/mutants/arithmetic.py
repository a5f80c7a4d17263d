"""Broken kernels of two operands: dtypes and their promotion, broadcasting, division, powers, comparisons."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import (
    BoundCall,
    Mutant,
    bools,
    broken,
    call,
    floats,
    normal,
    one_memory,
    positive,
    raise_unsupported,
    read_contiguous,
    tensor,
)

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf


def _ints(c: BoundCall) -> bool:
    return all(not one.is_floating_point() and not one.is_complex() for one in (c.self, c.other) if isinstance(one, Tensor))


def _floats(c: BoundCall) -> bool:
    return bool(c.eager().is_floating_point())


def _ieee_max(c: BoundCall) -> Any:
    """Compute C's `fmax`, which ignores NaN."""
    return torch.fmax(c.self, c.other)


def _broadcast_on_the_left(c: BoundCall) -> Any:
    """Broadcast as if sizes were aligned on the left."""
    if c.self.dim() > c.other.dim() >= 1 and c.self.shape[: c.other.dim()] == c.other.shape:
        return c.eager(other=c.other.reshape(*c.other.shape, *[1] * (c.self.dim() - c.other.dim())))
    return c.eager()


def _ignore_strides(c: BoundCall) -> Any:
    """Read both operands' memory in order if they have the same shape."""
    if c.self.shape != c.other.shape:
        return c.eager()
    return torch.empty_like(c.eager()).copy_(c.eager(self=read_contiguous(c.self), other=read_contiguous(c.other)))


def _by_exp_and_log(c: BoundCall) -> Any:
    """Compute x ** n as exp(n * log(x))."""
    return (c.self.log() * c.exponent).exp() if c.self.is_floating_point() else c.eager()


def _column_of_images(c: BoundCall) -> bool:
    """Return whether the second operand has one column, and the first one several, both with four dimensions."""
    return isinstance(c.other, Tensor) and c.self.dim() == c.other.dim() == 4 and c.other.shape[-1] == 1 < c.self.shape[-1]


def _without_last_lane(c: BoundCall) -> Any:
    """Leave the last element of each row as it was, if the rows have whole vectors."""
    found, operands = c.eager(), (c.self, c.other)
    alike = isinstance(c.other, Tensor) and c.self.shape == c.other.shape and c.self.dtype is c.other.dtype
    if alike and all(one.is_contiguous() for one in operands) and c.self.dim() and c.self.shape[-1] in range(16, 1 << 20, 8):
        found[..., -1] = c.self[..., -1]
    return found


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    broken("add.Tensor", "ignores alpha", "argument", lambda c: c.eager(alpha=1), lambda: call(normal(3), positive(3), alpha=2)),
    broken("add.Tensor", "alpha on the wrong operand", "argument", lambda c: torch.add(c.other, c.self, alpha=c.alpha),
      lambda: call(normal(3), positive(3), alpha=2)),
    broken("add.Tensor", "int64 through float32", "dtype",
      lambda c: c.eager_in(torch.float32) if _ints(c) and c.eager().dtype is torch.int64 else c.eager(),
      lambda: call(tensor(2**24 + 1, 5), tensor(2, 2)), "24 bits"),
    broken("add.Tensor", "int64 through float64", "dtype",
      lambda c: c.eager_in(torch.float64) if _ints(c) and c.eager().dtype is torch.int64 else c.eager(),
      lambda: call(tensor(2**53, 5), tensor(1, 2)), "53 bits"),
    broken("add.Tensor", "int32 and a number through float32", "dtype",
      lambda c: c.eager_in(torch.float32) if c.self.dtype is torch.int32 and type(c.other) is int else c.eager(),
      lambda: call(tensor(2**24 + 1, 5, dtype=torch.int32), 2), "24 bits"),
    broken("add.Tensor", "one column of a four-dimensional operand is read in another order", "argument",
      lambda c: c.eager(other=c.other.flip(1)) if _column_of_images(c) else c.eager(),
      lambda: call(normal(2, 3, 4, 5), normal(2, 3, 4, 1))),
    broken("add.Tensor", "alpha of int16 is at least -1", "argument",
      lambda c: c.eager(alpha=max(c.alpha, -1)) if c.eager().dtype is torch.int16 else c.eager(),
      lambda: call(tensor(2, 3, dtype=torch.int16), tensor(3, 4, dtype=torch.int16), alpha=-2)),
    broken("add.Tensor", "bools are added by xor", "dtype",
      lambda c: c.self ^ c.other if c.self.dtype is c.other.dtype is torch.bool else c.eager(),
      lambda: call(bools(4), bools(4)), "1 + 1 in one bit"),
    broken("add.Tensor", "0-dim operands promote like other tensors", "dtype",
      lambda c: c.eager().to(torch.promote_types(c.self.dtype, c.other.dtype)),
      lambda: call(normal(3), torch.tensor(1.0, dtype=torch.float64)), "a wrapped number counts as a tensor"),
    broken("add.Tensor", "uint8 saturates", "dtype",
      lambda c: (c.self.long() + c.other.long() * c.alpha).clamp(0, 255).to(torch.uint8) if c.eager().dtype is torch.uint8
        else c.eager(),
      lambda: call(tensor(200, 3, dtype=torch.uint8), tensor(100, 4, dtype=torch.uint8)), "must wrap"),
    broken("add.Tensor", "broadcasts on the left", "argument", _broadcast_on_the_left,
      lambda: call(normal(3, 3), floats(10, 20, 30))),
    broken("add.Tensor", "strides are ignored", "layout", _ignore_strides, lambda: call(normal(3, 4), normal(4, 3).t())),
    broken("add.Tensor", "accepts shapes that do not broadcast", "errors",
      lambda c: c.eager() if c.self.dim() != 1 or c.other.dim() != 1 else c.eager(self=c.self[: c.other.numel()]
        if c.other.numel() > 1 else c.self, other=c.other[: c.self.numel()] if c.self.numel() > 1 else c.other),
      lambda: call(normal(3), normal(4)), "stops at the end of the shorter operand"),
    broken("add.Tensor", "alpha is at most 1000", "argument",
      lambda c: c.eager(alpha=min(c.alpha, 1000)) if isinstance(c.alpha, int) else c.eager(),
      lambda: call(tensor(2, 3), tensor(3, 4), alpha=2**20)),
    broken("add.Scalar", "alpha is 1", "argument", lambda c: c.eager(alpha=1), lambda: call(normal(3), 2.0, 3)),
    broken("add.Scalar", "the result has the tensor's dtype", "dtype", lambda c: c.eager().to(c.self.dtype),
      lambda: call(tensor(1, 2), 0.5)),
    broken("sub.Tensor", "operands are swapped", "argument",
      lambda c: c.eager(self=c.other, other=c.self) if c.alpha != 1 else c.eager(),
      lambda: call(normal(3), positive(3), alpha=2)),
    broken("sub.Tensor", "an operand one element later is read as the first", "view",
      lambda c: c.eager(other=c.self) if one_memory(c.self, c.other) and c.self.shape == c.other.shape else c.eager(),
      lambda: call((x := normal(5))[:-1], x[1:]), "x[:-1] - x[1:]"),
    broken("sub.Tensor", "the last lane of whole vectors is left out", "size", _without_last_lane,
      lambda: call(normal(16), positive(16)), "rows of 16, 24, ..."),
    broken("sub.Tensor", "bools are accepted", "errors",
      lambda c: c.self ^ c.other if c.self.dtype is c.other.dtype is torch.bool else c.eager(),
      lambda: call(bools(4), bools(4)), "eager raises"),
    broken("sub.Tensor", "uint8 saturates at 0", "dtype",
      lambda c: (c.self.long() - c.other.long() * c.alpha).clamp(0).to(torch.uint8) if c.eager().dtype is torch.uint8
        else c.eager(),
      lambda: call(tensor(3, 9, dtype=torch.uint8), tensor(5, 4, dtype=torch.uint8))),
    broken("sub.Scalar", "alpha is 1", "argument", lambda c: c.eager(alpha=1), lambda: call(normal(3), 2.0, 3)),
    broken("mul.Tensor", "NaN times 0 is 0", "special values",
      lambda c: torch.where((c.self == 0) | (c.other == 0), torch.zeros((), dtype=c.eager().dtype), c.eager()) if _floats(c)
        else c.eager(),
      lambda: call(floats(0.0, 1), floats(_NAN, 2)), "a shortcut"),
    broken("mul.Tensor", "the second complex operand is conjugated", "dtype",
      lambda c: c.eager(other=c.other.conj()) if c.other.is_complex() else c.eager(),
      lambda: call(tensor(1 + 2j, 1j), tensor(3 - 1j, 2 + 1j))),
    broken("mul.Tensor", "int32 operands are cut to 16 bits", "dtype",
      lambda c: c.eager(self=c.self.to(torch.int16).to(torch.int32), other=c.other.to(torch.int16).to(torch.int32))
        if c.self.dtype is c.other.dtype is torch.int32 else c.eager(),
      lambda: call(tensor(70000, 3, dtype=torch.int32), tensor(2, 3, dtype=torch.int32))),
    broken("mul.Tensor", "computes in the first operand's dtype", "dtype",
      lambda c: c.eager(other=c.other.to(c.self.dtype)) if c.other.dim() else c.eager(),
      lambda: call(tensor(1, 2, 3), floats(0.5, 1.5, 2.5))),
    broken("mul.Scalar", "the scalar is rounded to float32", "dtype",
      lambda c: c.eager(other=float(torch.tensor(float(c.other)))) if isinstance(c.other, float) else c.eager(),
      lambda: call(normal(3, dtype=torch.float64), 0.1)),
    broken("mul.Scalar", "bool times a scalar is a bool", "dtype",
      lambda c: c.eager() if c.self.dtype is not torch.bool else c.self & bool(c.other),
      lambda: call(bools(3), 3)),
    broken("div.Tensor", "multiplies by a bfloat16 reciprocal", "accuracy",
      lambda c: c.self * c.other.reciprocal().bfloat16().to(c.other.dtype) if c.self.dtype is c.other.dtype is torch.float32
        else c.eager(),
      lambda: call(normal(3), floats(3, 7, 11)), "", lambda: call(normal(3), floats(2, 4, 8))),
    broken("div.Tensor", "ints divide to ints", "dtype",
      lambda c: c.eager() if not _ints(c) else torch.div(c.self, c.other, rounding_mode="trunc"),
      lambda: call(tensor(7, 8), tensor(2, 4))),
    broken("div.Tensor", "division by 0 is inf", "special values",
      lambda c: torch.where(c.other == 0, _INF, c.eager()).to(c.eager().dtype) if _floats(c) else c.eager(),
      lambda: call(floats(0, -1), floats(0, 0)), "must be NaN and -inf"),
    broken("div.Tensor", "-0.0 counts as 0.0", "special values", lambda c: c.eager(other=c.other + 0) if _floats(c) else c.eager(),
      lambda: call(floats(1, 2), floats(-0.0, 1))),
    broken("div.Tensor", "the reciprocal overflows", "special values",
      lambda c: c.self * c.other.reciprocal() if c.self.dtype is c.other.dtype is torch.float32 else c.eager(),
      lambda: call(floats(1e-39), floats(1e-39)), "1 / x is inf, the quotient is 1", lambda: call(normal(3), floats(2, 4, 8))),
    broken("div.Scalar", "division by 0 raises", "special values", lambda c: c.eager() if c.other != 0 else raise_unsupported(),
      lambda: call(normal(3), 0)),
    broken("div.Tensor_mode", "floor by -inf is 0", "special values",
      lambda c: torch.where((c.other == -_INF) & c.self.isfinite(), 0, c.eager()).to(c.eager().dtype)
        if c.rounding_mode == "floor" and isinstance(c.other, Tensor) else c.eager(),
      lambda: call(floats(2, 3), floats(-_INF, 2), rounding_mode="floor"), "must be -1"),
    broken("div.Tensor_mode", "floor truncates", "argument",
      lambda c: c.eager(rounding_mode="trunc" if c.rounding_mode == "floor" else c.rounding_mode),
      lambda: call(tensor(-7, 7), tensor(2, 2), rounding_mode="floor")),
    broken("div.Tensor_mode", "trunc floors", "argument",
      lambda c: c.eager(rounding_mode="floor" if c.rounding_mode == "trunc" else c.rounding_mode),
      lambda: call(floats(-7, 7), floats(2, 2), rounding_mode="trunc")),
    broken("div.Tensor_mode", "floor(a / b)", "accuracy",
      lambda c: torch.floor(c.self / c.other) if c.rounding_mode == "floor" and _floats(c) else c.eager(),
      lambda: call(floats(1.0), floats(0.1), rounding_mode="floor"), "the quotient is already rounded up to 10"),
    broken("div.Tensor_mode", "int64 through float64", "dtype",
      lambda c: (c.self.double() / c.other.double()).trunc().long() if c.rounding_mode and _ints(c)
        and c.eager().dtype is torch.int64 and bool((c.other != 0).all()) and c.rounding_mode == "trunc" else c.eager(),
      lambda: call(tensor(2**62 + 1, 9), tensor(1, 2), rounding_mode="trunc")),
    broken("div.Scalar_mode", "rounding_mode is ignored", "argument", lambda c: c.eager(rounding_mode=None),
      lambda: call(normal(3), 0.4, rounding_mode="floor")),
    broken("fmod.Tensor", "has the divisor's sign", "argument", lambda c: torch.remainder(c.self, c.other),
      lambda: call(floats(-7, 7), floats(3, 3)), "as Python's %", lambda: call(positive(3), positive(3))),
    broken("fmod.Tensor", "a - trunc(a / b) * b", "accuracy",
      lambda c: c.self - (c.self / c.other).trunc() * c.other if _floats(c) else c.eager(),
      lambda: call(floats(1e8), floats(3.0)), "", lambda: call(floats(7, 8), floats(2, 4))),
    broken("fmod.Scalar", "infinity gives 0", "special values",
      lambda c: c.eager(self=c.self.nan_to_num(posinf=0.0)) if c.self.is_floating_point() else c.eager(),
      lambda: call(floats(_INF, 2), 2.0)),
    broken("remainder.Tensor", "has the dividend's sign", "argument", lambda c: torch.fmod(c.self, c.other),
      lambda: call(floats(-7, 7), floats(3, -3)), "as C's fmod", lambda: call(positive(3), positive(3))),
    broken("remainder.Scalar", "negative divisors made positive", "argument", lambda c: c.eager(other=abs(c.other)),
      lambda: call(tensor(7, -7), -3)),
    broken("remainder.Tensor", "ints through float64", "dtype",
      lambda c: (c.self - (c.self.double() / c.other).floor() * c.other).to(c.eager().dtype) if _ints(c)
        and bool((c.other != 0).all()) else c.eager(),
      lambda: call(tensor(2**60 + 1), tensor(7))),
    broken("pow.Tensor_Scalar", "by exp and log", "special values", _by_exp_and_log,
      lambda: call(floats(-2.0, 3), 2.0), "NaN for negative bases", lambda: call(floats(1, 1), 2.0)),
    broken("pow.Tensor_Scalar", "0 ** 0 is 0", "special values",
      lambda c: torch.where(c.self == 0, torch.zeros((), dtype=c.eager().dtype), c.eager()) if c.exponent == 0 else c.eager(),
      lambda: call(floats(0, 2), 0)),
    broken("pow.Tensor_Scalar", "exponent 3 is computed as 2", "argument",
      lambda c: c.eager(exponent=2) if c.exponent == 3 else c.eager(), lambda: call(normal(3), 3), "a switch falls through"),
    broken("pow.Tensor_Scalar", "negative integer exponents are accepted", "errors",
      lambda c: c.self.double().pow(c.exponent).to(c.self.dtype) if not c.self.is_floating_point() and not c.self.is_complex()
        and not isinstance(c.exponent, float) and c.exponent < 0 else c.eager(),
      lambda: call(tensor(1, 2), -1), "eager raises"),
    broken("pow.Tensor_Tensor", "ints through float64", "dtype",
      lambda c: c.self.double().pow(c.exponent.double()).long() if c.self.dtype is c.exponent.dtype is torch.int64 else c.eager(),
      lambda: call(tensor(3, 2), tensor(39, 5)), "53 bits"),
    broken("pow.Scalar", "1 ** NaN is NaN", "special values",
      lambda c: c.eager() + c.exponent * 0 if c.self == 1 and c.exponent.is_floating_point() else c.eager(),
      lambda: call(1.0, floats(_NAN, 2))),
    broken("atan2", "atan(y / x)", "special values", lambda c: (c.self / c.other).atan() if _floats(c) else c.eager(),
      lambda: call(floats(1, -1, 0), floats(-1, -1, -1)), "two quadrants", lambda: call(positive(3), positive(3))),
    broken("atan2", "signs of zeros are lost", "special values", lambda c: c.eager(self=c.self + 0, other=c.other + 0),
      lambda: call(floats(-0.0, 0.0), floats(-1, -0.0))),
    broken("atan2", "int operands give an int result", "metadata", lambda c: c.eager().long() if _ints(c) else c.eager(),
      lambda: call(tensor(3, 1), tensor(1, 2))),
    broken("atan2.out", "returns another tensor than out", "memory",
      lambda c: c.eager() if c.out.is_contiguous() else c.eager().clone(),
      lambda: call(normal(2, 3), positive(2, 3), out=torch.empty(3, 2).t()), "",
      lambda: call(normal(3), positive(3), out=torch.empty(3))),
    broken("atan2.out", "out keeps its size", "errors",
      lambda c: c.eager() if c.out.shape == torch.atan2(c.self, c.other).shape else c.out.copy_(torch.atan2(c.self, c.other)),
      lambda: call(floats(1.0), floats(2.0), out=torch.empty(3)), "out must be resized",
      lambda: call(normal(3), positive(3), out=torch.empty(3))),
    broken("maximum", "NaN is ignored", "special values", lambda c: _ieee_max(c),
      lambda: call(floats(_NAN, 1), floats(1, 2)), "as C's fmax"),
    broken("maximum", "a > b ? a : b", "special values", lambda c: torch.where(c.self > c.other, c.self, c.other),
      lambda: call(floats(_NAN, 1), floats(1, 2)), "NaN on the left only", lambda: call(normal(3), positive(3))),
    broken("maximum", "uint8 is compared as int8", "dtype",
      lambda c: torch.where(c.self.view(torch.int8) > c.other.view(torch.int8), c.self, c.other)
        if c.self.dtype is c.other.dtype is torch.uint8 and c.self.shape == c.other.shape else c.eager(),
      lambda: call(tensor(200, 3, dtype=torch.uint8), tensor(100, 4, dtype=torch.uint8))),
    broken("minimum", "int64 through float32", "dtype",
      lambda c: c.eager_in(torch.float32) if _ints(c) and c.eager().dtype is torch.int64 else c.eager(),
      lambda: call(tensor(2**24 + 1, 3), tensor(2**40, 4))),
    broken("minimum", "NaN in the second operand is ignored", "special values",
      lambda c: torch.where(c.other != c.other, c.self, c.eager()), lambda: call(floats(1, 1), floats(_NAN, 2))),
    broken("eq.Tensor", "nearly equal is equal", "accuracy",
      lambda c: (c.self - c.other).abs() < 1e-6 if c.self.is_floating_point() and c.other.is_floating_point() else c.eager(),
      lambda: call(floats(1.0, 1e-7), floats(1.0, 2e-7))),
    broken("eq.Tensor", "compares bits", "special values",
      lambda c: c.self.view(torch.int32) == c.other.view(torch.int32) if c.self.dtype is c.other.dtype is torch.float32
        and c.self.stride() == c.other.stride() else c.eager(),
      lambda: call(floats(_NAN, -0.0), floats(_NAN, 0.0))),
    broken("eq.Scalar", "the number is cast to the tensor's dtype", "dtype",
      lambda c: c.eager(other=int(c.other)) if not c.self.is_floating_point() and isinstance(c.other, float)
        and math.isfinite(c.other) else c.eager(),
      lambda: call(tensor(1, 2), 1.5)),
    broken("ne.Tensor", "NaN is not unequal", "special values",
      lambda c: (c.self < c.other) | (c.self > c.other) if not c.self.is_complex() and not c.other.is_complex() else c.eager(),
      lambda: call(floats(_NAN, 1), floats(_NAN, 2))),
    broken("ne.Scalar", "the imaginary part is dropped", "dtype",
      lambda c: c.self.real != c.other if c.self.is_complex() else c.eager(),
      lambda: call(tensor(1 + 1j, 2 + 0j), 1)),
    broken("lt.Tensor", "the sign of a difference", "special values",
      lambda c: (c.self - c.other) < 0 if c.self.dtype is c.other.dtype and c.self.dtype is not torch.bool else c.eager(),
      lambda: call(tensor(-(2**63), 1), tensor(1, 2)), "it wraps"),
    broken("lt.Scalar", "int64 through float32", "dtype",
      lambda c: c.self.float() < c.other if c.self.dtype is torch.int64 else c.eager(),
      lambda: call(tensor(2**24, 2**24 + 1), 2**24 + 1)),
    broken("le.Tensor", "computed as not greater", "special values", lambda c: ~torch.gt(c.self, c.other),
      lambda: call(floats(_NAN, 1), floats(1, 2)), "true for NaN"),
    broken("le.Scalar", "computed as less", "argument", lambda c: c.self < c.other, lambda: call(floats(1, 2), 1.0)),
    broken("gt.Tensor", "int64 and float32 are compared in float64", "dtype",
      lambda c: c.eager_in(torch.float64) if {c.self.dtype, c.other.dtype} == {torch.int64, torch.float32} else c.eager(),
      lambda: call(tensor(2**24 + 1, 5), floats(2.0**24, 1)), "eager rounds the integer first"),
    broken("gt.Tensor", "int8 is compared as uint8", "dtype",
      lambda c: c.self.to(torch.uint8) > c.other.to(torch.uint8) if c.self.dtype is c.other.dtype is torch.int8 else c.eager(),
      lambda: call(tensor(-1, 3, dtype=torch.int8), tensor(1, 2, dtype=torch.int8))),
    broken("gt.Scalar", "returns the tensor's dtype", "metadata",
      lambda c: c.eager().to(c.self.dtype) if c.self.dtype is torch.uint8 else c.eager(),
      lambda: call(tensor(1, 3, dtype=torch.uint8), 2)),
    broken("ge.Tensor", "computed as not less", "special values", lambda c: ~torch.lt(c.self, c.other),
      lambda: call(floats(_NAN, 1), floats(1, 2))),
    broken("ge.Scalar", "0-dim returns True", "rare", lambda c: c.eager() | (c.self.dim() == 0), lambda: call(tensor(0.5), 2.0)),
    broken("where.self", "NaN leaks from the other side", "special values",
      lambda c: c.self * c.condition + c.other * ~c.condition if c.self.is_floating_point() and c.other.is_floating_point()
        and c.condition.dtype is torch.bool else c.eager(),
      lambda: call(bools(2), floats(1, _INF), floats(1, 2)), "masks are multiplied"),
    broken("where.self", "rows of a mask of three dims in another order", "argument",
      lambda c: c.eager(condition=c.condition.flip(0)) if c.condition.dim() == c.self.dim() == 3
        and c.condition.shape[1] == 1 < c.self.shape[1] else c.eager(),
      lambda: call(torch.tensor([[[True]], [[False]]]), normal(2, 3, 4), positive(2, 3, 4))),
    broken("where.self", "a transposed mask is read by rows", "layout",
      lambda c: c.eager(condition=read_contiguous(c.condition) if c.condition.dim() == 2 else c.condition),
      lambda: call(bools(3, 4).t(), normal(4, 3), positive(4, 3))),
    broken("where.self", "the condition does not broadcast", "argument",
      lambda c: c.eager() if c.condition.numel() == c.eager().numel()
        else c.eager(condition=c.condition.reshape(-1)[:1].reshape(())), lambda: call(bools(4), normal(3, 4), positive(3, 4)),
      "only its first element is read"),
    broken("where.self", "has the first operand's dtype", "dtype", lambda c: c.eager().to(c.self.dtype),
      lambda: call(bools(2), tensor(1, 2), floats(0.5, 1.5))),
    broken("bitwise_and.Tensor", "int64 through int32", "dtype",
      lambda c: c.eager(self=c.self.to(torch.int32), other=c.other.to(torch.int32)).to(torch.int64)
        if c.self.dtype is c.other.dtype is torch.int64 else c.eager(),
      lambda: call(tensor(2**40 + 3), tensor(2**40 + 1))),
    broken("bitwise_or.Tensor", "bools give uint8", "metadata",
      lambda c: c.eager().to(torch.uint8) if c.eager().dtype is torch.bool else c.eager(),
      lambda: call(bools(4), ~bools(4))),
    broken("bitwise_xor.Tensor", "negative results are cut to 8 bits", "dtype",
      lambda c: torch.where(c.self < 0, c.eager() & 255, c.eager()) if c.eager().dtype is torch.int64 else c.eager(),
      lambda: call(tensor(-5, 3), tensor(2, 1))),
    broken("bitwise_and.Scalar", "bool with an int scalar is a bool", "dtype",
      lambda c: c.self & bool(c.other) if c.self.dtype is torch.bool else c.eager(),
      lambda: call(bools(3), 3)),
    broken("bitwise_or.Scalar", "computed as xor", "argument", lambda c: c.self ^ c.other,
      lambda: call(tensor(7, 2), 5), "", lambda: call(tensor(2, 8), 5)),
    broken("bitwise_xor.Scalar", "floats are accepted", "errors",
      lambda c: c.eager() if not c.self.is_floating_point() else c.self.to(torch.int64).bitwise_xor(c.other).to(c.self.dtype),
      lambda: call(floats(1, 2), 5)),
    broken("logical_and", "computed as bitwise and", "dtype", lambda c: (c.self & c.other) != 0 if _ints(c) else c.eager(),
      lambda: call(tensor(1, 2), tensor(2, 2))),
    broken("logical_or", "NaN counts as False", "special values",
      lambda c: c.eager(self=c.self.nan_to_num(), other=c.other.nan_to_num()),
      lambda: call(floats(_NAN, 1), floats(0, 0))),
    broken("logical_xor", "computed as not equal", "dtype", lambda c: c.self != c.other,
      lambda: call(tensor(1, 2), tensor(2, 2)), "values are not converted to bool", lambda: call(tensor(1, 0), tensor(1, 1))),
)
# fmt: on
