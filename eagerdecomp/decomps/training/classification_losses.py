"""Losses of classes: negative log-likelihoods and margins, forward and backward.

The rules for likelihoods are linked, because batches differ in length from step to step: they have no cache key. They do not check
whether a class is in range, because that would read the classes. The lookup raises instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.eager.strides import memory_order
from eagerdecomp.rules.compute import Constant
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_ZERO = Constant(0.0)

#: ATen's values of the argument `reduction`.
_NONE, _MEAN = 0, 1

#: The number of pairs of a label and a class per kernel call, and the smallest number of labels of each row per call.
_PAIRS_AT_ONCE, _LABELS_AT_ONCE = 1 << 20, 16

# -- likelihoods --------------------------------------------------------------------------------------------------------------


def _fits(self: Tensor, target: Tensor, weight: Tensor | None, *, planes: bool) -> bool:
    """Return whether eager accepts the dtypes and sizes of a call."""
    sizes = list(self.shape)
    if planes:
        fits = len(sizes) == 4 and list(target.shape) == [sizes[0], *sizes[2:]] and target.dtype is not torch.uint8
    elif len(sizes) == 2:
        fits = list(target.shape) == sizes[:1]
    else:
        fits = len(sizes) == 1 and target.dim() < 2 and target.numel() == 1
    if not fits or target.dtype not in (torch.int64, torch.uint8) or not self.dtype.is_floating_point:
        return False
    return weight is None or (weight.dtype is self.dtype and weight.numel() == sizes[1 if planes else -1])


def _usual(self: Tensor, target: Tensor) -> bool:
    """Return whether a call has the usual form, which needs no more checks: rows of scores, a class per row, usual dtypes."""
    dtype = self.dtype
    return (
        (dtype is torch.float32 or dtype is torch.float64)
        and target.dtype is torch.int64
        and self.dim() == 2
        and target.dim() == 1
        and target.size(0) == self.size(0)
    )


def _chosen(rank: int, target: Tensor, ignore_index: int) -> tuple[Any, Any]:
    """Return which targets count, and for each target an index into the class dimension (any valid index if it does not count)."""
    if rank == 1 and target.dim() == 1:  # a batch of one, said in another way
        target = aten.view.default(target, [])
    if target.dtype is not torch.int64:
        target = aten._to_copy.default(target, dtype=torch.int64)
    at = aten.unsqueeze.default(target, 1 if rank > 1 else 0)
    counts = aten.ne.Scalar(at, ignore_index)
    return counts, aten.mul.Tensor(at, counts)


def _nll(*, planes: bool) -> Callable[..., Any]:
    def nll_loss(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Any:
        if (planes or weight is not None or not _usual(self, target)) and not (
            _fits(self, target, weight, planes=planes) and (planes or weight is None or weight.dim() == 1)
        ):
            return NotImplemented
        rank = self.dim()
        dim = 1 if rank > 1 else 0
        counts, at = _chosen(rank, target, ignore_index)
        zero = _ZERO(self)
        weights = None if weight is None else aten.where.self(counts, aten.index.Tensor(weight, [at]), zero)
        score = aten.where.self(counts, aten.neg.default(aten.gather.default(self, dim, at)), zero)
        if weights is not None:
            score = aten.mul.Tensor(score, weights)
        if reduction == _NONE and rank > 1:
            score = aten.squeeze.dim(score, dim)
            score = as_contiguous(score)
            return score, aten.full.default([], 0.0, dtype=self.dtype, device=self.device)
        loss = aten.sum.dim_IntList(score, [])
        of_all = aten.sum.dim_IntList(counts, [], dtype=self.dtype) if weights is None else aten.sum.dim_IntList(weights, [])
        return aten.div.Tensor(loss, of_all) if reduction == _MEAN else loss, of_all

    return nll_loss


def _nll_backward(*, planes: bool) -> Callable[..., Any]:
    def nll_loss_backward(
        grad_output: Tensor,
        self: Tensor,
        target: Tensor,
        weight: Tensor | None,
        reduction: int,
        ignore_index: int,
        total_weight: Tensor,
    ) -> Any:
        dtype = self.dtype
        if (
            planes
            or weight is not None
            or reduction == _NONE
            or grad_output.dtype is not dtype
            or grad_output.dim()
            or total_weight.dim()
            or not _usual(self, target)
        ) and not (
            _fits(self, target, weight, planes=planes)
            and _gradient_fits(grad_output, self, target, reduction, total_weight, planes=planes)
        ):
            return NotImplemented
        rank = self.dim()
        dim = 1 if rank > 1 else 0
        counts, at = _chosen(rank, target, ignore_index)
        if reduction == _MEAN:
            grad_output = aten.div.Tensor(grad_output, total_weight)
        grad = aten.neg.default(grad_output)
        if reduction == _NONE and rank > 1:
            grad = aten.unsqueeze.default(grad, dim)
        elif grad.dim():
            grad = aten.view.default(grad, [])
        if weight is not None:
            grad = aten.mul.Tensor(aten.index.Tensor(weight, [at]), grad)
        grad = aten.where.self(counts, grad, _ZERO(self))
        zeros = aten.full.default(list(self.shape), 0.0, dtype=dtype, device=self.device)
        return aten.scatter.src(zeros, dim, at, grad)

    return nll_loss_backward


def _gradient_fits(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, total_weight: Tensor, *, planes: bool
) -> bool:
    if total_weight.numel() != 1 or grad_output.dtype is not self.dtype:
        return False
    if planes and not self.is_contiguous():  # the gradient would lie as it does, and eager refuses that
        order = [dim for dim in memory_order(self) if self.size(dim) != 1]
        if order != sorted(order):
            return False
    if reduction == _NONE and self.dim() > 1:
        return grad_output.shape == target.shape
    return grad_output.dim() < 2 and grad_output.numel() == 1


# -- margins ------------------------------------------------------------------------------------------------------------------


def _rows(self: Tensor) -> tuple[int, int]:
    """Return the numbers of rows and of classes."""
    return (self.size(0), self.size(1)) if self.dim() == 2 else (1, self.numel())


def _missed(self: Tensor, target: Tensor, margin: float, rows: int, classes: int) -> tuple[Any, Any]:
    """Return by how much each class violates the margin to the row's target class, and the target class as a column."""
    scores = aten.reshape.default(self, [rows, classes])
    at = aten.reshape.default(target, [rows, 1])
    return aten.add.Scalar(aten.sub.Tensor(scores, aten.gather.default(scores, 1, at)), margin), at


