"""Sums, products, logarithms and exponentials of float64 with their rounding errors, for results that are exact to the last bit.

Each function returns two terms: the rounded value and its error. Their sum is closer to the exact value than any float64. Sums and
products may be float32 too, on backends without float64.
"""

from __future__ import annotations

import torch

from eagerdecomp.decomps.math import coefficients
from eagerdecomp.decomps.math.operators import TensorExpr, choose, ratio

__all__ = ["exponential", "logarithm", "product", "split", "total"]

aten = torch.ops.aten

# log(2) in two parts. The first has so few bits that its product with an exponent is exact.
_LOG_2, _LOG_2_REST = float.fromhex("0x1.62e42fefa38p-1"), float.fromhex("0x1.ef35793c7673p-45")
#: The factors of Veltkamp's splitting: one more than 2 to half the number of significant bits.
_SPLITTERS = {torch.float64: 2.0**27 + 1, torch.float32: 2.0**12 + 1}


def split(x: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Split into the first half of the significant bits and the rest (Veltkamp). Overflows near the end of the range."""
    shifted = x * _SPLITTERS[x.tensor.dtype]
    head = shifted - (shifted - x)
    return head, x - head


def total(x: TensorExpr, y: TensorExpr | float) -> tuple[TensorExpr, TensorExpr]:
    """Return a sum and its rounding error (Knuth), for finite numbers."""
    rounded = x + y
    added = rounded - x
    return rounded, (x - (rounded - added)) + (y - added)


def product(x: TensorExpr, y: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Return a product and its rounding error (Dekker)."""
    rounded = x * y
    (head, tail), (other, end) = split(x), split(y)
    return rounded, ((head * other - rounded) + head * end + tail * other) + tail * end


def logarithm(x: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Return ``log(x)``: ``k log(2)`` plus ``log(q)`` for ``q = x / 2^k``, by the series of ``2 artanh((q - 1) / (q + 1))``.

    The kernel's own logarithm is off by one unit in the last place at some numbers. It is used only where `q` does not exist: for
    0, the smallest numbers and infinity.
    """
    power = TensorExpr(aten.round.default((x.log() * (1 / (_LOG_2 + _LOG_2_REST))).tensor)).clamp(-1000, 1000)
    # Build the reciprocal of the power of 2 from its bits, since kernels for powers may not be exact.
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
    """Return the kernel's own exponential, and its error, computed from its logarithm; error 0 for the smallest numbers."""
    rounded = x.exp()
    whole, rest = logarithm(rounded)
    return rounded, choose(rounded > 1e-290, rounded * ((x - whole) - rest), 0.0)
