"""The regularized incomplete gamma functions: P(a, x), the lower one, and Q(a, x), the upper one.

The formulas are those of Gil, Segura and Temme, "Efficient and accurate algorithms for the computation and inversion of the
incomplete gamma function ratios" (SIAM J. Sci. Comput. 34, 2012). The smaller of P and Q is computed by one of three formulas, and
the other is 1 minus it.

- If `a` is at least 12 and ``x / a`` is between 0.3 and 2.35: Temme's uniform expansion, an error function plus a series.
- Otherwise a continued fraction: Legendre's for Q; for P, that of the confluent hypergeometric function, whose terms are all
  positive. One loop computes both, because they differ only in the increments of the coefficients.
- For Q with `x` below 1.5, where Legendre's fraction converges slowly: the alternating series.

All are computed in float64 and rounded once. For float32, fewer terms are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math import coefficients
from eagerdecomp.decomps.math.operators import TensorExpr, choose, ratio
from eagerdecomp.eager.promotion import floating, promoted
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_of

aten = torch.ops.aten

_LARGE, _LOW, _HIGH = 12.0, 0.3, 2.35
_SERIES_TO = 1.5


@dataclass(frozen=True)
class _Lengths:
    """The number of terms of each formula. At its worst argument, the remainder is below the last bit."""

    uniform: int
    fraction: int
    alternating: int


_SINGLE = _Lengths(16, 26, 16)
_DOUBLE = _Lengths(30, 66, 23)


def _plus(base: TensorExpr, other: TensorExpr, factor: float) -> TensorExpr:
    """Return ``base + factor * other`` with one kernel."""
    return TensorExpr(aten.add.Tensor(base.tensor, other.tensor, alpha=factor))


# -- prefactors ---------------------------------------------------------------------------------------------------


def _half_square(x: TensorExpr, a: TensorExpr, near: TensorExpr) -> TensorExpr:
    """Return ``l - 1 - log(l)`` for ``l = x / a``. Near 1 it is computed by the series of the logarithm without its first terms."""
    over = (x - a) / a
    r = over / (over + 2)
    square = r * r
    return choose(near, r * over - square * r * ratio(square, coefficients.LOG1P_REST) * 2, over - (x / a).log())


def _front(x: TensorExpr, a: TensorExpr, of_large: TensorExpr) -> TensorExpr:
    """Return ``x^a e^-x / Gamma(a + 1)``; for large `a` by Stirling's series."""
    small = a.clamp(None, _LARGE)
    # Multiply by exp(-x/2) twice: exp(-x) may underflow where the product with the power does not.
    half = (x * -0.5).exp()
    shifted = small + 2
    of_small = half * (x / shifted) ** small * small.exp() * half / (shifted.sqrt() * ratio(small, coefficients.GAMMA_UNDER_12))
    return choose(a < _LARGE, of_small, of_large)


# -- the smaller of P and Q ---------------------------------------------------------------------------------------


def _uniform(
    a: TensorExpr, inverse: TensorExpr, eta: TensorExpr, exponential: TensorExpr, front: TensorExpr, below: TensorExpr, count: int
) -> TensorExpr:
    """Compute Temme's expansion. Its double sum over powers of `eta` and ``1 / a`` is one sum of polynomials with a recurrence."""
    first, *rest = coefficients.INCOMPLETE_GAMMA_UNIFORM[1 : count + 1]
    power, before, last = eta, TensorExpr(aten.full_like.default(eta.tensor, 1)), eta
    total = last * rest[0] + first
    for j, coefficient in enumerate(rest[1:], 2):
        power = power * eta
        before, last = last, _plus(power, before * inverse, j)
        total = _plus(total, last, coefficient)
    z = eta.abs() * (a / 2).sqrt()
    t = 1 / (z + 1)
    complement = choose(z < 0.5, 1 - z.erf(), t * (ratio(t, coefficients.ERFCX) + 0.75) * exponential)
    beside = front * total
    return complement * 0.5 + choose(below, -beside, beside)


