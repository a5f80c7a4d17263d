"""Gradients through gamma and Dirichlet variates: the derivative by the parameters at a fixed value of the distribution function.

These are ATen's approximations, in the same regions, with an error of up to about 1e-3: a more exact gradient would differ from
eager's. All regions are computed for every element, in float64, and then selected: 200 kernel calls for gamma and 570 for
Dirichlet, most of them Horner steps of rational approximations on one dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.operators import TensorExpr, choose, digamma, polynomial
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_of

aten = torch.ops.aten

# ATen's approximation of the gamma gradient: rows by powers of u; in each, numerator and denominator by powers of v.
_GAMMA_FIT = (
    ((0.16009398, -0.094634809, 0.025146376, -0.0030648343), (1.0, 0.32668115, 0.10406089, 0.0014179084)),
    ((0.53487893, 0.1298071, 0.065735949, -0.0015649758), (0.16639465, 0.020070113, -0.0035938915, -0.00058392623)),
    ((0.040121004, -0.0065914022, -0.0026286047, -0.0013441777), (0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07)),
)
# ATen's approximation of the Dirichlet gradient: numerator and denominator, by powers of u, a and b.
_DIRICHLET_FIT = (
    (
        (
            (1.003668233, -0.01061107488, -0.0657888334, 0.01201642863),
            (0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033),
            (-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013),
        ),
        (
            (0.221950385, -0.3187676331, 0.01799915743, 0.01074823814),
            (-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057),
            (0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05),
        ),
        (
            (-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565),
            (0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181),
            (0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05),
        ),
    ),
    (
        (
            (1.0, -0.02924021934, -0.04438342661, 0.007285809825),
            (0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521),
            (-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149),
        ),
        (
            (0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273),
            (0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956),
            (-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05),
        ),
        (
            (0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05),
            (0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05),
            (-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06),
        ),
    ),
)

# The region bounds of ATen, in float32 as in its source.
_SMALL, _BELOW, _ABOVE = 0.800000011920929, 0.8999999761581421, 1.100000023841858


def _zero_for_nan(value: TensorExpr) -> TensorExpr:
    return choose(value.isnan(), 0.0, value)


# -- gamma ----------------------------------------------------------------------------------------------------------------


def _gamma_near_zero(shape: TensorExpr, x: TensorExpr) -> TensorExpr:
    """Use the power series of the distribution function, for ``x < 0.8``."""
    term, over = None, 1 / shape
    series, squares = over, over * over
    for order in range(1, 6):
        term = x * (-1 / order) if term is None else term * x * (-1 / order)
        over = 1 / (shape + order)
        part = term * over
        series, squares = series + part, squares + part * over
    power = x**shape
    density = x ** (shape - 1) * (-x).exp()
    slope = (x.log() - digamma(shape)) * (power * series) - power * squares
    return _zero_for_nan(-slope / density)


def _gamma_saddle(shape: TensorExpr, x: TensorExpr) -> TensorExpr:
    """Use Rice's saddle point expansion, for shapes above 8."""
    square = shape * shape
    middle = 1440 * square + 6 * x * (53 - 120 * x) - 65 * x * x / shape + shape * (107 + 3600 * x)
    middle = (1 + 24 * shape * (1 + 12 * shape)) * middle / (1244160 * square * square)

    root = (8 * shape).sqrt()
    apart, ratio = shape - x, (x / shape).log()
    curve = (x - shape - shape * ratio) ** -1.5
    bracket = root / apart + choose(x < shape, -curve, curve)
    inner = ratio * bracket - (2 / shape).sqrt() * (shape + x) / (apart * apart)
    stirling = 1 + (1 + 1 / (24 * shape)) / (12 * shape)
    wings = -stirling * x * inner / root
    return choose((_BELOW * shape <= x) & (x <= _ABOVE * shape), middle, wings)


def _gamma_fit(shape: TensorExpr, x: TensorExpr) -> TensorExpr:
    u, v = (x / shape).log(), shape.log()
    parts = [
        polynomial(v, [polynomial(u, coefficients) for coefficients in zip(*(row[part] for row in _GAMMA_FIT), strict=True)])
        for part in (0, 1)
    ]
    return (parts[0] / parts[1]).exp()


def _gamma(shape: TensorExpr, x: TensorExpr) -> TensorExpr:
    far = choose(shape > 8, _gamma_saddle(shape, x), _gamma_fit(shape, x))
    return choose(x < _SMALL, _gamma_near_zero(shape, x), far)


# -- Dirichlet: the gradient of a beta variate, divided by 1 - x ----------------------------------------------------------


def _beta_near_zero(x: TensorExpr, alpha: TensorExpr, beta: TensorExpr, factor: TensorExpr) -> TensorExpr:
    """Return the gradient by `alpha` near x = 0: a power series."""
    term, over = None, 1 / alpha
    series = over * (factor + over)
    for order in range(1, 11):
        step = (order - beta) * x * (1 / order)
        term = step if term is None else term * step
        over = 1 / (alpha + order)
        series = series + term * over * (factor + over)
    return _zero_for_nan(x * (1 - x) ** -beta * series)


