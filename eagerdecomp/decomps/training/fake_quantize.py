"""Fake quantization, for training before quantized inference: values are rounded to the levels of a scale, but remain floats.

Kernels round to the nearest level, ties to even, with the reciprocal of the scale in float32. A mask marks the elements within the
range of the levels: only they have a gradient. Scales, zero points, and flags for observing and quantizing stay tensors if they are
passed as tensors. So eager's errors that depend on the value of a zero point in a tensor are not raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.interpolation import rounded
from eagerdecomp.eager.promotion import in_type, number_like, widened
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_float

aten = torch.ops.aten

# Chosen scales are at least this (near the smallest normal float16). If the reciprocal of a scale overflows, `_SCALE_OF_NOTHING`
# replaces it.
_SMALLEST_SCALE = rounded(6.1e-5, torch.float32)
_NO_RECIPROCAL = 2.0**-128
_SCALE_OF_NOTHING = 0.1


def _one(tensor: Tensor) -> Tensor:
    """Return a tensor of one element as a 0-dim tensor."""
    return aten.view.default(tensor, []) if tensor.dim() else tensor


def _is_on(flag: Tensor) -> Tensor:
    number = _one(flag)
    if number.dtype.is_floating_point:
        number = aten.trunc.default(number)
    return aten.ne.Scalar(number, 0)  # type: ignore[no-any-return]


# -- one scale ------------------------------------------------------------------------------------------------------------------


@rule("aten.fake_quantize_per_tensor_affine_cachemask.default", recorded=True)
def _per_tensor(self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Any:
    step = rounded(scale, torch.float32)
    x = widened(self)
    inverse = _reciprocal(step)
    level = aten.add.Scalar(aten.round.default(aten.mul.Scalar(x, inverse)), zero_point)
    kept, mask = _within(level, quant_min, quant_max)
    steps = in_type(aten.sub.Scalar(kept, zero_point), torch.float32)
    return in_type(aten.mul.Scalar(steps, step), self.dtype), mask


def _reciprocal(step: float) -> float:
    """Return the reciprocal of a float32, rounded to float32; infinity if it overflows."""
    return math.copysign(math.inf, step) if abs(step) <= 2.0**-128 else rounded(1 / step, torch.float32)


def _within(level: Tensor, quant_min: int, quant_max: int) -> tuple[Tensor, Tensor]:
    """Return the levels clamped to their range, and which were inside; NaN becomes the lowest level."""
    held = aten.clamp.default(level, quant_min, quant_max)
    mask = aten.eq.Tensor(level, held)
    return aten.where.self(aten.isnan.default(level), number_like(level, quant_min), held), mask


@rule("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", recorded=True)
def _per_tensor_of_tensors(
    self: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> Any:
    return _switched(_is_on(fake_quant_enabled), self, *_by_numbers(self, scale, zero_point, quant_min, quant_max))


def _by_numbers(self: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int) -> tuple[Tensor, Tensor]:
    """Fake-quantize by a scale and a zero point of one element each."""
    step, x = in_type(_one(scale), torch.float32), widened(self)
    zero = _one(zero_point)
    zero = in_type(aten.trunc.default(zero) if zero.dtype.is_floating_point else zero, x.dtype)
    level = aten.add.Tensor(aten.round.default(aten.mul.Tensor(x, aten.reciprocal.default(step))), zero)
    kept, mask = _within(level, quant_min, quant_max)
    steps = in_type(aten.sub.Tensor(kept, zero), torch.float32)
    return in_type(aten.mul.Tensor(steps, step), self.dtype), mask


def _switched(on: Tensor, x: Tensor, quantized: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the quantized values if quantization is enabled, else `x`."""
    return aten.where.self(on, quantized, x), aten.logical_or.default(mask, aten.logical_not.default(on))


# -- a scale per channel --------------------------------------------------------------------------------------------------------


