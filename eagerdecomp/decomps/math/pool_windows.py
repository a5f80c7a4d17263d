"""Windows of pooling: their number, and tables of the input indices that each window contains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from eagerdecomp.eager.verdict import Declined

__all__ = [
    "adaptive_extents",
    "adaptive_places",
    "each_dimension",
    "flat_places",
    "is_pooled",
    "along_dim",
    "plane_rows",
    "pool_counts",
    "pool_windows",
    "sampled_places",
    "strided_places",
    "window_count",
]

aten = torch.ops.aten


def plane_rows(x: Tensor, dims: int) -> list[int]:
    """Return the shape of `x` as rows of its last `dims` dimensions, without -1, which is ambiguous for empty tensors."""
    return [math.prod(x.shape[:-dims]), math.prod(x.shape[-dims:])]


def along_dim(x: Tensor, dim: int, rank: int) -> Tensor:
    """View a vector along one of `rank` dimensions."""
    return aten.view.default(x, [-1 if at == dim else 1 for at in range(rank)])  # type: ignore[no-any-return]


def adaptive_places(size: int, count: int, dim: int, dims: int, device: torch.device) -> Tensor:
    """Return the indices of adaptive windows along `dim`: from floor(o * size / count) to ceil((o + 1) * size / count) - 1."""
    extents = adaptive_extents(size, count)
    scaled = along_dim(aten.arange.start_step(0, count * size, size, device=device), dim, 2 * dims)
    taps = along_dim(aten.arange.start_step(0, max(extents), device=device), dims + dim, 2 * dims)
    places: Tensor = aten.add.Tensor(aten.div.Scalar_mode(scaled, count, rounding_mode="floor"), taps)
    if min(extents) == max(extents):
        return places
    last = aten.div.Scalar_mode(aten.add.Scalar(scaled, size - 1), count, rounding_mode="floor")
    return aten.minimum.default(places, last)  # type: ignore[no-any-return]


def adaptive_extents(size: int, count: int) -> tuple[int, int]:
    """Return the least and the largest extent of adaptive windows.

    With ``size = q * count + r``, a window begins ``t / count`` within an element, for a multiple t of ``gcd(r, count)``, and ends
    ``r / count`` after its last whole element: in the next element, or if t + r is above `count` in the one after it.
    """
    whole, rest = size // count, size % count  # sizes may be symbols, which take no divmod
    return (whole, whole) if not rest else (whole + 1, whole + 1 + (count % rest != 0))


def strided_places(window: tuple[int, int, int, int], size: int, count: int, dim: int, dims: int, device: torch.device) -> Tensor:
    """Return the indices of windows with fixed stride. `window` is kernel size, stride, padding and dilation."""
    kernel, stride, padding, dilation = window
    starts = along_dim(aten.arange.start_step(-padding, count * stride - padding, stride, device=device), dim, 2 * dims)
    taps = along_dim(aten.arange.start_step(0, kernel, device=device), dims + dim, 2 * dims)
    if dilation == 1:
        return aten.clamp.default(aten.add.Tensor(starts, taps), 0, size - 1)  # type: ignore[no-any-return]
    before = aten.add.Scalar(aten.neg.default(starts), dilation - 1)
    first = aten.div.Scalar_mode(before, dilation, rounding_mode="floor")
    last = aten.div.Scalar_mode(aten.add.Scalar(before, size - dilation), dilation, rounding_mode="floor")
    inside = aten.minimum.default(aten.maximum.default(taps, first), last)
    return aten.add.Tensor(starts, aten.mul.Scalar(inside, dilation))  # type: ignore[no-any-return]


def sampled_places(samples: Tensor, size: int, count: int, kernel: int, dim: int, dims: int) -> Tensor:
    """Return the indices of fractional windows, a table per row of `samples` [R].

    Windows start at multiples of (size - kernel) / (count - 1), shifted by the sample and rounded down, in the samples' dtype as in
    the kernel.
    """
    rows, device = samples.size(0), samples.device
    starts = aten.full.default([rows, 1], size - kernel, dtype=torch.int64, device=device)
    if count > 1:
        step = aten.full.default([], (size - kernel) / (count - 1), dtype=samples.dtype, device=device)
        whole = aten.arange.start_step(0, count - 1, dtype=samples.dtype, device=device)
        steps = aten.mul.Tensor(aten.add.Tensor(aten.view.default(samples, [rows, 1]), whole), step)
        floors = aten._to_copy.default(steps, dtype=torch.int64)
        starts = aten.cat.default([aten.sub.Tensor(floors, aten.slice.Tensor(floors, 1, 0, 1)), starts], 1)
    shape = [rows, *(count if at == dim else 1 for at in range(2 * dims))]
    taps = along_dim(aten.arange.start_step(0, kernel, device=device), dims + dim, 2 * dims)
    return aten.add.Tensor(aten.view.default(starts, shape), taps)  # type: ignore[no-any-return]


def flat_places(places: Sequence[Tensor], sizes: Sequence[int], windows: int) -> Tensor:
    """Combine the tables of all dimensions to indices in the flattened input: [windows, taps], or [rows, windows, taps]."""
    table = places[0]
    for one, size in zip(places[1:], sizes[1:], strict=True):
        table = aten.add.Tensor(aten.mul.Scalar(table, size), one)
    rows = table.shape[: table.dim() - 2 * len(places)]
    taps = math.prod(table.shape[-len(places) :])
    return aten.reshape.default(table, [*rows, windows, taps])  # type: ignore[no-any-return]


def each_dimension(sizes: Sequence[int], dims: int, default: Sequence[int]) -> list[int]:
    """Return a pooling option as one number per dimension."""
    sizes = list(sizes) or list(default)
    return sizes * dims if len(sizes) == 1 else sizes


def window_count(size: int, window: tuple[int, int, int, int], ceil_mode: bool) -> int:
    """Return the number of windows.

    With `ceil_mode` the last window may leave the input, but has to start in the input or its left padding.
    """
    kernel, stride, padding, dilation = window
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def pool_counts(sizes: Sequence[int], windows: Sequence[tuple[int, int, int, int]], ceil_mode: bool) -> list[int]:
    """Return the number of windows per dimension. Decline a call that has none."""
    counts = [window_count(size, window, ceil_mode) for size, window in zip(sizes, windows, strict=True)]
    if min(counts) < 1:
        raise Declined
    return counts


def pool_windows(
    dims: int, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int, int, int]]:
    """Return kernel size, stride, padding and dilation per dimension."""
    kernel = each_dimension(kernel_size, dims, ())
    options = (each_dimension(stride, dims, kernel), each_dimension(padding, dims, ()), each_dimension(dilation, dims, ()))
    return list(zip(kernel, *options, strict=True))


def is_pooled(given: Tensor, self: Tensor, windows: Sequence[tuple[int, int, int, int]], ceil_mode: bool) -> bool:
    """Return whether a tensor has an element per window of `self`."""
    dims = len(windows)
    counts = pool_counts(self.shape[-dims:], windows, ceil_mode)
    return list(given.shape) == [*self.shape[:-dims], *counts]
