"""Specs of ops that join, repeat, flip and pad tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, COMPLEX, FLOATS, INTEGERS, LAYOUTS, shape, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Spec
from eagerdecomp.conformance.spec_arguments import dim_of, dims_of, wrong, wrong_on_tensor

__all__ = ["SPECS"]

_FILLS = ("normal", "special", "wide")

# -- cat ---------------------------------------------------------------------------------------------------------------------


def _cat(draw: Draw) -> Call:
    dtype = draw.pick("dtype", ALL)
    mixed = draw.pick("mixed", (False, False, True))
    count = draw.pick("count", (2, 1, 3, 5, 2, 17))
    sizes = shape(draw, least=1, elements=2000)
    dim = dim_of(draw, "dim", len(sizes))
    layouts = draw.pick("layouts", (LAYOUTS, *([one] for one in LAYOUTS), "images"))
    if layouts == "images":  # the result has their memory format
        layouts, sizes = ["channels_last"], draw.pick("images", ([2, 3, 4, 5], [1, 5, 3, 2], [2, 3, 2, 3, 4]))
        dim %= len(sizes)
    given: list[Tensor] = []
    for _ in range(count):
        own = list(sizes)
        own[dim] = draw.pick("size", (sizes[dim], 1, 2, 3, 0, 5))
        if math.prod(own) > 4000:
            own[dim] = 1
        other = draw.pick("other dtype", ALL) if mixed else dtype
        given.append(tensor(draw, "each", other, own, _FILLS, layouts))
    none = draw.pick("none", ("no", "no", "in front", "behind"))
    if none != "no":  # a tensor of size [0] can be concatenated with any other
        empty = torch.empty(0, dtype=draw.pick("other dtype", ALL) if mixed else dtype)
        given.insert(0 if none == "in front" else len(given), empty)
    if draw.pick("twice", (False, False, True)):
        given.append(given[0])
    return Call([given]) if dim == 0 and draw.flag("dim left out") else Call([given, dim])


def _wrong_cats() -> Sequence[Sequence[Any]]:
    one, flat = torch.ones(2, 3), torch.ones(3)
    return (
        ([], 0),
        ([one, torch.ones(2, 4)], 0),
        ([one, torch.ones(3, 4)], 1),
        ([one, flat], 0),
        ([flat[0]], 0),
        ([one, one], 2),
        ([one, one], -3),
        ([one, torch.ones(0, 4)], 0),
        ([flat, flat[0]], 0),
    )


# -- repeat and flip ---------------------------------------------------------------------------------------------------------


def _tensor(draw: Draw, *, most: int = 8, elements: int = 6000) -> Tensor:
    dtype = draw.pick("dtype", ALL)
    return tensor(draw, "self", dtype, shape(draw, most=most, elements=elements), _FILLS)


def _flip(draw: Draw) -> Call:
    made = _tensor(draw)
    return Call([made, dims_of(draw, "dims", made.dim())])


def _repeat(draw: Draw) -> Call:
    made = _tensor(draw, most=4, elements=800)
    times = [draw.pick("times", (2, 1, 3, 0, 5)) for _ in range(made.dim() + draw.pick("new", (0, 1, 2)))]
    while made.numel() * math.prod(times) > 20000:
        times[times.index(max(times))] = 1
    return Call([made, times])


# -- padding -----------------------------------------------------------------------------------------------------------------


def _constant_pad(draw: Draw) -> Call:
    made = _tensor(draw, elements=1500)
    pads: list[int] = []
    for dim in range(draw.pick(f"padded of {made.dim()}", range(made.dim(), -1, -1))):
        size = made.shape[-1 - dim]
        before, after = draw.pick("before", (1, 0, 2, -1, 5, -2)), draw.pick("behind", (2, 0, 1, -1, 3, -2))
        if before + after + size < 0 or -before > size or -after > size:
            before, after = 0, 1
        pads += [before, after]
    value: Any = draw.pick("value", ("left out", 0, 1.5, -2, math.nan, math.inf, True, -0.0, 1e-3, 2 - 1j))
    if value == "left out":
        return Call([made, pads])
    if not made.is_complex() and isinstance(value, complex):
        value = 3
    if not (made.is_floating_point() or made.is_complex()):
        value = 2 if value != value or abs(value) == math.inf else value
    return Call([made, pads, value])


def _wrong_pads() -> Sequence[Sequence[Any]]:
    one = torch.ones(2, 3)
    return (
        (one, [1]),
        (one, [1, 1, 1]),
        (one, [1, 1, 1, 1, 1, 1]),
        (one, [-4, 0]),
        (one, [-2, -2]),
        (one.int(), [1, 1], math.nan),
        (one.to(torch.uint8), [1, 1], 300),
        (one, [1, 1], 1j),
        (one[0, 0], [1, 1]),
    )


def _padding(rank: int, *, reflected: bool) -> Callable[[Draw], Call]:
    """Return a function that draws a call that pads the last `rank` dimensions of a tensor, with or without a batch."""
    dtypes = (*FLOATS, *COMPLEX, *INTEGERS, torch.bool)

    def call(draw: Draw) -> Call:
        dtype = draw.pick("dtype", dtypes)
        batched = draw.pick("batched", (True, False))
        own = [draw.pick("size", (4, 3, 5, 2, 7, 1, 16, 33)) for _ in range(rank)]
        while math.prod(own) > 2000:
            own[own.index(max(own))] = 3
        sizes = [draw.pick("batch", (2, 1, 3, 0)), *([draw.pick("channels", (2, 1, 3, 5))] if batched else []), *own]
        if not batched and not sizes[0]:
            sizes[0] = 2
        pads: list[int] = []
        for size in reversed(own):
            most = size - 1 if reflected else size + 2
            before, after = (min(most, draw.pick(name, (1, 0, 2, 3, 9, -1))) for name in ("before", "behind"))
            if size + before + after < 1:
                before = after = 0
            pads += [before, after]
        return Call([tensor(draw, "self", dtype, sizes, _FILLS), pads])

    return call


def _padding_refused(rank: int, *, reflected: bool) -> Callable[[Draw], Call]:
    def calls() -> list[Any]:
        whole = torch.ones(2, 3, *[4] * rank)
        rest = [0] * (2 * rank - 2)
        refused: list[Any] = [
            (whole[0, 0], [1, 1, *rest]),
            (whole[None], [1, 1, *rest]),
            (whole[..., :0], [1, 1, *rest]),
            (whole, [-3, -2, *rest]),
            (whole, [1, 1, *rest, 1]),
            (whole, [1, *rest]),
        ]
        if reflected:
            refused += [(whole, [4, 0, *rest]), (whole, [0, 4, *rest]), (whole, [*rest, 0, 5]), (whole[..., :1], [1, 0, *rest])]
        return refused

    return wrong(calls)


def _pad(rank: int, *, reflected: bool) -> Spec:
    return Spec(_padding(rank, reflected=reflected), EXACT, refused=_padding_refused(rank, reflected=reflected))


SPECS: dict[str, Spec] = {
    "aten.cat.default": Spec(_cat, EXACT, refused=wrong(_wrong_cats)),
    "aten.constant_pad_nd.default": Spec(_constant_pad, EXACT, refused=wrong(_wrong_pads)),
    "aten.flip.default": Spec(_flip, EXACT, refused=wrong_on_tensor([2, 3], [[0, 0]], [[2]], [[-3]], [[0, -2]], [[0, 1, 1]])),
    "aten.repeat.default": Spec(_repeat, EXACT, refused=wrong_on_tensor([2, 3], [[2]], [[]], [[-1, 2]], [[2, 2, -3]], [[1, -2]])),
    "aten.reflection_pad1d.default": _pad(1, reflected=True),
    "aten.reflection_pad2d.default": _pad(2, reflected=True),
    "aten.reflection_pad3d.default": _pad(3, reflected=True),
    "aten.replication_pad2d.default": _pad(2, reflected=False),
    "aten.replication_pad3d.default": _pad(3, reflected=False),
}
