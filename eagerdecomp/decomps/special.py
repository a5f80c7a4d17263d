"""Special functions that eager has kernels for and Core ATen has not: the logarithm of gamma, its derivative, the inverse of erf.

All are computed in float64 and rounded once, so that a formula need not be right to the last bit of it; each comes to some 60
kernel calls, most of them the Horner steps of its fits.
"""

from __future__ import annotations

import math

import torch

from eagerdecomp.formulas import Term, choose, polynomial
from eagerdecomp.rules import Rule, own
from eagerdecomp.unary import of_one

__all__ = ["RULES"]

aten = torch.ops.aten

# Giles's and Blair's kind of fit: a ratio in the middle, and one of a root of the logarithm beyond. Newton's method does the rest.
_MIDDLE = (
    (0.886226899, -1.645349621, 0.914624893, -0.140543331),
    (1.0, -2.118377725, 1.442710462, -0.329097515, 0.012229801),
)
_BEYOND = ((-1.970840454, -1.624906493, 3.429567803, 1.641345311), (1.0, 3.543889200, 1.637067800))
_MIDDLE_ENDS = 0.7

# From here on an asymptotic series in Bernoulli numbers is right to 1e-12; smaller arguments are led there by the recurrence.
_SERIES_FROM = 7
_LGAMMA_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)


def _erfinv(y: Term) -> Term:
    size = y.abs()
    square = y * y
    middle = y * polynomial(square, _MIDDLE[0]) / polynomial(square, _MIDDLE[1])
    root = (-((1 - size) / 2).log()).sqrt()
    beyond = polynomial(root, _BEYOND[0]) / polynomial(root, _BEYOND[1])
    x = choose(size <= _MIDDLE_ENDS, middle, choose(y < 0, -beyond, beyond))
    for _ in range(2):
        x = x - (Term(aten.erf.default(x.tensor)) - y) / ((-(x * x)).exp() * (2 / math.sqrt(math.pi)))
    return choose(Term(aten.eq.Scalar(size.tensor, 1)), y * math.inf, x)


def _reflected(x: Term) -> Term:
    """`x`, or its mirror image about a half, whichever is the larger."""
    return choose(x < 0.5, 1 - x, x)


def _lgamma(x: Term) -> Term:
    large = _reflected(x)
    near = large < _SERIES_FROM
    shifted = choose(near, large + _SERIES_FROM, large)
    inverse = 1 / shifted
    tail = inverse * polynomial(inverse * inverse, _LGAMMA_SERIES)
    # Arranged so that no infinity is taken from another.
    series = (shifted - 0.5) * (shifted.log() - 1) + (tail + (math.log(2 * math.pi) - 1) / 2)
    small = large.clamp(None, _SERIES_FROM)
    product = small
    for step in range(1, _SERIES_FROM):
        product = product * (small + step)
    of_large = choose(near, series - product.log(), series)
    # Its sine is that of the fraction: of a whole number exactly 0, and the answer infinite.
    sine = Term(aten.sin.default((Term(aten.fmod.Scalar(x.tensor, 1)) * math.pi).tensor)).abs()
    mirrored = choose(x.abs() < math.inf, -(sine / math.pi).log() - of_large, math.inf)
    return choose(x < 0.5, mirrored, of_large)


def _digamma(x: Term) -> Term:
    large = _reflected(x)
    near = large < _SERIES_FROM
    shifted = choose(near, large + _SERIES_FROM, large)
    inverse = 1 / shifted
    square = inverse * inverse
    series = shifted.log() - (inverse / 2 + square * polynomial(square, _DIGAMMA_SERIES))
    rungs = 1 / large
    for step in range(1, _SERIES_FROM):
        rungs = rungs + 1 / (large + step)
    of_large = choose(near, series - rungs, series)
    fraction = Term(aten.fmod.Scalar(x.tensor, 1))
    tangent = Term(aten.tan.default((fraction * math.pi).tensor))
    pole = (x < 0) & Term(aten.eq.Scalar(fraction.tensor, 0))
    mirrored = choose(pole, math.nan, of_large - math.pi / tangent)
    return choose(x < 0.5, mirrored, of_large)


RULES: tuple[Rule, ...] = (
    own(aten.erfinv.default, of_one(_erfinv, "erfinv_vml_cpu")),
    own(aten.lgamma.default, of_one(_lgamma, "lgamma_vml_cpu")),
    own(aten.digamma.default, of_one(_digamma, "digamma")),
)
