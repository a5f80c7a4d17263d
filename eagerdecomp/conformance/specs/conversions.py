"""Specs of copies: to another dtype, tensor or layout, and fills with a scalar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, COPIED, FAITHFUL, FLOATS, INTEGERS, shape, sweep, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Spec
from eagerdecomp.conformance.spec_arguments import broadcasting
from eagerdecomp.eager.strides import is_dense

__all__ = ["SPECS"]

_FILLS = ("normal", "special", "wide", "lattice", "halves", "small", "hundreds", "nonfinite")

_WHOLE_FILLS = ("wide", "extremes", "lattice")

#: Values that every integer dtype represents after truncation. The conversion of larger ones is undefined in C.
_SMALL = ("halves", "lattice", "tens", "uniform", "normal", "ties")
_SMALL_POSITIVE = ("uniform", "positive", "ties", "positive_lattice", "ones")

_FORMATS = (torch.preserve_format, torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


def _source(draw: Draw, name: str, dtype: torch.dtype, to: torch.dtype, sizes: list[int], *, lazy: bool = False) -> Tensor:
    """Draw a tensor whose values can be converted to another dtype; with `lazy`, some have the conj or neg bit set."""
    inexact = dtype.is_floating_point or dtype.is_complex
    whole = not (to.is_floating_point or to.is_complex or to is torch.bool)
    if not (inexact and whole) and not dtype.is_complex and draw.pick("sweep", (False, True, True)):
        values = sweep(dtype, draw.generator())
        return values if values.numel() < 2**16 else values[draw.below(16) :: 16]
    if inexact and whole:
        if dtype is not torch.float16 and draw.flag("large"):  # a conversion by way of float32 shows
            return tensor(draw, f"{name} large", to, sizes, ("wide", "extremes")).double().div(4).trunc().to(dtype)
        return tensor(draw, f"{name} small", dtype, sizes, _SMALL_POSITIVE if to is torch.uint8 else _SMALL)
    made = tensor(draw, name if inexact else f"{name} whole", dtype, sizes, _FILLS if inexact else _WHOLE_FILLS)
    if lazy and dtype.is_complex and draw.flag("conjugate"):
        return made.conj()
    return torch.ops.aten._neg_view(made) if lazy and inexact and draw.pick("negative", (False,) * 6 + (True,)) else made


def _format(draw: Draw, rank: int) -> torch.memory_format:
    """Draw a memory format for a tensor of this rank."""
    return draw.pick(f"memory_format {rank}", [one for one in _FORMATS if one not in _RANKED or _RANKED[one] == rank])


_RANKED = {torch.channels_last: 4, torch.channels_last_3d: 5}


def _gaps(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    """Check that a copy is dense, even if the copied tensor is not."""
    kept = is_dense(want[0]) and not is_dense(have[0])
    return f"the copy has gaps: strides {list(have[0].stride())} of shape {list(have[0].shape)}" if kept else None


def _any_shape(draw: Draw) -> list[int]:
    """Draw sizes, often with four or five dimensions, for the sake of memory formats."""
    if draw.pick("large", (False,) * 20 + (True,)):
        return draw.pick("large sizes", ([65537], [300, 257], [2049, 3], [2, 3, 129, 130]))
    rank = draw.pick("rank", (None, 4, 5))
    return shape(draw) if rank is None else shape(draw, f"shape{rank}", least=rank, most=rank)


# Conversions that a kernel may do by way of a dtype of fewer digits.
_NARROWED = (
    *((torch.int64, torch.float64), (torch.float64, torch.int64), (torch.int64, torch.int32), (torch.int32, torch.float64)),
    *((torch.int64, torch.float32), (torch.float64, torch.bfloat16), (torch.float32, torch.int32)),
)


def _to_copy(draw: Draw) -> Call:
    dtype = draw.pick("from", ALL)
    to = draw.pick("to", (*ALL, None))
    if draw.pick("narrow", (False, False, True)):
        dtype, to = draw.pick("narrowed", _NARROWED)
    if (dtype.is_complex and to is torch.float16) or (to is not None and to.is_complex and dtype is torch.float16):
        to = torch.float32
    named: dict[str, Any] = {}
    values = _source(draw, "self", dtype, dtype if to is None else to, _any_shape(draw))
    if to is not None:
        named["dtype"] = to
    if draw.flag("memory_format given"):
        named["memory_format"] = _format(draw, values.dim())
    if draw.flag("more given"):
        named.update(
            layout=draw.pick("layout", (torch.strided, None)),
            device=draw.pick("device", (torch.device("cpu"), None)),
            pin_memory=draw.pick("pin_memory", (False, None)),
            non_blocking=draw.flag("non_blocking"),
        )
    return Call([values], named)


def _clone(draw: Draw) -> Call:
    dtype = draw.pick("dtype", ALL)
    values = _source(draw, "self", dtype, dtype, _any_shape(draw), lazy=True)
    return Call([values], {"memory_format": _format(draw, values.dim())} if draw.flag("memory_format given") else {})


def _refused_format(draw: Draw) -> Call:
    """Draw a call with a memory format that does not fit the rank."""
    sizes, asked = draw.pick(
        "refused", (([2, 3], torch.channels_last), ([2, 3, 4], torch.channels_last_3d), ([2, 2, 2, 2], torch.channels_last_3d))
    )
    return Call([tensor(draw, "self", draw.pick("dtype", FLOATS), sizes)], {"memory_format": asked})


def _copied(draw: Draw, written: bool) -> Call:
    to = draw.pick("to", ALL)
    kind = draw.pick("from", ("same", "other"))
    dtype = to if kind == "same" else draw.pick("from dtype", ALL)
    if (dtype.is_complex or to.is_complex) and torch.float16 in (dtype, to):
        dtype = to
    sizes = _any_shape(draw)
    target = tensor(draw, "self", to, sizes, ("normal", "nonfinite"), FAITHFUL if written else COPIED)
    if written and to.is_complex and draw.pick("conjugate self", (False, False, False, True)):
        target = target.conj()
    if written and kind == "same" and draw.pick("itself", (False,) * 10 + (True,)):
        return Call([target, target])
    source = broadcasting(draw, "src.sizes", sizes)
    given = _source(draw, "src", dtype, to, source, lazy=written)
    if [*given.shape] != source:
        target = tensor(draw, "self swept", to, [*given.shape], ("normal",), FAITHFUL)
    rest = [draw.flag("non_blocking")] if draw.flag("non_blocking given") else []
    return Call([target, given, *rest])


def _refused_copy(draw: Draw, written: bool) -> Call:
    if written and draw.flag("overlapping"):
        whole = tensor(draw, "memory", draw.pick("dtype", FLOATS), [11], ("normal",), ("contiguous", "strided"))
        return Call([whole[1:], whole[:-1]] if draw.flag("forward") else [whole[:-1], whole[1:]])
    one, other = draw.pick("shapes", (([3], [2, 3]), ([2, 3], [2]), ([1], [4]), ([2, 2], [4]), ([0], [2]), ([6], [2, 3])))
    return Call([tensor(draw, "self", torch.float32, one, ("normal",), FAITHFUL), tensor(draw, "src", torch.float32, other)])


_COMPLEX: Any = 1 + 2j
_VALUES = (0.5, 2, 0.0, -1, math.inf, 0.1, math.nan, -0.0, True, -3.75, 1e-3, -math.inf, 1 + 0j)
_CUT = (2, 0, 1, 2.7, 100, True, 0.3, 3.0)


def _fill(draw: Draw) -> Call:
    dtype = draw.pick("dtype", ALL)
    if dtype.is_complex:
        value: Any = draw.pick("complex", (1 + 2j, 0.5, 3, -1j, True, 0j))
    elif dtype.is_floating_point:
        value = draw.pick("float", _VALUES)
    else:
        large = (2**53 + 1, -(2**62), 2**24 + 1, 2**63 - 1) if dtype is torch.int64 else ()
        signed = () if dtype in (torch.uint8, torch.bool) else (-1, -2.7, -100)
        value = draw.pick("whole", (*_CUT, *signed, *large))
    return Call([tensor(draw, "self", dtype, _any_shape(draw), ("normal", "nonfinite")), value])


def _refused_fill(draw: Draw) -> Call:
    kind = draw.pick("refused", ("large", "infinite", "complex"))
    if kind == "large":
        dtype, value = draw.pick("large", ((torch.int8, 300), (torch.int32, 2**40), (torch.float16, 1e6), (torch.uint8, 256)))
    elif kind == "infinite":
        dtype, value = draw.pick("dtype", INTEGERS), draw.pick("infinite", (math.inf, math.nan))
    else:
        dtype, value = draw.pick("dtype", FLOATS), _COMPLEX
    return Call([tensor(draw, "self", dtype, shape(draw), ("lattice",)), value])


SPECS: dict[str, Spec] = {
    "aten._to_copy.default": Spec(_to_copy, EXACT, check_results=_gaps, refused=_refused_format),
    "aten.clone.default": Spec(_clone, EXACT, check_results=_gaps, refused=_refused_format),
    "aten.copy.default": Spec(
        lambda draw: _copied(draw, False), EXACT, check_results=_gaps, refused=lambda draw: _refused_copy(draw, False)
    ),
    "aten.copy_.default": Spec(lambda draw: _copied(draw, True), EXACT, refused=lambda draw: _refused_copy(draw, True)),
    "aten.fill.Scalar": Spec(_fill, EXACT, check_results=_gaps, refused=_refused_fill),
}