@rule("aten.fake_quantize_per_channel_affine_cachemask.default", recorded=True)
def _per_channel(self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Any:
    step, zero = (_along(tensor, self, axis) for tensor in (scale, zero_point))
    x = widened(self)
    steps_of_x = aten.mul.Tensor(x, aten.reciprocal.default(step))
    whole = not zero.dtype.is_floating_point
    if whole:
        level = aten.add.Tensor(aten.round.default(steps_of_x), in_type(zero, x.dtype))
    else:
        level = aten.round.default(aten.add.Tensor(steps_of_x, in_type(zero, x.dtype)))
    level = aten._to_copy.default(level, dtype=torch.int64)
    kept = aten.clamp.default(level, quant_min, quant_max)
    exact = torch.float32 if whole and x.dtype is torch.float32 else wide_float()  # the kernel's own dtype is float64
    steps = in_type(aten.sub.Tensor(kept, zero), exact) if whole else aten.sub.Tensor(in_type(kept, exact), zero)
    return in_type(aten.mul.Tensor(steps, step), self.dtype), aten.eq.Tensor(level, kept)


def _along(values: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return a vector with a value per channel, reshaped to broadcast with `x`."""
    shape = [1] * x.dim()
    shape[axis] = x.size(axis)
    return aten.view.default(values, shape)  # type: ignore[no-any-return]


# -- scales that are learned ----------------------------------------------------------------------------------------------------


@rule("aten._fake_quantize_learnable_per_tensor_affine.default", recorded=True)
def _learnable(self: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0) -> Any:
    zero = in_type(aten.select.int(zero_point, 0, 0), torch.float32)
    zero = aten.clamp.default(aten.round.default(zero), quant_min, quant_max)
    return _by_numbers(self, aten.select.int(scale, 0, 0), zero, quant_min, quant_max)[0]


@rule("aten._fake_quantize_learnable_per_channel_affine.default", recorded=True)
def _learnable_per_channel(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Any:
    zero = in_type(_nearest_zero(zero_point, quant_min, quant_max), torch.int32)
    return _per_channel(self, scale, zero, axis, quant_min, quant_max)[0]


def _nearest_zero(zero_point: Tensor, quant_min: int, quant_max: int) -> Tensor:
    return aten.clamp.default(aten.round.default(zero_point), quant_min, quant_max)  # type: ignore[no-any-return]


@rule("aten._fake_quantize_learnable_per_tensor_affine_backward.default", recorded=True)
def _learnable_gradient(
    grad: Tensor, self: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Any:
    given = self, scale, zero_point
    if self.dtype is torch.bfloat16:
        grad, self, scale, zero_point = (in_type(tensor, torch.float32) for tensor in (grad, self, scale, zero_point))
    step, zero = aten.select.int(scale, 0, 0), aten.select.int(zero_point, 0, 0)
    if self.numel() != grad.numel():
        return NotImplemented
    if not self.numel():
        return given
    zero = aten.trunc.default(aten.clamp.default(aten.add.Scalar(zero, 0.5), quant_min, quant_max))
    of_x, of_step, of_zero = _gradients(grad, self, step, zero, quant_min, quant_max, grad_factor)
    return of_x, *(aten.view.default(aten.sum.default(each), [1]) for each in (of_step, of_zero))


@rule("aten._fake_quantize_learnable_per_channel_affine_backward.default", recorded=True)
def _learnable_gradient_per_channel(
    grad: Tensor,
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Any:
    given = self, scale, zero_point
    if self.dtype is torch.bfloat16:
        grad, self, scale, zero_point = (in_type(tensor, torch.float32) for tensor in (grad, self, scale, zero_point))
    zero = _nearest_zero(zero_point, quant_min, quant_max)
    if self.shape != grad.shape:
        return NotImplemented
    if not self.numel():
        return given
    step, zero = _along(scale, self, axis), _along(zero, self, axis)
    of_x, of_step, of_zero = _gradients(grad, self, step, zero, quant_min, quant_max, grad_factor)
    others = [dim for dim in range(self.dim()) if dim != axis]  # of a vector none, which sums over all, in eager too
    return of_x, *(aten.sum.dim_IntList(each, others) for each in (of_step, of_zero))


def _gradients(
    grad: Tensor, x: Tensor, step: Tensor, zero: Tensor, quant_min: int, quant_max: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the elementwise gradients of `x`, of the scale and of the zero point."""
    inverse = aten.reciprocal.default(step)
    level = aten._to_copy.default(aten.round.default(aten.add.Tensor(aten.mul.Tensor(x, inverse), zero)), dtype=torch.int64)
    kept = aten.clamp.default(level, quant_min, quant_max)
    inside = aten.eq.Tensor(level, kept)
    steps = aten.sub.Tensor(in_type(kept, torch.float32), zero)
    error = aten.sub.Tensor(aten.mul.Tensor(steps, step), x)
    of_step = aten.mul.Tensor(aten.where.self(inside, error, steps), grad)
    of_step = aten.where.self(inside, aten.mul.Tensor(of_step, inverse), of_step)
    of_zero = aten.mul.Tensor(grad, aten.neg.default(step))
    if factor != 1:
        of_step, of_zero = (aten.mul.Scalar(each, factor) for each in (of_step, of_zero))
    of_zero = aten.where.self(inside, number_like(of_zero, 0), of_zero)
    return aten.mul.Tensor(inside, grad), of_step, of_zero


# -- observing what is quantized ------------------------------------------------------------------------------------------------


def _observed(call: Any) -> tuple[Any, ...]:
    """Return the output, the mask, and the new minimum, maximum, scale and zero point.

    This takes about eighty kernel calls, nearly all on one number per tensor or per row.
    """
    observing, quantizing = _is_on(call.observer_on), _is_on(call.fake_quant_on)
    levels, by_row = (call.quant_min, call.quant_max), call.per_row_fake_quant
    least, most = (
        _averaged(observing, reduce, call.self, running, call.averaging_const, by_row)
        for reduce, running in ((aten.amin.default, call.running_min), (aten.amax.default, call.running_max))
    )
    scale, zero = _levels_for(least, most, *levels, call.symmetric_quant)
    if not by_row:
        scale, zero = aten.view.default(scale, call.scale.shape), aten.view.default(zero, call.zero_point.shape)
    scale, zero = (
        aten.where.self(quantizing, in_type(new, old.dtype), old) for new, old in ((scale, call.scale), (zero, call.zero_point))
    )
    if by_row:
        quantized = _per_channel(call.self, scale, zero, call.ch_axis, *levels)
    else:
        quantized = _by_numbers(call.self, scale, zero, *levels)
    return *_switched(quantizing, call.self, *quantized), least, most, scale, zero


def _averaged(observing: Tensor, reduce: Callable[..., Tensor], x: Tensor, running: Tensor, share: float, per_row: bool) -> Tensor:
    """Return the running minimum or maximum moved towards that of `x`; at the first call, that of `x`."""
    extreme = reduce(in_type(x, torch.float32), list(range(1, x.dim())) if per_row else [])
    if extreme.shape != running.shape:
        extreme = aten.view.default(extreme, running.shape)
    move = aten.mul.Scalar(aten.sub.Tensor(extreme, running), rounded(share, torch.float32))
    moved = aten.where.self(aten.isinf.default(running), extreme, aten.add.Tensor(running, move))
    return in_type(aten.where.self(observing, moved, running), running.dtype)


def _levels_for(least: Tensor, most: Tensor, quant_min: int, quant_max: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Return the scale and zero point for which the levels range from `least` to `most`, with 0 as one of them."""
    low, high = aten.clamp.default(least, None, 0), aten.clamp.default(most, 0)
    if symmetric:
        lowest, highest = -((quant_max - quant_min) // 2 + 1), (quant_max - quant_min) // 2
        both = aten.logical_and.default(aten.lt.Scalar(least, 0), aten.gt.Scalar(most, 0))
        steps = (aten.abs.default(aten.div.Scalar(end, count)) for end, count in ((least, lowest), (most, highest)))
        step = aten.maximum.default(*steps)
        low = aten.where.self(both, aten.mul.Scalar(step, lowest), low)
        high = aten.where.self(both, aten.mul.Scalar(step, highest), high)
    reach = aten.sub.Tensor(in_type(high, wide_float()), in_type(low, wide_float()))
    scale = in_type(aten.div.Scalar(reach, quant_max - quant_min), torch.float32)
    scale = aten.where.self(aten.le.Scalar(scale, _NO_RECIPROCAL), number_like(scale, _SCALE_OF_NOTHING), scale)
    wider = aten.clamp.default(aten.div.Tensor(number_like(low, _SMALLEST_SCALE), scale), 1)
    scale = aten.clamp.default(scale, _SMALLEST_SCALE)
    divisor = in_type(scale, wide_float())
    below, above = (
        aten.div.Tensor(in_type(aten.mul.Tensor(end, wider), wide_float()), divisor) for end in (aten.neg.default(low), high)
    )
    # Compute the zero point from that end of the range which gives it the smaller error.
    first = aten.lt.Tensor(aten.add.Scalar(below, abs(quant_min)), aten.add.Scalar(above, abs(quant_max)))
    from_high = aten.neg.default(aten.sub.Scalar(above, quant_max))
    zero = aten.where.self(first, aten.add.Scalar(below, quant_min), from_high)
    if symmetric:
        zero = aten.where.self(both, number_like(zero, (quant_min + quant_max) / 2), zero)
    zero = aten.round.default(aten.clamp.default(zero, quant_min, quant_max))
    return scale, aten._to_copy.default(zero, dtype=torch.int32)


def _functional(call: Any) -> Any:
    """Return the new state as results.

    A state without elements (of an observer that has seen no data) becomes one element per row.
    """
    self = call.self
    # Only an observer that is on requires float32. So the flag is read only for other dtypes.
    single = all(given.dtype is torch.float32 for given in (self, call.running_min, call.running_max))
    if not single and aten._local_scalar_dense.default(call.observer_on):
        raise Declined
    if not self.dtype.is_floating_point:
        if aten._local_scalar_dense.default(call.fake_quant_on):
            raise Declined
        # Both switches are off.
        passed = aten.full.default(list(self.shape), True, dtype=torch.bool, device=self.device)
        return aten.clone.default(self), passed, *map(aten.clone.default, _state(call))
    if call.per_row_fake_quant and not call.running_min.numel():
        rows = [self.size(call.ch_axis)]
        call.running_min, call.running_max = (
            aten.full.default(rows, sign * float("inf"), dtype=torch.float32, device=self.device) for sign in (1, -1)
        )
        call.scale, call.zero_point = (
            state if list(state.shape) == rows else aten.new_zeros.default(state, rows) for state in (call.scale, call.zero_point)
        )
    return _observed(call)


def _state(call: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return call.running_min, call.running_max, call.scale, call.zero_point


def _in_place(call: Any) -> Any:
    state = _state(call)
    output, mask, *successors = _functional(call)
    for old, new in zip(state, successors, strict=True):
        if old.shape != new.shape:
            aten.resize_.default(old, new.shape)
        aten.copy_.default(old, new)
    return output, mask


rule("aten._fused_moving_avg_obs_fq_helper.default", by_schema=True)(_in_place)
rule("aten._fused_moving_avg_obs_fq_helper_functional.default", by_schema=True)(_functional)
