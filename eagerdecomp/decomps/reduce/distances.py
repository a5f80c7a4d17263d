"""Distances between rows and their gradients, and products of three tensors.

The gradient for a pair of rows and a coordinate is the factor of the pair times a direction in that coordinate. The factor is the
incoming gradient divided by a power of the distance.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import joined
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64

aten = torch.ops.aten

#: If either side has more rows than this, the Euclidean distance is a matrix product, unless `compute_mode` says otherwise.
_FEW_ROWS = 25
#: The largest number of differences in memory at once. The differences of one row and coordinate may exceed it.
_AT_ONCE = 1 << 16
_PRODUCT_IF_MANY_ROWS, _PRODUCT_ALWAYS = 0, 1  # `compute_mode`; 2: never


@rule("aten._cdist_forward.default", recorded=True)
def _cdist_forward(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Any:
    mode = compute_mode or _PRODUCT_IF_MANY_ROWS
    if x1.size(-1) != x2.size(-1):
        return NotImplemented
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    shape = [*batch, x1.size(-2), x2.size(-2)]
    if not x1.size(-1) or not math.prod(shape):
        return aten.full.default(shape, 0.0, dtype=x1.dtype, device=x1.device)
    few = max(x1.size(-2), x2.size(-2)) <= _FEW_ROWS
    if p == 2 and (mode == _PRODUCT_ALWAYS or (mode == _PRODUCT_IF_MANY_ROWS and not few)):
        return aten.view.default(aten.clone.default(_products(x1, x2), memory_format=torch.contiguous_format), shape)
    differences = _differences(x1, x2)
    if math.isinf(p):  # eager skips NaN here, but not in `pdist`
        differences = aten.where.self(aten.isnan.default(differences), number_like(differences, 0.0), differences)
    return _length(differences, p)


def _products(x1: Tensor, x2: Tensor) -> Tensor:
    return aten._euclidean_dist.default(x1, x2)  # type: ignore[no-any-return]


def _differences(x1: Tensor, x2: Tensor) -> Tensor:
    """Return the differences of ``[..., n, d]`` and ``[..., m, d]``: ``[..., n, m, d]``."""
    return aten.sub.Tensor(aten.unsqueeze.default(x1, -2), aten.unsqueeze.default(x2, -3))  # type: ignore[no-any-return]


def _length(differences: Tensor, p: float) -> Any:
    """Return the p-norm over the last dimension; for p = 0, the number of coordinates that differ."""
    sizes = aten.abs.default(differences)
    if math.isinf(p):
        return aten.amax.default(sizes, [-1])
    if p == 0:
        return aten.sum.dim_IntList(aten.clamp.default(aten.ceil.default(sizes), None, 1), [-1])
    if p == 1:
        return aten.sum.dim_IntList(sizes, [-1])
    if p == 2:
        return aten.sqrt.default(aten.sum.dim_IntList(aten.mul.Tensor(differences, differences), [-1]))
    return aten.pow.Tensor_Scalar(aten.sum.dim_IntList(aten.pow.Tensor_Scalar(sizes, p), [-1]), 1 / p)


def _pair_gradients(factors: Tensor, differences: Tensor, distances: Tensor, p: float) -> Any:
    """Return the gradient of each coordinate of each pair: the pair's factor times a direction."""
    if p == 2:
        return aten.mul.Tensor(factors, differences)
    if p == 1:
        return aten.mul.Tensor(factors, _sign(differences))
    sizes = aten.abs.default(differences)
    if p > 2 and not math.isinf(p):
        return aten.mul.Tensor(factors, aten.mul.Tensor(differences, aten.pow.Tensor_Scalar(sizes, p - 2)))
    sign = _sign(differences)
    if math.isinf(p):
        # Only coordinates equal to the distance have a gradient. As in ATen's kernel, it is NaN if the distance is infinite.
        off = aten.ceil.default(aten.abs.default(aten.sub.Tensor(sizes, distances)))
        return aten.mul.Tensor(factors, aten.mul.Tensor(sign, aten.rsub.Scalar(aten.clamp.default(off, None, 1), 1)))
    moves = aten.mul.Tensor(factors, aten.mul.Tensor(sign, aten.pow.Tensor_Scalar(sizes, p - 1)))
    if p > 1:
        return moves
    # Equal coordinates get gradient 0: their direction is infinite.
    return aten.where.self(aten.eq.Scalar(differences, 0), number_like(moves, 0.0), moves)


def _sign(x: Tensor) -> Tensor:
    """Return the sign, with NaN for NaN (`aten.sign` returns 0).

    Multiplying twice by a large power of 2 brings even the smallest subnormal above 1.
    """
    large = 2.0**1023 if x.dtype is torch.float64 else 2.0**127
    return aten.clamp.default(aten.mul.Scalar(aten.mul.Scalar(x, large), large), -1, 1)  # type: ignore[no-any-return]


