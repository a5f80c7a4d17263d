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

from eagerdecomp.eager.messages import cpp_name, not_implemented
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _check_rank(points: Tensor) -> None:
    if points.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")


def _check_points(points: Tensor, dims: int) -> None:
    _check_rank(points)
    if points.size(-1) != dims:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")


def _check(points: Tensor, dims: int, counts: Sequence[int], weight: Tensor | None) -> None:
    """Check the points, the bin counts and the weights as eager does."""
    _check_points(points, dims)
    for dim, count in enumerate(counts):
        if count <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {count} for dimension {dim}")
    if weight is None:
        return
    if weight.dtype is not points.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype, "
            f"but got input({cpp_name(points.dtype)}), and weight({cpp_name(weight.dtype)})"
        )
    if weight.shape != points.shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its "
            f"innermost dimension, but got input with shape {list(points.shape)} and weight with shape {list(weight.shape)}"
        )


def _ends(points: Tensor, dims: int, range: Sequence[float] | None) -> list[tuple[float, float]]:
    """Return the first and the last edge of each dimension."""
    if range is not None:
        if len(range) != 2 * dims:
            raise RuntimeError(
                f"torch.histogramdd: for a {dims}-dimensional histogram range should have {2 * dims} elements, but got {len(range)}"
            )
        ends = list(zip(range[::2], range[1::2], strict=True))
    elif not points.numel():
        ends = [(0.0, 1.0)] * dims
    elif points.dtype not in (torch.float32, torch.float64):  # float16 and bfloat16 eager's kernel counts, but finds no ends of
        raise not_implemented("histogramdd", points.dtype)
    else:
        columns = aten.reshape.default(points, [-1, dims])
        lows, highs = aten.amin.default(columns, [0]), aten.amax.default(columns, [0])
        read = aten._local_scalar_dense.default
        ends = [(float(read(aten.select.int(lows, 0, dim))), float(read(aten.select.int(highs, 0, dim)))) for dim in _range(dims)]
    for dim, (low, high) in enumerate(ends):
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"torch.histogramdd: dimension {dim}'s range [{low:g}, {high:g}] is not finite")
        if low > high:
            raise RuntimeError(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {dim}"
            )
    return [(low - 0.5, high + 0.5) if low == high else (low, high) for low, high in ends]


_range = range  # which the ops have an argument called


def _edges(points: Tensor, counts: Sequence[int], range: Sequence[float] | None) -> list[Tensor]:
    _check_points(points, len(counts))
    ends = _ends(points, len(counts), range)
    return [
        aten.linspace.default(low, high, count + 1, dtype=points.dtype, device=points.device)
        for (low, high), count in zip(ends, counts, strict=True)
    ]


def _counted(points: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """Return the count of each bin. The last bin of each dimension includes its upper edge."""
    if not points.dtype.is_floating_point:
        raise not_implemented("histogram_cpu", points.dtype)
    dims, counts = len(edges), [edge.numel() - 1 for edge in edges]
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


def _check_edges(points: Tensor, edges: Sequence[Tensor]) -> None:
    _check_rank(points)
    dims = points.size(-1)
    if len(edges) != dims:
        raise RuntimeError(
            f"torch.histogramdd: expected {dims} sequences of bin edges for a {dims}-dimensional histogram but got {len(edges)}"
        )
    for dim, edge in enumerate(edges):
        if edge.dtype is not points.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
                f"{cpp_name(points.dtype)} and bins for dimension {dim} with dtype {cpp_name(edge.dtype)}"
            )
        if edge.dim() != 1:
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have one dimension, but got {edge.dim()} dimensions in the bins tensor "
                f"for dimension {dim}"
            )
        if not edge.numel():
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have at least 1 element, but got {edge.numel()} elements in the bins "
                f"tensor for dimension {dim}"
            )


@rule("aten._histogramdd_bin_edges.default", recorded=True)
def _bin_edges(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    return _edges(self, bins, range)


@rule("aten._histogramdd_from_bin_cts.default", recorded=True)
def _from_counts(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    _check(self, len(bins), bins, weight)
    return _counted(self, _edges(self, bins, range), weight, density)


@rule("aten._histogramdd_from_bin_tensors.default", recorded=True)
def _from_tensors(self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Any:
    _check_edges(self, bins)
    _check(self, len(bins), [edge.numel() - 1 for edge in bins], weight)
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
    _check(points, 1, [bins], weight)
    (edges,) = _edges(points, [bins], range)
    return _counted(points, [edges], weight, density), edges


@rule("aten.histogram.bins_tensor", recorded=True)
def _histogram_between(self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    points, weight = _of_one(self, weight)
    return _from_tensors(points, [bins], weight=weight, density=density), aten.clone.default(bins)
