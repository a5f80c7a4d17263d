"""Losses between numbers, and their gradients, most with fewer kernel calls than torch's table entries.

Batches differ in length from step to step, so most rules are linked: they have no cache key. Eager checks that probabilities are in
[0, 1]. These rules do not, because the check would read them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import HALF, WIDE_UNSIGNED, can_cast, promoted
from eagerdecomp.eager.scalars import cast_number
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.blocks import elementwise_in_blocks
from eagerdecomp.rules.compute import constant
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_float
from eagerdecomp.rules.writeback import check_result

aten = torch.ops.aten


#: ATen's values of the argument `reduction`.
_MEAN, _SUM = 1, 2


def _reducer(loss: Tensor, reduction: int) -> Any:
    if reduction == _MEAN:
        return aten.mean.default(loss)
    return aten.sum.dim_IntList(loss, []) if reduction == _SUM else loss


def _share(reduction: int, self: Tensor) -> float:
    """Return the factor of an element's gradient for a reduction."""
    if reduction != _MEAN:
        return 1.0
    return 1.0 / self.numel() if self.numel() else math.inf


# -- distances --------------------------------------------------------------------------------------------------------------


def _subtractor(self: Tensor, target: Tensor) -> Any:
    """Return the difference, for the dtypes of eager's kernel. Bools are promoted first, because `sub` rejects them."""
    dtype = self.dtype
    if target.dtype is dtype and (dtype is torch.float32 or dtype is torch.float64):
        return aten.sub.Tensor(self, target)
    if not promoted((self, target)).is_floating_point:
        raise Declined
    if target.dtype is torch.bool:
        target = aten._to_copy.default(target, dtype=self.dtype)
    elif dtype is torch.bool:
        self = aten._to_copy.default(self, dtype=target.dtype)
    return aten.sub.Tensor(self, target)


