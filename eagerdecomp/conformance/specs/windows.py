"""Specs of pooling and its gradients, grid sampling, image scaling, and col2im."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import FLOATS, INTEGERS, LAYOUTS, TAILS, WIDE_FLOATS, tensor
from eagerdecomp.conformance.spec import EITHER_ZERO, Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import alike, several, wrong, wrong_variants

__all__ = ["SPECS"]

_aten = torch.ops.aten

_CHANNELS = (2, 1, 3, 4, 8, *TAILS[:4])
_EXACT = ("lattice", "positive_lattice", "ones")
_SUMS = ("lattice", "normal", "tens", "nonfinite", "positive_lattice", "small")


def _leading(draw: Draw, rank: int, inside: Sequence[int]) -> list[int]:
    """Draw the sizes of batch and channels, or of channels only."""
    channels = draw.pick("channels", _CHANNELS)
    if channels * math.prod(inside) > 3000:
        channels = 1
    return [channels] if draw.flag("no batch") else [draw.pick("batch", (2, 1, 3, 5)), channels]


def _spelt(draw: Draw, name: str, values: list[int]) -> list[int]:
    return values[:1] if len(set(values)) == 1 and len(values) > 1 and draw.flag(f"{name} short") else values


# -- pools -------------------------------------------------------------------------------------------------------------------


class _Windows:
    """Pooling windows: the arguments of the pool, and the sizes of its input and of its result."""

    def __init__(self, draw: Draw, rank: int, *, dilated: bool) -> None:
        self.kernel = several(draw, "kernel", rank, (2, 3, 1, 4, 5))
        given = draw.pick("stride given", (True, False))
        self.stride = several(draw, "stride", rank, (1, 2, 3, 5)) if given else self.kernel
        self.padding = [min(one, self.kernel[dim] // 2) for dim, one in enumerate(several(draw, "padding", rank, (0, 1, 2)))]
        self.dilation = several(draw, "dilation", rank, (1, 2, 3)) if dilated else [1] * rank
        self.ceil = draw.flag("ceil_mode")
        spans = [apart * (size - 1) + 1 for apart, size in zip(self.dilation, self.kernel, strict=True)]
        self.inside: list[int] = []
        self.found: list[int] = []
        for dim, span in enumerate(spans):
            wide = rank < 3 and all(one < 20 for one in self.inside)  # at most one dimension is long
            more = draw.pick(f"more.{dim}", (3, 0, 1, 2, 5, 8, 17, *(TAILS[1:] if wide else ())) if rank < 3 else (2, 0, 1, 3))
            # Every window contains an element, because for others eager's kernels return indices outside the input.
            size = max(self.dilation[dim], span - 2 * self.padding[dim]) + more
            self.inside.append(max(size, self.kernel[dim]) if rank == 3 else size)  # required by avg_pool3d, even with padding
        self.inside = alike(draw, self.inside) if max(self.inside) < 40 else self.inside
        for dim, (size, span) in enumerate(zip(self.inside, spans, strict=True)):
            places = size + 2 * self.padding[dim] - span
            count = (-(-places // self.stride[dim]) if self.ceil else places // self.stride[dim]) + 1
            if (count - 1) * self.stride[dim] >= size + self.padding[dim]:  # a window that begins behind the input is dropped
                count -= 1
            self.found.append(count)
        self.spelt = [
            _spelt(draw, "kernel", self.kernel),
            _spelt(draw, "stride", self.stride) if given else [],
            _spelt(draw, "padding", self.padding),
        ]
        self.plain = not (given or self.ceil or any(self.padding) or any(one > 1 for one in self.dilation))
        self.spelt_dilation = _spelt(draw, "dilation", self.dilation)


def _averaged(draw: Draw, rank: int, windows: _Windows) -> list[Any]:
    count = not draw.flag("padding counts not")
    divisor = [] if rank == 1 else [draw.pick("divisor_override", (None, 1, 3, 7, -2))]
    return [*windows.spelt, windows.ceil, count, *divisor]


def _avg_pool(rank: int) -> Callable[[Draw], Call]:
    def call(draw: Draw) -> Call:
        dtype = draw.pick("dtype", (*(FLOATS if rank < 3 else WIDE_FLOATS), torch.int64))
        windows = _Windows(draw, rank, dilated=False)
        given = tensor(draw, "self", dtype, [*_leading(draw, rank, windows.inside), *windows.inside], _SUMS)
        args = [given, *_averaged(draw, rank, windows)]
        return Call(args[:2] if windows.plain and draw.flag("the rest left out") else args)

    return call


def _near_average(place: int) -> Callable[[Call], Near]:
    return lambda call: Near(
        4.0 + math.sqrt(math.prod(call.args[place]) ** (3 if len(call.args[place]) == 1 else 1)), "terms", zeros=False
    )


def _avg_pool2d_backward(draw: Draw) -> Call:
    dtype = draw.pick("dtype", FLOATS)
    windows = _Windows(draw, 2, dilated=False)
    leading = _leading(draw, 2, windows.inside)
    grad = tensor(draw, "grad_output", dtype, [*leading, *windows.found], _SUMS)
    given = tensor(draw, "self", dtype, [*leading, *windows.inside], ("normal",))
    return Call([grad, given, *_averaged(draw, 2, windows)])


def _max_pool(rank: int) -> Callable[[Draw], Call]:
    def call(draw: Draw) -> Call:
        dtype = draw.pick("dtype", (*FLOATS, *INTEGERS))
        windows = _Windows(draw, rank, dilated=True)
        fills = ("ties", "normal", "lattice", "nonfinite", "infinite", "special", "wide", "ones")
        sizes = [*_leading(draw, rank, windows.inside), *windows.inside]
        # The strides of unbatched 3-d input must not look like channels_last of 2-d input.
        layouts: Sequence[str] = (
            LAYOUTS if rank + 2 == len(sizes) else [one for one in LAYOUTS if one not in ("channels_last", "permuted")]
        )
        # In channels_last eager's kernel stores indices in an integer as wide as the values, and rejects planes that are too large.
        if dtype.itemsize == 1 and math.prod(windows.inside) > torch.iinfo(torch.int8).max:
            layouts = ("contiguous", "guarded")
        given = tensor(draw, "self", dtype, sizes, fills, layouts)
        args = [given, *windows.spelt, windows.spelt_dilation, windows.ceil]
        return Call(args[:2] if windows.plain and draw.flag("the rest left out") else args)

    return call


def _right_places(rank: int) -> Callable[[Call, Sequence[Any], Sequence[Any]], str | None]:
    """Return a check of indices: each is that of any maximum of its window, or of any NaN there."""

    def check_results(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
        off = want[1] != have[1]
        if not bool(off.any()):
            return None
        plane = call.args[0].flatten(-rank)
        places = have[1].flatten(-rank)
        known = ((places >= 0) & (places < plane.shape[-1])).view(off.shape)
        values = plane.gather(-1, places.clamp(0, plane.shape[-1] - 1)).view(off.shape)
        largest = want[0]
        right = known & _in_window(call, have[1], rank) & ((values == largest) | (largest.isnan() & values.isnan()))
        wrong = off & ~right
        meant = "an index is that of a maximum of the window, counted within the plane"
        return f"{int(wrong.sum())} of {off.numel()} indices wrong: {meant}" if bool(wrong.any()) else None

    return check_results


def _in_window(call: Call, places: Tensor, rank: int) -> Tensor:
    """Return for each index of a plane whether it is in the window of its result."""
    given = [*call.args[1:], *([], 0, 1)[len(call.args) - 2 :]]
    kernel, stride, padding, dilation = (_each(one, rank) for one in (given[0], given[1] or given[0], *given[2:4]))
    found = torch.ones(places.shape, dtype=torch.bool)
    for dim in reversed(range(rank)):
        size, extent, step, pad, apart = call.args[0].shape[dim - rank], kernel[dim], stride[dim], padding[dim], dilation[dim]
        starts = torch.arange(places.shape[dim - rank]) * step - pad
        steps = places % size - starts.view([-1, *[1] * (rank - 1 - dim)])
        found &= (steps >= 0) & (steps <= apart * (extent - 1)) & (steps % apart == 0)
        places = places // size
    return found


def _each(value: int | Sequence[int], rank: int) -> list[int]:
    """Return an argument of a pooling op with a number for each dimension."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * rank if len(numbers) == 1 else numbers


