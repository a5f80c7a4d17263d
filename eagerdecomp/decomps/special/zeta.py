"""The Hurwitz zeta function, and polygamma, which follows from it.

Both are computed in float64 and rounded once, by the Euler-Maclaurin formula: the first terms of the sum, the integral of the
others, and a series in Bernoulli numbers for the difference.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.operators import TensorExpr, choose, polynomial
from eagerdecomp.eager.promotion import floating, promoted, wide_type
from eagerdecomp.eager.scalars import cast_operand
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64, wide_of

aten = torch.ops.aten

# Numbers of terms and of Bernoulli numbers. The next term is below 2e-17 of the sum for every order.
_TERMS = 12
#: ``B_2j / (2j)!``
_BERNOULLI = tuple(
    number / math.factorial(2 * j)
    for j, number in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510), 1)
)


#: From this order on, ``s (s + 1) ... (s + 22)`` overflows.
_ENDLESS = torch.finfo(torch.float64).max ** (1 / 23)


def _sum_of_powers(s: TensorExpr | float, q: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Return ``sum (q + k)^-s`` over all ``k >= 0``, for positive `q`, as the first term and the sum of the others."""
    lines = aten.arange.start_step(0, _TERMS, 1, dtype=q.tensor.dtype, device=q.tensor.device)
    places = TensorExpr(aten.unsqueeze.default(q.tensor, -1)) + TensorExpr(lines)
    order = s if isinstance(s, float) else TensorExpr(aten.unsqueeze.default(s.tensor, -1))
    powers = (places**-order).tensor
    first = TensorExpr(aten.select.int(powers, -1, 0))
    others = TensorExpr(aten.sum.dim_IntList(aten.slice.Tensor(powers, -1, 1), [-1]))
    w = q + _TERMS
    last = w**-s
    inverse = 1 / w
    square = inverse * inverse
    series = _series(s, square)
    rest = last * (series * (inverse * s) + 0.5 + w / (s - 1))
    # If the last term is 0, its factor may be infinite. Eager stops there too.
    small = last < first * 1e-17 if has_float64() else last <= first * 1e-17  # in float32 both terms may be 0
    return first, choose(small, others, others + rest)


def _series(s: TensorExpr | float, square: TensorExpr) -> TensorExpr:
    """Return the series in Bernoulli numbers, divided by ``s / w``."""
    if isinstance(s, float):
        rising = itertools.accumulate(
            ((s + 2 * j - 1) * (s + 2 * j) for j in range(1, len(_BERNOULLI))), initial=1.0, func=operator.mul
        )
        return polynomial(square, [number * factor for number, factor in zip(_BERNOULLI, rising, strict=True)])
    *rest, last = _BERNOULLI
    result: TensorExpr | float = last
    for j in range(len(rest), 0, -1):
        result = (s + (2 * j - 1)) * (s + 2 * j) * square * result + rest[j - 1]
    assert isinstance(result, TensorExpr)
    return result


def _zeta_of_any(s: TensorExpr | float, q: TensorExpr, odd: TensorExpr | bool) -> TensorExpr:
    """Return the zeta function for every `q` except integers below 1. If `q` is negative, the order must be an integer.

    For negative `q` the sum has two parts: the terms with positive ``q + k``, and the finitely many with negative ``q + k``.
    """
    negative = q < 0
    below = -(TensorExpr(aten.floor.default(q.tensor)))
    right = choose(negative, q + below, q)
    above = TensorExpr(aten.ceil.default(q.tensor)) - q
    sides = TensorExpr(aten.stack.default([right.tensor, choose(negative, above, 1.0).tensor, choose(negative, 1 - q, 1.0).tensor]))
    order = s if isinstance(s, float) else TensorExpr(aten.unsqueeze.default(s.tensor, 0))
    first, others = _sum_of_powers(order, sides)
    (right, left, beyond), (rights, lefts, beyonds) = _unbound(first), _unbound(others)
    # In orders so high that these terms underflow, their sum is NaN: use 0.
    far = beyond + beyonds
    far = choose(far > 0, far, 0.0)
    # The two terms nearest to 0 may nearly cancel: add the smaller terms last.
    near, small = _mirrored(right, left, odd), _mirrored(rights, lefts - far, odd)
    return choose(negative, near + small, right + rights)


