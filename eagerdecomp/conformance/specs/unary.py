"""Specs of functions of one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, BITS, COMPLEX, FLOATS, in_layout, shape, sweep, tensor
from eagerdecomp.conformance.spec import EITHER_ZERO, EXACT, Call, Near, Spec

__all__ = ["SPECS"]

_FILLS = ("normal", "lattice", "special", "wide", "small", "halves", "tens", "uniform", "hundreds", "thousands")

#: Integers that every float type holds: of larger ones a kernel may know more than the float that eager makes of them.
_WHOLE_FILLS = ("lattice", "digits", "ties", "ones")

#: Of complex numbers that are infinite or near to it right kernels make different things.
_COMPLEX_FILLS = ("normal", "lattice", "quarters", "tens", "small", "signed_uniform")

_REAL = tuple(dtype for dtype in ALL if not dtype.is_complex)


def _self(
    draw: Draw, dtypes: Sequence[torch.dtype], fills: Sequence[str], exact: bool, reach: tuple[float, float] | None = None
) -> Tensor:
    dtype = draw.pick("dtype", dtypes)
    inexact = dtype.is_floating_point or dtype.is_complex
    if (exact or inexact) and draw.pick("sweep", (False, False, True)):
        draws = draw.generator()
        values = sweep(dtype, draws)
        if dtype.is_complex and reach is not None:
            real, imag = torch.rand(2, 60, generator=draws, dtype=torch.float64)
            values = torch.cat([values, torch.complex(real * (reach[1] - reach[0]) + reach[0], imag * 40 - 20).to(dtype)])
        return in_layout(values, [len(values)], draw.pick("sweep.layout", ("contiguous", "strided")))
    if draw.pick("large", (False,) * 30 + (True,)):
        return tensor(draw, "self", dtype, draw.pick("large size", ([65537], [257, 258], [5, 3, 17, 259])), ("lattice", "small"))
    sizes = shape(draw, most=6)
    if exact or dtype.is_floating_point:
        return tensor(draw, "self", dtype, sizes, fills)
    if dtype.is_complex:
        return tensor(draw, "complex", dtype, sizes, _COMPLEX_FILLS)
    return tensor(draw, "whole", dtype, sizes, _WHOLE_FILLS)


def _unary(
    dtypes: Sequence[torch.dtype] = ALL,
    fills: Sequence[str] = _FILLS,
    exact: bool = False,
    reach: tuple[float, float] | None = None,
    **options: Sequence[Any],
) -> Callable[[Draw], Call]:
    """Calls with one tensor.

    Args:
        fills: of float types.
        exact: whether there is one right result for any number at all, so that whole and complex ones are as hard as floats.
        reach: how small and large real parts of complex numbers may be, beside moderate ones.
        options: for the arguments after it, simplest first.
    """

    def call(draw: Draw) -> Call:
        chosen = {name: draw.pick(name, values) for name, values in options.items() if draw.flag(f"{name} given")}
        return Call([_self(draw, dtypes, fills, exact, reach)], chosen)

    return call


def _near(ulps: float) -> Callable[[Call], Near]:
    """So many units of the value; complex values also as far as rounding the input moves them."""

    def near(call: Call) -> Near:
        return Near(ulps, "inputs" if call.args[0].is_complex() else "value")

    return near


def _function(**changes: Any) -> Spec:
    """A function that kernels compute by any formula that is as accurate."""
    return Spec(_unary(**changes), _near(4))


#: Kernels compute it by tanh too, which leaves as much of small values as adding one does.
_SIGMOID = Near(4, least=1.0)


def _sigmoid_near(call: Call) -> Near:
    return Near(4, "inputs", least=1.0) if call.args[0].is_complex() else _SIGMOID


def _exactly(near: Near = EXACT, **changes: Any) -> Spec:
    return Spec(_unary(exact=True, **changes), near)


def _refused_bits(draw: Draw) -> Call:
    return Call([tensor(draw, "self", draw.pick("dtype", (*FLOATS, *COMPLEX)), shape(draw), ("lattice",))], by_rule=True)


_FUNCTIONS: tuple[str, ...] = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10")
_FUNCTIONS += ("log1p", "log2", "rsqrt", "sin", "sinh", "sqrt", "tan")


def _reciprocal_near(call: Call) -> Near:
    """One division, which keeps results below the smallest normal number."""
    return _near(4)(call) if call.args[0].is_complex() else Near(4, tiny=True)


_EXACT = ("isinf", "isnan", "logical_not", "neg")
_ROUNDING = ("ceil", "floor", "round", "sign", "trunc")


def _refused_mode(draw: Draw) -> Call:
    values = tensor(draw, "self", draw.pick("dtype", FLOATS), shape(draw))
    return Call([values], {"approximate": draw.pick("mode", ("sigmoid", "", "Tanh", "None"))})


def _abs_near(call: Call) -> Near:
    return Near(2) if call.args[0].is_complex() else EXACT


_ACTIVATIONS: Mapping[str, Spec] = {
    "aten.relu.default": _exactly(EITHER_ZERO, dtypes=_REAL),
    "aten.hardtanh.default": _exactly(
        EITHER_ZERO, dtypes=_REAL, min_val=(-1.5, 0, -2, 0.25, -0.1, 1, -7.3), max_val=(1.5, 2, 3, 6, 2.7, 1.0, 1e3)
    ),
    "aten.leaky_relu.default": Spec(_unary(dtypes=FLOATS, negative_slope=(0.3, 2.0, 0, 1, -0.5, 0.0, 2, 0.001)), Near(2)),
    # Where the function nears zero for negative numbers all kernels round what they subtract from one.
    "aten.gelu.default": Spec(_unary(dtypes=FLOATS, approximate=("tanh", "none")), Near(4, "terms"), refused=_refused_mode),
    "aten.elu.default": Spec(
        _unary(dtypes=FLOATS, alpha=(0.5, 2, -1.5, 0, 1.0), scale=(3.0, 1.0507, 2, -1), input_scale=(2.0, 0.3, -1, 1)),
        Near(4, "inputs", zeros=False),
    ),
}

SPECS: dict[str, Spec] = {
    **{f"aten.{name}.default": _function() for name in _FUNCTIONS},
    "aten.reciprocal.default": _function().but(near=_reciprocal_near),
    # Eager's own returns are finite so far.
    "aten.sigmoid.default": _function(reach=(-40.0, 300.0)).but(near=_sigmoid_near),
    "aten.tanh.default": _function(reach=(-300.0, 300.0)),
    **{f"aten.{name}.default": _exactly() for name in _EXACT},
    **{f"aten.{name}.default": _exactly(dtypes=_REAL) for name in _ROUNDING},
    "aten.bitwise_not.default": _exactly(dtypes=BITS).but(refused=_refused_bits),
    "aten.erf.default": _function(dtypes=_REAL),
    "aten.abs.default": _exactly().but(near=_abs_near),
    **_ACTIVATIONS,
}