def _max_pool2d_backward(draw: Draw) -> Call:
    dtype = draw.pick("dtype", FLOATS)
    windows = _Windows(draw, 2, dilated=True)
    leading = _leading(draw, 2, windows.inside)
    given = tensor(draw, "self", dtype, [*leading, *windows.inside], ("ties", "normal", "ones"))
    grad = tensor(draw, "grad_output", dtype, [*leading, *windows.found], _SUMS)
    args = [*windows.spelt, windows.spelt_dilation, windows.ceil]
    places = _aten.max_pool2d_with_indices(given, *args)[1]
    return Call([grad, given, *args, places])


def _refused_pool(rank: int, *, dilated: bool) -> Callable[[Draw], Call]:
    def calls() -> Sequence[Sequence[Any]]:
        given = torch.ones([2, 3, *[6] * rank])
        refused: list[list[Any]] = [
            [given, [3] * rank, [1] * rank, [2] * rank],
            [given, [8] * rank, [1] * rank, [0] * rank],
            [given, [2] * rank, [0] * rank, [0] * rank],
            [given, [0] * rank, [1] * rank, [0] * rank],
            [given, [2] * (rank + 1), [1] * rank, [0] * rank],
            [given, [2] * rank, [1] * (rank + 1), [0] * rank],
            [given, [2] * rank, [1] * rank, [-1] * rank],
            [torch.ones([6] * rank), [2] * rank],
            [torch.ones([1, 2, 3, *[6] * rank]), [2] * rank],
            [torch.ones([2, 0, *[6] * rank]), [2] * rank],
        ]
        if dilated:
            refused.append([given, [2] * rank, [1] * rank, [0] * rank, [0] * rank])
        elif rank > 1:
            refused.append([given, [2] * rank, [1] * rank, [0] * rank, False, True, 0])
        return refused

    return wrong(calls)