def _fraction(x: TensorExpr, a: TensorExpr, below: TensorExpr, count: int) -> TensorExpr:
    """Return P or Q divided by the prefactor: ``a / f(0)`` or ``1 / f(0)``.

    ``f(k) = b + k d + (k + 1) (c + k (1 - d)) / f(k + 1)``. For P: ``d = 1``, ``b = a - x``, ``c = x``. For Q: ``d = 2``,
    ``b = x + 1 - a``, ``c = a - 1``.
    """
    base = choose(below, a - x, x - a + 1)
    factor = choose(below, x, a - 1)
    step = choose(below, 1.0, 2.0)
    less = 1 - step
    value = _plus(base, step, count)
    # Estimate the tail by a fraction with constant coefficients.
    square = value * value + _plus(factor, less, count) * (4 * (count + 1))
    value = (value + square.clamp(0).sqrt()) / 2
    for k in range(count - 1, -1, -1):
        value = _plus(_plus(base, step, k), _plus(factor, less, k) / value, k + 1)
    return a / value


def _alternating(x: TensorExpr, a: TensorExpr, count: int) -> TensorExpr:
    """Return Q as ``1 - (1 + u) (1 + v)``, with ``1 + u = x^a / Gamma(a + 1)`` and a series `v`: exact for small `a`."""
    x, a = x.clamp(None, _SERIES_TO), a.clamp(None, _SERIES_TO + 0.25)
    u = (a * (x.log() - ratio(a, coefficients.LOG_FACTORIAL))).expm1()
    sum_of = 1 / (a + count)
    for n in range(count - 1, 0, -1):
        sum_of = _plus(1 / (a + n), sum_of * x, -1 / (n + 1))
    v = -(a * x) * sum_of
    return -(u + v + u * v)


def _shares(a: TensorExpr, x: TensorExpr, lengths: _Lengths) -> tuple[TensorExpr, TensorExpr]:
    """Return P and Q for arguments above 0."""
    most = a.clamp(1.0) * 1000  # here Q is 0 in float64 already, and larger powers would overflow
    x = choose(x > most, most, x)
    quotient = x / a
    near = (quotient > _LOW) & (quotient < _HIGH)
    half_square = _half_square(x, a, near)
    exponential = (-(a * half_square)).exp()
    below = choose(x < 0.25, a * x.clamp(None, 0.25).log() < -math.log(2), a > x + 0.25)
    uniform = near & (a >= _LARGE)
    below = TensorExpr(aten.where.self(uniform.tensor, (x < a).tensor, below.tensor))
    eta = choose(x < a, -1.0, 1.0) * (half_square * 2).sqrt()
    eta = choose(near, eta, 0.0)
    inverse = 1 / a.clamp(_LARGE)
    front = exponential * (inverse / (2 * math.pi)).sqrt() / ratio(inverse, coefficients.STIRLING)
    value = _front(x, a, front) * _fraction(x, a, below, lengths.fraction)
    alternating = (x < _SERIES_TO) & TensorExpr(aten.logical_not.default(below.tensor))
    value = choose(alternating, _alternating(x, a, lengths.alternating), value)
    value = choose(uniform, _uniform(a, inverse, eta, exponential, front, x < a, lengths.uniform), value)
    rest = 1 - value
    return choose(below, value, rest), choose(below, rest, value)


def _incomplete(above: bool) -> Callable[[Tensor, Tensor], Any]:
    at_0, at_infinity = (1.0, 0.0) if above else (0.0, 1.0)

    def run(self: Tensor, other: Tensor) -> Any:
        dtype = floating(promoted((self, other)))
        shape = broadcast_shapes(self.shape, other.shape)
        a, x = (TensorExpr(aten.expand.default(operand, shape)).to(dtype).to(wide_of(dtype)) for operand in (self, other))
        value = _shares(a, x, _DOUBLE if dtype is torch.float64 else _SINGLE)[above]
        # Eager's special cases, the one with priority last.
        value = choose(x.equals(math.inf), at_infinity, value)
        value = choose(a.equals(math.inf), choose(x.equals(math.inf), math.nan, at_0), value)
        value = choose(x.equals(0), at_0, value)
        value = choose(a.equals(0), choose(x > 0, at_infinity, math.nan), value)
        value = choose((a < 0) | (x < 0), math.nan, value)
        return value.to(dtype).tensor

    return run


rule("aten.igamma.default", recorded=True)(_incomplete(False))
rule("aten.igammac.default", recorded=True)(_incomplete(True))
