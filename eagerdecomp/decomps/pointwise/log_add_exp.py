"""The logarithm of a sum of exponentials: `logaddexp` of real and of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import in_type, number_like, promoted
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


@rule("aten.logaddexp.default", compute="float32", operands=(0, 1))
def _log_add_exp(self: Tensor, other: Tensor) -> Any:
    """Compute the larger operand plus ``log1p(exp(smaller - larger))``.

    In the difference the larger one is clamped, so that no infinities are subtracted.
    """
    larger, greatest = aten.maximum.default(self, other), torch.finfo(self.dtype).max
    return aten.add.Tensor(
        larger,
        aten.log1p.default(
            aten.exp.default(aten.sub.Tensor(aten.minimum.default(self, other), aten.clamp.default(larger, -greatest, greatest)))
        ),
    )


def parts_of_complex(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary part."""
    pairs = aten.view_as_real.default(x)
    return aten.select.int(pairs, -1, 0), aten.select.int(pairs, -1, 1)


@rule("aten.logaddexp.default", recorded=True)
def _complex_log_add_exp(self: Tensor, other: Tensor) -> Any:
    """Compute complex `logaddexp` by the cases of ATen's ``_log_add_exp_helper``.

    If both real parts are +inf, the exponentials are computed from cosines and sines: kernels of complex `exp` return NaN there,
    where `std::exp` returns infinities.
    """
    dtype = promoted([self, other])
    if dtype not in (torch.complex64, torch.complex128):
        return NotImplemented
    self, other = in_type(self, dtype), in_type(other, dtype)
    (size, angle), (others_size, others_angle) = parts_of_complex(self), parts_of_complex(other)
    is_larger = aten.ge.Tensor(size, others_size)
    high, low = aten.where.self(is_larger, self, other), aten.where.self(is_larger, other, self)
    finite = aten.add.Tensor(high, aten.log1p.default(aten.exp.default(aten.sub.Tensor(low, high))))
    zero, infinity = number_like(size, 0.0), number_like(size, math.inf)
    sums = []
    for turn in (aten.cos.default, aten.sin.default):
        exponentials = []
        for one in (angle, others_angle):
            turned = turn(one)
            scaled = aten.where.self(aten.eq.Scalar(turned, 0.0), zero, aten.mul.Scalar(turned, math.inf))
            if turn is aten.cos.default:  # as `std::exp` of an infinite angle: (inf, NaN)
                scaled = aten.where.self(aten.eq.Scalar(aten.abs.default(one), math.inf), infinity, scaled)
            exponentials.append(scaled)
        sums.append(aten.add.Tensor(*exponentials))
    is_infinite = aten.logical_or.default(*(aten.eq.Scalar(aten.abs.default(one), math.inf) for one in sums))
    nan = number_like(size, math.nan)
    added = aten.complex.default(aten.where.self(is_infinite, infinity, nan), aten.atan2.default(sums[1], sums[0]))
    alike = aten.eq.Tensor(size, others_size)
    both = [aten.logical_and.default(alike, aten.eq.Scalar(size, value)) for value in (math.inf, -math.inf)]
    # exp of the smaller operand is negligible here. Kernels of complex `exp` return NaN for -inf with some angles.
    is_all = aten.logical_or.default(
        aten.eq.Scalar(aten.maximum.default(size, others_size), math.inf),
        aten.eq.Scalar(aten.minimum.default(size, others_size), -math.inf),
    )
    result = aten.where.self(both[0], added, aten.where.self(both[1], low, aten.where.self(is_all, high, finite)))
    whole = aten.logical_and.default(aten.eq.Tensor(self, self), aten.eq.Tensor(other, other))
    return aten.where.self(whole, result, number_like(result, complex(math.nan, math.nan)))
