"""Ops on the bits of numbers: greatest common divisors, mantissas and exponents, and hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import as_operands
from eagerdecomp.eager.promotion import in_type, number_like, promoted
from eagerdecomp.rules.restride import with_eager_strides
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64

aten = torch.ops.aten


def _gcd(self: Tensor, other: Tensor) -> Any:
    """Compute Euclid's algorithm. For int64 this takes 281 kernels.

    All pairs take as many steps as the worst case of the dtype, two neighbouring Fibonacci numbers. Pairs that are finished stay
    unchanged. A pair of two zeros is computed with a 1 instead until the last line, so that no divisor is 0.
    """
    dtype = promoted((self, other))
    rest, value = (aten.abs.default(in_type(x, dtype)) for x in (self, other))
    nothing = aten.logical_and.default(aten.eq.Scalar(rest, 0), aten.eq.Scalar(value, 0))
    one = aten.full.default([], 1, dtype=dtype, device=self.device)
    value = aten.where.self(nothing, one, value)
    bits = torch.iinfo(dtype).max.bit_length()
    for _ in range(int(bits * 1.4405) + 2):
        divisor = aten.where.self(aten.eq.Scalar(rest, 0), value, rest)
        value, rest = divisor, aten.fmod.Tensor(value, divisor)
    return aten.where.self(nothing, aten.full.default([], 0, dtype=dtype, device=self.device), value)


_UNIT = 2**52  # of the exponent in the bits of a float64
_SUBNORMAL = 2.0**-1022


@rule("aten.frexp.Tensor", recorded=True)
def _frexp(self: Tensor) -> Any:
    """Read the bits of float64, in which values of all smaller dtypes are normal numbers."""
    if not has_float64():
        return _frexp_single(self)
    x = in_type(self, torch.float64)
    shift = 1022
    if self.dtype is torch.float64:
        small = aten.lt.Scalar(aten.abs.default(x), _SUBNORMAL)
        x = aten.where.self(small, aten.mul.Scalar(x, 2.0**54), x)
    bits = aten.view.dtype(aten.abs.default(x), torch.int64)
    exponent = aten.sub.Scalar(aten.div.Scalar_mode(bits, _UNIT, rounding_mode="trunc"), shift)
    mantissa = aten.view.dtype(aten.sub.Tensor(aten.view.dtype(x, torch.int64), aten.mul.Scalar(exponent, _UNIT)), torch.float64)
    if self.dtype is torch.float64:
        exponent = aten.where.self(small, aten.sub.Scalar(exponent, 54), exponent)
    return _with_zero_exponents(self, mantissa, exponent)


_UNIT_SINGLE = 2**23  # of the exponent in the bits of a float32


def _frexp_single(self: Tensor) -> Any:
    """Read the bits of float32, for a backend without float64."""
    x = in_type(self, torch.float32)
    small = aten.lt.Scalar(aten.abs.default(x), 2.0**-126)
    x = aten.where.self(small, aten.mul.Scalar(x, 2.0**25), x)
    bits = aten.view.dtype(aten.abs.default(x), torch.int32)
    exponent = aten.sub.Scalar(aten.div.Scalar_mode(bits, _UNIT_SINGLE, rounding_mode="trunc"), 126)
    shifted = aten.sub.Tensor(aten.view.dtype(x, torch.int32), aten.mul.Scalar(exponent, _UNIT_SINGLE))
    exponent = aten.where.self(small, aten.sub.Scalar(exponent, 25), exponent)
    return _with_zero_exponents(self, aten.view.dtype(shifted, torch.float32), exponent)


def _with_zero_exponents(self: Tensor, mantissa: Tensor, exponent: Tensor) -> Any:
    # Zeros, infinities and NaN have no exponent: eager returns them unchanged, with exponent 0.
    size = aten.abs.default(self)
    odd = aten.logical_not.default(aten.logical_and.default(aten.gt.Scalar(size, 0), aten.lt.Scalar(size, float("inf"))))
    zero = aten.full.default([], 0, dtype=torch.int32, device=self.device)
    exponent = aten.where.self(odd, zero, in_type(exponent, torch.int32))
    return aten.where.self(odd, self, in_type(mantissa, self.dtype)), exponent


@rule("aten.ldexp.Tensor", recorded=True)
def _ldexp(self: Tensor, other: Tensor) -> Any:
    """Multiply by a power of two in float64, without intermediate rounding; use `pow` for exponents that are not integers."""
    if not self.dtype.is_floating_point or other.dtype.is_floating_point or other.dtype.is_complex:
        if self.dtype is torch.float32 or not (self.dtype.is_floating_point or self.dtype.is_complex):
            return aten.mul.Tensor(self, aten.pow.Scalar(2.0, other))
        return aten.mul.Tensor(self, aten.pow.Tensor_Tensor(number_like(self, 2.0), other))
    return _scaled_by_bits(self, other)


def _by_bits(self: Tensor, other: Tensor) -> Any:
    exponent = in_type(in_type(other, torch.int32), torch.int64)  # as the kernel takes it, without what is above 32 bits
    if self.dtype is not torch.float64 and not has_float64():
        return _by_bits_single(self, exponent)
    if self.dtype is not torch.float64:  # of which float64 holds all products but those that round to 0 or infinity
        scaled = aten.mul.Tensor(in_type(self, torch.float64), _power_of_two(aten.clamp.default(exponent, -600, 600)))
        return in_type(scaled, self.dtype)
    # Multiply in three steps, because one float64 cannot hold powers such as 2**-2000. Steps down are 2**-969, not 2**-1022: if
    # an early step gives a subnormal number, and so rounds, the result is 0 in any case. So no result is rounded twice.
    scaled, exponent = self, aten.clamp.default(exponent, -2200, 2200)
    for _ in range(2):
        step = aten.where.self(
            aten.lt.Scalar(exponent, -1022), number_like(exponent, -969), aten.clamp.default(exponent, -1022, 1023)
        )
        scaled, exponent = aten.mul.Tensor(scaled, _power_of_two(step)), aten.sub.Tensor(exponent, step)
    return aten.mul.Tensor(scaled, _power_of_two(aten.clamp.default(exponent, -1022, 1023)))


def _by_bits_single(self: Tensor, exponent: Tensor) -> Any:
    """Multiply float32 in three steps, as `_by_bits` does float64."""
    scaled, exponent = in_type(self, torch.float32), aten.clamp.default(exponent, -300, 300)
    for _ in range(2):
        down = number_like(exponent, -102)
        step = aten.where.self(aten.lt.Scalar(exponent, -126), down, aten.clamp.default(exponent, -126, 127))
        scaled, exponent = aten.mul.Tensor(scaled, _power_single(step)), aten.sub.Tensor(exponent, step)
    return in_type(aten.mul.Tensor(scaled, _power_single(aten.clamp.default(exponent, -126, 127))), self.dtype)


def _power_single(exponent: Tensor) -> Tensor:
    bits = aten.mul.Scalar(aten.add.Scalar(exponent, 127), _UNIT_SINGLE)
    return aten.view.dtype(aten._to_copy.default(bits, dtype=torch.int32), torch.float32)  # type: ignore[no-any-return]


def _as_scaled(result: Tensor, self: Tensor, other: Tensor) -> Any:
    """Return the result in the memory format of the scaled operand, unless that is broadcast."""
    count = 1 if self.shape == result.shape and other.dim() else 2
    return as_operands(count, promotes=False)(result, self, other)


_scaled_by_bits = with_eager_strides(_by_bits, {0: _as_scaled})


def _power_of_two(exponent: Tensor) -> Tensor:
    """Return 2 to the power of an exponent between -1022 and 1023 as float64, by setting its bits."""
    return aten.view.dtype(aten.mul.Scalar(aten.add.Scalar(exponent, 1023), _UNIT), torch.float64)  # type: ignore[no-any-return]


def _bits_of_double(x: Tensor) -> Tensor:
    """Return the bits that float32 numbers have as float64, without float64."""

    def bits_of(x: Tensor) -> Tensor:
        return in_type(aten.view.dtype(x, torch.int32), torch.int64)

    size = aten.abs.default(x)
    bits = bits_of(size)
    subnormal, beyond = aten.lt.Scalar(size, 2.0**-126), aten.ge.Scalar(bits, 255 << 23)  # infinities and NaN
    normal = aten.where.self(subnormal, bits_of(aten.mul.Scalar(size, 2.0**64)), bits)
    shift = aten.where.self(subnormal, number_like(bits, 1023 - 127 - 64), number_like(bits, 1023 - 127))
    shift = aten.where.self(beyond, number_like(bits, 2047 - 255), shift)
    found = aten.add.Tensor(aten.mul.Scalar(normal, 2**29), aten.mul.Scalar(shift, _UNIT))
    found = aten.where.self(aten.eq.Scalar(bits, 0), number_like(bits, 0), found)
    negative = aten.lt.Scalar(aten.view.dtype(x, torch.int32), 0)
    return aten.where.self(negative, aten.add.Scalar(found, -(2**63)), found)  # type: ignore[no-any-return]


@rule("aten.hash_tensor.default", recorded=True)
def _hash_tensor(self: Tensor, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> Any:
    """Reduce the bits of all elements, as int64 or float64, by exclusive or: fold halves until one element is left."""
    dims = [one % self.dim() for one in dim or range(self.dim())] if self.dim() else []
    shape = [1 if at in dims else count for at, count in enumerate(self.shape) if keepdim or at not in dims]
    if not self.numel():
        empty = any(not self.size(at) for at in dims)
        return NotImplemented if empty else aten.full.default(shape, 0, dtype=torch.uint64, device=self.device)
    if self.dtype.is_floating_point:
        wide = self.dtype is torch.float64 or has_float64()
        bits = aten.view.dtype(in_type(self, torch.float64), torch.int64) if wide else _bits_of_double(in_type(self, torch.float32))
    else:
        bits = in_type(self, torch.int64)
    at = dims[0] if len(dims) == 1 else 0
    if len(dims) == self.dim():
        bits = aten.reshape.default(bits, [-1])
    elif len(dims) > 1:
        kept = [here for here in range(self.dim()) if here not in dims]
        bits = aten.permute.default(bits, [*dims, *kept])
        bits = aten.reshape.default(bits, [-1, *(self.size(here) for here in kept)])
    while (count := bits.size(at)) > 1:
        half = count // 2
        mixed = aten.bitwise_xor.Tensor(aten.slice.Tensor(bits, at, 0, half), aten.slice.Tensor(bits, at, half, 2 * half))
        bits = aten.cat.default([mixed, aten.slice.Tensor(bits, at, 2 * half, count)], at) if count % 2 else mixed
    return aten.view.dtype(
        aten.clone.default(aten.reshape.default(bits, shape), memory_format=torch.contiguous_format), torch.uint64
    )


rule("aten.gcd.default", recorded=True)(_gcd)
