"""Padded and jagged tensors. A jagged tensor has rows of different lengths end to end, with the offset of each.

Several lists of offsets are nested: offsets of the first level count rows of the second level, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


@rule("aten._jagged_to_padded_dense_forward.default", recorded=True)
def _to_padded(values: Tensor, offsets: Sequence[Tensor], max_lengths: Sequence[int], padding_value: float = 0.0) -> Any:
    """Convert ``[total, *]`` to ``[B, *max_lengths, *]``; rows longer than `max_lengths` are cut."""
    device = values.device
    place = aten.arange.start_step(0, offsets[0].size(0) - 1, 1, device=device)
    within: Tensor | None = None
    for starts, most in zip(offsets, max_lengths, strict=True):
        first, end = (aten.unsqueeze.default(aten.index.Tensor(starts, [at]), -1) for at in (place, aten.add.Scalar(place, 1)))
        place = aten.add.Tensor(first, aten.arange.start_step(0, most, 1, device=device))
        here = aten.lt.Tensor(place, end)
        within = here if within is None else aten.logical_and.default(aten.unsqueeze.default(within, -1), here)
        place = aten.where.self(within, place, aten.full.default([], 0, dtype=place.dtype, device=device))
    assert within is not None
    rest = list(values.shape[1:])
    padding = aten.full.default([], padding_value, dtype=values.dtype, device=device)
    if not values.size(0):
        return aten.expand.default(padding, [*place.shape, *rest])
    found = aten.index.Tensor(values, [place])
    return aten.where.self(aten.view.default(within, [*place.shape] + [1] * len(rest)), found, padding)


@rule("aten._padded_dense_to_jagged_forward.default", recorded=True)
def _to_jagged(dense: Tensor, offsets: Sequence[Tensor], total_L: int | None = None) -> Any:
    """Convert ``[B, *lengths, *]`` to ``[total_L, *]``, with zeros beyond the padded lengths.

    A missing total is read from the last offset.
    """
    last = offsets[-1]
    total = aten._local_scalar_dense.default(aten.select.int(last, 0, -1)) if total_L is None else total_L
    place = aten.arange.start_step(0, total, 1, device=dense.device)
    path: list[Tensor] = []
    within: Tensor | None = None
    for level in range(len(offsets), 0, -1):
        starts = offsets[level - 1]
        # The row of a position is the last row that starts at or before it.
        row = aten.sub.Scalar(aten.searchsorted.Tensor(starts, place, right=True), 1)
        column = aten.sub.Tensor(place, aten.index.Tensor(starts, [row]))
        here = aten.lt.Scalar(column, dense.size(level))
        within = here if within is None else aten.logical_and.default(within, here)
        path.insert(0, aten.clamp.default(column, 0, max(dense.size(level) - 1, 0)))
        place = row
    assert within is not None
    found = aten.index.Tensor(dense, [place, *path])
    nothing = aten.full.default([], 0, dtype=dense.dtype, device=dense.device)
    return aten.where.self(aten.view.default(within, [total] + [1] * (found.dim() - 1)), found, nothing)
