"""The logarithm of the gamma function, and its derivative.

Both are computed in float64 and rounded once, by Stirling's formula. The series of log-gamma is a rational approximation
(tools/fit_ratios.py finds its coefficients); another one is used near the zeros of log-gamma. Sums include the rounding errors of
their terms. Negative arguments use reflection (DLMF 5.5.3).
"""

from __future__ import annotations

import math

import torch

from eagerdecomp.decomps.math import coefficients
from eagerdecomp.decomps.math.double_double import logarithm, product, split, total
from eagerdecomp.decomps.math.float64 import of_one
from eagerdecomp.decomps.math.operators import TensorExpr, choose, polynomial, ratio
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

# ``(log(2 pi) - 1) / 2`` and its rounding error.
_LGAMMA_CONSTANT, _LGAMMA_CONSTANT_REST = float.fromhex("0x1.acfe390c97d69p-2"), 1.6728209650585413e-17
_TWELFTH, _TWELFTH_REST = 1 / 12, 4.625929269271486e-18
# From this argument on, the asymptotic series in Bernoulli numbers is exact to the last bit.
_DIGAMMA_FROM = 10
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)


def _from_whole(x: TensorExpr) -> TensorExpr:
    """Return the distance of `x` to the nearest integer, without rounding."""
    return x - TensorExpr(aten.round.default(x.tensor))


def _less_a_line(u: TensorExpr, start: float, slope: float) -> tuple[TensorExpr, TensorExpr]:
    """Return ``start - slope * u`` and its rounding error; `slope` has few significant bits."""
    head, tail = split(u)
    falls = head * slope
    line = start - falls
    return line, ((start - line) - falls) - tail * slope