def _beta_near_one(x: TensorExpr, alpha: TensorExpr, beta: TensorExpr, factor: TensorExpr) -> TensorExpr:
    """Return the gradient by `alpha` near x = 1: a power series in ``1 - x`` of the mirrored distribution."""
    rest = 1 - x
    term, products, slopes = None, None, None
    series = factor / beta
    for order in range(1, 9):
        term = -rest if term is None else term * rest * (-1 / order)
        below = alpha - order
        if products is None or slopes is None:
            products, slopes = below, TensorExpr(aten.full_like.default(below.tensor, 1.0))
        else:
            products, slopes = products * below, slopes * below + products
        series = series + term / (beta + order) * (slopes + factor * products)
    return _zero_for_nan(x ** (1 - alpha) * series)


def _beta_saddle(x: TensorExpr, alpha: TensorExpr, beta: TensorExpr) -> TensorExpr:
    """Use Rice's saddle point expansion, for two parameters above 6."""
    total = alpha + beta
    mean, rest, product = alpha / total, 1 - x, alpha * beta
    spread = (product / (total + 1)).sqrt() / total

    square = beta * beta
    powers: Sequence[TensorExpr] = (
        47 * x * square * square,
        (43 + 20 * (16 + 27 * beta) * x) * square * beta,
        3 * (59 + 180 * beta - 90 * x) * square,
        (453 + 1620 * beta * rest - 455 * x) * beta,
        8 * rest * (135 * beta - 11),
    )
    middle = (1 + 12 * alpha) * (1 + 12 * beta) / (total * total) / rest * polynomial(alpha, powers)
    middle = middle / (12960 * alpha * alpha * alpha * beta * beta * (1 + 12 * total))

    def stirling(of: TensorExpr) -> TensorExpr:
        return 1 + 1 / (12 * of) + 1 / (288 * of * of)

    axis = beta * x - alpha * rest
    first = (-2 * alpha * alpha * rest - product * rest - x * square) / ((2 * alpha / beta).sqrt() * total**1.5 * axis * axis)
    tilt = (alpha / (total * x)).log()
    curve = (beta * (beta / (total * rest)).log() + alpha * tilt) ** -1.5
    bracket = (8 * product / total).sqrt() / axis + choose(x < mean, curve, -curve)
    scale = -x / (2 * product / total).sqrt() * (stirling(alpha) * stirling(beta) / stirling(total))
    wings = scale * (first + 0.5 * tilt * bracket)
    return choose((mean - 0.1 * spread <= x) & (x <= mean + 0.1 * spread), middle, wings)


def _beta_fit(x: TensorExpr, alpha: TensorExpr, total: TensorExpr, beta: TensorExpr, growth: TensorExpr) -> TensorExpr:
    """Return a rational correction times an analytic approximation."""
    u = x.log()
    a = alpha.log() - u
    b = total.log() - a
    numerator, denominator = (
        polynomial(u, [polynomial(a, [polynomial(b, row) for row in rows]) for rows in table]) for table in _DIRICHLET_FIT
    )
    return numerator / denominator * (x * growth / beta)


def _dirichlet(x: TensorExpr, alpha: TensorExpr, total: TensorExpr) -> TensorExpr:
    beta = total - alpha
    whole = digamma(total)
    of_alpha = digamma(alpha)
    boundary = total * x * (1 - x)
    central = choose((alpha > 6) & (beta > 6), _beta_saddle(x, alpha, beta), _beta_fit(x, alpha, total, beta, whole - of_alpha))
    upper = choose((x >= 0.5) & (boundary < 0.75), _beta_near_one(x, alpha, beta, whole - of_alpha), central)
    lower = _beta_near_zero(x, alpha, beta, of_alpha - whole - x.log())
    return choose((x <= 0.5) & (boundary < 2.5), lower, upper)


# -- rules ----------------------------------------------------------------------------------------------------------------


def _elementwise(formula: Callable[..., TensorExpr]) -> Callable[..., Any]:
    """Make the rule of a formula: one dtype for all arguments, broadcast together, a contiguous result."""

    def run(*given: Tensor) -> Tensor:
        dtype = given[0].dtype
        shape = broadcast_shapes(*(one.shape for one in given))
        terms = []
        for one in given:
            full = one if list(one.shape) == shape else aten.expand.default(one, shape)
            terms.append(TensorExpr(aten.reshape.default(full, [math.prod(shape)])).to(wide_of(dtype)))
        return aten.view.default(formula(*terms).to(dtype).tensor, shape)  # type: ignore[no-any-return]

    return run


rule("aten._standard_gamma_grad.default", recorded=True)(_elementwise(_gamma))
rule("aten._dirichlet_grad.default", recorded=True)(_elementwise(_dirichlet))
