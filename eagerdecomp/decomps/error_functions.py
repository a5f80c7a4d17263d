"""The complement of the error function, the scaled complement, and what the normal distribution makes of them.

All are computed in float64 and rounded once. Near the origin they come from `erf`; beyond a half from one ratio of polynomials, of
the scaled complement over ``1 / (1 + x)``, and the exponential of a square whose rounding is made good.
"""

from __future__ import annotations

import math

import torch

from eagerdecomp import ratios
from eagerdecomp.formulas import Term, choose, ratio
from eagerdecomp.rules import Rule, own
from eagerdecomp.unary import of_one

__all__ = ["RULES"]

aten = torch.ops.aten


def _exp_of_square(x: Term, factor: float) -> Term:
    """``exp(factor x^2)`` to the last bit, `factor` a power of 2: the square of what fits in float32 is exact."""
    short = x.to(torch.float32).to(torch.float64)
    rest = (x - short) * (x + short) * factor
    return (short * short * factor).exp() * rest.exp()


def _scaled_beyond_half(x: Term) -> Term:
    t = 1 / (x + 1)
    return t * ratio(t, ratios.ERFCX)


def _one_less_erf(x: Term) -> Term:
    return 1 - x.erf()


def _erfc(x: Term) -> Term:
    # From 27.3 on nothing is left.
    far = x.clamp(0.5, 28)
    return choose(x < 0.5, _one_less_erf(x), _scaled_beyond_half(far) * _exp_of_square(far, -1.0))


def _erfcx(x: Term) -> Term:
    # Left of -27 it is too large for a number.
    near = x.clamp(-28, 0.5)
    return choose(x < 0.5, _exp_of_square(near, 1.0) * _one_less_erf(near), _scaled_beyond_half(x.clamp(0.5)))


def _log_ndtr(x: Term) -> Term:
    scaled = _scaled_beyond_half(x.abs() * math.sqrt(0.5))
    left = (scaled / 2).log() - x * x / 2
    far = x.clamp(0.7, 40)
    tail = choose(x < 0.7, _one_less_erf(x.clamp(-1, 0.7) * math.sqrt(0.5)), scaled * _exp_of_square(far, -0.5))
    return choose(x < -1, left, (tail * -0.5).log1p())


def _ndtri(y: Term) -> Term:
    q = y - 0.5
    middle = q * ratio(q * q, ratios.NDTRI_MIDDLE)
    upper = y > 0.5
    r = (choose(upper, 1 - y, y).log() * -2).sqrt()
    tail = r * ratio(1 / r, ratios.NDTRI_TAIL)
    inner = choose(q.abs() <= 0.324, middle, choose(upper, tail, -tail))
    ends = choose(y.equals(0), -math.inf, choose(y.equals(1), math.inf, inner))
    return choose((y < 0) | (y > 1), math.nan, ends)


RULES: tuple[Rule, ...] = (
    own(aten.erfc.default, of_one(_erfc, "erfc_vml_cpu")),
    own(aten.special_erfcx.default, of_one(_erfcx, "erfcx_cpu", half=False)),
    own(aten.special_log_ndtr.default, of_one(_log_ndtr, "log_ndtr_cpu", half=False)),
    own(aten.special_ndtri.default, of_one(_ndtri, "ndtri_cpu", half=False)),
)