def _rounded_once(formula: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a formula. For float16 and bfloat16 it is computed in float32, as by eager's kernel."""
    if args[0].dtype not in HALF or promoted([one for one in args if isinstance(one, Tensor)]) is not args[0].dtype:
        return elementwise_in_blocks(formula, *args)
    wide = [aten._to_copy.default(one, dtype=torch.float32) if isinstance(one, Tensor) else one for one in args]
    return aten._to_copy.default(elementwise_in_blocks(formula, *wide), dtype=args[0].dtype)


def _bent(self: Tensor, target: Tensor, bend: float) -> Any:
    """Return half the squared difference up to `bend`, and the tangent beyond: ``m * (z - m / 2)``.

    Here `z` is the absolute difference, and `m` is `z` clamped to `bend`.
    """
    difference = _subtractor(self, target)
    most = cast_number(bend, difference.dtype)
    near = aten.clamp.default(difference, -most, most)
    return aten.mul.Tensor(near, aten.sub.Tensor(difference, near, alpha=0.5))


@rule("aten.huber_loss.default")
def _huber(self: Tensor, target: Tensor, reduction: int = _MEAN, delta: float = 1.0) -> Any:
    if not delta > 0:  # nor NaN
        return NotImplemented
    if self.dtype is not target.dtype and not can_cast(promoted((self, target)), self.dtype):
        return NotImplemented
    loss = _rounded_once(_bent, self, target, delta)
    if loss.dtype is not self.dtype:
        loss = aten._to_copy.default(loss, dtype=self.dtype)
    return _reducer(loss, reduction)


# Below this bend, a loss may underflow before it is divided by the bend.
_BARELY = 2.0**-60


def _barely_bent(self: Tensor, target: Tensor, beta: float) -> Any:
    distance = aten.abs.default(_subtractor(self, target))
    return aten.where.self(
        aten.lt.Scalar(distance, beta),
        aten.div.Scalar(aten.mul.Tensor(distance, distance), 2 * beta),
        aten.sub.Scalar(distance, beta / 2),
    )


@rule("aten.smooth_l1_loss.default")
def _smooth_l1(self: Tensor, target: Tensor, reduction: int = _MEAN, beta: float = 1.0) -> Any:
    if not beta >= 0 or not 0 <= reduction <= _SUM:  # nor NaN
        return NotImplemented
    if beta == 0:
        return _reducer(aten.abs.default(_subtractor(self, target)), reduction)
    if beta < _BARELY:
        return _reducer(elementwise_in_blocks(_barely_bent, self, target, beta), reduction)
    return _reducer(_rounded_once(_bent_share, self, target, beta), reduction)


def _bent_share(self: Tensor, target: Tensor, beta: float) -> Any:
    loss = _bent(self, target, beta)
    return loss if beta == 1 else aten.div.Scalar(loss, beta)


# The kernels of these gradients return contiguous results.


@rule("aten.mse_loss_backward.default")
def _mse_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Any:
    if _whole((grad_output, self, target)):
        share = int(2.0 * _share(reduction, self))  # eager's kernel casts it to the operands' dtype
        return aten.mul.Tensor(aten.mul.Scalar(aten.sub.Tensor(self, target), share), grad_output)
    grad = _rounded_once(_squares_backward, self, target, grad_output, 2.0 * _share(reduction, self))
    return as_contiguous(grad)


def _squares_backward(self: Tensor, target: Tensor, grad_output: Tensor, share: float) -> Any:
    return aten.mul.Tensor(aten.mul.Scalar(_subtractor(self, target), share), grad_output)


def _whole(tensors: Sequence[Tensor]) -> bool:
    """Return whether all tensors have the same integer dtype, which eager's kernels support (not uint16 to uint64)."""
    dtype = tensors[0].dtype
    other = dtype.is_floating_point or dtype.is_complex or dtype is torch.bool or dtype in WIDE_UNSIGNED
    return not other and all(tensor.dtype is dtype for tensor in tensors)


def _of_whole_numbers(grad_output: Tensor, self: Tensor, target: Tensor, share: int, bend: float) -> Any:
    """Return the gradient of smooth L1 for integers as C computes it: without wrapping, and rounded towards zero."""
    grad, left, right = (aten._to_copy.default(given, dtype=torch.int64) for given in (grad_output, self, target))
    wide, line = aten.sub.Tensor(left, right), aten.mul.Scalar(grad, share)
    product = aten._to_copy.default(aten.mul.Tensor(wide, line), dtype=wide_float())
    within = aten._to_copy.default(aten.div.Scalar(product, bend or 1), dtype=torch.int64)
    slope = aten.where.self(aten.ge.Scalar(wide, bend), line, within)
    slope = aten.where.self(aten.le.Scalar(wide, -bend), aten.neg.default(line), slope)
    return aten._to_copy.default(slope, dtype=self.dtype)


def _bent_backward(*, slope_is_bend: bool) -> Callable[..., Any]:
    """Make the rule of a gradient: the difference clamped to the bend; for smooth L1 divided by the bend."""

    def backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, bend: float) -> Any:
        if not slope_is_bend and _whole((grad_output, self, target)):
            return _of_whole_numbers(grad_output, self, target, int(_share(reduction, self)), bend)
        grad = _rounded_once(formula, self, target, grad_output, _share(reduction, self), bend)
        return as_contiguous(grad)

    def formula(self: Tensor, target: Tensor, grad_output: Tensor, share: float, bend: float) -> Any:
        difference = _subtractor(self, target)
        if bend >= (0 if slope_is_bend else _BARELY):
            most = cast_number(bend, difference.dtype)
            slope = aten.mul.Scalar(aten.clamp.default(difference, -most, most), share if slope_is_bend else share / bend)
        elif bend > 0:
            slope = aten.mul.Scalar(aten.clamp.default(aten.div.Scalar(difference, bend), -1, 1), share)
        else:  # of a distance: where there is none, eager's kernel looks down
            most = share * bend if slope_is_bend else share
            down, up = constant(difference, -most), constant(difference, most)
            slope = aten.where.self(aten.le.Scalar(difference, -bend), down, up)
            slope = aten.where.self(aten.isnan.default(difference), difference, slope)
        return aten.mul.Tensor(slope, grad_output)

    return backward


# -- soft margins ---------------------------------------------------------------------------------------------------------------


def _of_one_float_type(self: Tensor, target: Tensor) -> bool:
    dtype = self.dtype
    return dtype is target.dtype and dtype.is_floating_point and self.shape == target.shape


def _written_over(result: Tensor, old: Tensor) -> Any:
    """Return `result` in the dtype of `old`, into which eager writes it in place. Raise eager's error if it does not fit."""
    if result.dtype is old.dtype and result.shape == old.shape:
        return result
    check_result(result, old)
    return aten._to_copy.default(result, dtype=old.dtype)


@rule("aten.soft_margin_loss.default")
def _soft_margin(self: Tensor, target: Tensor, reduction: int = _MEAN) -> Any:
    """Compute in the input's dtype, because eager overwrites each step in place: if the exponential overflows, so does the loss.

    torch's entry returns the promoted dtype of operands of two dtypes, and ours the input's.
    """
    if not _of_one_float_type(self, target):
        opposite = aten.neg.default(self)
        odds = _written_over(aten.mul.Tensor(opposite, target), opposite)
        return _reducer(_written_over(aten.log1p.default(_written_over(aten.exp.default(odds), odds)), odds), reduction)
    return _reducer(elementwise_in_blocks(_margin_missed, self, target), reduction)


