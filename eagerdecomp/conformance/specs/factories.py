"""Specs of factories, which create tensors from scalars and sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, LAYOUTS, NUMBERS, shape, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import factory_options, wrong

__all__ = ["SPECS"]


def _format(draw: Draw, options: dict[str, Any], rank: int, *, preserved: bool = False) -> dict[str, Any]:
    formats: list[torch.memory_format | str | None] = ["left out", None, torch.contiguous_format]
    formats += [torch.preserve_format] * preserved
    formats += [torch.channels_last] * (rank == 4) + [torch.channels_last_3d] * (rank == 5)
    found = draw.pick(f"memory_format of {rank}", formats)
    return options if found == "left out" else {**options, "memory_format": found}


# -- ranges ------------------------------------------------------------------------------------------------------------------

_STEPS: list[tuple[Any, Any, Any]] = [(0, 5, 1), (5, 0, -1), (-3, 8, 2), (0, 1, 0.1), (1.5, -2.25, -0.75), (0, 5.5, 1)]
_STEPS += [(-1.0, 1.0, 0.125), (0.5, 5.5, 1), (3, 3, 1), (7, 0, -3), (0, 1, 1 / 3), (2**53 + 1, 2**53 + 9, 2)]
_STEPS += [(-(2**62), -(2**62) + 5, 1), (2**24 - 3, 2**24 + 6, 1), (False, True, True), (0, 1, 2), (-0.0, 1.0, 0.3)]
_STEPS += [(1e-3, 1.0, 1e-3), (10, -10, -0.5)]


def _arange(draw: Draw) -> Call:
    dtype = draw.pick("dtype", (None, torch.int64, torch.float32, *NUMBERS))
    kind = draw.pick("kind", ("known", "whole", "fractional", "long"))
    start: Any
    if kind == "known":
        start, end, step = draw.pick("steps", _STEPS)
    elif kind == "long":
        count = draw.pick("count", (1023, 1024, 1025, 4099, 16, 17, 31, 33, 65))
        start, step = draw.pick("start", (0, -7, 0.5, 100)), draw.pick("step", (1, 0.1, -1, 3, -0.3, 1 / 3))
        end = start + (count - 0.5) * step
    else:
        whole = kind == "whole"
        start = draw.below(40) - 20 if whole else (draw.below(4000) - 2000) / 100
        step = draw.pick("step", (1, -1, 2, -3, 7) if whole else (0.25, -0.5, 0.1, 1.7, -0.01))
        end = start + step * draw.pick("count", (5, 0, 1, 16, 33)) + draw.pick("over", (0, 1, -1)) * (step / 2 if not whole else 0)
    if dtype is not None and not dtype.is_floating_point:
        # Draw integers: eager computes the count from the given numbers, but the elements from numbers cast to the dtype.
        start, end, step = (int(one) for one in (start, end, step if abs(step) >= 1 else math.copysign(1, step)))
        if (end - start) * step < 0:
            end = start
    options = {} if dtype is None else {"dtype": dtype}
    options.update({name: value for name, value in factory_options(draw, (None,)).items() if name != "dtype"})
    args = [start, end] if step == 1 and draw.flag("step left out") else [start, end, step]
    whole_numbers = all(float(one).is_integer() and abs(one) < 2**20 for one in (start, end, step))
    return Call(args, options, exact=whole_numbers)


# -- fills -------------------------------------------------------------------------------------------------------------------

_FILL_VALUES: list[Any] = [2, 0, -3, 2.5, True, False, 0.1, -0.0, 1.0, math.nan, math.inf, -math.inf, 1 + 2j, -1.5j, 1e-3, 127]
_FILL_VALUES += [2**24 + 1, 2**31 + 5, 2**53 + 1, -(2**63), 3.4e38, 1e-45, -1e-7, 65504.0, 1e300, 255, -1]
_FILL_VALUES += [complex(math.nan, 1)]


def _value(draw: Draw) -> Any:
    return draw.pick("value", _FILL_VALUES)


_MADE = (None, None, None, *ALL)


def _full(draw: Draw) -> Call:
    options = factory_options(draw, _MADE)
    return Call([shape(draw), _value(draw)], options)


def _full_like(draw: Draw) -> Call:
    options = factory_options(draw, _MADE)
    dtype = draw.pick("self dtype", ALL)
    sizes = shape(draw)
    options = _format(draw, options, len(sizes), preserved=True)
    return Call([tensor(draw, "self", dtype, sizes, ("normal", "special")), _value(draw)], options)


def _scalar_tensor(draw: Draw) -> Call:
    options = factory_options(draw, _MADE)
    return Call([_value(draw)], options)


# -- uninitialized memory ----------------------------------------------------------------------------------------------------


def _empty(draw: Draw) -> Call:
    options = factory_options(draw, _MADE)
    sizes = shape(draw)
    return Call([sizes], _format(draw, options, len(sizes)))


def _empty_strided(draw: Draw) -> Call:
    options = factory_options(draw, _MADE)
    dtype = torch.float32
    like = tensor(draw, "like", dtype, shape(draw), ("ones",), LAYOUTS)
    strides = list(like.stride())
    if strides and draw.flag("overlapping"):
        strides[draw.below(len(strides))] = draw.pick("stride", (0, 1, 2))
    return Call([list(like.shape), strides], options)


def _writable(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    """Check that all elements of the tensor are inside its storage."""
    made: Tensor = have[0]
    if not made.numel():
        return None
    behind = made.storage_offset() + 1 + sum((size - 1) * step for size, step in zip(made.shape, made.stride(), strict=True))
    room = made.untyped_storage().nbytes() // made.element_size()
    return None if behind <= room else f"the tensor reaches to element {behind} of memory for {room}"


_STEPPED = Near(4.0, of="largest", zeros=False)

_EMPTY = Spec(_empty, EXACT, any_values=True, check_results=_writable)


def _as(dtype: torch.dtype) -> dict[str, Any]:
    return {"dtype": dtype}


def _formatted(memory_format: torch.memory_format) -> dict[str, Any]:
    return {"memory_format": memory_format}


def _wrong_full_like() -> Sequence[Sequence[Any]]:
    images = torch.ones(2, 3)
    return (
        (torch.ones(2, dtype=torch.uint8), 300),
        (images, 1j),
        (images, 300, _as(torch.uint8)),
        (images, 1, _formatted(torch.channels_last)),
        (images.int(), math.nan),
        (images.half(), 1e6),
        (images[0], 2**40, _as(torch.int32)),
    )


_INF, _NAN = math.inf, math.nan
_WRONG_RANGES = ((0, 5, 0), (0, 5, -1), (5, 0, 1), (0, _NAN, 1), (0, _INF, 1), (-_INF, 0, 1), (0.0, 1.0, 0.0), (1, 0), (0, -0.5))
#: Scalars with a dtype that cannot hold them.
_TOO_LARGE = (
    (300, _as(torch.uint8)),
    (1j, _as(torch.float32)),
    (1e6, _as(torch.float16)),
    (_NAN, _as(torch.int64)),
    (2**40, _as(torch.int32)),
)
_WRONG_FULLS: Sequence[Sequence[Any]] = (
    *(([2], *one) for one in _TOO_LARGE),
    ([2], _INF, _as(torch.int32)),
    ([-1], 1, _as(torch.float32)),
    ([2, -3], 1, _as(torch.int64)),
    ([2], -129, _as(torch.int8)),
    ([2], 1e40, _as(torch.float32)),
)
_WRONG_EMPTIES: Sequence[Sequence[Any]] = (
    ([-1],),
    ([2, 3, 4], _formatted(torch.channels_last)),
    ([2, 3, 4, 5], _formatted(torch.preserve_format)),
    ([2, 3, 4, 5], _formatted(torch.channels_last_3d)),
    ([2, -3], _as(torch.int64)),
)
_WRONG_STRIDES: Sequence[Sequence[Any]] = (([2, 3], [-1, 1]), ([2, 3], [1]), ([2], [1, 1]), ([-2], [1]), ([], [1]))

SPECS: dict[str, Spec] = {
    "aten.arange.start_step": Spec(_arange, _STEPPED, refused=wrong(lambda: _WRONG_RANGES)),
    "aten.full.default": Spec(_full, EXACT, refused=wrong(lambda: _WRONG_FULLS)),
    "aten.full_like.default": Spec(_full_like, EXACT, refused=wrong(_wrong_full_like)),
    "aten.scalar_tensor.default": Spec(_scalar_tensor, EXACT, refused=wrong(lambda: ([1j], *_TOO_LARGE))),
    "aten.empty.memory_format": _EMPTY.but(refused=wrong(lambda: _WRONG_EMPTIES)),
    "aten.empty_strided.default": _EMPTY.but(call=_empty_strided, refused=wrong(lambda: _WRONG_STRIDES)),
}