_FOUND = (3, 1, 2, 4, 5, 7, 8)
_LINE = (*_FOUND, *TAILS)


def _adaptive(rank: int) -> Callable[[Draw], Call]:
    def call(draw: Draw) -> Call:
        dtype = draw.pick("dtype", FLOATS)
        inside = several(draw, "inside", rank, (5, 4, 1, 2, 3, 6, 7, 8, *((17, 65) if rank < 3 else ())))
        found = several(draw, "output_size", rank, _FOUND[:4] if rank == 3 else _FOUND)
        if rank < 3:
            found = [*found[:-1], draw.pick("output_size.last", _LINE)]
        return Call([tensor(draw, "self", dtype, [*_leading(draw, rank, inside), *inside], _SUMS), found])

    return call


def _near_adaptive(call: Call) -> Near:
    return Near(4.0 + math.sqrt(call.args[0].shape[-1] * call.args[0].shape[-2]), "terms", zeros=False)


def _adaptive_backward(draw: Draw) -> Call:
    dtype = draw.pick("dtype", FLOATS)
    inside, found = several(draw, "inside", 2, (5, 4, 1, 2, 3, 6, 7, 17, 65)), several(draw, "found", 2, _FOUND)
    found = [found[0], draw.pick("found.last", _LINE)]
    leading = _leading(draw, 2, inside)
    grad = tensor(draw, "grad_output", dtype, [*leading, *found], _SUMS)
    return Call([grad, tensor(draw, "self", dtype, [*leading, *inside], ("normal",))])


def _refused_adaptive(rank: int) -> Callable[[Draw], Call]:
    def calls() -> Sequence[Sequence[Any]]:
        given, found = torch.ones([2, 3, *[6] * rank]), [2] * rank
        return (
            [given, [*found, 2]],
            [given, [-1] * rank],
            [torch.ones([6] * rank), found],
            [torch.ones([2, 3, *[0] * rank]), found],
        )

    return wrong(calls)


# -- columns to images -------------------------------------------------------------------------------------------------------


def _col2im(draw: Draw) -> Call:
    dtype = draw.pick("dtype", (*FLOATS, torch.complex64))
    kernel, dilation = several(draw, "kernel_size", 2, (2, 1, 3)), several(draw, "dilation", 2, (1, 2))
    padding, stride = several(draw, "padding", 2, (0, 1, 2)), several(draw, "stride", 2, (1, 2, 3))
    counts = [draw.pick(f"windows.{dim}", (3, 1, 2, 5, *TAILS[:3])) for dim in range(2)]
    sizes = []
    for dim in range(2):
        least = (counts[dim] - 1) * stride[dim] + dilation[dim] * (kernel[dim] - 1) + 1 - 2 * padding[dim]
        more = draw.below(stride[dim])
        while least < 1:
            counts[dim], least = counts[dim] + 1, least + stride[dim]
        sizes.append(least + more)
    channels = draw.pick("channels", (2, 1, 3, 17) if max(counts) < 10 else (2, 1))
    leading = [] if draw.flag("no batch") else [draw.pick("batch", (2, 1, 3))]
    fills = ("lattice", "normal", "tens", "positive_lattice")
    given = tensor(draw, "self", dtype, [*leading, channels * math.prod(kernel), math.prod(counts)], fills)
    return Call([given, sizes, kernel, dilation, padding, stride])