def _margin_missed(self: Tensor, target: Tensor) -> Any:
    return aten.log1p.default(aten.exp.default(aten.mul.Tensor(self, aten.neg.default(target))))


@rule("aten.soft_margin_loss_backward.default")
def _soft_margin_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Any:
    if not _of_one_float_type(self, target):
        return NotImplemented
    return elementwise_in_blocks(_margin_slope, self, target, grad_output, -_share(reduction, self))


def _margin_slope(self: Tensor, target: Tensor, grad_output: Tensor, share: float) -> Any:
    odds = aten.exp.default(aten.mul.Tensor(aten.neg.default(target), self))
    slope = aten.mul.Scalar(aten.mul.Tensor(target, odds), share)
    return aten.mul.Tensor(aten.div.Tensor(slope, aten.add.Scalar(odds, 1)), grad_output)


# -- cross entropies ----------------------------------------------------------------------------------------------------------


def _alike(self: Tensor, *others: Tensor | None) -> bool:
    dtype = self.dtype
    return dtype.is_floating_point and all(other is None or other.dtype is dtype for other in others)


@rule("aten.binary_cross_entropy.default")
def _binary_cross_entropy(self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN) -> Any:
    if not _alike(self, target, weight):
        return NotImplemented
    loss = elementwise_in_blocks(_surprise_of_share, self, target)
    return _reducer(loss if weight is None else aten.mul.Tensor(loss, weight), reduction)


def _surprise_of_share(self: Tensor, target: Tensor) -> Any:
    """Return the loss of a probability. Logarithms are at least -100, so that the loss is finite."""
    no = aten.clamp.default(aten.log1p.default(aten.neg.default(self)), -100.0)
    no = aten.mul.Tensor(aten.sub.Scalar(target, 1), no)
    return aten.sub.Tensor(no, aten.mul.Tensor(target, aten.clamp.default(aten.log.default(self), -100.0)))


@rule("aten.binary_cross_entropy_backward.default")
def _binary_cross_entropy_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN
) -> Any:
    """Divide 0 by 0 in float16, as eager does: torch's entry returns 0 for a probability of 0 or 1 that is right."""
    if not _alike(self, target, weight):
        return NotImplemented
    result = elementwise_in_blocks(_surprise_slope, self, target, aten.mul.Scalar(grad_output, -_share(reduction, self)))
    return result if weight is None else aten.mul.Tensor(result, weight)


# -1e-12 as a float32 number, which it is in eager for every dtype.
_LIMIT = -9.999999960041972e-13


def _surprise_slope(self: Tensor, target: Tensor, share: Tensor) -> Any:
    spread = aten.mul.Tensor(aten.sub.Scalar(self, 1), self)
    # Eager's limit is -0.0 in float16: zeros get the sign of the other values.
    spread = aten.neg.default(aten.abs.default(spread)) if self.dtype is torch.float16 else aten.clamp.default(spread, None, _LIMIT)
    return aten.div.Tensor(aten.mul.Tensor(aten.sub.Tensor(self, target), share), spread)


@rule("aten.binary_cross_entropy_with_logits.default")
def _binary_cross_entropy_with_logits(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Any:
    """Compute ``(1 - y) x - (1 + (p - 1) y) log_sigmoid(x)``."""
    if not self.dtype.is_floating_point:
        return NotImplemented
    loss = elementwise_in_blocks(_surprise_of_logit, self, target, pos_weight)
    return _reducer(loss if weight is None else _written_over(aten.mul.Tensor(loss, weight), loss), reduction)


def _surprise_of_logit(self: Tensor, target: Tensor, pos_weight: Tensor | None) -> Any:
    """Return the loss of a logit. float16 and bfloat16 use the logarithm in float32, as eager's kernel does."""
    half = self.dtype in HALF
    x = aten._to_copy.default(self, dtype=torch.float32) if half else self
    surprise = aten.sub.Tensor(
        aten.log1p.default(aten.exp.default(aten.neg.default(aten.abs.default(x)))), aten.clamp.default(x, None, 0.0)
    )
    if half:
        surprise = aten._to_copy.default(surprise, dtype=self.dtype)
    if pos_weight is not None:
        surprise = _written_over(
            aten.mul.Tensor(aten.add.Scalar(aten.mul.Tensor(aten.sub.Scalar(pos_weight, 1), target), 1), surprise), surprise
        )
    off = aten.sub.Scalar(target, 1)
    return _written_over(aten.sub.Tensor(surprise, _written_over(aten.mul.Tensor(off, self), off)), off)  # of the target's type


rule("aten.huber_loss_backward.default")(_bent_backward(slope_is_bend=True))
rule("aten.smooth_l1_loss_backward.default")(_bent_backward(slope_is_bend=False))