@rule("aten.multi_margin_loss.default", recorded=True)
def _multi_margin(
    self: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = _MEAN
) -> Any:
    rows, classes = _rows(self)
    if int(p) not in (1, 2) or (weight is not None and weight.numel() != classes):
        return NotImplemented
    missed, at = _missed(self, target, margin, rows, classes)
    loss = aten.where.self(aten.gt.Scalar(missed, 0), missed, number_like(missed, 0.0))  # NaN misses nothing
    if int(p) == 2:
        loss = aten.mul.Tensor(loss, loss)
    loss = aten.scatter.value(loss, 1, at, 0.0)
    if weight is not None:
        whole = weight if weight.dim() else aten.unsqueeze.default(weight, 0)
        loss = aten.mul.Tensor(loss, aten.index.Tensor(whole, [at]))
    if reduction == _MEAN:
        return aten.mean.default(loss)
    each = reduction == _NONE and target.dim() > 0
    return aten.div.Scalar(aten.sum.dim_IntList(loss, [1] if each else []), classes)


@rule("aten.multi_margin_loss_backward.default", recorded=True)
def _multi_margin_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Any:
    rows, classes = _rows(self)
    if int(p) not in (1, 2) or (weight is not None and weight.numel() != classes):
        return NotImplemented
    missed, at = _missed(self, target, margin, rows, classes)
    if int(p) == 1:
        slope = aten._to_copy.default(aten.gt.Scalar(missed, 0), dtype=self.dtype)
    else:
        slope = aten.mul.Scalar(aten.where.self(aten.gt.Scalar(missed, 0), missed, number_like(missed, 0.0)), 2.0)
    # The slope of the target class is minus the sum of the other classes' slopes.
    slope = aten.scatter.value(slope, 1, at, 0.0)
    slope = aten.scatter.src(slope, 1, at, aten.neg.default(aten.sum.dim_IntList(slope, [1], True)))
    return aten.view.default(aten.mul.Tensor(slope, _per_row(grad_output, self, rows, classes, reduction, weight, at)), self.shape)


def _per_row(
    grad_output: Tensor,
    self: Tensor,
    rows: int,
    classes: int,
    reduction: int,
    weight: Tensor | None = None,
    at: Tensor | None = None,
) -> Any:
    """Return the gradient of each row's sum. The loss is a mean over classes, for `_MEAN` also over rows."""
    scale = aten.mul.Scalar(grad_output, 1.0 / max(rows * classes, 1) if reduction == _MEAN else 1.0 / classes)
    if scale.dim():
        scale = aten.reshape.default(scale, [-1, 1])
    return scale if weight is None else aten.mul.Tensor(scale, aten.index.Tensor(weight, [at]))


