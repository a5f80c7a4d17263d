"""Sums, products, logarithms and exponentials of float64 with what their rounding lost, for what is to be right to the last place.

Each returns two terms: the rounded value and the rest, which together are nearer to the mathematics than one number can be.
"""

from __future__ import annotations

import torch

from eagerdecomp.decomps.math import coefficients
from eagerdecomp.decomps.math.operators import TensorExpr, choose, ratio

__all__ = ["exponential", "logarithm", "product", "split", "total"]

aten = torch.ops.aten

# The logarithm of 2 in two parts, of which the first has so few digits that it times an exponent is exact.
_LOG_2, _LOG_2_REST = float.fromhex("0x1.62e42fefa38p-1"), float.fromhex("0x1.ef35793c7673p-45")
_SPLITTER = 2.0**27 + 1


def split(x: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Its first 26 digits and the others (Veltkamp); not of what is near the end of the range."""
    shifted = x * _SPLITTER
    head = shifted - (shifted - x)
    return head, x - head


def total(x: TensorExpr, y: TensorExpr | float) -> tuple[TensorExpr, TensorExpr]:
    """Knuth's sum, of finite numbers."""
    rounded = x + y
    added = rounded - x
    return rounded, (x - (rounded - added)) + (y - added)


def product(x: TensorExpr, y: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Dekker's product."""
    rounded = x * y
    (head, tail), (other, end) = split(x), split(y)
    return rounded, ((head * other - rounded) + head * end + tail * other) + tail * end


def logarithm(x: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Logarithm of the power of 2 beside `x`, exactly, and that of the quotient, by the series of ``2 artanh((q - 1) / (q + 1))``.

    A kernel's own is one unit off at some numbers, and serves where there is no quotient: of 0, the least numbers and infinity.
    """
    power = TensorExpr(aten.round.default((x.log() * (1 / (_LOG_2 + _LOG_2_REST))).tensor)).clamp(-1000, 1000)
    # The reciprocal of the power, by its bits: no kernel of a power is sure to be exact.
    bits = aten.mul.Scalar((1023 - power).to(torch.int64).tensor, 2**52)
    quotient = x * TensorExpr(aten.view.dtype(bits, torch.float64))
    near = (quotient > 0.5) & (quotient < 2)
    above, below = quotient + 1, quotient - 1
    half = below / above
    whole, rest = product(half, above)
    lost = (((below - whole) - rest) - half * (quotient - (above - 1))) / above
    square = half * half
    series = lost + square * half * ratio(square, coefficients.LOG1P_REST)
    rounded, missed = total(power * _LOG_2, choose(near, half + half, quotient.log()))
    return rounded, choose(near, missed + (series + series), 0.0) + power * _LOG_2_REST


def exponential(x: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """A kernel's own, and what it lacks by its logarithm; of the least numbers nothing."""
    rounded = x.exp()
    whole, rest = logarithm(rounded)
    return rounded, choose(rounded > 1e-290, rounded * ((x - whole) - rest), 0.0)