def _mirrored(right: TensorExpr, left: TensorExpr, odd: TensorExpr | bool) -> TensorExpr:
    if isinstance(odd, bool):
        return right - left if odd else right + left
    return right + choose(odd, -left, left)


def _unbound(term: TensorExpr) -> list[TensorExpr]:
    return [TensorExpr(aten.select.int(term.tensor, 0, index)) for index in range(term.tensor.size(0))]


def _zeta(self: Tensor, other: Tensor) -> Any:
    dtype = floating(promoted((self, other)))
    s, q = TensorExpr(self).to(wide_of(dtype)), TensorExpr(other).to(wide_of(dtype))
    s, q = _broadcast(s, q)
    whole = TensorExpr(aten.eq.Tensor(s.tensor, s.floor().tensor))
    odd = TensorExpr(aten.eq.Scalar(aten.remainder.Scalar(s.tensor, 2), 1))
    value = _zeta_of_any(s, q, odd)
    value = choose((q < 0) & TensorExpr(aten.logical_not.default(whole.tensor)), math.nan, value)
    pole = (q <= 0) & TensorExpr(aten.eq.Tensor(q.tensor, q.floor().tensor))
    value = choose(pole, math.inf, value)
    # Orders for which a product of the series overflows while its sum underflows.
    value = choose((s > _ENDLESS) & TensorExpr(aten.eq.Scalar(value.tensor, 0)), math.nan, value)
    value = choose(s <= 1, choose(s < 1, math.nan, math.inf), value)
    return value.to(dtype).tensor


def _broadcast(left: TensorExpr, right: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    shape = broadcast_shapes(left.tensor.shape, right.tensor.shape)
    return TensorExpr(aten.expand.default(left.tensor, shape)), TensorExpr(aten.expand.default(right.tensor, shape))


def _zeta_of_scalar(first: bool) -> Any:
    def run(self: Any, other: Any) -> Any:
        given, number = (other, self) if first else (self, other)
        dtype = floating(given.dtype)
        filled = aten.full.default([], cast_operand(number, dtype), dtype=dtype, device=given.device)
        return aten.special_zeta.default(filled, given) if first else aten.special_zeta.default(given, filled)

    return run


@rule("aten.polygamma.default", recorded=True)
def _polygamma(n: int, self: Tensor) -> Any:
    if n == 0:
        return aten.digamma.default(self)
    x = TensorExpr(self).to(wide_of(floating(self.dtype)))
    value = _zeta_of_any(float(n + 1), x, n % 2 == 0)
    pole = (x <= 0) & TensorExpr(aten.eq.Tensor(x.tensor, x.floor().tensor))
    dtype = floating(self.dtype)
    factorial = float(math.factorial(n)) if n <= 170 else math.inf
    value = choose(pole, _trigamma_at_pole(self, dtype) if n == 1 else math.inf, value) * (factorial if n % 2 else -factorial)
    if n == 1:
        value = choose(TensorExpr(aten.eq.Scalar(x.tensor, math.inf)), 0.0, value)
    return value.to(dtype).tensor


def _trigamma_at_pole(self: Tensor, dtype: torch.dtype) -> TensorExpr:
    """Return the value of eager's reflection formula, in which the sine of a rounded multiple of pi is not 0."""
    x = TensorExpr(self).to(wide_type(dtype))
    sine = TensorExpr(aten.sin.default((x * math.pi).tensor)).to(wide_of(dtype))
    return (math.pi / sine) ** 2


rule("aten.special_zeta.default", recorded=True)(_zeta)
rule("aten.special_zeta.self_scalar", recorded=True)(_zeta_of_scalar(True))
rule("aten.special_zeta.other_scalar", recorded=True)(_zeta_of_scalar(False))