def _factors(grad: Tensor, distances: Tensor, p: float) -> Tensor:
    """Return the factor of each pair: ``grad / distance^(p - 1)``, 0 where the distance is 0. For p = 1 and inf it is `grad`."""
    if p == 1 or math.isinf(p):
        return grad
    power = distances if p == 2 else aten.pow.Tensor_Scalar(distances, p - 1)
    zero = aten.full.default([], 0.0, dtype=grad.dtype, device=grad.device)
    return aten.where.self(aten.eq.Scalar(distances, 0), zero, aten.div.Tensor(grad, power))  # type: ignore[no-any-return]


def _sum_pair_gradients(
    factors: Tensor, distances: Tensor, x1: Tensor, x2: Tensor, p: float, shape: list[int], excluded: Tensor | None = None
) -> Tensor:
    """Return ``sum_m factors[..., n, m] * directions[..., n, m, d]``, computed in blocks of coordinates and rows.

    The table of all directions would be many times larger than the distances. Coordinates come first in memory, so that each sum is
    over contiguous elements. The differences of `excluded` pairs are set to 0.
    """
    width, rows = shape[-1], shape[-2]
    of_row = distances.numel() // rows
    rows_at_once = max(1, min(rows, _AT_ONCE // of_row))
    at_once = max(1, _AT_ONCE // (of_row * rows_at_once))
    x1, x2 = _coordinates_first(x1), _coordinates_first(x2)
    factors, distances = aten.unsqueeze.default(factors, -3), aten.unsqueeze.default(distances, -3)
    columns = [
        [aten.unsqueeze.default(aten.slice.Tensor(x, -2, start, start + at_once), dim) for x, dim in ((x1, -1), (x2, -2))]
        for start in range(0, width, at_once)
    ]
    blocks = []
    for start in range(0, rows, rows_at_once):
        end = start + rows_at_once
        pairs = [x if end >= rows and not start else aten.slice.Tensor(x, -2, start, end) for x in (factors, distances)]
        sums = []
        for one, other in columns:
            differences = aten.sub.Tensor(aten.slice.Tensor(one, -2, start, end), other)
            if excluded is not None:
                pair = aten.slice.Tensor(excluded, -2, start, end)
                differences = aten.where.self(pair, number_like(differences, 0.0), differences)
            sums.append(aten.sum.dim_IntList(_pair_gradients(pairs[0], differences, pairs[1], p), [-1]))
        blocks.append(joined(sums, -2))
    return _coordinates_first(joined(blocks, -1))


def _coordinates_first(x: Tensor) -> Tensor:
    """Return a contiguous copy with the last two dimensions exchanged."""
    dims = list(range(x.dim()))
    exchanged = aten.permute.default(x, [*dims[:-2], dims[-1], dims[-2]])
    return aten.clone.default(exchanged, memory_format=torch.contiguous_format)  # type: ignore[no-any-return]


@rule("aten._cdist_backward.default")
def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Any:
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    rows, width, others = x1.size(-2), x1.size(-1), x2.size(-2)
    if not math.prod([*batch, rows, width, others]):
        return aten.zeros_like.default(x1)
    if not _are_floats(x1, x2, grad, cdist):
        return NotImplemented
    shape = [*batch, rows, width]
    if p == 0:
        return aten.full.default(shape, 0.0, dtype=x1.dtype, device=x1.device)
    return _sum_pair_gradients(_factors(grad, cdist, p), cdist, x1, x2, p, shape)


@rule("aten._pdist_forward.default", recorded=True)
def _pdist_forward(self: Tensor, p: float = 2.0) -> Any:
    if not self.is_contiguous():
        return NotImplemented
    rows = self.size(0)
    if rows <= 1 or not self.size(1):
        return aten.full.default([max(rows * (rows - 1) // 2, 0)], 0.0, dtype=self.dtype, device=self.device)
    low, high = _pairs(rows, self.device)
    return _length(aten.sub.Tensor(aten.index.Tensor(self, [low]), aten.index.Tensor(self, [high])), p)


@rule("aten._pdist_backward.default")
def _pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Any:
    if not self.is_contiguous() or not _are_floats(self, grad, pdist):
        return NotImplemented
    rows, width = self.size(0), self.size(1)
    if p == 0 or rows <= 1 or not width or self.dim() != 2:
        return aten.full.default(self.shape, 0.0, dtype=self.dtype, device=self.device)
    place, diagonal = _places(rows, self.device)
    zero = aten.full.default([], 0.0, dtype=grad.dtype, device=grad.device)
    # The diagonal has no pair, so `place` points to an arbitrary one there. Set its gradient and distance to 0.
    square = aten.where.self(diagonal, zero, aten.index.Tensor(grad, [place]))
    distances = aten.where.self(diagonal, zero, aten.index.Tensor(pdist, [place]))
    # For p = 1, exclude the diagonal, where inf - inf is NaN. For other p, the other pairs make the gradient of an infinite
    # coordinate NaN anyway.
    excluded = diagonal if p == 1 else None
    return _sum_pair_gradients(_factors(square, distances, p), distances, self, self, p, [rows, width], excluded)


def _pairs(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the row indices ``i < j`` of all pairs, in row order.

    float64 is exact for every number of pairs that fits in memory.
    """
    if not has_float64():
        return _pairs_by_integers(rows, device)
    pair = aten.arange.start_step(0, rows * (rows - 1) // 2, 1, dtype=torch.float64, device=device)
    half = rows - 0.5
    root = aten.sqrt.default(aten.add.Scalar(aten.mul.Scalar(pair, -2), half * half - 1))
    low = aten.floor.default(aten.rsub.Scalar(root, half))
    # There are i * (2n - i - 1) / 2 pairs before row i.
    before = aten.mul.Scalar(aten.mul.Tensor(low, aten.rsub.Scalar(low, 2 * rows - 1)), 0.5)
    high = aten.add.Scalar(aten.add.Tensor(aten.sub.Tensor(pair, before), low), 1)
    return aten._to_copy.default(low, dtype=torch.int64), aten._to_copy.default(high, dtype=torch.int64)


def _pairs_by_integers(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return `_pairs` of a backend without float64.

    The row counted from the end is a root in float32, off by one at most, which integers correct. There are ``r (r + 1) / 2`` pairs
    behind the first of row `r` from the end.
    """
    count = rows * (rows - 1) // 2
    behind = aten.arange.start_step(count - 1, -1, -1, dtype=torch.int64, device=device)
    root = aten.sqrt.default(aten.add.Scalar(aten.mul.Scalar(aten._to_copy.default(behind, dtype=torch.float32), 8), 1))
    row = aten._to_copy.default(aten.mul.Scalar(aten.sub.Scalar(root, 1), 0.5), dtype=torch.int64)
    for step, compare in ((-1, aten.gt.Tensor), (1, aten.le.Tensor)):
        edge = row if step < 0 else aten.add.Scalar(row, 1)
        before = aten.div.Scalar_mode(aten.mul.Tensor(edge, aten.add.Scalar(edge, 1)), 2, rounding_mode="floor")
        off = aten._to_copy.default(compare(before, behind), dtype=torch.int64)
        row = aten.add.Tensor(row, off, alpha=step)
    before = aten.div.Scalar_mode(aten.mul.Tensor(row, aten.add.Scalar(row, 1)), 2, rounding_mode="floor")
    low = aten.rsub.Scalar(row, rows - 2)
    high = aten.rsub.Scalar(aten.sub.Tensor(behind, before), rows - 1)
    return low, high


def _places(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ``[n, n]``: the index of each pair among the pairs ``i < j`` in row order, and the mask of the diagonal."""
    index = aten.arange.start_step(0, rows, 1, dtype=torch.int64, device=device)
    column = aten.unsqueeze.default(index, 1)
    low, high = aten.minimum.default(column, index), aten.maximum.default(column, index)
    # There are i * (2n - i - 1) / 2 pairs before row i, and j - i - 1 before j within it.
    before = aten.div.Tensor_mode(aten.mul.Tensor(low, aten.rsub.Scalar(low, 2 * rows - 3)), 2, rounding_mode="floor")
    place = aten.sub.Scalar(aten.add.Tensor(before, high), 1)
    diagonal = aten.eq.Tensor(column, index)
    return aten.clamp.default(place, 0, rows * (rows - 1) // 2 - 1), diagonal


def _are_floats(x: Tensor, *others: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.float64) and all(other.dtype is x.dtype for other in others)


@rule("aten._trilinear.default", recorded=True)
def _trilinear(i1: Tensor, i2: Tensor, i3: Tensor, *dimensions: Any) -> Any:
    """Return the sum over `sumdim` of the product of three tensors, each unsqueezed at its `expand` dims: two batched products."""
    *expands, sumdim = dimensions[:4]
    dims = i1.dim() + len(expands[0])
    kept = [dim for dim in range(dims) if dim not in sumdim]
    named = [[dim for dim in range(dims) if dim not in expand] for expand in expands]
    everywhere = {dim for names in named for dim in names}
    equation = ",".join(map(_letters, named)) + "->" + _letters([dim for dim in kept if dim in everywhere])
    result = aten.einsum.default(equation, [i1, i2, i3])
    for position, dim in enumerate(kept):
        if dim not in everywhere:
            result = aten.unsqueeze.default(result, position)
    return aten.clone.default(result, memory_format=torch.contiguous_format) if not result.is_contiguous() else result


def _letters(dims: Sequence[int]) -> str:
    return "".join(string.ascii_letters[dim] for dim in dims)
