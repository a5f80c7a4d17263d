"""Losses between numbers, and their gradients, in fewer calls than the shipped entries take, with the refusals of eager's kernels.

Lengths of batches differ from step to step, so most rules are linked: they run as they are, under no key. What eager asks of
probabilities, that they be in [0, 1], is not asked here: it would read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.messages import no_cast, not_implemented, scalar_type_name
from eagerdecomp.eager.promotion import HALF, can_cast, promoted
from eagerdecomp.eager.scalars import cast_number
from eagerdecomp.rules.rule import Call, Rule, linked
from eagerdecomp.rules.writeback import check_result

__all__ = ["RULES"]

aten = torch.ops.aten


#: ATen's numbers for what becomes of a loss; the third, 2, is its sum.
_MEAN, _SUM = 1, 2


def _check_floating(kernel: str, self: Tensor, target: Tensor) -> None:
    if not (dtype := promoted((self, target))).is_floating_point:
        raise not_implemented(kernel, dtype)


def _reducer(call: Call) -> Callable[[Tensor, int], Any]:
    mean, total = call(aten.mean.default), call(aten.sum.dim_IntList)

    def reduce(loss: Tensor, reduction: int) -> Any:
        if reduction == _MEAN:
            return mean(loss)
        return total(loss, []) if reduction == _SUM else loss  # eager reduces by no other number

    return reduce


def _share(reduction: int, self: Tensor) -> float:
    """What the gradient of one element is multiplied by for the reduction."""
    return 1.0 / (self.numel() or 1) if reduction == _MEAN else 1.0


# -- distances --------------------------------------------------------------------------------------------------------------


def _subtractor(call: Call, kernel: str) -> Callable[[Tensor, Tensor], Any]:
    """`sub`, which takes no bool, where these kernels promote one; of the types that eager's kernel takes."""
    sub, to = call(aten.sub.Tensor), call(aten._to_copy.default)

    def subtract(self: Tensor, target: Tensor) -> Any:
        dtype = self.dtype
        if target.dtype is dtype and (dtype is torch.float32 or dtype is torch.float64):
            return sub(self, target)
        _check_floating(kernel, self, target)
        if target.dtype is torch.bool:
            target = to(target, dtype=self.dtype)
        elif dtype is torch.bool:
            self = to(self, dtype=target.dtype)
        return sub(self, target)

    return subtract


def _mse(call: Call) -> Callable[..., Any]:
    subtract, mul, reduce = _subtractor(call, "mse_cpu"), call(aten.mul.Tensor), _reducer(call)

    def run(self: Tensor, target: Tensor, reduction: int = _MEAN) -> Any:
        difference = subtract(self, target)
        return reduce(mul(difference, difference), reduction)

    return run


def _bent(call: Call, kernel: str) -> Callable[[Tensor, Tensor, float], Any]:
    """Half the square of the difference up to `bend`, beyond it the line that goes on from there: ``m * (z - m / 2)`` for the
    difference `z`, and `m` the difference up to `bend` either way."""
    subtract, clamp = _subtractor(call, kernel), call(aten.clamp.default)
    sub, mul = call(aten.sub.Tensor), call(aten.mul.Tensor)

    def bent(self: Tensor, target: Tensor, bend: float) -> Any:
        difference = subtract(self, target)
        most = cast_number(bend, difference.dtype)
        near = clamp(difference, -most, most)
        return mul(near, sub(difference, near, alpha=0.5))

    return bent


def _huber(call: Call) -> Callable[..., Any]:
    bent, reduce, to = _bent(call, "huber_cpu"), _reducer(call), call(aten._to_copy.default)

    def run(self: Tensor, target: Tensor, reduction: int = _MEAN, delta: float = 1.0) -> Any:
        if not delta > 0:  # nor NaN
            raise RuntimeError("huber_loss does not support non-positive values for delta.")
        if self.dtype is not target.dtype and not can_cast(dtype := promoted((self, target)), self.dtype):
            raise no_cast(dtype, self.dtype)
        loss = bent(self, target, delta)
        if loss.dtype is not self.dtype:
            loss = to(loss, dtype=self.dtype)
        return reduce(loss, reduction)

    return run


# A bend under which what is divided by it again may be too small for the type.
_BARELY = 2.0**-60


