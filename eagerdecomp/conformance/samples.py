"""Samples: random tensors with values, sizes and strides for which kernels are often wrong.

The storage is larger than the tensor. Cells before, between and after the elements hold guard values: they change a result if a
kernel reads them, and no kernel may write them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw

__all__ = [
    "ALL",
    "COPIED",
    "BITS",
    "COMPLEX",
    "FAITHFUL",
    "FLOATS",
    "HALVES",
    "INTEGERS",
    "LAYOUTS",
    "NUMBERS",
    "SIZES",
    "TAILS",
    "WIDE_FLOATS",
    "every_half",
    "filled",
    "shape",
    "sweep",
    "tensor",
]

WIDE_FLOATS = (torch.float32, torch.float64)
HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
COMPLEX = (torch.complex64, torch.complex128)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int16, torch.int8)
#: Dtypes for arithmetic, the simplest first.
NUMBERS = (
    torch.float32,
    torch.int64,
    torch.bfloat16,
    torch.float64,
    torch.int32,
    torch.uint8,
    torch.float16,
    torch.int16,
    torch.int8,
)
#: Dtypes for bitwise ops.
BITS = (*INTEGERS, torch.bool)
ALL = (*NUMBERS, torch.bool, *COMPLEX)

#: Sizes of a dimension at or next to boundaries of tiles and SIMD vectors.
SIZES = (2, 3, 1, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 257, 1023, 1024, 1025, 1031, 2049, 4099)
_SMALL = (2, 3, 1, 4, 5)

#: Multiples of common SIMD widths, plus 1: scalar code computes the remainder.
TAILS = (17, 33, 65, 129, 257)

#: Names of layouts (strides and guard values). If one does not apply to a shape, a simpler one is used.
LAYOUTS = (
    *("contiguous", "guarded", "transposed", "strided", "channels_last", "permuted", "expanded", "gapped", "column"),
    *("expanded twice", "windows"),
)

#: Layouts that eager keeps if it writes part of a copy: in overlapping windows, it would write an element several times.
COPIED = tuple(layout for layout in LAYOUTS if layout != "windows")

#: Layouts in which elements do not overlap, so that a kernel can write them.
FAITHFUL = tuple(layout for layout in LAYOUTS if layout not in ("expanded", "expanded twice", "windows"))

# -- shapes ------------------------------------------------------------------------------------------------------------------


def shape(
    draw: Draw,
    name: str = "shape",
    *,
    least: int = 0,
    most: int = 8,
    elements: int = 6000,
    empty: bool = True,
    sizes: Sequence[int] = SIZES,
) -> list[int]:
    """Draw the sizes of a tensor.

    Args:
        draw: makes the random choices.
        name: a prefix for the names of the choices.
        least: minimum number of dimensions.
        most: maximum number of dimensions.
        elements: maximum number of elements.
        empty: whether a dimension may have size 0.
        sizes: possible sizes of the long dimension, if there is one.
    """
    ranks = sorted(range(least, most + 1), key=lambda rank: (abs(rank - 2), rank))
    rank = draw.pick(f"{name}.rank", ranks)
    if not rank:
        return []
    kinds = ("small", "long", "ones", "empty") if empty else ("small", "long", "ones")
    kind = draw.pick(f"{name}.kind", kinds)
    if kind == "ones":
        return [draw.pick(f"{name}.one", (1, 3)) for _ in range(rank)]
    drawn = [draw.pick(f"{name}.size", _SMALL) for _ in range(rank)]
    if kind == "empty":
        drawn[draw.below(rank)] = 0
    elif kind == "long":
        long_dim = draw.below(rank)
        long_size = draw.pick(f"{name}.long", sizes)
        others = math.prod(drawn) // drawn[long_dim]
        if long_size * others > elements:
            drawn = [1 if dim and long_size * dim > elements // 4 else drawn[dim] for dim in range(rank)]
        drawn[long_dim] = long_size
        while math.prod(drawn) > elements and any(size > 1 for dim, size in enumerate(drawn) if dim != long_dim):
            largest = max((dim for dim in range(rank) if dim != long_dim), key=lambda dim: drawn[dim])
            drawn[largest] -= 1
    while math.prod(drawn) > max(elements, 5**5):
        drawn[drawn.index(max(drawn))] -= 1
    return drawn


# -- values ------------------------------------------------------------------------------------------------------------------


def _special(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    info = torch.finfo(dtype)
    known = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, math.pi, -math.e, 1 + info.eps, 1 - info.eps / 2]
    known += [math.inf, -math.inf, math.nan, info.max, -info.max, info.tiny, -info.tiny, info.tiny / 4, -info.tiny / 8, info.eps]
    known += [info.max / 2, 1 / info.eps, 1 / info.eps + 1, 2 / info.eps, 100.5, -7.0, 88.0, -88.0, 1e-5, -1e-3]
    table = torch.tensor(known, dtype=torch.float64).to(dtype)
    return table[torch.randint(len(known), (count,), generator=draws)]


def _nonfinite(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    values = torch.randn(count, generator=draws, dtype=torch.float64)
    fate = torch.randint(12, (count,), generator=draws)
    for number, value in enumerate((math.nan, math.inf, -math.inf, -0.0)):
        values[fate == number] = value
    return values.to(dtype)


def _infinite(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    values = torch.randn(count, generator=draws, dtype=torch.float64)
    fate = torch.randint(12, (count,), generator=draws)
    for number, value in enumerate((math.inf, -math.inf, -0.0)):
        values[fate == number] = value
    return values.to(dtype)


def _wide(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    info = torch.finfo(dtype)
    span = math.log2(info.max) - 1
    powers = (torch.rand(count, generator=draws, dtype=torch.float64) * 2 - 1) * span
    signs = torch.randint(2, (count,), generator=draws) * 2 - 1
    return (torch.exp2(powers) * signs).to(dtype)


def _small(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    powers = -8 * torch.rand(count, generator=draws, dtype=torch.float64)
    return (torch.randn(count, generator=draws, dtype=torch.float64) * 10**powers).to(dtype)


def _tiny(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    scale = math.sqrt(torch.finfo(dtype).tiny) / 64
    return (torch.randn(count, generator=draws, dtype=torch.float64) * scale).to(dtype)


def _rare(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    known = torch.tensor([1.0, -1.0, 0.25, math.nan, -math.inf, 0.0], dtype=torch.float64).to(dtype)
    known[-1] = torch.finfo(dtype).tiny / 4
    values = torch.zeros(count, dtype=dtype)
    values[torch.rand(count, generator=draws) < 0.2] = -0.0
    few = torch.randint(max(count, 1), (1 + count // 200,), generator=draws)[:count]
    values[few] = known[torch.randint(len(known), few.shape, generator=draws)]
    return values


def _rare_nan(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    values = torch.zeros(count, dtype=dtype)
    values[torch.randint(max(count, 1), (1 + count // 200,), generator=draws)[:count]] = math.nan
    return values


def _units(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    chance = min(1 / 12, 4.0 / max(count, 1))  # so that products of elements stay in the range of float16
    fate = torch.rand(count, generator=draws)
    powers = (fate < chance).float() - (fate > 1 - chance).float()
    signs = torch.randint(2, (count,), generator=draws) * 2 - 1
    return (torch.exp2(powers) * signs).to(dtype)


def _last(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    values = torch.zeros(count, dtype=dtype)
    few = 1 + int(torch.randint(min(count, 8), (), generator=draws)) if count else 0
    values[count - few :] = torch.tensor([1.0, -1.0, 0.5, -2.0], dtype=dtype)[torch.randint(4, (few,), generator=draws)]
    return values


def _limits(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    known = [1.0, -1.0, 1.0, -1.0, 0.0, -0.0, math.inf, -math.inf, math.nan]
    most = int(torch.randint(2, len(known) + 1, (), generator=draws))
    table = torch.tensor(known, dtype=dtype)[torch.randperm(len(known), generator=draws)[:most]]
    return table[torch.randint(most, (count,), generator=draws)]


def _zeros(count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    side = float(torch.randint(2, (), generator=draws)) * 2 - 1
    return torch.tensor([0.0, -0.0, 0.0, -0.0, side], dtype=dtype)[torch.randint(5, (count,), generator=draws)]


def _randn(scale: float, shift: float = 0.0) -> Callable[[int, torch.dtype, torch.Generator], Tensor]:
    return lambda count, dtype, draws: (torch.randn(count, generator=draws, dtype=torch.float64) * scale + shift).to(dtype)


def _uniform(low: float, high: float) -> Callable[[int, torch.dtype, torch.Generator], Tensor]:
    return lambda count, dtype, draws: (torch.rand(count, generator=draws, dtype=torch.float64) * (high - low) + low).to(dtype)


def _whole(low: int, high: int, divisor: float = 1.0) -> Callable[[int, torch.dtype, torch.Generator], Tensor]:
    return lambda count, dtype, draws: (torch.randint(low, high + 1, (count,), generator=draws) / divisor).to(dtype)


#: Name -> function that generates values of a float dtype, from count, dtype and generator.
FILLS: Mapping[str, Callable[[int, torch.dtype, torch.Generator], Tensor]] = {
    "ones": lambda count, dtype, draws: torch.ones(count, dtype=dtype),
    "zeros": lambda count, dtype, draws: torch.zeros(count, dtype=dtype),
    "lattice": _whole(-4, 4),  # sums and products are exact
    "positive_lattice": _whole(1, 5),
    "normal": _randn(1.0),
    "uniform": _uniform(0.0, 1.0),
    "signed_uniform": _uniform(-1.0, 1.0),
    "positive": _uniform(0.05, 4.0),
    "tens": _randn(12.0),
    "hundreds": _randn(150.0),
    "thousands": _randn(5000.0),
    "offset": _randn(1.0, 1000.0),  # a mean far from zero: cancellation in sums of squares
    "about_one": _randn(0.02, 1.0),
    "units": _units,  # products are exact
    "rare": _rare,  # zeros, and a few other values
    "rare_nan": _rare_nan,  # zeros, and a few NaN
    "last": _last,  # zeros, then a few other values at the end
    "signed_zeros": _zeros,  # zeros of both signs, and 1 or -1
    "limits": _limits,  # 1, -1, zeros, infinities, NaN: sums and products are exact
    "small": _small,
    "tiny": _tiny,  # squares underflow
    "ascending": lambda count, dtype, draws: _whole(-9, 9, 2.0)(count, dtype, draws).sort()[0],
    "wide": _wide,
    "halves": _whole(-9, 9, 2.0),  # rounding ties
    "quarters": _whole(-20, 20, 4.0),
    "ties": _whole(0, 3),
    "special": _special,
    "nonfinite": _nonfinite,
    "infinite": _infinite,
}


def filled(kind: str, count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    """Return a new 1-d tensor of random values.

    Args:
        kind: a name of `FILLS`; for integer dtypes the closest integer fill is used. Integer dtypes also have ``"digits"`` and
            ``"extremes"``, complex ones ``"half_infinite"``: infinities in one part.
        count: the number of values.
        dtype: the dtype of the values.
        draws: the generator.
    """
    if dtype is torch.bool:
        if kind in ("rare", "rare_nan"):
            return torch.rand(count, generator=draws) < 2.0 / max(count, 2)
        if kind == "last":
            return _last(count, torch.float32, draws).bool()
        return (
            torch.randint(2, (count,), generator=draws).bool()
            if kind not in ("ones", "zeros")
            else torch.full((count,), kind == "ones")
        )
    if dtype.is_complex:
        kinds = [kind, kind]
        if kind == "half_infinite":
            kinds = ["infinite", "normal"][:: 1 - 2 * int(torch.randint(2, (), generator=draws))]
        parts = [filled(one, count, _PART[dtype], draws) for one in kinds]
        return torch.complex(*parts) if dtype is not torch.complex32 else torch.complex(*(p.float() for p in parts)).to(dtype)
    if dtype.is_floating_point:
        if kind in ("digits", "extremes"):
            kind = "normal"
        exact = dtype if dtype in (*WIDE_FLOATS, *HALVES) else torch.float32
        return FILLS[kind](count, exact, draws).to(dtype)
    return _integers(kind, count, dtype, draws)


_PART = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}


def _integers(kind: str, count: int, dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    info = torch.iinfo(dtype)
    if kind in ("ones", "zeros"):
        return torch.full((count,), int(kind == "ones"), dtype=dtype)
    if kind in ("rare", "rare_nan"):
        few = torch.randint(max(count, 1), (1 + count // 200,), generator=draws)[:count]
        values = torch.zeros(count, dtype=torch.int64)
        values[few] = torch.tensor([1, -1, 256, -(2**31), 2**32])[torch.randint(5, few.shape, generator=draws)]
        return torch.where((values & (2**info.bits - 1 if info.bits < 64 else -1)) == 0, values.sign(), values).to(dtype)
    if kind == "last":
        return _last(count, torch.float32, draws).mul(2).to(dtype)
    if kind in ("units", "about_one"):
        return (torch.randint(2, (count,), generator=draws) * 2 - 1).to(dtype)
    low, high = {
        "ties": (0, 3),
        "positive": (1, 5),
        "positive_lattice": (1, 5),
        "uniform": (0, 2),
        "digits": (-100, 100),
        "tens": (-30, 30),
        "hundreds": (-100, 100),
    }.get(kind, (-4, 4))
    if kind in ("wide", "thousands"):
        bits = torch.randint(info.bits, (count,), generator=draws)
        whole = torch.randint(-(2**62), 2**62, (count,), generator=draws)
        return (whole >> (bits.clamp(max=62))).to(dtype)
    if kind in ("extremes", "special", "nonfinite", "infinite"):
        known = [0, 1, -1, 2, -2, 3, 7, -7, info.max, info.min, info.max - 1, info.min + 1, info.max // 2, 100, 2**24 + 1]
        known += [2**53 + 1, 2**60 + 7, -(2**57) - 5]
        table = torch.tensor([(value - info.min) % (info.max - info.min + 1) + info.min for value in known], dtype=dtype)
        return table[torch.randint(len(known), (count,), generator=draws)]
    if info.min == 0 and low < 0:
        low, high = 0, high - low
    return torch.randint(low, high + 1, (count,), generator=draws).to(dtype)


def every_half(dtype: torch.dtype) -> Tensor:
    """Return all 65,536 values of float16 or bfloat16, including every NaN."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def sweep(dtype: torch.dtype, draws: torch.Generator) -> Tensor:
    """Return 1-d test values: every value of a small dtype; else values near function boundaries, plus random ones.

    Complex values form a grid of moderate values, because correct kernels may return different results for infinities.
    """
    if dtype in HALVES:
        return every_half(dtype)
    if dtype.is_complex:
        line = torch.tensor(_MODERATE, dtype=_PART[dtype])
        return torch.complex(*(part.reshape(-1) for part in torch.meshgrid(line, line, indexing="ij")))
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        near = [_uniform(-far, far)(600, torch.float64, draws) for far in (1.0, 10.0, 100.0)]
        size = [torch.exp2((torch.rand(900, generator=draws, dtype=torch.float64) * 2 - 1) * span) for span in (16.0, 120.0)]
        return torch.cat([_boundaries(dtype), *(values.to(dtype) for values in (*near, size[0], -size[0], size[1], -size[1]))])
    info = torch.iinfo(dtype)
    if info.bits <= 16:
        return torch.arange(info.min, info.max + 1, dtype=torch.int32).to(dtype)
    powers = [2**bit + step for bit in range(info.bits - 1) for step in (-1, 0, 1)]
    known = torch.tensor([sign * power for power in powers for sign in (1, -1)] + [info.max, info.min], dtype=dtype)
    return torch.cat([known, torch.randint(info.min, info.max, (1000,), generator=draws, dtype=dtype)])