def _label_pairs(scores: Tensor, labels: Tensor, given: Tensor, others: Tensor) -> Iterator[tuple[Any, Any]]:
    """Compare each given label of a row with each class that is no label of the row.

    Yield, for a block of labels, by how much each pair violates the margin, and whether it does, both ``[rows, labels, classes]``.
    Blocks keep the memory in proportion to the scores.
    """
    rows, classes = scores.shape
    needed = aten.add.Scalar(aten.neg.default(aten.gather.default(scores, 1, labels)), 1)
    block = max(_LABELS_AT_ONCE, _PAIRS_AT_ONCE // max(rows * classes, 1))
    for start in range(0, max(classes, 1), block):
        some, theirs = given, needed
        if block < classes:
            some, theirs = (aten.slice.Tensor(one, 1, start, min(start + block, classes)) for one in (given, needed))
        pairs = aten.logical_and.default(aten.unsqueeze.default(some, 2), aten.unsqueeze.default(others, 1))
        missed = aten.add.Tensor(aten.unsqueeze.default(theirs, 2), aten.unsqueeze.default(scores, 1))
        yield missed, aten.logical_and.default(pairs, aten.gt.Scalar(missed, 0))


def _labels(target: Tensor, rows: int, classes: int) -> tuple[Any, Any]:
    """Return the labels of each row, and which of them are valid: those before the first negative one."""
    labels = aten.reshape.default(target, [rows, classes])
    given = aten.eq.Scalar(aten.cumsum.default(aten.lt.Scalar(labels, 0), 1), 0)
    return aten.clamp.default(labels, 0), given


@rule("aten.multilabel_margin_loss_forward.default", recorded=True)
def _multilabel_margin(self: Tensor, target: Tensor, reduction: int) -> Any:
    """Stop at the first label -1, and compute in blocks of labels. torch's entry also counts the labels after it."""
    rows, classes = _rows(self)
    labels, given = _labels(target, rows, classes)
    none = aten.full.default([rows, classes], 0, dtype=torch.int64, device=self.device)
    others = aten.eq.Scalar(aten.scatter_add.default(none, 1, labels, aten._to_copy.default(given, dtype=torch.int64)), 0)
    is_target = aten._to_copy.default(aten.logical_not.default(others), dtype=self.dtype)
    zero = aten.full.default([], 0.0, dtype=self.dtype, device=self.device)
    scores = aten.reshape.default(self, [rows, classes])
    losses = [
        aten.sum.dim_IntList(aten.where.self(active, missed, zero), [1, 2])
        for missed, active in _label_pairs(scores, labels, given, others)
    ]
    loss = aten.div.Scalar(functools.reduce(aten.add.Tensor, losses), classes)
    if reduction == _MEAN:
        loss = aten.mean.default(loss)
    elif reduction != _NONE or target.dim() <= 1:
        loss = aten.sum.dim_IntList(loss, [])
    return loss, aten.view.default(is_target, target.shape)


@rule("aten.multilabel_margin_loss_backward.default", recorded=True)
def _multilabel_margin_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Any:
    rows, classes = _rows(self)
    others = aten.eq.Scalar(aten.reshape.default(is_target, [rows, classes]), 0)
    labels, given = _labels(target, rows, classes)
    gains, losses = [], []
    for _, active in _label_pairs(aten.reshape.default(self, [rows, classes]), labels, given, others):
        gains.append(aten.sum.dim_IntList(active, [1], dtype=self.dtype))
        losses.append(aten.sum.dim_IntList(active, [2], dtype=self.dtype))
    loss = losses[0] if len(losses) == 1 else aten.cat.default(losses, 1)
    slope = aten.scatter_add.default(functools.reduce(aten.add.Tensor, gains), 1, labels, aten.neg.default(loss))
    return aten.view.default(aten.mul.Tensor(slope, _per_row(grad_output, self, rows, classes, reduction)), self.shape)


rule("aten.nll_loss_forward.default", whole=True)(_nll(planes=False))
rule("aten.nll_loss_backward.default", whole=True)(_nll_backward(planes=False))
rule("aten.nll_loss2d_forward.default", whole=True)(_nll(planes=True))
rule("aten.nll_loss2d_backward.default", whole=True)(_nll_backward(planes=True))
