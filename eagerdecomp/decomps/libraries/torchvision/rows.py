"""Weighted sums of rows of a table, and their transpose, in blocks of bounded memory.

Pooling of regions and deformable convolution read a few elements per output, at positions shared by all channels. With channels
last, an image is a table ``[M, C]``, and an output row is a weighted sum of T of its rows. Index M, one past the table, is a
position outside the image: reads return zeros, and additions are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import as_contiguous

__all__ = [
    "as_channels",
    "as_rows",
    "assemble",
    "blocks",
    "contiguous",
    "gather_rows",
    "groups",
    "joined",
    "padded",
    "part",
    "scatter_rows",
    "take",
]

aten = torch.ops.aten

# The number of elements gathered at once: 16 MiB of float32.
_ELEMENTS = 1 << 22

_SIZES_END = 1 << 31


def contiguous(x: Tensor, order: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Permute `x`, make it contiguous, and view it in another shape."""
    moved = aten.clone.default(aten.permute.default(x, order), memory_format=torch.contiguous_format)
    return aten.view.default(moved, shape)  # type: ignore[no-any-return]


def padded(rows: Tensor, value: float = 0.0) -> Tensor:
    """Append a row M to the table, with every element `value`."""
    extra = aten.full.default([1, rows.shape[1]], value, dtype=rows.dtype, device=rows.device)
    return aten.cat.default([rows, extra])  # type: ignore[no-any-return]


def blocks(index: Tensor, channels: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of an index ``[R, T]``. A range gathers about `_ELEMENTS` elements."""
    rows, taps = index.shape
    step = max(1, _ELEMENTS // max(1, taps * channels))
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def part(x: Tensor, first: int, last: int) -> Tensor:
    """Return the rows from `first` up to but without `last`."""
    return x if (first, last) == (0, x.shape[0]) else aten.slice.Tensor(x, 0, first, last)


def take(rows: Tensor, index: Tensor) -> Tensor:
    """Return the rows ``[R, T, C]`` at an index ``[R, T]``."""
    taken = aten.index_select.default(rows, 0, aten.view.default(index, [-1]))
    return aten.view.default(taken, [*index.shape, rows.shape[1]])  # type: ignore[no-any-return]


def joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else aten.cat.default(parts)


def gather_rows(rows: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Return ``out[r] = sum_t weight[r, t] * rows[index[r, t]]``, ``[R, C]``."""
    parts = []
    for first, last in blocks(index, rows.shape[1]):
        weights = aten.unsqueeze.default(part(weight, first, last), 1)
        parts.append(aten.squeeze.dim(aten.bmm.default(weights, take(rows, part(index, first, last))), 1))
    return joined(parts) if parts else aten.slice.Tensor(rows, 0, 0, 0)


def scatter_rows(pieces: Iterable[tuple[Tensor, Tensor, Tensor]], size: int, like: Tensor) -> Tensor:
    """Compute the transpose of `gather_rows`: ``out[index[r, t]] += weight[r, t] * grad[r]``, ``[M, C]``.

    The result sums over the pieces (index, weight, gradient). The gradient of an embedding sums rows. Each call writes a whole
    table, so it gets at least as many rows as the table has, if there are as many.
    """
    channels = like.shape[-1]
    limit = max(_ELEMENTS, (size + 1) * channels)
    total: Tensor | None = None
    indices: list[Tensor] = []
    values: list[Tensor] = []
    waiting = 0
    for index, weight, grad in pieces:
        rows, taps = index.shape
        step = max(1, limit // max(1, taps * channels))
        for first in range(0, rows, step):
            last = min(first + step, rows)
            spread = aten.mul.Tensor(
                aten.unsqueeze.default(part(weight, first, last), 2), aten.unsqueeze.default(part(grad, first, last), 1)
            )
            indices.append(aten.view.default(part(index, first, last), [-1]))
            values.append(aten.view.default(spread, [-1, channels]))
            waiting += (last - first) * taps * channels
            if waiting >= limit:
                total = _summed(total, indices, values, size)
                indices, values, waiting = [], [], 0
    if indices:
        total = _summed(total, indices, values, size)
    if total is None:
        return aten.full.default([size, channels], 0, dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]
    return aten.slice.Tensor(total, 0, 0, size)  # type: ignore[no-any-return]


def _summed(total: Tensor | None, indices: list[Tensor], values: list[Tensor], size: int) -> Tensor:
    found = aten.embedding_dense_backward.default(joined(values), joined(indices), size + 1, -1, False)
    return found if total is None else aten.add.Tensor(total, found)  # type: ignore[no-any-return]


def groups(height: Tensor, width: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Yield each pair of sizes above zero, with the positions of the boxes of that size. This reads a number per group."""
    some = aten.logical_and.default(aten.gt.Scalar(height, 0), aten.gt.Scalar(width, 0))
    code = aten.add.Tensor(aten.mul.Scalar(height, _SIZES_END), width)
    code = aten.where.self(some, code, aten.full.default([], 0, dtype=code.dtype, device=code.device))
    while code.shape[0]:
        largest = int(aten._local_scalar_dense.default(aten.amax.default(code)))
        if not largest:
            return
        own = aten.eq.Scalar(code, largest)
        yield largest // _SIZES_END, largest % _SIZES_END, aten.view.default(aten.nonzero.default(own), [-1])
        code = aten.where.self(own, aten.full.default([], 0, dtype=code.dtype, device=code.device), code)


def assemble(parts: list[tuple[Tensor, Tensor]], count: int, missing: Tensor) -> Tensor:
    """Join results in the order of the boxes. A part has positions and results. Boxes without a part get `missing` [1, ...]."""
    where = [position for position, _ in parts]
    rows = joined([missing, *(result for _, result in parts)])
    source = aten.full.default([count], 0, dtype=torch.int64, device=missing.device)
    if where:
        number = aten.arange.start_step(1, rows.shape[0], 1, dtype=torch.int64, device=missing.device)
        source = aten.index_put.default(source, [joined(where)], number)
    return aten.index_select.default(rows, 0, source)  # type: ignore[no-any-return]


def as_rows(input: Tensor, bins: tuple[int, int] = (1, 1)) -> Tensor:
    """Return an image ``[N, C, H, W]`` as a table. Position-sensitive pooling uses a part of the channels for each of its bins."""
    n, c, h, w = input.shape
    if bins == (1, 1):
        return contiguous(input, [0, 2, 3, 1], [n * h * w, c])
    split = aten.view.default(as_contiguous(input), [n, c // (bins[0] * bins[1]), *bins, h, w])
    return contiguous(split, [0, 2, 3, 4, 5, 1], [n * bins[0] * bins[1] * h * w, c // (bins[0] * bins[1])])


def as_channels(rows: Tensor, shape: Sequence[int], bins: tuple[int, int] = (1, 1)) -> Tensor:
    """Invert `as_rows`: return an image of this shape."""
    n, c, h, w = shape
    if bins == (1, 1):
        return contiguous(aten.view.default(rows, [n, h, w, c]), [0, 3, 1, 2], shape)
    split = aten.view.default(rows, [n, *bins, h, w, c // (bins[0] * bins[1])])
    return contiguous(split, [0, 5, 1, 2, 3, 4], shape)