_MODERATE = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 0.25, -0.125, 1e-3, -1e-5, math.pi / 2, -math.pi, 5.5, -7.0, 12.5, -20.0)


@functools.cache
def _boundaries(dtype: torch.dtype) -> Tensor:
    """Return points where functions overflow, change sign or slope, or switch formulas, with neighbours, in both signs."""
    info = torch.finfo(dtype)
    ends = [
        math.log(info.max),
        -math.log(info.tiny),
        -math.log(info.tiny) - math.log(info.eps),
        math.log2(info.max),
        math.log10(info.max),
    ]
    ends += [math.sqrt(info.max), math.sqrt(info.tiny), info.max, info.max / 2, info.max / 4, info.tiny, info.tiny * info.eps]
    known = [0.0, math.inf, math.nan, *ends, info.eps, math.sqrt(info.eps), info.eps ** (1 / 3), info.eps**0.25, 4 / info.eps]
    known += [number * math.pi / 4 for number in (*range(1, 40), 100, 1001, 2**20, 2**22 + 1, 2**26)]
    known += [number / 4 for number in range(1, 130)] + [number * math.log(2) / 2 for number in range(1, 30)]
    known += [math.e, 0.84375, 1 / 0.35, 3.92, 5.9, 8.66, 9.01, 18.7, 20.1, 0.1, 0.2, 0.3, 0.6, 0.7, 1.1, 1e-3, 1e-5, 1e-7]
    known += [1e5, 1e10]
    known += [2.0**power for power in range(8, 66)] + [2.0**power + 0.5 for power in (10, 20, 21, 22, 23, 30, 50, 51, 52)]
    known += [2.0**power for power in range(-140, -1, 3)]
    points = torch.tensor(known, dtype=torch.float64).to(dtype)
    below = torch.nextafter(points, torch.zeros_like(points))
    above = torch.nextafter(points, torch.full_like(points, math.inf))
    positive = torch.cat([points, below, above])
    return torch.cat([positive, -positive])