def _wrong_col2ims() -> Sequence[Sequence[Any]]:
    return wrong_variants(
        [torch.ones(2, 8, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]],
        {0: torch.ones(2, 8, 8)},
        {0: torch.ones(2, 7, 9)},
        {1: [5, 4]},
        {2: [0, 2]},
        {3: [0, 1]},
        {4: [-1, 0]},
        {5: [0, 1]},
        {0: torch.ones(9)},
        {1: [4]},
    )


# -- grid sampling -----------------------------------------------------------------------------------------------------------


def _grid_sampler(draw: Draw) -> Call:
    dtype = draw.pick("dtype", FLOATS)
    interpolation, padding = draw.pick("interpolation_mode", (0, 1, 2)), draw.pick("padding_mode", (0, 1, 2))
    corners = draw.flag("align_corners")
    batch, channels = draw.pick("batch", (2, 1, 3)), draw.pick("channels", (2, 1, 3, 5))
    inside = [draw.pick(name, (3, 2, 4, 1, 5, 8, 17)) for name in ("height", "width")]
    found = draw.pick("found", ([2, 3], [1, 1], [4, 5], [3, 17], [16, 9], *([2, size] for size in TAILS[1:])))
    # With multiples of 1/4 every position is exact, so that rounding does not decide which pixel is nearest.
    fills = ("quarters", "halves") if interpolation == 1 else ("quarters", "halves", "signed_uniform", "normal", "uniform")
    given = tensor(draw, "input", dtype, [batch, channels, *inside], ("lattice", "normal", "ties", "uniform"))
    grid = tensor(draw, "grid", dtype, [batch, *found, 2], fills)
    return Call([given, grid, interpolation, padding, corners])


def _wrong_grids() -> Sequence[Sequence[Any]]:
    given, grid = torch.ones(2, 3, 4, 4), torch.zeros(2, 2, 2, 2)
    return (
        [given, grid[:1], 0, 0, False],
        [given, torch.zeros(2, 2, 2, 3), 0, 0, False],
        [given, grid[0], 0, 0, False],
        [given, grid.double(), 0, 0, False],
        [given[:, :, :0], grid, 0, 0, False],
        [given[0], grid, 0, 0, False],
    )


# -- image scaling -----------------------------------------------------------------------------------------------------------

_SCALES = (2.0, 1.0, 0.5, 1.5, 3.0, 0.75, 2.5, 1.25, 0.6)


def _scaled(draw: Draw) -> tuple[list[int], list[int] | None, list[float] | None]:
    """Draw the sizes of an image, and either the sizes of the result or the scale factors."""
    inside = [draw.pick("height", (4, 3, 2, 1, 5, 7, 8, 16, 17)), draw.pick("width", (4, 3, 2, 1, 5, 7, 8, 16, *TAILS[:4]))]
    if draw.flag("by factors"):
        factors = [draw.pick(name, _SCALES) for name in ("by height", "by width")]
        factors = [factor if size * factor >= 1 else 2.0 for size, factor in zip(inside, factors, strict=True)]
        return inside, None, factors
    found = [
        draw.pick("to height", (3, 4, 1, 2, 5, 6, 8, 10, 16, 31)),
        draw.pick("to width", (3, 4, 1, 2, 5, 6, 8, 10, 16, *TAILS)),
    ]
    return inside, found, None


@functools.cache
def _is_clear(size: int, found: int, factor: float | None) -> bool:
    """Return whether each result has the same nearest pixel in float32, float64 and exact arithmetic."""
    exact = Fraction(size, found) if factor is None else 1 / Fraction(factor)
    wide = size / found if factor is None else 1 / factor
    narrow = torch.tensor(wide, dtype=torch.float32)
    for place in range(found):
        true = math.floor(place * exact)
        if {math.floor(place * wide), int((narrow * place).floor())} != {true}:
            return False
    return True


