"""Histograms in one or more dimensions: search the edges of each dimension, then one `scatter_add` of the weights.

Without a range, eager reads the minimum and maximum of the data to compute the edges. So do these rules, which then run again at
each call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _check(points: Tensor, dims: int, weight: Tensor | None = None) -> None:
    if points.size(-1) != dims or (weight is not None and weight.shape != points.shape[:-1]):
        raise Declined


def _ends(points: Tensor, dims: int, range: Sequence[float] | None) -> list[tuple[float, float]]:
    """Return the first and the last edge of each dimension."""
    if range is not None:
        ends = list(zip(range[::2], range[1::2], strict=True))
    elif not points.numel():
        ends = [(0.0, 1.0)] * dims
    else:
        columns = aten.reshape.default(points, [-1, dims])
        lows, highs = aten.amin.default(columns, [0]), aten.amax.default(columns, [0])
        read = aten._local_scalar_dense.default
        ends = [(float(read(aten.select.int(lows, 0, dim))), float(read(aten.select.int(highs, 0, dim)))) for dim in _range(dims)]
    if not all(-math.inf < low <= high < math.inf for low, high in ends):
        raise Declined
    return [(low - 0.5, high + 0.5) if low == high else (low, high) for low, high in ends]


_range = range  # which the ops have an argument called


def _edges(points: Tensor, counts: Sequence[int], range: Sequence[float] | None) -> list[Tensor]:
    _check(points, len(counts))
    ends = _ends(points, len(counts), range)
    return [
        aten.linspace.default(low, high, count + 1, dtype=points.dtype, device=points.device)
        for (low, high), count in zip(ends, counts, strict=True)
    ]


def _counted(points: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """Return the count of each bin. The last bin of each dimension includes its upper edge."""
    dims, counts = len(edges), [edge.numel() - 1 for edge in edges]
    _check(points, dims, weight)
    if not dims:  # one bin that counts nothing
        empty = aten.full.default([], 0, dtype=points.dtype, device=points.device)
        return aten.div.Tensor(empty, empty) if density else empty  # type: ignore[no-any-return]
    columns = aten.reshape.default(points, [-1, dims])
    place = inside = None
    for dim, (edge, count) in enumerate(zip(edges, counts, strict=True)):
        column = aten.select.int(columns, 1, dim)
        first, last = aten.select.int(edge, 0, 0), aten.select.int(edge, 0, count)
        within = aten.logical_and.default(aten.ge.Tensor(column, first), aten.le.Tensor(column, last))
        found = aten.searchsorted.Tensor(edge, aten.clone.default(column, memory_format=torch.contiguous_format), right=True)
        found = aten.clamp.default(aten.sub.Scalar(found, 1), 0, count - 1)
        place = found if place is None else aten.add.Tensor(aten.mul.Scalar(place, count), found)
        inside = within if inside is None else aten.logical_and.default(inside, within)
    if weight is None:
        worth = aten._to_copy.default(inside, dtype=points.dtype)
    else:
        nothing = aten.full.default([], 0, dtype=points.dtype, device=points.device)
        worth = aten.where.self(inside, aten.reshape.default(weight, [-1]), nothing)
    empty = aten.full.default([math.prod(counts)], 0, dtype=points.dtype, device=points.device)
    counted = aten.view.default(aten.scatter_add.default(empty, 0, place, worth), counts)
    if density:
        counted = aten.div.Tensor(counted, aten.sum.dim_IntList(counted, []))
        for dim, (edge, count) in enumerate(zip(edges, counts, strict=True)):
            lengths = aten.sub.Tensor(aten.slice.Tensor(edge, 0, 1, count + 1), aten.slice.Tensor(edge, 0, 0, count))
            counted = aten.div.Tensor(counted, aten.view.default(lengths, [-1 if here == dim else 1 for here in _range(dims)]))
    return counted  # type: ignore[no-any-return]


@rule("aten._histogramdd_bin_edges.default", recorded=True)
def _bin_edges(self: Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None, **rest: Any) -> Any:
    return _edges(self, bins, range)


@rule("aten._histogramdd_from_bin_cts.default", recorded=True)
def _from_counts(self: Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None, **rest: Any) -> Any:
    return _from_tensors(self, _edges(self, bins, range), **rest)


@rule("aten._histogramdd_from_bin_tensors.default", recorded=True)
def _from_tensors(self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Any:
    return _counted(self, bins, weight, density)


def _of_one(self: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return a tensor as one-dimensional points, and its weights flattened."""
    points = aten.reshape.default(self, [-1, 1])
    return points, weight if weight is None else aten.reshape.default(weight, [-1])


@rule("aten.histogram.bin_ct", recorded=True)
def _histogram(
    self: Tensor, bins: int = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    points, weight = _of_one(self, weight)
    (edges,) = _edges(points, [bins], range)
    return _counted(points, [edges], weight, density), edges


@rule("aten.histogram.bins_tensor", recorded=True)
def _histogram_between(self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    points, weight = _of_one(self, weight)
    return _from_tensors(points, [bins], weight=weight, density=density), aten.clone.default(bins)
