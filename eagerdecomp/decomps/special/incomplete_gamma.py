"""The incomplete gamma functions, as the share of the whole that lies below `x`, or above.

By Gil, Segura and Temme, "Efficient and accurate algorithms for the computation and inversion of the incomplete gamma function
ratios" (SIAM J. Sci. Comput. 34, 2012): that share which is the smaller comes from one of three formulas, the other one from it.

- `a` from 12 on, and `x` between 0.3 and 2.35 of it: Temme's uniform expansion, an error function and a series beside it.
- Elsewhere a continued fraction: above, Legendre's; below, that of the confluent hypergeometric function, whose terms are all
  positive. One loop does both, since all that differs is what the terms grow by.
- Above, where `x` is below 1.5, where Legendre's is slow: the alternating series.

Computed in float64 and rounded once; for float32 with fewer terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math import coefficients
from eagerdecomp.decomps.math.blocks import by_blocks
from eagerdecomp.decomps.math.operators import TensorExpr, choose, ratio
from eagerdecomp.eager.checks.shapes import broadcast_shapes
from eagerdecomp.eager.layouts import as_operands, with_eager_strides
from eagerdecomp.eager.messages import not_implemented
from eagerdecomp.eager.promotion import floating, promoted
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_LARGE, _LOW, _HIGH = 12.0, 0.3, 2.35
_SERIES_TO = 1.5


@dataclass(frozen=True)
class _Lengths:
    """How many terms each formula has: what is left of them is below the last place, at the worst of the arguments it serves."""

    uniform: int
    fraction: int
    alternating: int


_SINGLE = _Lengths(16, 26, 16)
_DOUBLE = _Lengths(30, 66, 23)


def _plus(base: TensorExpr, other: TensorExpr, factor: float) -> TensorExpr:
    """``base + factor * other``, by one kernel."""
    return TensorExpr(aten.add.Tensor(base.tensor, other.tensor, alpha=factor))


# -- what is in front ---------------------------------------------------------------------------------------------


def _half_square(x: TensorExpr, a: TensorExpr, near: TensorExpr) -> TensorExpr:
    """``l - 1 - log(l)`` of ``l = x / a``, which beside 1 is taken from the series of the logarithm without its first terms."""
    over = (x - a) / a
    r = over / (over + 2)
    square = r * r
    return choose(near, r * over - square * r * ratio(square, coefficients.LOG1P_REST) * 2, over - (x / a).log())


def _front(x: TensorExpr, a: TensorExpr, of_large: TensorExpr) -> TensorExpr:
    """``x^a e^-x / Gamma(a + 1)``, which for large `a` is known."""
    small = a.clamp(None, _LARGE)
    # The exponential in two halves, since beside a power the whole of it may be nothing where the product is not.
    half = (x * -0.5).exp()
    shifted = small + 2
    of_small = half * (x / shifted) ** small * small.exp() * half / (shifted.sqrt() * ratio(small, coefficients.GAMMA_UNDER_12))
    return choose(a < _LARGE, of_small, of_large)


# -- the smaller share --------------------------------------------------------------------------------------------


def _uniform(
    a: TensorExpr, inverse: TensorExpr, eta: TensorExpr, exponential: TensorExpr, front: TensorExpr, below: TensorExpr, count: int
) -> TensorExpr:
    """Temme's expansion. Its double sum over powers of `eta` and of ``1 / a`` is one over polynomials that a recurrence gives."""
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
    """The share over what is in front: `a`, or 1, over ``f(0)``, where ``f(k) = b + k d + (k + 1) (c + k (1 - d)) / f(k + 1)``.

    Below, the step `d` is 1, `b` is ``a - x`` and `c` is `x`; above, they are 2, ``x + 1 - a``, and ``a - 1``.
    """
    base = choose(below, a - x, x - a + 1)
    factor = choose(below, x, a - 1)
    step = choose(below, 1.0, 2.0)
    less = 1 - step
    value = _plus(base, step, count)
    # The rest is about what it would be were its terms all alike.
    square = value * value + _plus(factor, less, count) * (4 * (count + 1))
    value = (value + square.clamp(0).sqrt()) / 2
    for k in range(count - 1, -1, -1):
        value = _plus(_plus(base, step, k), _plus(factor, less, k) / value, k + 1)
    return a / value


def _alternating(x: TensorExpr, a: TensorExpr, count: int) -> TensorExpr:
    """Above: ``1 - (1 + u) (1 + v)``, with ``1 + u = x^a / Gamma(a + 1)`` and `v` the series; nothing cancels as `a` goes to 0."""
    x, a = x.clamp(None, _SERIES_TO), a.clamp(None, _SERIES_TO + 0.25)
    u = (a * (x.log() - ratio(a, coefficients.LOG_FACTORIAL))).expm1()
    sum_of = 1 / (a + count)
    for n in range(count - 1, 0, -1):
        sum_of = _plus(1 / (a + n), sum_of * x, -1 / (n + 1))
    v = -(a * x) * sum_of
    return -(u + v + u * v)


def _shares(a: TensorExpr, x: TensorExpr, lengths: _Lengths) -> tuple[TensorExpr, TensorExpr]:
    """The lower and upper incomplete gamma functions, for arguments above 0."""
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


def _incomplete(above: bool, kernel: str) -> Callable[[Tensor, Tensor], Any]:
    at_0, at_infinity = (1.0, 0.0) if above else (0.0, 1.0)

    def run(self: Tensor, other: Tensor) -> Any:
        dtype = floating(promoted((self, other)))
        if dtype.is_complex:
            raise not_implemented(kernel, dtype)
        shape = broadcast_shapes(self.shape, other.shape)
        a, x = (TensorExpr(aten.expand.default(operand, shape)).to(dtype).to(torch.float64) for operand in (self, other))
        value = _shares(a, x, _DOUBLE if dtype is torch.float64 else _SINGLE)[above]
        # In eager's order, the last one first.
        value = choose(x.equals(math.inf), at_infinity, value)
        value = choose(a.equals(math.inf), choose(x.equals(math.inf), math.nan, at_0), value)
        value = choose(x.equals(0), at_0, value)
        value = choose(a.equals(0), choose(x > 0, at_infinity, math.nan), value)
        value = choose((a < 0) | (x < 0), math.nan, value)
        return value.to(dtype).tensor

    return with_eager_strides(run, {0: as_operands()})


rule("aten.igamma.default", recorded=True)(_incomplete(False, "igamma_cpu"))
rule("aten.igammac.default", recorded=True)(_incomplete(True, "igammac_cpu"))
rule("aten.igamma.default")(by_blocks("aten.igamma.default"))
rule("aten.igammac.default")(by_blocks("aten.igammac.default"))