def _lgamma_beside_2(u: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Return log-gamma of ``2 + u``, for `u` up to 1/2, as a sum of two numbers: a line through its zeros, and a correction."""
    square, lost = product(u, u)
    both, dropped = total(u, square)
    line, below = _less_a_line(u, 0.421875, 0.09375)
    rough, missed = product(both, line)
    return rough, missed + (lost + dropped) * line + both * (below + ratio(u, coefficients.LGAMMA_BESIDE_2))


def _between(x: TensorExpr, whole: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Return the recurrence factor between gamma(x), x <= 4, and gamma near 2, with its relative rounding error."""
    first = choose(whole < 2, x.abs(), choose(whole > 2, x - 1, 1.0))
    second = choose(whole < 1, x + 1, choose(whole > 3, x - 2, 1.0))
    both, lost = product(first, second)
    return both, choose(whole < 1, x - (second - 1), 0.0) + lost / both


def _lgamma_far(size: TensorExpr, logarithms: tuple[TensorExpr, TensorExpr]) -> tuple[TensorExpr, TensorExpr]:
    """Return Stirling's formula, from 4 on, as a sum of two numbers: ``(x - 1/2) (log x - 1)``, and a small correction."""
    factor, lost = total(logarithms[0] - 1, logarithms[1])
    less = size - 0.5
    rough, rest = product(less, factor)
    rough, missed = total(rough, _LGAMMA_CONSTANT)
    inverse = 1 / size
    square = inverse * inverse
    twelfth = inverse * _TWELFTH
    whole, part = product(twelfth, size)
    rough, dropped = total(rough, twelfth)
    series = dropped + inverse * (((_TWELFTH - whole) - part) + _TWELFTH_REST + square * ratio(square, coefficients.LGAMMA_TAIL))
    # Near the largest double, rounding errors of products would overflow.
    return rough, choose(size < 1e290, missed + (rest + less * lost + _LGAMMA_CONSTANT_REST + series), 0.0)


def _lgamma_right(x: TensorExpr, size: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Return log-gamma for arguments above -1/2 as a sum of two numbers; `size` is the absolute value."""
    far = size >= 4
    close = choose(size < 0.5, x, size.clamp(None, 4))
    whole = TensorExpr(aten.round.default(close.tensor))
    between, relative = _between(close, whole)
    logarithms = logarithm(choose(far, size, between))
    near, rest = _lgamma_beside_2(close - whole)
    divided = whole < 2
    for part in logarithms:
        near, lost = total(choose(divided, -part, part), near)
        rest = rest + lost
    rest = rest + choose(divided, -relative, relative)
    large, large_rest = _lgamma_far(size, logarithms)
    return choose(far, large, near), choose(far, large_rest, rest)


def _lgamma_short(x: TensorExpr) -> TensorExpr:
    """Return log-gamma for all arguments, without compensation of rounding errors."""
    size = x.abs()
    small, far = size < 0.5, size >= 4
    log = choose(far | small, size, choose(size < 3, 1.0, size - 1)).log()
    first = choose(small, x, choose(size < 3, size, size.clamp(None, 4) - 1) - 1)
    near = first * (first - 1) * (0.5625 - first * 0.125 + ratio(first + 0.5, coefficients.LGAMMA_NEAR))
    near = near + choose(small, -log, log)
    inverse = 1 / size
    square = inverse * inverse
    series = inverse * (square * ratio(square, coefficients.LGAMMA_TAIL) + _TWELFTH)
    large = (size - 0.5) * (log - 1) + (series + _LGAMMA_CONSTANT)
    right = choose(far, large, near)
    beside = _from_whole(x).abs()
    return _on_both_sides(x, size, beside, right, -(right + (size * beside).log() + _log_sine_short(beside)))


def _log_sine(beside: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Return the logarithm of ``sin(pi y) / (pi y)`` as a sum of two numbers: a leading term in ``y^2``, and a small correction."""
    square, lost = product(beside, beside)
    line, below = _less_a_line(square, -1.640625, 0.625)
    rough, missed = product(square, line)
    return rough, missed + square * (below + ratio(square, coefficients.LOG_SINE)) + lost * (line - square * 0.625)


def _log_sine_short(beside: TensorExpr) -> TensorExpr:
    square = beside * beside
    return square * (ratio(square, coefficients.LOG_SINE) - 1.640625 - square * 0.625)


def _on_both_sides(x: TensorExpr, size: TensorExpr, beside: TensorExpr, right: TensorExpr, mirrored: TensorExpr) -> TensorExpr:
    pole = (x <= 0) & (beside.equals(0) | (size >= 2.0**52))
    return choose(pole, math.inf, choose(x <= -0.5, mirrored, right))


def _lgamma(x: TensorExpr) -> TensorExpr:
    size = x.abs()
    right, rest = _lgamma_right(x, size)
    beside = _from_whole(x).abs()
    both, lost = product(size, beside)
    whole, part = logarithm(both)
    sine, sines = _log_sine(beside)
    mirrored, missed = total(right, whole)
    mirrored, dropped = total(mirrored, sine)
    mirrored = -(mirrored + (dropped + (rest + sines + (missed + part + lost / both))))
    return _on_both_sides(x, size, beside, right + rest, mirrored)


def _digamma(x: TensorExpr) -> TensorExpr:
    large = choose(x < 0.5, 1 - x, x)
    near = large < _DIGAMMA_FROM
    shifted = choose(near, large + _DIGAMMA_FROM, large)
    inverse = 1 / shifted
    square = inverse * inverse
    series = shifted.log() - (inverse / 2 + square * polynomial(square, _DIGAMMA_SERIES))
    rungs = 1 / large
    for step in range(1, _DIGAMMA_FROM):
        rungs = rungs + 1 / (large + step)
    of_large = choose(near, series - rungs, series)
    beside = choose(x.equals(0), x, _from_whole(x))  # keeps the sign of zero
    tangent = TensorExpr(aten.tan.default((beside * math.pi).tensor))
    mirrored = choose((x < 0) & beside.equals(0), math.nan, of_large - math.pi / tangent)
    return choose(x < 0.5, mirrored, of_large)


rule("aten.lgamma.default", recorded=True)(of_one(_lgamma, _lgamma_short))
rule("aten.digamma.default", recorded=True)(of_one(_digamma))