# -- layouts -----------------------------------------------------------------------------------------------------------------


def _order(layout: str, rank: int) -> list[int]:
    """Return the dimensions in memory order, the outermost first."""
    order = list(range(rank))
    if layout in ("transposed", "column") and rank >= 2:
        order = order[::-1] if layout == "column" else [*order[:-2], order[-1], order[-2]]
    elif layout == "channels_last" and rank in (4, 5):
        order = [0, *order[2:], 1]
    elif layout == "permuted" and rank >= 2:
        order = [*order[1:], 0]
    return order


def in_layout(values: Tensor, sizes: Sequence[int], layout: str) -> Tensor:
    """Return values as a tensor of these sizes, with the strides that `layout` names, and guard values around it."""
    values = values.reshape(list(sizes))
    rank = len(sizes)
    if layout == "contiguous" or not values.numel():
        return values
    if layout.startswith("expanded"):
        wide = [dim for dim in range(rank) if sizes[dim] > 1]
        twice = wide[-3::2] if len(wide) > 2 else wide
        for dim in twice if layout == "expanded twice" else wide[len(wide) // 2 :][:1]:
            values = values.narrow(dim, 0, 1)
        return values.contiguous().expand(list(sizes))
    if layout == "windows":  # as `unfold` returns them: each row begins one element after the last one
        if rank < 2 or min(sizes[-2:]) < 2:
            return values
        span = sizes[-1] + sizes[-2] - 1
        return values.flatten(-2)[..., :span].contiguous().unfold(-1, sizes[-1], 1)
    strides, step = [0] * rank, 1
    for dim in reversed(_order(layout, rank)):
        strides[dim] = step * (2 if layout == "strided" and dim == rank - 1 else 1)
        step = strides[dim] * sizes[dim] + (3 if layout == "gapped" and dim == rank - 1 else 0)
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    before, after = (0, 0) if layout in ("transposed", "channels_last") else (3, 5)
    memory = _guards(before + span + after, values.dtype)
    result = memory.as_strided(list(sizes), strides, before)
    result.copy_(values)
    return result


def _guards(count: int, dtype: torch.dtype) -> Tensor:
    if dtype is torch.bool:
        return torch.ones(count, dtype=dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full((count,), math.nan, dtype=dtype)
    return torch.full((count,), 77, dtype=dtype)


def tensor(
    draw: Draw,
    name: str,
    dtype: torch.dtype,
    sizes: Sequence[int],
    fills: Sequence[str] = ("normal", "lattice", "special", "wide"),
    layouts: Sequence[str] = LAYOUTS,
) -> Tensor:
    """Draw a tensor of a dtype and sizes; `fills` and `layouts` are the possible fills and strides."""
    kind = draw.pick(f"{name}.values", fills)
    layout = draw.pick(f"{name}.layout", layouts)
    draws = draw.generator()
    return in_layout(filled(kind, math.prod(sizes), dtype, draws), sizes, layout)
