"""Orthogonal polynomials, by their recurrences, in eager's own dtype.

Chebyshev polynomials use the recurrence only for the first few orders, as eager does. Higher orders are sines and cosines between
-1 and 1, and hyperbolic functions outside. The other polynomials have no such form. If their orders are a tensor, the highest order
is read from it, so such a call is not cached; if the order is a scalar, nothing is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.operators import TensorExpr, choose
from eagerdecomp.eager.promotion import floating, promoted
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_float, wide_of

aten = torch.ops.aten

#: Computes a polynomial from the argument, the order, and the highest order if it is known.
Formula = Callable[[TensorExpr, Tensor, "int | None"], TensorExpr]


def _select(condition: Any, chosen: TensorExpr | float, other: TensorExpr) -> TensorExpr:
    value = chosen.tensor if isinstance(chosen, TensorExpr) else aten.full.default([], chosen, dtype=other.tensor.dtype)
    return TensorExpr(aten.where.self(condition, value, other.tensor))


def _ones(x: TensorExpr) -> TensorExpr:
    return TensorExpr(aten.full_like.default(x.tensor, 1))


def _odd(order: Tensor) -> TensorExpr:
    return TensorExpr(aten.ne.Scalar(aten.remainder.Scalar(order, 2), 0))


def _product_less(factor: TensorExpr, value: TensorExpr, other: TensorExpr) -> TensorExpr:
    """Return ``factor * value - other``, rounded once for dtypes below float64, because eager's kernel uses fused multiply-add."""
    dtype = factor.tensor.dtype
    wide = wide_of(dtype)
    return (factor.to(wide) * value.to(wide) - other.to(wide)).to(dtype)


# -- Chebyshev ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """Parameters of one kind of Chebyshev polynomial.

    The polynomial of order 1 is ``slope * x + start``. With ``x = cos(theta)``, order n is a cosine of ``(n + shift) * theta``,
    or, if `sine`, a sine of it divided by ``sin(shift * theta)``. `mirrored` is the kind that gives its values below -1.
    """

    slope: float
    start: float
    shift: float
    sine: bool
    mirrored: bool


_KINDS = {
    "t": _Kind(1.0, 0.0, 0.0, False, False),
    "u": _Kind(2.0, 0.0, 1.0, True, True),
    "v": _Kind(2.0, -1.0, 0.5, False, True),
    "w": _Kind(2.0, 1.0, 0.5, True, False),
}


def _chebyshev(kind: _Kind, shifted: bool, by_recurrence: int) -> Formula:
    def formula(x: TensorExpr, order: Tensor, top: int | None) -> TensorExpr:
        y = x * 2 - 1 if shifted else x
        n = TensorExpr(order).to(wide_float())
        dtype = x.tensor.dtype
        previous, last = _ones(y), y if kind.slope == 1 else y * kind.slope + kind.start
        result = _select(aten.eq.Scalar(order, 0), previous, last)
        twice = y * 2
        for step in range(2, by_recurrence + 1):
            previous, last = last, _product_less(twice, last, previous)
            result = _select(aten.eq.Scalar(order, step), last, result)
        inside = _wave(kind, TensorExpr(aten.acos.default(y.tensor)), n.to(dtype))
        wide = y.to(wide_float())
        outside = _hyperbolic(kind, wide, n, order, torch.finfo(dtype).max).to(dtype)
        beyond = _select(aten.lt.Scalar(aten.abs.default(y.tensor), 1), inside, outside)
        result = _select(aten.gt.Scalar(order, by_recurrence), beyond, result)
        return _select(aten.lt.Scalar(order, 0), 0.0, result)

    return formula


def _wave(kind: _Kind, theta: TensorExpr, n: TensorExpr) -> TensorExpr:
    if not kind.shift:
        return (n * theta).cos()
    if kind.sine:
        return ((n + kind.shift) * theta).sin() / (theta * kind.shift).sin()
    return ((n + kind.shift) * theta).cos() / (theta * kind.shift).cos()


def _hyperbolic(kind: _Kind, y: TensorExpr, n: TensorExpr, order: Tensor, largest: float) -> TensorExpr:
    t = TensorExpr(aten.acosh.default(aten.clamp.default(aten.abs.default(y.tensor), 1)))
    angle = (n + kind.shift) * t
    if not kind.shift:
        value = TensorExpr(aten.cosh.default(angle.tensor))
    else:
        # Use powers of ``y + sqrt(y^2 - 1)``: hyperbolic functions overflow earlier than the polynomials.
        over = t * kind.shift
        size = y.abs()
        power = (size + ((size - 1).clamp(0, None).sqrt() * (size + 1).sqrt())) ** n
        even = power * (((angle * -2).exp() + 1) / ((over * -2).exp() + 1))
        odd = power * ((angle * -2).expm1() / (over * -2).expm1())
        odd = choose(t.equals(0), (n + kind.shift) / kind.shift, odd)
        left, right = (odd if kind.mirrored else even), (odd if kind.sine else even)
        value = right if left is right else choose(y < 0, left, right)
    value = choose((y < 0) & _odd(order), -value, value)
    # Two orders after the first infinity, eager's recurrence subtracts infinities.
    return choose((n - 2) * t > math.log(largest) + 0.7, math.nan, value)


# -- other polynomials, by recurrence ------------------------------------------------------------------------------


#: Returns the coefficients of the recurrence for an argument and step: of the last value, and of the one before (subtracted).
Next = Callable[[TensorExpr, int], "tuple[TensorExpr, int]"]
#: Number of steps after which a recurrence reads whether eager has stopped for all values. Lower orders read nothing.
_STEPS_WITHOUT_READ = 256
#: Eager's highest orders of Hermite polynomials.
_HERMITE_LIMITS = {torch.float32: 128, torch.float64: 512}


def _ended(values: TensorExpr, constant: Tensor) -> bool:
    """Return whether all values are NaN or constant. Eager's loops end there, so that it takes any order."""
    ended = aten.logical_or.default(aten.isnan.default(values.tensor), constant)
    return bool(aten._local_scalar_dense.default(aten.all.default(ended)))


