"""Non-maximum suppression, block by block of boxes."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from eagerdecomp.decomps.libraries.torchvision.checks import check, check_dtype
from eagerdecomp.decomps.math.matrices import no_end
from eagerdecomp.eager.promotion import number_like, widened
from eagerdecomp.rules.rule import library_rule

aten = torch.ops.aten

# The number of boxes in a block. Its matrix of overlaps has the square of this number of elements.
_BLOCK = 512


@library_rule("torchvision.nms.default")
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of the boxes, best first, that overlap no better kept box by more than the threshold.

    The kernel is greedy: it keeps the best box, drops what overlaps it, and goes on (Felzenszwalb et al., "Object Detection with
    Discriminatively Trained Part-Based Models", 2010, section 5.2). With the boxes in order, the kept boxes are the only solution
    of ``keep[j] = not any(keep[i] and over[i, j] for i < j)``. The rule iterates this equation, starting with all boxes kept. Box j
    is final after at most j steps; in practice a few steps suffice for all.
    """
    check(dets.dim() == 2, f"boxes should be a 2d tensor, got {dets.dim()}D")
    check(dets.shape[1] == 4, f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    check(scores.dim() == 1, f"scores should be a 1d tensor, got {scores.dim()}D")
    check(
        dets.shape[0] == scores.shape[0],
        f"boxes and scores should have same number of elements in dimension 0, got {dets.shape[0]} and {scores.shape[0]}",
    )
    check_dtype("nms_kernel", dets, (torch.float32, torch.float64))
    check(dets.dtype == scores.dtype, "dets should have the same type as scores")
    count = dets.shape[0]
    if not count:
        return aten.empty.memory_format([0], dtype=torch.int64, device=dets.device)  # type: ignore[no-any-return]
    order = aten.sort.stable(scores, stable=True, dim=0, descending=True)[1]
    boxes = _with_areas(widened(aten.index_select.default(dets, 0, order)))
    kept: list[Tensor] = []
    positions: list[Tensor] = []
    for first in range(0, count, _BLOCK):
        last = min(first + _BLOCK, count)
        block = aten.slice.Tensor(boxes, 1, first, last)
        free = aten.full.default([last - first], True, dtype=torch.bool, device=dets.device)
        if kept:
            better = kept[0] if len(kept) == 1 else aten.cat.default(kept, 1)
            free = aten.logical_not.default(aten.any.dim(_overlap_more(better, block, iou_threshold), 1))
        over = aten.tril.default(_overlap_more(block, block, iou_threshold), -1)  # [j, i]: i is better than j
        found = aten.view.default(aten.nonzero.default(_not_suppressed(free, over)), [-1])
        kept.append(aten.index_select.default(block, 1, found))
        positions.append(aten.add.Scalar(found, first) if first else found)
    position = positions[0] if len(positions) == 1 else aten.cat.default(positions)
    return aten.index_select.default(order, 0, position)  # type: ignore[no-any-return]


def _not_suppressed(free: Tensor, over: Tensor) -> Tensor:
    """Return which boxes of a block are kept. `free` marks those that no earlier block suppresses."""
    keep, steps = free, free.size(0) + 1  # each step settles one more box at least
    for _ in range(steps):
        hit = aten.any.dim(aten.logical_and.default(over, aten.unsqueeze.default(keep, 0)), 1)
        now = aten.logical_and.default(free, aten.logical_not.default(hit))
        if not aten._local_scalar_dense.default(aten.any.default(aten.logical_xor.default(now, keep))):
            return now  # type: ignore[no-any-return]
        keep = now
    raise no_end(steps)


def _with_areas(boxes: Tensor) -> Tensor:
    """Return x1, y1, x2, y2 and the area as rows, [5, K]."""
    columns = aten.clone.default(aten.permute.default(boxes, [1, 0]), memory_format=torch.contiguous_format)
    low, high = aten.slice.Tensor(columns, 0, 0, 2), aten.slice.Tensor(columns, 0, 2, 4)
    sides = aten.sub.Tensor(high, low)
    area = aten.mul.Tensor(aten.slice.Tensor(sides, 0, 0, 1), aten.slice.Tensor(sides, 0, 1, 2))
    return aten.cat.default([columns, area])  # type: ignore[no-any-return]


def _overlap_more(better: Tensor, worse: Tensor, threshold: float) -> Tensor:
    """Return whether the overlap of two boxes, as a share of their union, exceeds the threshold, [worse, better].

    Comparisons replace maxima and minima: like the kernel's, they ignore a NaN in the worse box.
    """
    x1, y1, x2, y2, area = (aten.unsqueeze.default(aten.select.int(better, 0, row), 0) for row in range(5))
    u1, v1, u2, v2, other = (aten.unsqueeze.default(aten.select.int(worse, 0, row), 1) for row in range(5))
    width = aten.sub.Tensor(_smaller(x2, u2), _larger(x1, u1))
    height = aten.sub.Tensor(_smaller(y2, v2), _larger(y1, v1))
    zero = number_like(width, 0)
    width = aten.where.self(aten.gt.Scalar(width, 0), width, zero)
    height = aten.where.self(aten.gt.Scalar(height, 0), height, zero)
    shared = aten.mul.Tensor(width, height)
    share = aten.div.Tensor(shared, aten.sub.Tensor(aten.add.Tensor(area, other), shared))
    # The kernel compares a float with the threshold as a double. If the threshold is rounded up to float, `>` becomes `>=`.
    near = threshold if share.dtype is torch.float64 else ctypes.c_float(threshold).value
    return aten.ge.Scalar(share, near) if near > threshold else aten.gt.Scalar(share, near)  # type: ignore[no-any-return]


def _larger(a: Tensor, b: Tensor) -> Tensor:
    return aten.where.self(aten.lt.Tensor(a, b), b, a)  # type: ignore[no-any-return]


def _smaller(a: Tensor, b: Tensor) -> Tensor:
    return aten.where.self(aten.lt.Tensor(b, a), b, a)  # type: ignore[no-any-return]