def _nearest(draw: Draw) -> Call:
    dtype = draw.pick("dtype", (*FLOATS, torch.uint8))
    inside, found, factors = _scaled(draw)
    results = found or [int(size * factor) for size, factor in zip(inside, factors or [], strict=True)]
    for dim in range(2):
        if not _is_clear(inside[dim], results[dim], None if factors is None else factors[dim]):
            inside[dim] = 4
            if found is not None:
                found[dim] = 8
            elif factors is not None:
                factors[dim] = 2.0
    given = tensor(
        draw,
        "input",
        dtype,
        [draw.pick("batch", (2, 1, 3)), draw.pick("channels", _CHANNELS), *inside],
        ("normal", "special", "wide"),
    )
    return Call([given, found, factors])


def _bilinear(draw: Draw) -> Call:
    dtype = draw.pick("dtype", FLOATS)  # without uint8, for which eager's kernels read out of bounds with some strides
    corners = draw.flag("align_corners")
    inside, found, factors = _scaled(draw)
    fills = ("normal", "lattice", "tens", "uniform")
    given = tensor(draw, "input", dtype, [draw.pick("batch", (2, 1, 3)), draw.pick("channels", _CHANNELS), *inside], fills)
    return Call([given, found, corners, factors])


def _near_bilinear(call: Call) -> Near:
    # Positions have the rounding error of float32.
    return Near(8.0 + 2.0 * max(call.args[0].shape[2:]), "terms", zeros=False)


def _refused_scaling(corners: bool) -> Callable[[Draw], Call]:
    def calls() -> Sequence[Sequence[Any]]:
        given, more = torch.ones(2, 3, 4, 4), [False] if corners else []
        refused: tuple[tuple[Tensor, Any, Any], ...] = (
            (given, [2, 2], [2.0, 2.0]),
            (given, None, None),
            (given, [0, 2], None),
            (given, [2, -1], None),
            (given[0], [2, 2], None),
            (given, [2], None),
            (given, None, [2.0]),
            (given[:, :, :0], [2, 2], None),
            (given, None, [0.1, 0.1]),
        )
        return [(one, found, *more, factors) for one, found, factors in refused]

    return wrong(calls)


SPECS: dict[str, Spec] = {
    "aten.avg_pool1d.default": Spec(_avg_pool(1), _near_average(1), refused=_refused_pool(1, dilated=False)),
    "aten.avg_pool2d.default": Spec(_avg_pool(2), _near_average(1), refused=_refused_pool(2, dilated=False)),
    "aten.avg_pool3d.default": Spec(_avg_pool(3), _near_average(1), refused=_refused_pool(3, dilated=False)),
    "aten.avg_pool2d_backward.default": Spec(_avg_pool2d_backward, _near_average(2)),
    "aten.max_pool2d_with_indices.default": Spec(
        _max_pool(2), EITHER_ZERO, refused=_refused_pool(2, dilated=True), any_values=(1,), check_results=_right_places(2)
    ),
    "aten.max_pool3d_with_indices.default": Spec(
        _max_pool(3), EITHER_ZERO, refused=_refused_pool(3, dilated=True), any_values=(1,), check_results=_right_places(3)
    ),
    "aten.max_pool2d_with_indices_backward.default": Spec(_max_pool2d_backward, Near(8.0, "terms", zeros=False)),
    "aten.adaptive_avg_pool1d.default": Spec(_adaptive(1), _near_adaptive, refused=_refused_adaptive(1)),
    "aten._adaptive_avg_pool2d.default": Spec(_adaptive(2), _near_adaptive, refused=_refused_adaptive(2)),
    "aten._adaptive_avg_pool3d.default": Spec(_adaptive(3), _near_adaptive, refused=_refused_adaptive(3)),
    "aten._adaptive_avg_pool2d_backward.default": Spec(_adaptive_backward, Near(12.0, "terms", zeros=False)),
    "aten.col2im.default": Spec(_col2im, Near(8.0, "terms", zeros=False), refused=wrong(_wrong_col2ims)),
    "aten.grid_sampler_2d.default": Spec(_grid_sampler, Near(32.0, "inputs", zeros=False, least=1.0), refused=wrong(_wrong_grids)),
    "aten.upsample_nearest2d.vec": Spec(_nearest, Near(0.0, tiny=True), refused=_refused_scaling(False)),
    "aten.upsample_bilinear2d.vec": Spec(_bilinear, _near_bilinear, refused=_refused_scaling(True)),
}
