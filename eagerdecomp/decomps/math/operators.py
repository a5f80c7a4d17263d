"""Formulas written as formulas: a tensor whose operators call ATen overloads, a number on one side taking the ``Scalar`` one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Term", "choose", "digamma", "polynomial", "ratio", "steps"]

aten = torch.ops.aten


class Term:
    """A tensor inside a formula; `tensor` is what it stands for. Division of a number by a term is exact, not by a reciprocal."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def _with(self, other: Term | float, by_tensor: Any, by_scalar: Any) -> Term:
        if isinstance(other, Term):
            return Term(by_tensor(self.tensor, other.tensor))
        return Term(by_scalar(self.tensor, other))

    def __add__(self, other: Term | float) -> Term:
        return self._with(other, aten.add.Tensor, aten.add.Scalar)

    __radd__ = __add__

    def __sub__(self, other: Term | float) -> Term:
        return self._with(other, aten.sub.Tensor, aten.sub.Scalar)

    def __rsub__(self, other: float) -> Term:
        return Term(aten.neg.default(self.tensor)) + other if other else -self

    def __mul__(self, other: Term | float) -> Term:
        return self._with(other, aten.mul.Tensor, aten.mul.Scalar)

    __rmul__ = __mul__

    def __truediv__(self, other: Term | float) -> Term:
        return self._with(other, aten.div.Tensor, aten.div.Scalar)

    def __rtruediv__(self, other: float) -> Term:
        inverted = Term(aten.reciprocal.default(self.tensor))
        return inverted if other == 1 else inverted * other

    def __neg__(self) -> Term:
        return Term(aten.neg.default(self.tensor))

    def __pow__(self, other: Term | float) -> Term:
        return self._with(other, aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar)

    def __lt__(self, other: Term | float) -> Term:
        return self._with(other, aten.lt.Tensor, aten.lt.Scalar)

    def __le__(self, other: Term | float) -> Term:
        return self._with(other, aten.le.Tensor, aten.le.Scalar)

    def __gt__(self, other: Term | float) -> Term:
        return self._with(other, aten.gt.Tensor, aten.gt.Scalar)

    def __ge__(self, other: Term | float) -> Term:
        return self._with(other, aten.ge.Tensor, aten.ge.Scalar)

    def __and__(self, other: Term) -> Term:
        return Term(aten.logical_and.default(self.tensor, other.tensor))

    def __or__(self, other: Term) -> Term:
        return Term(aten.logical_or.default(self.tensor, other.tensor))

    def exp(self) -> Term:
        return Term(aten.exp.default(self.tensor))

    def log(self) -> Term:
        return Term(aten.log.default(self.tensor))

    def expm1(self) -> Term:
        return Term(aten.expm1.default(self.tensor))

    def log1p(self) -> Term:
        return Term(aten.log1p.default(self.tensor))

    def sqrt(self) -> Term:
        return Term(aten.sqrt.default(self.tensor))

    def rsqrt(self) -> Term:
        return Term(aten.rsqrt.default(self.tensor))

    def abs(self) -> Term:
        return Term(aten.abs.default(self.tensor))

    def floor(self) -> Term:
        return Term(aten.floor.default(self.tensor))

    def sin(self) -> Term:
        return Term(aten.sin.default(self.tensor))

    def cos(self) -> Term:
        return Term(aten.cos.default(self.tensor))

    def erf(self) -> Term:
        return Term(aten.erf.default(self.tensor))

    def equals(self, other: Term | float) -> Term:
        return self._with(other, aten.eq.Tensor, aten.eq.Scalar)

    def isnan(self) -> Term:
        return Term(aten.isnan.default(self.tensor))

    def clamp(self, low: float | None, high: float | None = None) -> Term:
        return Term(aten.clamp.default(self.tensor, low, high))

    def sum(self) -> Term:
        """Over the first dimension."""
        return Term(aten.sum.dim_IntList(self.tensor, [0]))

    def cumsum(self) -> Term:
        """Along the first dimension."""
        return Term(aten.cumsum.default(self.tensor, 0))

    def to(self, dtype: torch.dtype) -> Term:
        return self if self.tensor.dtype is dtype else Term(aten._to_copy.default(self.tensor, dtype=dtype))


def choose(condition: Term, chosen: Term | float, other: Term | float) -> Term:
    """`where`, a number standing for a float64 tensor of it."""
    return Term(aten.where.self(condition.tensor, _operand(chosen, condition), _operand(other, condition)))


def _operand(value: Term | float, beside: Term) -> Tensor:
    if isinstance(value, Term):
        return value.tensor
    number: Tensor = aten.full.default([], value, dtype=torch.float64, device=beside.tensor.device)
    return number


def polynomial(x: Term, coefficients: Sequence[Term | float]) -> Term:
    """By Horner's rule, the constant term first."""
    *rest, last = coefficients
    result = x * last
    for coefficient in reversed(rest[1:]):
        result = (result + coefficient) * x
    return result + rest[0]


def ratio(x: Term, coefficients: tuple[Sequence[float], Sequence[float]]) -> Term:
    """One polynomial over another, the denominator's constant term being 1; of a denominator of that alone, the numerator."""
    above, below = coefficients
    return polynomial(x, above) / polynomial(x, below) if len(below) > 1 else polynomial(x, above)


def steps(start: int, end: int, like: Tensor) -> Term:
    """``start, ..., end - 1`` in float64 along a first dimension of its own, to be broadcast with a tensor of one."""
    line = aten.arange.start_step(start, end, 1, dtype=torch.float64, device=like.device)
    return Term(aten.unsqueeze.default(line, 1))


def digamma(x: Term) -> Term:
    """The logarithmic derivative of the gamma function, for float64 arguments above 0 in one dimension."""
    shifted = Term(aten.unsqueeze.default(x.tensor, 0)) + steps(0, 10, x.tensor)
    above = x + 10
    inverse = 1 / (above * above)
    # The asymptotic series by Bernoulli numbers; its next term is below 1e-15 from 10 on.
    tail = inverse * polynomial(inverse, [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12])
    return above.log() - 0.5 / above - tail - (1 / shifted).sum()