def _smooth_l1(call: Call) -> Callable[..., Any]:
    bent, reduce, div = _bent(call, "smooth_l1_cpu"), _reducer(call), call(aten.div.Scalar)
    subtract, absolute = _subtractor(call, "smooth_l1_cpu"), call(aten.abs.default)
    mul, less, where, minus = call(aten.mul.Tensor), call(aten.lt.Scalar), call(aten.where.self), call(aten.sub.Scalar)

    def barely_bent(self: Tensor, target: Tensor, beta: float) -> Any:
        distance = absolute(subtract(self, target))
        return where(less(distance, beta), div(mul(distance, distance), 2 * beta), minus(distance, beta / 2))

    def run(self: Tensor, target: Tensor, reduction: int = _MEAN, beta: float = 1.0) -> Any:
        if not beta >= 0:  # nor NaN
            raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
        if beta == 0:
            return reduce(absolute(subtract(self, target)), reduction)
        if beta < _BARELY:
            return reduce(barely_bent(self, target, beta), reduction)
        loss = bent(self, target, beta)
        return reduce(loss if beta == 1 else div(loss, beta), reduction)

    return run


# The kernels of these gradients answer row-major results.


def _mse_backward(call: Call) -> Callable[..., Any]:
    subtract, mul, scale = _subtractor(call, "mse_backward_cpu_out"), call(aten.mul.Tensor), call(aten.mul.Scalar)
    clone = call(aten.clone.default)

    def run(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Any:
        grad = mul(scale(subtract(self, target), 2.0 * _share(reduction, self)), grad_output)
        return grad if grad.is_contiguous() else clone(grad, memory_format=torch.contiguous_format)

    return run


def _bent_backward(kernel: str, *, slope_is_bend: bool) -> Callable[[Call], Callable[..., Any]]:
    """The gradient is the difference within the bend, and the bend beyond: for smooth L1 as a share of the bend."""

    def link(call: Call) -> Callable[..., Any]:
        subtract, mul, scale = _subtractor(call, kernel), call(aten.mul.Tensor), call(aten.mul.Scalar)
        clamp, le, where, full = call(aten.clamp.default), call(aten.le.Scalar), call(aten.where.self), call(aten.full.default)
        clone, div = call(aten.clone.default), call(aten.div.Scalar)

        def run(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, bend: float) -> Any:
            share, difference = _share(reduction, self), subtract(self, target)
            if (bend > 0 and slope_is_bend) or bend >= _BARELY:
                most = cast_number(bend, difference.dtype)
                slope = scale(clamp(difference, -most, most), share if slope_is_bend else share / bend)
            elif bend > 0:
                slope = scale(clamp(div(difference, bend), -1, 1), share)
            else:  # of a distance: where there is none, eager's kernel looks down
                down, up = (full([], x, dtype=difference.dtype, device=difference.device) for x in (-share, share))
                slope = where(le(difference, -bend), down, up)
            grad = mul(slope, grad_output)
            return grad if grad.is_contiguous() else clone(grad, memory_format=torch.contiguous_format)

        return run

    return link


# -- soft margins ---------------------------------------------------------------------------------------------------------------


def _of_one_float_type(self: Tensor, target: Tensor) -> bool:
    dtype = self.dtype
    return dtype is target.dtype and dtype.is_floating_point and self.shape == target.shape


def _written_over(call: Call) -> Callable[[Tensor, Tensor], Any]:
    """``over(result, old)``: the result in the type of what eager writes it to in place, if that can take it."""
    to = call(aten._to_copy.default)

    def over(result: Tensor, old: Tensor) -> Any:
        if result.dtype is old.dtype and result.shape == old.shape:
            return result
        check_result(result, old)
        return to(result, dtype=old.dtype)

    return over


def _soft_margin(call: Call) -> Callable[..., Any]:
    """In the input's own type, where eager writes each step over the first: when the exponential overflows, the loss does."""
    log1p, exp, mul, neg = call(aten.log1p.default), call(aten.exp.default), call(aten.mul.Tensor), call(aten.neg.default)
    reduce, over = _reducer(call), _written_over(call)

    def run(self: Tensor, target: Tensor, reduction: int = _MEAN) -> Any:
        if not _of_one_float_type(self, target):
            opposite = neg(self)
            odds = over(mul(opposite, target), opposite)
            return reduce(over(log1p(over(exp(odds), odds)), odds), reduction)
        return reduce(log1p(exp(mul(self, neg(target)))), reduction)  # laid out as `self`

    return run


def _soft_margin_backward(call: Call) -> Callable[..., Any]:
    exp, mul, neg, scale = call(aten.exp.default), call(aten.mul.Tensor), call(aten.neg.default), call(aten.mul.Scalar)
    div, one_more, others = call(aten.div.Tensor), call(aten.add.Scalar), call(aten.soft_margin_loss_backward.default)

    def run(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Any:
        if not _of_one_float_type(self, target):
            return others(grad_output, self, target, reduction)
        odds = exp(mul(neg(target), self))
        slope = scale(mul(target, odds), -_share(reduction, self))
        return mul(div(slope, one_more(odds, 1)), grad_output)

    return run


# -- cross entropies ----------------------------------------------------------------------------------------------------------


def _check_probabilities(kernel: str, self: Tensor, target: Tensor, weight: Tensor | None) -> None:
    dtype = self.dtype
    if not dtype.is_floating_point:
        raise not_implemented(kernel, dtype)
    if target.dtype is dtype and weight is None:
        return
    for other in (target, weight):
        if other is not None and other.dtype is not dtype:
            raise RuntimeError(f"Found dtype {scalar_type_name(other.dtype)} but expected {scalar_type_name(self.dtype)}")


def _binary_cross_entropy(call: Call) -> Callable[..., Any]:
    log, log1p, neg, clamp = call(aten.log.default), call(aten.log1p.default), call(aten.neg.default), call(aten.clamp.default)
    less_one, sub, mul, reduce = call(aten.sub.Scalar), call(aten.sub.Tensor), call(aten.mul.Tensor), _reducer(call)

    def run(self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN) -> Any:
        _check_probabilities("binary_cross_entropy", self, target, weight)
        # Logarithms stop at -100, so that a loss is finite.
        no, yes = clamp(log1p(neg(self)), -100.0), clamp(log(self), -100.0)
        loss = sub(mul(less_one(target, 1), no), mul(target, yes))
        return reduce(loss if weight is None else mul(loss, weight), reduction)

    return run


def _binary_cross_entropy_backward(call: Call) -> Callable[..., Any]:
    sub, mul, div, less_one = call(aten.sub.Tensor), call(aten.mul.Tensor), call(aten.div.Tensor), call(aten.sub.Scalar)
    clamp, scale, absolute, neg = call(aten.clamp.default), call(aten.mul.Scalar), call(aten.abs.default), call(aten.neg.default)

    def run(grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN) -> Any:
        _check_probabilities("binary_cross_entropy_backward", self, target, weight)
        spread = mul(less_one(self, 1), self)
        # The least spread is zero in float16, of the sign that the others have.
        spread = neg(absolute(spread)) if self.dtype is torch.float16 else clamp(spread, None, -1e-12)
        result = div(mul(sub(self, target), scale(grad_output, -_share(reduction, self))), spread)
        return result if weight is None else mul(result, weight)

    return run


def _binary_cross_entropy_with_logits(call: Call) -> Callable[..., Any]:
    """``(1 - y) x - (1 + (p - 1) y) log_sigmoid(x)``."""
    absolute, neg, exp, log1p = call(aten.abs.default), call(aten.neg.default), call(aten.exp.default), call(aten.log1p.default)
    sub, mul, to, reduce = call(aten.sub.Tensor), call(aten.mul.Tensor), call(aten._to_copy.default), _reducer(call)
    less_one, one_more, clamp = call(aten.sub.Scalar), call(aten.add.Scalar), call(aten.clamp.default)
    over = _written_over(call)

    def run(
        self: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        reduction: int = _MEAN,
    ) -> Any:
        if not self.dtype.is_floating_point:
            raise not_implemented("log_sigmoid_cpu", self.dtype)
        # Half types go through the logarithm in float32, as in eager's kernel.
        half = self.dtype in HALF
        x = to(self, dtype=torch.float32) if half else self
        surprise = sub(log1p(exp(neg(absolute(x)))), clamp(x, None, 0.0))
        if half:
            surprise = to(surprise, dtype=self.dtype)
        if pos_weight is not None:
            surprise = over(mul(one_more(mul(less_one(pos_weight, 1), target), 1), surprise), surprise)
        off = less_one(target, 1)
        loss = over(sub(surprise, over(mul(off, self), off)), off)  # of the target's type
        return reduce(loss if weight is None else over(mul(loss, weight), loss), reduction)

    return run


RULES: tuple[Rule, ...] = (
    linked(aten.mse_loss.default, _mse),
    linked(aten.mse_loss_backward.default, _mse_backward),
    linked(aten.huber_loss.default, _huber),
    linked(aten.huber_loss_backward.default, _bent_backward("huber_backward_cpu_out", slope_is_bend=True)),
    linked(aten.smooth_l1_loss.default, _smooth_l1),
    linked(aten.smooth_l1_loss_backward.default, _bent_backward("smooth_l1_backward_cpu_out", slope_is_bend=False)),
    linked(aten.soft_margin_loss.default, _soft_margin),
    linked(aten.soft_margin_loss_backward.default, _soft_margin_backward),
    linked(aten.binary_cross_entropy.default, _binary_cross_entropy),
    linked(aten.binary_cross_entropy_backward.default, _binary_cross_entropy_backward),
    linked(aten.binary_cross_entropy_with_logits.default, _binary_cross_entropy_with_logits),
)