def _recurrence(
    first: Callable[[TensorExpr], TensorExpr],
    following: Next,
    *,
    divided: bool = False,
    constant: Callable[[TensorExpr], Tensor] | None = None,
    limits: dict[torch.dtype, int] | None = None,
) -> Formula:
    """Return a formula by recurrence.

    Args:
        first: returns the polynomial of order 1.
        following: returns the coefficients of a step.
        divided: whether values are divided by their order.
        constant: returns where polynomials of all orders have the same value, up to their sign.
        limits: the highest orders in eager.
    """

    def formula(x: TensorExpr, order: Tensor, top: int | None) -> TensorExpr:
        if top is None:
            top = int(aten._local_scalar_dense.default(aten.amax.default(order))) if order.numel() else 0
        limit = limits[x.tensor.dtype] if limits else None
        previous, last = _ones(x), first(x)
        result = _select(aten.eq.Scalar(order, 0), previous, last)
        for step in range(1, top if limit is None else min(top, limit)):
            if constant is not None and step % _STEPS_WITHOUT_READ == 0 and _ended(last, constant(x)):
                result = _select(aten.gt.Scalar(order, step), last, result)
                break
            factor, times = following(x, step)
            value = _product_less(factor, last, previous * times)
            previous, last = last, value / (step + 1) if divided else value
            result = _select(aten.eq.Scalar(order, step + 1), last, result)
        if limit is not None and top > limit:
            result = _select(aten.gt.Scalar(order, limit), math.nan, result)
        return _select(aten.lt.Scalar(order, 0), 0.0, result)

    return formula


def _is_one(x: TensorExpr) -> Tensor:
    return aten.eq.Scalar(aten.abs.default(x.tensor), 1)  # type: ignore[no-any-return]


def _legendre(by_recurrence: Formula) -> Formula:
    """Return a formula with eager's special case: at 1 and -1 the value is 1 or -1."""

    def formula(x: TensorExpr, order: Tensor, top: int | None) -> TensorExpr:
        result = by_recurrence(x, order, top)
        end = aten.logical_and.default(_is_one(x), aten.ge.Scalar(order, 0))
        negative = aten.logical_and.default(aten.lt.Scalar(x.tensor, 0), _odd(order).tensor)
        ones = _ones(x)
        return _select(end, _select(negative, -ones, ones), result)

    return formula


_FORMULAS: dict[str, Formula] = {
    **{f"chebyshev_polynomial_{name}": _chebyshev(kind, False, 6 if name == "t" else 8) for name, kind in _KINDS.items()},
    **{f"shifted_chebyshev_polynomial_{name}": _chebyshev(kind, True, 4 if name == "w" else 6) for name, kind in _KINDS.items()},
    "hermite_polynomial_h": _recurrence(lambda x: x + x, lambda x, k: (x + x, 2 * k), limits=_HERMITE_LIMITS),
    "hermite_polynomial_he": _recurrence(lambda x: x * 1, lambda x, k: (x, k), limits=_HERMITE_LIMITS),
    "laguerre_polynomial_l": _recurrence(
        lambda x: 1 - x, lambda x, k: (1 - x + 2 * k, k), divided=True, constant=lambda x: aten.eq.Scalar(x.tensor, 0)
    ),
    "legendre_polynomial_p": _legendre(
        _recurrence(lambda x: x * 1, lambda x, k: (x * (2 * k + 1), k), divided=True, constant=_is_one)
    ),
}


def _add_rules(name: str, formula: Formula) -> None:
    def of_tensors(x: Tensor, n: Tensor, top: int | None = None) -> Any:
        dtype = floating(promoted((x, n)))
        arguments, orders = TensorExpr(x).to(dtype).tensor, TensorExpr(n).to(dtype).tensor
        shape = broadcast_shapes(x.shape, n.shape)
        order = aten._to_copy.default(aten.expand.default(orders, shape), dtype=torch.int64)
        return formula(TensorExpr(aten.expand.default(arguments, shape)), order, top).tensor

    def of_one_order(x: Tensor, n: Any) -> Any:
        finite = isinstance(n, int) or math.isfinite(n)
        return of_tensors(x, _as_tensor(n, x), int(n) if finite else -1)

    def of_one_argument(x: Any, n: Tensor) -> Any:
        return of_tensors(_as_tensor(x, n), n)

    for overload, fn in (("default", of_tensors), ("n_scalar", of_one_order), ("x_scalar", of_one_argument)):
        rule(f"aten.special_{name}.{overload}", recorded=True)(fn)


def _as_tensor(number: Any, beside: Tensor) -> Tensor:
    """Return a scalar whose type does not change the dtype of the computation."""
    filled: Tensor = aten.full.default([], number, dtype=floating(beside.dtype), device=beside.device)
    return filled


for name, formula in _FORMULAS.items():
    _add_rules(name, formula)
