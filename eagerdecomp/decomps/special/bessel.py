"""Bessel functions of orders 0 and 1, plain and modified, and Airy's.

All are computed in float64 and rounded once. Each function has one rational approximation for small arguments and one for large
arguments (tools/fit_ratios.py finds the coefficients). For large arguments it multiplies the leading factor of the asymptotic
expansion: Hankel's for the plain functions (Abramowitz and Stegun 9.2.5), and 9.7.1 and 10.4.59 for the others. Every element is
computed by all approximations and then selected, so a call costs all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from eagerdecomp.decomps.math import coefficients
from eagerdecomp.decomps.math.float64 import of_one
from eagerdecomp.decomps.math.operators import TensorExpr, choose, ratio
from eagerdecomp.rules.rule import rule

#: From this argument on, asymptotic expansions are used.
_HANKEL_FROM = 5.0
_LARGE_FROM = 8.0

#: For each order: the first two zeros of J as doubles, and the rounding errors of these doubles.
_ZEROS = (
    ((2.404825557695773, -1.176691651530894e-16), (5.520078110286311, 8.088597146146774e-17)),
    ((3.8317059702075125, -1.5269184090088067e-16), (7.015586669815619, -9.414165653410389e-17)),
)
_HANKEL = (
    (coefficients.HANKEL_0_IN_PHASE, coefficients.HANKEL_0_QUADRATURE),
    (coefficients.HANKEL_1_IN_PHASE, coefficients.HANKEL_1_QUADRATURE),
)
_J_SMALL = (coefficients.J0_SMALL, coefficients.J1_SMALL)
_Y_SMALL = (coefficients.Y0_SMALL, coefficients.Y1_SMALL)
_I_SMALL = (coefficients.I0_SMALL, coefficients.I1_SMALL)
_I_LARGE = (coefficients.I0_LARGE, coefficients.I1_LARGE)
_I_UNIT = (coefficients.I0_UNIT, coefficients.I1_UNIT)
_K_UNIT = (coefficients.K0_UNIT, coefficients.K1_UNIT)
_K_LARGE = (coefficients.K0_LARGE, coefficients.K1_LARGE)


# -- plain --------------------------------------------------------------------------------------------------------


def _j_small(order: int, size: TensorExpr, square: TensorExpr) -> TensorExpr:
    """Return J for small arguments; for order 1, J divided by the argument. Factors with the zeros of J keep it exact near them."""
    value = ratio(square, _J_SMALL[order])
    for zero, rest in _ZEROS[order]:
        value = value * ((size - zero) - rest) * (size + zero)
    return value


def _hankel(order: int, second: bool, x: TensorExpr) -> TensorExpr:
    """Return J or Y for arguments from 5 on, as a sum of a sine and a cosine, so that the angle needs no rounding."""
    inverse = _HANKEL_FROM / x
    square = inverse * inverse
    in_phase, quadrature = (ratio(square, fit) for fit in _HANKEL[order])
    quadrature = quadrature * inverse
    sine, cosine = x.sin(), x.cos()
    # The cosine and sine of x - pi/4 (order 0) or x - 3 pi/4 (order 1), by the angle sum formulas.
    if order == 0:
        c, s = cosine + sine, sine - cosine
    else:
        c, s = sine - cosine, -(sine + cosine)
    wave = in_phase * s + quadrature * c if second else in_phase * c - quadrature * s
    return wave * (x * math.pi).rsqrt()


def _j(order: int) -> Callable[[TensorExpr], TensorExpr]:
    def formula(x: TensorExpr) -> TensorExpr:
        size = x.abs()
        near = size.clamp(None, _HANKEL_FROM)
        small = _j_small(order, near, near * near)
        large = _hankel(order, False, size.clamp(_HANKEL_FROM))
        if order == 0:
            return choose(size <= _HANKEL_FROM, small, large)
        # Multiply by the argument: this keeps the sign of zero.
        return choose(size <= _HANKEL_FROM, small * x, choose(x < 0, -large, large))

    return formula


def _y(order: int) -> Callable[[TensorExpr], TensorExpr]:
    def formula(x: TensorExpr) -> TensorExpr:
        near = x.clamp(0, _HANKEL_FROM)
        square = near * near
        regular = ratio(square, _Y_SMALL[order])
        j = _j_small(order, near, square) * near.log()
        logarithmic = j if order == 0 else j * near - 1 / near
        small = (regular if order == 0 else regular * near) + logarithmic * (2 / math.pi)
        value = choose(x <= _HANKEL_FROM, small, _hankel(order, True, x.clamp(_HANKEL_FROM)))
        return choose(x <= 0, choose(x < 0, math.nan, -math.inf), value)

    return formula


def _spherical_j0(x: TensorExpr) -> TensorExpr:
    value = x.sin() / x
    return choose(x.abs() < 1e-8, 1.0, choose(x.abs().equals(math.inf), 0.0, value))


# -- modified -----------------------------------------------------------------------------------------------------


def _i(order: int, scaled: bool) -> Callable[[TensorExpr], TensorExpr]:
    def formula(x: TensorExpr) -> TensorExpr:
        size = x.abs()
        near = size.clamp(None, _LARGE_FROM)
        small = ratio(near * near, _I_SMALL[order])
        small = small if order == 0 else small * near
        far = size.clamp(_LARGE_FROM)
        large = ratio(1 / far, _I_LARGE[order]) / far.sqrt()
        if scaled:
            small = small * (-near).exp()
        else:
            # Multiply by exp(x/2) twice: exp(x) may overflow where the product does not.
            half = (far / 2).exp()
            large = large * half * half
        value = choose(size <= _LARGE_FROM, small, large)
        return value if order == 0 else choose(x < 0, -value, value)

    return formula


def _k(order: int, scaled: bool) -> Callable[[TensorExpr], TensorExpr]:
    def formula(x: TensorExpr) -> TensorExpr:
        near = x.clamp(0, 1)
        square = near * near
        regular, first_kind = ratio(square, _K_UNIT[order]), ratio(square, _I_UNIT[order])
        logarithmic = near.log() * first_kind
        small = regular - logarithmic if order == 0 else regular / near + logarithmic * near
        far = x.clamp(1)
        large = ratio(1 / far, _K_LARGE[order]) / far.sqrt()
        if scaled:
            small = small * near.exp()
        else:
            large = large * (-far).exp()
        return choose(x <= 0, choose(x < 0, math.nan, math.inf), choose(x <= 1, small, large))

    return formula


# -- Airy ---------------------------------------------------------------------------------------------------------

_AIRY_LEFT, _AIRY_RIGHT = -2.6, 1.5
_AIRY_AT_0, _AIRY_SLOPE_AT_0 = 0.355028053887817239, 0.258819403792806798


def _airy(x: TensorExpr) -> TensorExpr:
    size = x.abs().clamp(_AIRY_RIGHT)
    root = size.sqrt()
    z = size * 2 * root / 3
    fourth = root.rsqrt() * math.sqrt(1 / math.pi)
    right = ratio(1 / z, coefficients.AIRY_RIGHT) * fourth / 2 * (-z).exp()
    inverse = 1 / z.clamp(2.7)
    square = inverse * inverse
    in_phase, quadrature = (
        ratio(square, coefficients.AIRY_LEFT_IN_PHASE),
        ratio(square, coefficients.AIRY_LEFT_QUADRATURE) * inverse,
    )
    sine, cosine = z.sin(), z.cos()
    left = ((sine + cosine) * in_phase - (cosine - sine) * quadrature) * fourth * math.sqrt(0.5)
    near = x.clamp(_AIRY_LEFT, _AIRY_RIGHT)
    cube = near * near * near
    first, second = ratio(cube, coefficients.AIRY_FIRST), ratio(cube, coefficients.AIRY_SECOND)
    middle = first * _AIRY_AT_0 - second * near * _AIRY_SLOPE_AT_0
    # At infinity eager divides by infinity times zero: NaN.
    ends = choose(x.equals(math.inf), math.nan, right)
    return choose(x < _AIRY_LEFT, left, choose(x <= _AIRY_RIGHT, middle, ends))


# -- rules --------------------------------------------------------------------------------------------------------


_TABLE: tuple[tuple[str, Callable[[TensorExpr], TensorExpr]], ...] = (
    ("aten.i0.default", _i(0, False)),
    ("aten.special_i0e.default", _i(0, True)),
    ("aten.special_i1.default", _i(1, False)),
    ("aten.special_i1e.default", _i(1, True)),
    ("aten.special_modified_bessel_i0.default", _i(0, False)),
    ("aten.special_modified_bessel_i1.default", _i(1, False)),
    ("aten.special_modified_bessel_k0.default", _k(0, False)),
    ("aten.special_modified_bessel_k1.default", _k(1, False)),
    ("aten.special_scaled_modified_bessel_k0.default", _k(0, True)),
    ("aten.special_scaled_modified_bessel_k1.default", _k(1, True)),
    ("aten.special_bessel_j0.default", _j(0)),
    ("aten.special_bessel_j1.default", _j(1)),
    ("aten.special_bessel_y0.default", _y(0)),
    ("aten.special_bessel_y1.default", _y(1)),
    ("aten.special_spherical_bessel_j0.default", _spherical_j0),
    ("aten.special_airy_ai.default", _airy),
)

for op, formula in _TABLE:
    rule(op, recorded=True)(of_one(formula))
