"""A tensor class for formulas: its operators call ATen overloads; for a scalar operand, the ``Scalar`` overload."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules.wide_dtype import wide_float

__all__ = ["TensorExpr", "choose", "digamma", "in_pairs", "polynomial", "ratio", "steps"]

aten = torch.ops.aten


class TensorExpr:
    """Wraps `tensor` for use in a formula. ``scalar / x`` divides exactly, without a rounded reciprocal."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def _with(self, other: TensorExpr | float, by_tensor: Any, by_scalar: Any) -> TensorExpr:
        if isinstance(other, TensorExpr):
            return TensorExpr(by_tensor(self.tensor, other.tensor))
        return TensorExpr(by_scalar(self.tensor, other))

    def __add__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.add.Tensor, aten.add.Scalar)

    __radd__ = __add__

    def __sub__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.sub.Tensor, aten.sub.Scalar)

    def __rsub__(self, other: float) -> TensorExpr:
        return TensorExpr(aten.neg.default(self.tensor)) + other if other else -self

    def __mul__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.mul.Tensor, aten.mul.Scalar)

    __rmul__ = __mul__

    def __truediv__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.div.Tensor, aten.div.Scalar)

    def __rtruediv__(self, other: float) -> TensorExpr:
        inverted = TensorExpr(aten.reciprocal.default(self.tensor))
        return inverted if other == 1 else inverted * other

    def __neg__(self) -> TensorExpr:
        return TensorExpr(aten.neg.default(self.tensor))

    def __pow__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar)

    def __lt__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.lt.Tensor, aten.lt.Scalar)

    def __le__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.le.Tensor, aten.le.Scalar)

    def __gt__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.gt.Tensor, aten.gt.Scalar)

    def __ge__(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.ge.Tensor, aten.ge.Scalar)

    def __and__(self, other: TensorExpr) -> TensorExpr:
        return TensorExpr(aten.logical_and.default(self.tensor, other.tensor))

    def __or__(self, other: TensorExpr) -> TensorExpr:
        return TensorExpr(aten.logical_or.default(self.tensor, other.tensor))

    def exp(self) -> TensorExpr:
        return TensorExpr(aten.exp.default(self.tensor))

    def log(self) -> TensorExpr:
        return TensorExpr(aten.log.default(self.tensor))

    def expm1(self) -> TensorExpr:
        return TensorExpr(aten.expm1.default(self.tensor))

    def log1p(self) -> TensorExpr:
        return TensorExpr(aten.log1p.default(self.tensor))

    def sqrt(self) -> TensorExpr:
        return TensorExpr(aten.sqrt.default(self.tensor))

    def rsqrt(self) -> TensorExpr:
        return TensorExpr(aten.rsqrt.default(self.tensor))

    def abs(self) -> TensorExpr:
        return TensorExpr(aten.abs.default(self.tensor))

    def floor(self) -> TensorExpr:
        return TensorExpr(aten.floor.default(self.tensor))

    def sin(self) -> TensorExpr:
        return TensorExpr(aten.sin.default(self.tensor))

    def cos(self) -> TensorExpr:
        return TensorExpr(aten.cos.default(self.tensor))

    def erf(self) -> TensorExpr:
        return TensorExpr(aten.erf.default(self.tensor))

    def equals(self, other: TensorExpr | float) -> TensorExpr:
        return self._with(other, aten.eq.Tensor, aten.eq.Scalar)

    def isnan(self) -> TensorExpr:
        return TensorExpr(aten.isnan.default(self.tensor))

    def clamp(self, low: float | None, high: float | None = None) -> TensorExpr:
        return TensorExpr(aten.clamp.default(self.tensor, low, high))

    def sum(self) -> TensorExpr:
        """Return the sum over the first dimension."""
        return TensorExpr(aten.sum.dim_IntList(self.tensor, [0]))

    def cumsum(self) -> TensorExpr:
        """Return the cumulative sum along the first dimension."""
        return TensorExpr(aten.cumsum.default(self.tensor, 0))

    def to(self, dtype: torch.dtype) -> TensorExpr:
        return self if self.tensor.dtype is dtype else TensorExpr(aten._to_copy.default(self.tensor, dtype=dtype))


def choose(condition: TensorExpr, chosen: TensorExpr | float, other: TensorExpr | float) -> TensorExpr:
    """Run `where`. Scalars become tensors of the wide dtype."""
    return TensorExpr(aten.where.self(condition.tensor, _operand(chosen, condition), _operand(other, condition)))


def _operand(value: TensorExpr | float, beside: TensorExpr) -> Tensor:
    if isinstance(value, TensorExpr):
        return value.tensor
    number: Tensor = aten.full.default([], value, dtype=wide_float(), device=beside.tensor.device)
    return number


def polynomial(x: TensorExpr, coefficients: Sequence[TensorExpr | float]) -> TensorExpr:
    """Evaluate a polynomial by Horner's rule; the constant term comes first."""
    *rest, last = coefficients
    result = x * last
    for coefficient in reversed(rest[1:]):
        result = (result + coefficient) * x
    return result + rest[0]


def ratio(x: TensorExpr, coefficients: tuple[Sequence[float], Sequence[float]]) -> TensorExpr:
    """Return a ratio of polynomials. The denominator's constant term is 1; without further terms the result is the numerator."""
    above, below = coefficients
    return polynomial(x, above) / polynomial(x, below) if len(below) > 1 else polynomial(x, above)


def in_pairs(x: TensorExpr, *polynomials: Sequence[float]) -> list[TensorExpr]:
    """Evaluate polynomials by Estrin's scheme, constant terms first.

    It takes a third fewer kernels than Horner's rule: ``a + b x`` is one kernel, and all polynomials share the powers.
    """
    terms: list[Sequence[Any]] = list(polynomials)
    power = x
    while True:
        terms = [_paired(one, power) for one in terms]
        if all(len(one) == 1 for one in terms):
            return [one for (one,) in terms]
        power = power * power


def _paired(terms: Sequence[Any], power: TensorExpr) -> list[Any]:
    """Combine neighbours: ``[a, b, c, ...]`` to ``[a + b power, ...]``."""
    pairs: list[Any] = []
    for low, high in itertools.zip_longest(terms[::2], terms[1::2]):
        if high is None:
            pairs.append(low)
        elif isinstance(high, TensorExpr):
            pairs.append(high * power + low)
        else:
            base = low.tensor if isinstance(low, TensorExpr) else _operand(low, power)
            pairs.append(TensorExpr(aten.add.Tensor(base, power.tensor, alpha=high)))
    return pairs


def steps(start: int, end: int, like: Tensor) -> TensorExpr:
    """Return ``start, ..., end - 1`` in the wide dtype along a new first dimension, which broadcasts with a 1-D tensor."""
    line = aten.arange.start_step(start, end, 1, dtype=wide_float(), device=like.device)
    return TensorExpr(aten.unsqueeze.default(line, 1))


def digamma(x: TensorExpr) -> TensorExpr:
    """Return the logarithmic derivative of the gamma function, for 1-D arguments of the wide dtype above 0."""
    shifted = TensorExpr(aten.unsqueeze.default(x.tensor, 0)) + steps(0, 10, x.tensor)
    above = x + 10
    inverse = 1 / (above * above)
    # The asymptotic series with Bernoulli numbers. For arguments from 10 on, its next term is below 1e-15.
    tail = inverse * polynomial(inverse, [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12])
    return above.log() - 0.5 / above - tail - (1 / shifted).sum()
