"""Specs of elementwise functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, BITS, COMPLEX, FLOATS, in_layout, shape, sweep, tensor
from eagerdecomp.conformance.spec import EITHER_ZERO, EXACT, Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import ROWS

__all__ = ["SPECS"]

_FILLS = ("normal", "lattice", "special", "wide", "small", "halves", "tens", "uniform", "hundreds", "thousands")

#: Integers that every float dtype represents. Eager rounds larger ones to a float first, and other kernels may not.
_WHOLE_FILLS = ("lattice", "digits", "ties", "ones")

#: Without infinite and very large complex numbers, for which right kernels return different values.
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
    sizes = draw.pick("row", ROWS) if draw.pick("rows", (False, False, True)) else shape(draw)
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
    """Return a function that draws a call with one tensor.

    Args:
        dtypes: the dtypes of the tensor.
        fills: the fills for float dtypes.
        exact: whether every number has one right result, so that integers and complex numbers use the same fills as floats.
        reach: range of further real parts for complex numbers, in addition to moderate ones.
        options: possible values of the keyword arguments, the simplest first.
    """

    def call(draw: Draw) -> Call:
        chosen = {name: draw.pick(name, values) for name, values in options.items() if draw.flag(f"{name} given")}
        return Call([_self(draw, dtypes, fills, exact, reach)], chosen)

    return call


def _near(ulps: float) -> Callable[[Call], Near]:
    """Return a function that computes the tolerance: `ulps` units, relative to the value or, if it is complex, to the inputs."""

    def near(call: Call) -> Near:
        return Near(ulps, "inputs" if call.args[0].is_complex() else "value")

    return near


def _function(**changes: Any) -> Spec:
    """Return the spec of a function that kernels may compute by any accurate formula."""
    return Spec(_unary(**changes), _near(4))


#: Kernels may compute it by tanh and add 1, so small values have the error of 1.
_SIGMOID = Near(4, least=1.0)


def _sigmoid_near(call: Call) -> Near:
    return Near(4, "inputs", least=1.0) if call.args[0].is_complex() else _SIGMOID


def _exactly(near: Near = EXACT, **changes: Any) -> Spec:
    return Spec(_unary(exact=True, **changes), near)


def _refused_bits(draw: Draw) -> Call:
    return Call([tensor(draw, "self", draw.pick("dtype", (*FLOATS, *COMPLEX)), shape(draw), ("lattice",))], by_design=True)


_FUNCTIONS: tuple[str, ...] = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10")
_FUNCTIONS += ("log1p", "log2", "rsqrt", "sin", "sinh", "sqrt", "tan")


def _reciprocal_near(call: Call) -> Near:
    """Return the tolerance of a division, which must keep subnormal results."""
    return _near(4)(call) if call.args[0].is_complex() else Near(4, tiny=True)


_EXACT = ("logical_not", "neg")
#: Of complex numbers, either part may be infinite or NaN.
_QUESTIONS = ("isinf", "isnan")
_ROUNDING = ("ceil", "floor", "round", "sign", "trunc")


def _refused_mode(draw: Draw) -> Call:
    values = tensor(draw, "self", draw.pick("dtype", FLOATS), shape(draw))
    return Call([values], {"approximate": draw.pick("mode", ("sigmoid", "", "Tanh", "None"))})


def _abs_near(call: Call) -> Near:
    return Near(2) if call.args[0].is_complex() else EXACT


_ACTIVATIONS: Mapping[str, Spec] = {
    "aten.relu.default": _exactly(EITHER_ZERO, dtypes=_REAL),
    "aten.hardtanh.default": _exactly(
        EITHER_ZERO, dtypes=_REAL, min_val=(-1.5, 0, -2, 0.25, -0.1, 1, -7.3), max_val=(1.5, 2, 3, 6, 2.7, 1.0, 1e3, -3.0)
    ),
    "aten.leaky_relu.default": Spec(_unary(dtypes=FLOATS, negative_slope=(0.3, 2.0, 0, 1, -0.5, 0.0, 2, 0.001)), Near(2)),
    # Near zero, for negative inputs, all kernels subtract a rounded number from one.
    "aten.gelu.default": Spec(_unary(dtypes=FLOATS, approximate=("tanh", "none")), Near(4, "terms"), refused=_refused_mode),
    "aten.elu.default": Spec(
        _unary(dtypes=FLOATS, alpha=(0.5, 2, -1.5, 0, 1.0), scale=(3.0, 1.0507, 2, -1), input_scale=(2.0, 0.3, -1, 1)),
        Near(4, "inputs", zeros=False),
    ),
}

SPECS: dict[str, Spec] = {
    **{f"aten.{name}.default": _function() for name in _FUNCTIONS},
    "aten.reciprocal.default": _function().but(near=_reciprocal_near),
    # In this range eager's own results are finite.
    "aten.sigmoid.default": _function(reach=(-40.0, 300.0)).but(near=_sigmoid_near),
    "aten.tanh.default": _function(reach=(-300.0, 300.0)),
    **{f"aten.{name}.default": _exactly() for name in _EXACT},
    **{f"aten.{name}.default": _exactly(fills=(*_FILLS, *["nonfinite"] * len(_FILLS))) for name in _QUESTIONS},
    **{f"aten.{name}.default": _exactly(dtypes=_REAL) for name in _ROUNDING},
    "aten.bitwise_not.default": _exactly(dtypes=BITS).but(refused=_refused_bits),
    "aten.erf.default": _function(dtypes=_REAL),
    "aten.abs.default": _exactly().but(near=_abs_near),
    **_ACTIVATIONS,
}
