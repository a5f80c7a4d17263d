"""The functions erfc, erfcx and erfinv, and the functions of the normal distribution that follow from them.

All are computed in float64 and rounded once. Up to 1/2 they follow from `erf`. Beyond, they follow from one rational approximation
of ``erfcx(x) * (1 + x)``, and from ``exp(-x^2)`` with the rounding error of the square compensated.
"""

from __future__ import annotations

import math

import torch

from eagerdecomp.decomps.math import coefficients
from eagerdecomp.decomps.math.double_double import exponential, logarithm, product, split
from eagerdecomp.decomps.math.float64 import of_one
from eagerdecomp.decomps.math.operators import TensorExpr, choose, in_pairs, ratio
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64

#: In float32, ``-log(1 - y^2)`` is below this for every `y` below 1.
_ERFINV_SHORT_TO = 16


def _exp_of_square(x: TensorExpr, factor: float) -> TensorExpr:
    """Return ``exp(factor * x^2)``, exact to the last bit, for a power of 2 `factor`. Squares of float32 are exact in float64."""
    short = x.to(torch.float32).to(torch.float64) if has_float64() else split(x)[0]
    rest = (x - short) * (x + short) * factor
    return (short * short * factor).exp() * rest.exp()


def _scaled_beyond_half(x: TensorExpr) -> TensorExpr:
    below = x + 1
    return (ratio(1 / below, coefficients.ERFCX) + 0.75) / below


def _one_less_erf(x: TensorExpr) -> TensorExpr:
    return 1 - x.erf()


def _erfc_short(x: TensorExpr) -> TensorExpr:
    far = x.clamp(0.5, 28)
    return choose(x < 0.5, _one_less_erf(x), _scaled_beyond_half(far) * _exp_of_square(far, -1.0))


def _erfc(x: TensorExpr) -> TensorExpr:
    # From 27.3 on the result is 0.
    far = x.clamp(0.5, 28)
    below = far + 1
    added = ratio(1 / below, coefficients.ERFCX)
    above = added + 0.75
    quotient = above / below
    whole, rest = product(quotient, below)
    # The rounding errors of the two sums and of the division, each of which is exact.
    lost = ((above - whole) - rest + (added - (above - 0.75)) - quotient * (far - (below - 1))) / below
    short = far.to(torch.float32).to(torch.float64)
    squared, missed = exponential(-(short * short))
    rough, rest = product(quotient, squared)
    of_square = ((short - far) * (far + short)).expm1()
    rest = rest + (quotient * missed + squared * (lost + quotient * of_square))
    return choose(x < 0.5, _one_less_erf(x), rough + rest)


def _erfcx(x: TensorExpr) -> TensorExpr:
    # Below -27 the result overflows.
    near = x.clamp(-28, 0.5)
    return choose(x < 0.5, _exp_of_square(near, 1.0) * _one_less_erf(near), _scaled_beyond_half(x.clamp(0.5)))


def _log_ndtr(x: TensorExpr) -> TensorExpr:
    scaled = _scaled_beyond_half(x.abs() * math.sqrt(0.5))
    left = (scaled / 2).log() - (x * 0.5) * x
    far = x.clamp(0.7, 40)
    tail = choose(x < 0.7, _one_less_erf(x.clamp(-1, 0.7) * math.sqrt(0.5)), scaled * _exp_of_square(far, -0.5))
    return choose(x < -1, left, (tail * -0.5).log1p())


def _ndtri(y: TensorExpr) -> TensorExpr:
    upper = y > 0.5
    q = y - 0.5
    middle = q * (ratio(0.180625 - q * q, coefficients.NDTRI_MIDDLE) + 2.875)
    r = (choose(upper, 1 - y, y).log() * -2).sqrt()
    beyond = r * (1 - ratio(1 / r, coefficients.NDTRI_TAIL))
    inner = choose(q.abs() <= 0.425, middle, choose(upper, beyond, -beyond))
    ends = choose(y.equals(0), -math.inf, choose(y.equals(1), math.inf, inner))
    return choose((y < 0) | (y > 1), math.nan, ends)


def _of_both_signs(y: TensorExpr, size: TensorExpr, root: TensorExpr, rest: TensorExpr | float) -> TensorExpr:
    """Return erfinv: near 0 by its series, beyond by ``root + rest``, a root and its rounding error."""
    middle = y + y * (ratio(0.5625 - y * y, coefficients.ERFINV_MIDDLE) - 0.125)
    beyond = (root - 0.3125) + (rest - ratio(1 / root, coefficients.ERFINV_TAIL))
    inner = choose(size <= 0.75, middle, choose(y > 0, beyond, -beyond))
    inside = choose(y.equals(0), y, inner)  # a sum of zeros of both signs would lose the sign
    return choose(size < 1, inside, choose(size.equals(1), y * math.inf, math.nan))


def _erfinv_short(y: TensorExpr) -> TensorExpr:
    """Use ``erfinv(y) / y``, smooth in ``log(1 - y^2)`` (Giles, "Approximating the erfinv function", GPU Computing Gems, 2011).

    It needs no comparison, which would cost as much as ten products: the clamped value is infinite at 1, and NaN beyond.
    """
    (left,) = in_pairs(y * y, (1.0, -1.0))
    logarithm = left.log()
    near = logarithm.clamp(-_ERFINV_SHORT_TO)
    above, below = in_pairs(near, *coefficients.ERFINV_SHORT)
    return y * (above / below + (near - logarithm))


def _erfinv(y: TensorExpr) -> TensorExpr:
    size = y.abs()
    whole, rest = logarithm((1 - size).clamp(None, 0.25))
    square = -(whole + rest)
    root = square.sqrt()
    short = root.to(torch.float32).to(torch.float64)
    # The error of the root: of its square, and of the logarithm.
    missed = (square - short * short) - (root - short) * (root + short) - ((whole + square) + rest)
    return _of_both_signs(y, size, root, missed / (root + root))


_TABLE = (
    ("aten.erfinv.default", of_one(_erfinv, _erfinv_short)),
    ("aten.erfc.default", of_one(_erfc, _erfc_short)),
    ("aten.special_erfcx.default", of_one(_erfcx)),
    ("aten.special_log_ndtr.default", of_one(_log_ndtr)),
    ("aten.special_ndtri.default", of_one(_ndtri)),
)

for op, formula in _TABLE:
    rule(op, recorded=True)(formula)
