"""Specs of elementwise functions of two tensors, or of a tensor and a Python scalar, with all combinations of dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, BITS, COMPLEX, FLOATS, HALVES, INTEGERS, NUMBERS, shape, tensor
from eagerdecomp.conformance.spec import EITHER_ZERO, EXACT, Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import (
    COARSE,
    FILLS,
    INSIDE,
    OPERAND_PAIRS,
    broadcasting,
    number,
    pair,
    two,
    with_number,
)

__all__ = ["SPECS"]

_REAL = (*NUMBERS, torch.bool)

#: Operands for calls with `alpha`: their products are exact, so that it does not matter whether a kernel rounds them.
_FACTORS = ("lattice", "quarters", "nonfinite")

_Drawn = Callable[[Draw], Call]

_NUMBERS = ("float", "int", "large", "bool", "limit", "complex")

# -- sums --------------------------------------------------------------------------------------------------------------------

_ALPHAS = (1, 2, -2, -1, -7, 0, -3, True)
_FRACTION_ALPHAS = (0.5, -2.0, 0.0, 3, 1.0, -1, 2, 3072.0)


def _alpha(draw: Draw, dtype: torch.dtype) -> Any:
    if dtype.is_complex and draw.flag("complex alpha"):
        return draw.pick("alpha c", (2j, 1 - 1j))
    if dtype.is_complex or dtype.is_floating_point:
        return draw.pick("alpha f", _FRACTION_ALPHAS)
    if dtype is torch.bool:
        return draw.pick("alpha b", _ALPHAS)
    return draw.pick(f"alpha {dtype}", (*_ALPHAS[:-1], torch.iinfo(dtype).max // 3))


def _sum(scalar: bool, dtypes: Sequence[torch.dtype]) -> _Drawn:
    def call(draw: Draw) -> Call:
        scaled = draw.flag("alpha given")
        fills = _FACTORS if scaled else FILLS
        if _with_scalar(draw, scalar):
            drawn = with_number(("plain", "int", "large", "bool") if scaled else _NUMBERS, dtypes, fills)(draw)
        else:
            drawn = Call(pair(draw, dtypes, fills))
        if not scaled:
            return drawn
        alpha = _alpha(draw, torch.result_type(*drawn.args))
        return Call([*drawn.args, alpha]) if scalar else Call(drawn.args, {"alpha": alpha})

    return call


def _sum_near(call: Call) -> Near:
    """Return the allowed error: 0 for plain sums; with `alpha`, the product may be rounded first, or fused."""
    alpha = call.kwargs.get("alpha", call.args[2] if len(call.args) > 2 else 1)
    return EXACT if alpha in (0, 1, -1) else Near(4, "inputs")


def _refused_sum(scalar: bool, bools: bool = False) -> _Drawn:
    """Return a function that draws calls that must raise: with a wrong `alpha`; if `bools`, also a subtraction of bools."""
    kinds = (*(("bools",) * 3 if bools else ()), "fraction", "complex", "bool", *(() if scalar else ("shapes",)))

    def call(draw: Draw) -> Call:
        kind = draw.pick("refused", kinds)
        if kind == "bools":
            return _bools(draw, scalar)
        if kind == "shapes":
            return _shapes(draw)
        dtype = draw.pick("dtype", {"fraction": INTEGERS, "complex": FLOATS, "bool": NUMBERS}[kind])
        alpha = {"fraction": 0.5, "complex": 2j, "bool": True}[kind]
        one = tensor(draw, "self", dtype, [2, 3], ("lattice",))
        return Call([one, 2, alpha]) if scalar else Call([one, tensor(draw, "other", dtype, [3], ("lattice",))], {"alpha": alpha})

    return call


def _bools(draw: Draw, scalar: bool) -> Call:
    """Draw two operands, at least one of them bool."""
    which = draw.pick("bools", ("both", "other", "both", "self"))
    dtype = draw.pick("dtype", NUMBERS)
    one = tensor(draw, "self", dtype if which == "other" else torch.bool, [2, 3], ("ties",))
    if scalar:
        return Call([one, 2 if which == "self" else True])
    return Call([one, tensor(draw, "other", dtype if which == "self" else torch.bool, [3], ("ties",))])


def _shapes(draw: Draw, **named: Any) -> Call:
    """Draw two tensors whose shapes do not broadcast."""
    one, two = draw.pick(
        "shapes", (([2], [3]), ([2, 3], [2]), ([3, 1, 2], [2, 3]), ([4], [8]), ([6], [2, 3]), ([0], [2]), ([3, 2], [6]))
    )
    dtype = draw.pick("dtype", (torch.float32, torch.int64, torch.bool))
    return Call([tensor(draw, "self", dtype, one, ("ties",)), tensor(draw, "other", dtype, two, ("ties",))], named)


# -- products and quotients --------------------------------------------------------------------------------------------------


def _is_complex(call: Call) -> bool:
    return any(torch.is_complex(one) if isinstance(one, Tensor) else isinstance(one, complex) for one in call.args)


def _near_unless_complex(real: Near, ulps: float) -> Callable[[Call], Near]:
    return lambda call: Near(ulps) if _is_complex(call) else real


#: Fills of 0-dim divisors, without extreme values, because kernels may multiply by the reciprocal.
_DIVISORS = ("positive", "lattice", "quarters", "tens")


def _with_scalar(draw: Draw, always: bool) -> bool:
    """Draw whether the second operand is a Python scalar; overloads with a tensor accept one too."""
    return always or draw.pick("a number", (False, False, False, False, True))


def _operands(scalar: bool, kinds: Sequence[str], **more: Any) -> _Drawn:
    return lambda draw: with_number(kinds)(draw) if _with_scalar(draw, scalar) else Call(pair(draw, ALL, **more))


_DIVIDED_BY = ("float", "int", "bool", "limit", "complex")


def _without(values: Tensor, number: int, instead: int) -> Tensor:
    """Replace a number in the memory of an integer tensor by another one."""
    if not (values.is_floating_point() or values.dtype is torch.bool):
        memory = values.as_strided((values.untyped_storage().nbytes() // values.element_size(),), (1,), 0)
        memory[memory == number] = instead
    return values


#: Without very large quotients, for which eager's own remainder may be NaN.
_MODERATE = ("normal", "lattice", "nonfinite", "hundreds", "ties", "halves", "infinite", "thousands", "extremes", "infinite")


def _divided(scalar: bool, dtypes: Sequence[torch.dtype] = (*NUMBERS, torch.int64, torch.float32) * 2) -> _Drawn:
    """Return a function that draws divisions.

    Integers are not divided by 0, for which eager raises, nor the smallest one by -1, which ends the process.
    """

    def call(draw: Draw) -> Call:
        if scalar:
            return with_number(("int", "float", "int", "limit"), dtypes, _MODERATE, but=(0, -1), limited=True)(draw)
        one, other = pair(draw, dtypes, _MODERATE)
        if one is other:
            return Call([_without(one, 0, 3), one])
        return Call([one, _without(_without(other, 0, 3), -1, -2 if one.dtype is not torch.uint8 else 2)])

    return call


def _moded(scalar: bool) -> _Drawn:
    def call(draw: Draw) -> Call:
        mode = draw.pick("rounding_mode", ("floor", "trunc", "floor", None))
        return Call(_divided(scalar or draw.pick("a number", (False, False, True)))(draw).args, {"rounding_mode": mode})

    return call


def _moded_near(call: Call) -> Near:
    return Near(2) if call.kwargs["rounding_mode"] is None else Near(0.0, tiny=True, zeros=call.kwargs["rounding_mode"] == "trunc")


def _refused_division(scalar: bool, moded: bool) -> _Drawn:
    def call(draw: Draw) -> Call:
        kinds = ("zero", *(("mode",) if moded else ()), *(() if scalar else ("shapes",)))
        kind = draw.pick("refused", kinds)
        named = {"rounding_mode": draw.pick("rounding_mode", ("floor", "trunc"))} if moded else {}
        if kind == "shapes":
            return _shapes(draw, **named)
        dtype = draw.pick("dtype", INTEGERS)
        one, zeros = tensor(draw, "self", dtype, [2, 3], ("ties",)), tensor(draw, "other", dtype, [3], ("zeros",))
        if kind == "mode":
            named = {"rounding_mode": draw.pick("mode", ("ceil", "", "true", "Floor"))}
            return Call([one, 2 if scalar else zeros + 1], named)
        return Call([one, 0 if scalar else zeros], named)

    return call


# -- powers ------------------------------------------------------------------------------------------------------------------

_BASES = ("normal", "positive", "lattice", "special", "halves", "tens", "small")
_EXPONENTS = ("lattice", "signed_uniform", "special", "halves", "positive", "zeros", "tens")
_ROOTS = ("positive", "normal", "small", "hundreds")
_WHOLE_BASES = ("wide", "extremes", "lattice", "tens")
_WHOLE_EXPONENTS = ("tens", "ties", "lattice")
_COMPLEX_BASES = ("normal", "signed_uniform", "positive")
_EXPONENT_NUMBERS = (2, 3, 0, -1, 0.5, 1, 2.5, -2, -0.5, 4, 1.0, 0.1, -3.0, 7, math.inf, -math.inf, math.nan, 0.0, True)
_BASE_NUMBERS = (2, 0.5, 10, 3.0, 1, 0, -2, -1, 2.5, 0.1, math.inf, math.nan, 1.0, True, -0.5)


def _power(draw: Draw) -> Call:
    kinds = (*OPERAND_PAIRS[:4], "scalar self", "mixed scalar self", "scalars")
    meeting = draw.pick("operands", kinds)
    dtype = draw.pick("dtype", (*ALL, torch.int64))
    kind = draw.pick("other dtype", ALL) if "mixed" in meeting else dtype
    complexes = dtype.is_complex or kind.is_complex
    if complexes:
        dtype, kind = (torch.float32 if one is torch.float16 else one for one in (dtype, kind))
    sizes = [] if meeting == "scalars" else shape(draw, most=4)
    one, other = sizes, sizes
    if "scalar self" in meeting:
        one = []
    elif "scalar" in meeting:
        other = []
    else:
        other = broadcasting(draw, "exponent.sizes", sizes)
    if not any(kinds.is_floating_point or kinds.is_complex for kinds in (dtype, kind)):
        return Call([tensor(draw, "self", dtype, one, _WHOLE_BASES), tensor(draw, "exponent", kind, other, _WHOLE_EXPONENTS)])
    base = tensor(draw, "self", dtype, one, _COMPLEX_BASES if complexes else _BASES)
    halves = dtype is not kind and (dtype in HALVES or kind in HALVES)
    return Call([base, tensor(draw, "exponent", kind, other, ("normal",) if complexes else COARSE if halves else _EXPONENTS)])


def _power_of_number(draw: Draw) -> Call:
    dtype = draw.pick("dtype", ALL)
    complexes = dtype.is_complex or draw.pick("complex base", (False,) * 8 + (True,))
    chosen: Any = draw.pick("self", _BASE_NUMBERS)
    if complexes:
        chosen = draw.pick("base", (2, 1 + 1j, 0.5 - 2j, 1)) if dtype is not torch.float16 else 3
    fills = ("normal",) if complexes else COARSE if dtype in HALVES else _EXPONENTS
    return Call([chosen, tensor(draw, "exponent", dtype, shape(draw), fills)])


def _power_to_number(draw: Draw) -> Call:
    dtype = draw.pick("dtype", (*ALL, torch.int64, torch.int64))
    chosen: Any = draw.pick("exponent", _EXPONENT_NUMBERS)
    if dtype.is_complex or (dtype not in HALVES and draw.pick("complex exponent", (False,) * 12 + (True,))):
        chosen = draw.pick("complex", (2, 1j, 0.5, -1 + 2j, 3, 2.5))
        return Call([tensor(draw, "self", dtype, shape(draw, most=4), _COMPLEX_BASES), chosen])
    if not dtype.is_floating_point and chosen < 0 and isinstance(chosen, int):
        chosen = -chosen
    if not dtype.is_floating_point and isinstance(chosen, int):
        return Call([tensor(draw, "self whole", dtype, shape(draw, most=4), _WHOLE_BASES), chosen])
    # C's pow and sqrt differ for -inf and -0.0. Small numbers become -0.0 in float16.
    roots = _ROOTS if dtype is not torch.float16 else tuple(kind for kind in _ROOTS if kind != "small")
    return Call([tensor(draw, "self", dtype, shape(draw), roots if chosen in (0.5, -0.5) else _BASES), chosen])


def _refused_power(draw: Draw) -> Call:
    return Call([tensor(draw, "self", draw.pick("dtype", INTEGERS), shape(draw), ("ties",)), draw.pick("exponent", (-1, -2, -5))])


def _power_near(call: Call) -> Near:
    return Near(8, "inputs") if _is_complex(call) else Near(4)


# -- atan2 -------------------------------------------------------------------------------------------------------------------


def _near_angle(call: Call) -> Near:
    """Allow for the rounding of the dtype of the inputs, in which the angle is computed, if `out` has more digits."""
    narrow = torch.result_type(*call.args) is not torch.float64 and call.kwargs["out"].dtype is torch.float64
    return Near(4 * 2**29 if narrow else 4)


def _angle_out(draw: Draw) -> Call:
    one, other = pair(draw, (*NUMBERS, torch.bool))
    found = torch.result_type(one, other)
    promoted = found if found.is_floating_point else torch.float32
    kind = draw.pick("out", ("fresh", "empty", "other dtype", "self", "resized"))
    sizes = torch.broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
    if kind == "self" and one.dtype is promoted and one.shape == sizes and one is not other and 0 not in one.stride():
        return Call([one, other], {"out": one})
    dtype = draw.pick("out dtype", (torch.float64, *FLOATS)) if kind == "other dtype" else promoted
    if kind in ("empty", "resized") and not (one.is_contiguous() and other.is_contiguous()):  # the strides are not defined then
        kind = "fresh"
    if kind == "empty":
        return Call([one, other], {"out": torch.empty(0, dtype=dtype)})
    if kind == "resized":
        return Call([one, other], {"out": tensor(draw, "out", dtype, [*sizes, 2], ("zeros",), ("contiguous",))})
    layouts = ("contiguous", "guarded", "transposed", "strided", "permuted", "gapped", "column")
    return Call([one, other], {"out": tensor(draw, "out", dtype, list(sizes), ("zeros",), layouts)})


def _refused_angle_out(draw: Draw) -> Call:
    one = tensor(draw, "self", draw.pick("dtype", FLOATS), shape(draw, empty=False))
    return Call(
        [one, one.clone()], {"out": torch.zeros(one.shape, dtype=draw.pick("out dtype", (torch.int64, torch.bool, torch.uint8)))}
    )


# -- clamp, bit ops and where ------------------------------------------------------------------------------------------------

_BOUNDED = ("nonfinite", "lattice", "special", "normal", "wide")


def _clamp(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _REAL)
    given = draw.pick("bounds", ("both", "min", "max", "crossed"))
    kinds = ("int", "float", "limit") if dtype.is_floating_point else ("int", "float")
    least = 0.0 if dtype is torch.uint8 else -math.inf
    one, two = (number(draw, dtype, kinds, least=least) for _ in range(2))
    if (one > two) != (given == "crossed"):
        one, two = two, one
    values = tensor(draw, "self", dtype, shape(draw), FILLS)
    low, high = (None if given == "max" else one), (None if given == "min" else two)
    named = {name: bound for name, bound in (("min", low), ("max", high)) if bound is not None}
    return Call([values], named) if draw.flag("named") else Call([values, low, high])


def _clamp_tensors(draw: Draw) -> Call:
    given = draw.pick("bounds", ("both", "min", "max"))
    if given != "both":
        values, bound = pair(draw, _REAL, _BOUNDED, names=("self", given))
        return Call([values, bound]) if given == "min" else Call([values, None, bound])
    values, low = pair(draw, _REAL, _BOUNDED, names=("self", "min"))
    kind = draw.pick("max dtype", (low.dtype, *_REAL))
    sizes = list(torch.broadcast_shapes(values.shape, low.shape))  # type: ignore[no-untyped-call]
    high = tensor(draw, "max", kind, broadcasting(draw, "max.sizes", sizes), _BOUNDED)
    return Call([values], {"min": low, "max": high}) if draw.flag("named") else Call([values, low, high])


def _refused_bounds(tensors: bool) -> _Drawn:
    def call(draw: Draw) -> Call:
        kind = draw.pick("refused", ("none", "shapes", "complex") if tensors else ("none", "complex"))
        if kind == "shapes":
            return _shapes(draw)
        dtype = draw.pick("dtype", COMPLEX if kind == "complex" else FLOATS)
        values = tensor(draw, "self", dtype, shape(draw))
        bounds = () if kind == "none" else (torch.ones((), dtype=dtype) if tensors else 0,)
        return Call([values, *bounds], by_design=kind == "complex")

    return call


def _refused_extreme(draw: Draw) -> Call:
    if draw.pick("refused", ("shapes", "complex")) == "shapes":
        return _shapes(draw)
    values = tensor(draw, "self", draw.pick("dtype", COMPLEX), shape(draw))
    return Call([values, values.clone()], by_design=True)


def _refused_bits(scalar: bool) -> _Drawn:
    def call(draw: Draw) -> Call:
        kind = draw.pick("refused", ("floats", "a float") if scalar else ("floats", "a float", "shapes"))
        if kind == "shapes":
            return _shapes(draw)
        dtype = draw.pick("dtype", (*FLOATS, *COMPLEX))
        one, whole = tensor(draw, "self", dtype, shape(draw), ("lattice",)), draw.pick("whole dtype", BITS)
        if kind == "floats":
            return Call([one, draw.pick("other", (5, True, 0)) if scalar else one.clone()], by_design=True)
        bits = tensor(draw, "bits", whole, list(one.shape), ("lattice",))
        return Call([bits, 1.5] if scalar else draw.pick("first", ([bits, one], [one, bits])), by_design=True)

    return call


def _where(draw: Draw) -> Call:
    fills = ("ties", "ties", "ties", "zeros", "ones")
    if draw.pick("inside", (False, False, True)):
        sizes, values = draw.pick("sizes", (*INSIDE, *(([5, 7], [5, 7]),) * 4))
        dtype = draw.pick("dtype", ALL)
        mask = tensor(draw, "mask", torch.bool, sizes, fills, ("transposed", "contiguous", "guarded"))
        return Call([mask, tensor(draw, "self", dtype, values), tensor(draw, "other", dtype, draw.pick("other", (values, sizes)))])
    one, other = pair(draw, ALL, finite=False)
    sizes = list(torch.broadcast_shapes(one.shape, other.shape))  # type: ignore[no-untyped-call]
    if draw.flag("wider"):
        sizes = [draw.pick("wider by", (2, 1, 3)), *sizes]
    kind = draw.pick("condition dtype", (torch.bool,) * 9 + (torch.uint8,))
    condition = tensor(draw, "condition", kind, broadcasting(draw, "condition.sizes", sizes), fills)
    return Call([condition, one, other])


def _refused_where(draw: Draw) -> Call:
    dtype = draw.pick("condition dtype", (torch.int64, torch.float32, torch.bool, torch.int32))
    sizes = [2, 3] if dtype is not torch.bool else draw.pick("condition.sizes", ([2], [4, 1, 2], [2, 2]))
    one = tensor(draw, "self", draw.pick("dtype", FLOATS), [2, 3])
    return Call([tensor(draw, "condition", dtype, sizes, ("ties",)), one, one.clone()])


# -- the table ---------------------------------------------------------------------------------------------------------------

_ORDERS = ("lt", "le", "gt", "ge")
#: Kinds of scalars, including ones that dtypes round: eager compares in the tensor's dtype.
_COMPARED = ("fraction", "edge", "int", "plain", "bool", "limit")


def _spec(call: _Drawn, near: Near | Callable[[Call], Near] = EXACT, refused: _Drawn | None = _shapes) -> Spec:
    return Spec(call, near, refused=refused)


def _tensors(names: Sequence[str], suffix: str, *args: Any, **more: Any) -> dict[str, Spec]:
    return {f"aten.{name}.{suffix}": _spec(two(*args, **more)) for name in names}


SPECS: dict[str, Spec] = {
    "aten.add.Tensor": _spec(_sum(False, ALL), _sum_near, _refused_sum(False)),
    "aten.add.Scalar": _spec(_sum(True, ALL), _sum_near, _refused_sum(True)),
    "aten.sub.Tensor": _spec(_sum(False, (*NUMBERS, *COMPLEX)), _sum_near, _refused_sum(False, bools=True)),
    "aten.sub.Scalar": _spec(_sum(True, (*NUMBERS, *COMPLEX)), _sum_near, _refused_sum(True, bools=True)),
    "aten.mul.Tensor": _spec(_operands(False, _NUMBERS), _near_unless_complex(EXACT, 4)),
    "aten.mul.Scalar": _spec(_operands(True, _NUMBERS), _near_unless_complex(EXACT, 4), None),
    "aten.div.Tensor": _spec(_operands(False, _DIVIDED_BY, scalars=_DIVISORS), _near_unless_complex(Near(2), 8)),
    "aten.div.Scalar": _spec(_operands(True, _DIVIDED_BY), _near_unless_complex(Near(2), 8), None),
    "aten.div.Tensor_mode": _spec(_moded(False), _moded_near, _refused_division(False, True)),
    "aten.div.Scalar_mode": _spec(_moded(True), _moded_near, _refused_division(True, True)),
    "aten.fmod.Tensor": _spec(_divided(False), EXACT, _refused_division(False, False)),
    "aten.fmod.Scalar": _spec(_divided(True), EXACT, _refused_division(True, False)),
    "aten.remainder.Tensor": _spec(_divided(False), EITHER_ZERO, _refused_division(False, False)),
    "aten.remainder.Scalar": _spec(_divided(True), EITHER_ZERO, _refused_division(True, False)),
    "aten.pow.Tensor_Tensor": _spec(_power, _power_near),
    "aten.pow.Tensor_Scalar": _spec(_power_to_number, _power_near, _refused_power),
    "aten.pow.Scalar": _spec(_power_of_number, _power_near, None),
    "aten.atan2.default": _spec(two(_REAL), Near(4)),
    "aten.atan2.out": _spec(_angle_out, _near_angle, _refused_angle_out),
    "aten.maximum.default": _spec(two(_REAL), EITHER_ZERO, _refused_extreme),
    "aten.minimum.default": _spec(two(_REAL), EITHER_ZERO, _refused_extreme),
    "aten.clamp.default": _spec(_clamp, EITHER_ZERO, _refused_bounds(False)),
    "aten.clamp.Tensor": _spec(_clamp_tensors, EITHER_ZERO, _refused_bounds(True)),
    "aten.where.self": _spec(_where, EXACT, _refused_where),
    **_tensors(("eq", "ne"), "Tensor", ALL, finite=False, compared=True),
    **_tensors(_ORDERS, "Tensor", _REAL, compared=True),
    **_tensors(("logical_and", "logical_or", "logical_xor"), "default", ALL, finite=False),
    **{f"aten.bitwise_{name}.Tensor": _spec(two(BITS), refused=_refused_bits(False)) for name in ("and", "or", "xor")},
    **{
        f"aten.{name}.Scalar": _spec(with_number((*_COMPARED, "complex"), finite=False, limited=True, compared=True), refused=None)
        for name in ("eq", "ne")
    },
    **{f"aten.{name}.Scalar": _spec(with_number(_COMPARED, _REAL, limited=True, compared=True), refused=None) for name in _ORDERS},
    **{
        f"aten.bitwise_{name}.Scalar": _spec(with_number(("int", "large", "bool"), BITS), refused=_refused_bits(True))
        for name in ("and", "or", "xor")
    },
}
