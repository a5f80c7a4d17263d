"""Activations and their gradients, most with fewer kernels than torch's table entries. float16 and bfloat16 are rounded once.

Each formula is for operands of one floating-point dtype; other calls go to torch's table entries. Gradients that equal them are
here because they are linked: a new size takes 12 us instead of 1,100.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import HALF, computed_in, in_type, promoted, widened
from eagerdecomp.eager.scalars import held_number
from eagerdecomp.rules.blocks import rows_in_blocks
from eagerdecomp.rules.compute import Constant, constant
from eagerdecomp.rules.restride import elementwise_strides
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.writeback import write_out

aten = torch.ops.aten

_HALF_ = Constant(0.5)
_ZERO = Constant(0.0)
_NAN = Constant(math.nan)


def _formula(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a formula of tensors of one floating-point dtype: float16 and bfloat16 are computed in float32 and rounded once."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        dtype = tensors[0].dtype
        if not dtype.is_floating_point or any(tensor.dtype is not dtype for tensor in tensors):
            return NotImplemented
        if dtype not in HALF:
            return fn(*args, **kwargs)
        wide = [aten._to_copy.default(arg, dtype=torch.float32) if isinstance(arg, Tensor) else arg for arg in args]
        result = fn(*wide, **kwargs)
        return result if result is NotImplemented else aten._to_copy.default(result, dtype=dtype)

    return run


# -- activations ------------------------------------------------------------------------------------------------------------


@rule("aten.mish.default", compute="float32")
def _mish(self: Tensor) -> Any:
    """Compute mish without a threshold: if `exp` overflows, `tanh` is 1."""
    return aten.mul.Tensor(self, aten.tanh.default(aten.log1p.default(aten.exp.default(self))))


@rule("aten.hardswish.default", compute="float32")
def _hardswish(self: Tensor) -> Any:
    return aten.div.Scalar(aten.mul.Tensor(self, aten.clamp.default(aten.add.Scalar(self, 3), 0, 6)), 6)


@rule("aten.hardsigmoid.default", compute="float32")
def _hardsigmoid(self: Tensor) -> Any:
    return aten.div.Scalar(aten.clamp.default(aten.add.Scalar(self, 3), 0, 6), 6)


@rule("aten.sigmoid.default", recorded=True)
def _complex_sigmoid(self: Tensor) -> Any:
    """Add one to the exponential, not the exponential to one as torch's entry does.

    Complex `add` multiplies its second operand by one, and infinity times ``1+0j`` is NaN.
    """
    if not self.dtype.is_complex:
        return NotImplemented
    one = aten.full.default([], 1, dtype=self.dtype, device=self.device)
    return aten.div.Tensor(one, aten.add.Tensor(aten.exp.default(aten.neg.default(self)), one))


@rule("aten.silu.default", compute="float32")
def _silu(self: Tensor) -> Any:
    return aten.mul.Tensor(self, aten.sigmoid.default(self))


@rule("aten.softshrink.default", recorded=True)
def _softshrink(self: Tensor, lambd: float = 0.5) -> Any:
    return _shrunk_softly(self, lambd)


@_formula
def _shrunk_softly(self: Tensor, lambd: float) -> Any:
    return aten.sub.Tensor(self, aten.clamp.default(self, -lambd, lambd))


@rule("aten.log_sigmoid_forward.default")
def _log_sigmoid_forward(self: Tensor) -> Any:
    """Return the logarithm, and ``exp(-|x|)`` for its gradient on the CPU. Both are contiguous."""
    dtype = self.dtype
    if not dtype.is_floating_point:
        return NotImplemented
    self = as_contiguous(self)
    if dtype in HALF:
        self = aten._to_copy.default(self, dtype=torch.float32)
    buffer = aten.exp.default(aten.neg.default(aten.abs.default(self)))
    result = aten.sub.Tensor(aten.clamp.default(self, None, 0), aten.log1p.default(buffer))
    return (
        (aten._to_copy.default(result, dtype=dtype), aten._to_copy.default(buffer, dtype=dtype))
        if dtype in HALF
        else (result, buffer)
    )


@rule("aten.celu.default", recorded=True)
def _celu(self: Tensor, alpha: float = 1.0) -> Any:
    """Compute by `elu`, with eager's result for an infinite `alpha`: torch's decomposition gives NaN."""
    return aten.elu.default(self, alpha, 1.0, 1.0 / alpha)


@rule("aten.logit.default", compute="operands")
def _logit(self: Tensor, eps: float | None = None) -> Any:
    if eps is not None and eps >= 0:
        if eps > 0.5:  # the bounds are crossed: eager asks for the lower one first, `clamp` for the upper one
            low = constant(self, eps)
            self = aten.where.self(aten.lt.Tensor(self, low), low, aten.clamp.Tensor(self, None, aten.sub.Tensor(1, low)))
        elif self.dtype in HALF:
            low = constant(self, eps)
            self = aten.clamp.Tensor(self, low, aten.sub.Tensor(1, low))
        else:
            self = aten.clamp.default(self, eps, 1 - eps)
    return aten.log.default(aten.div.Tensor(self, aten.sub.Tensor(1, self)))


# -- their gradients --------------------------------------------------------------------------------------------------------

_TANH_SLOPE = 2 * math.sqrt(2 / math.pi)  # of twice the argument of gelu's tanh
_C_TANH_SLOPE = Constant(_TANH_SLOPE)
_TANH_CUBIC = 0.044715


@rule("aten.gelu_backward.default", compute="float32", operands=(0, 1))
def _gelu_backward(grad: Tensor, self: Tensor, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        # ``(1 + tanh(z)) / 2`` is ``s = sigmoid(2 z)``: the gradient is ``s + s (1 - s) x (2 z)'``. ``1 - s`` is computed as
        # ``sigmoid(-2 z)``, because a large factor would multiply the error of a difference.
        # Names are reused and calls are not nested, so that at most four tensors exist at a time.
        linear = _C_TANH_SLOPE(self)
        slope = aten.mul.Tensor(self, self)
        gate = aten.add.Tensor(linear, slope, alpha=_TANH_SLOPE * _TANH_CUBIC)
        gate = aten.mul.Tensor(self, gate)
        slope = aten.add.Tensor(linear, slope, alpha=3 * _TANH_SLOPE * _TANH_CUBIC)
        left = aten.sigmoid.default(aten.neg.default(gate))
        gate = aten.sigmoid.default(gate)
        left = aten.mul.Tensor(left, gate)
        left = aten.mul.Tensor(left, self)
        left = aten.mul.Tensor(left, slope)
        gate = aten.add.Tensor(gate, left)
        del left, slope
        return aten.mul.Tensor(grad, gate)
    if approximate != "none":
        return NotImplemented
    scaled = aten.mul.Scalar(self, math.sqrt(0.5))
    slope = aten.add.Tensor(_HALF_(self), aten.erf.default(scaled), alpha=0.5)
    scaled = aten.mul.Tensor(scaled, scaled)
    scaled = aten.exp.default(aten.neg.default(scaled))
    scaled = aten.mul.Tensor(self, scaled)
    slope = aten.add.Tensor(slope, scaled, alpha=1 / math.sqrt(2 * math.pi))
    del scaled
    return aten.mul.Tensor(grad, slope)


@rule("aten.silu_backward.default", compute="float32", operands=(0, 1))
def _silu_backward(grad: Tensor, self: Tensor) -> Any:
    """Compute ``grad * s * (1 + x - x * s)`` with ``s = sigmoid(x)``."""
    gate = aten.sigmoid.default(self)
    return aten.mul.Tensor(grad, aten.add.Tensor(gate, aten.mul.Tensor(gate, aten.sub.Tensor(self, aten.mul.Tensor(self, gate)))))


@rule("aten.elu.default", compute="float32")
def _elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """Compute `elu` also for infinite or NaN factors, for which torch's table entry returns 0 below zero."""
    below = aten.mul.Scalar(aten.expm1.default(self if input_scale == 1 else aten.mul.Scalar(self, input_scale)), alpha * scale)
    return aten.where.self(aten.lt.Scalar(self, 0), below, self if scale == 1 else aten.mul.Scalar(self, scale))


@rule("aten.elu_backward.default", compute="float32", operands=(0, 5))
def _elu_backward(
    grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Tensor
) -> Any:
    factor, start = alpha * scale, self_or_result
    if is_result:
        if not alpha >= 0:  # nor NaN
            return NotImplemented
        slope, factor = aten.add.Scalar(start, factor), input_scale
    else:
        slope = aten.exp.default(start if input_scale == 1 else aten.mul.Scalar(start, input_scale))
        factor *= input_scale
    if factor != 1:
        slope = aten.mul.Scalar(slope, factor)
    # Not `start <= 0`: the slope of NaN is NaN, as in eager's vectorized loop. The scalar loop for the last elements loses it.
    return aten.mul.Tensor(grad_output, aten.where.self(aten.gt.Scalar(start, 0), constant(start, scale), slope))


@rule("aten.hardswish_backward.default", compute="float32", operands=(0, 1))
def _hardswish_backward(grad_output: Tensor, self: Tensor) -> Any:
    inner = aten.mul.Tensor(grad_output, aten.add.Tensor(_HALF_(self), self, alpha=1 / 3))
    below = aten.where.self(aten.lt.Scalar(self, 3), inner, grad_output)
    return aten.where.self(aten.le.Scalar(self, -3), _ZERO(below), below)


#: 1/6 rounded to float32, which eager's kernel uses for float64 too.
_SIXTH = struct.unpack("f", struct.pack("f", 1 / 6))[0]


@rule("aten.hardsigmoid_backward.default", compute="float32", operands=(0, 1))
def _hardsigmoid_backward(grad_output: Tensor, self: Tensor) -> Any:
    return aten.where.self(aten.lt.Scalar(aten.abs.default(self), 3), aten.mul.Scalar(grad_output, _SIXTH), _ZERO(grad_output))


@rule("aten.mish_backward.default", compute="float32", operands=(0, 1))
def _mish_backward(grad_output: Tensor, self: Tensor) -> Any:
    squashed = aten.tanh.default(aten.log1p.default(aten.exp.default(self)))
    gated = aten.mul.Tensor(self, aten.sigmoid.default(self))
    return aten.mul.Tensor(
        grad_output, aten.add.Tensor(squashed, aten.sub.Tensor(gated, aten.mul.Tensor(gated, aten.mul.Tensor(squashed, squashed))))
    )


@rule("aten.log_sigmoid_backward.default", compute="float32", operands=(0, 1, 2))
def _log_sigmoid_backward(grad_output: Tensor, self: Tensor, buffer: Tensor) -> Any:
    """Multiply by ``sigmoid(-x)``. The buffer of eager's CPU kernel is not needed."""
    return aten.mul.Tensor(grad_output, aten.sigmoid.default(aten.neg.default(self)))


@rule("aten.softplus_backward.default", compute="float32", operands=(0, 1))
def _softplus_backward(grad_output: Tensor, self: Tensor, beta: float, threshold: float) -> Any:
    scaled = self if beta == 1 else aten.mul.Scalar(self, beta)
    sloped = aten.mul.Tensor(grad_output, aten.sigmoid.default(scaled))
    if threshold >= 17 and self.dtype is torch.float32:  # from there on the sigmoid is 1
        return sloped
    return aten.where.self(aten.gt.Scalar(scaled, threshold), grad_output, sloped)


@rule("aten.logit_backward.default", compute="operands", operands=(0, 1))
def _logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Any:
    clamped = eps is not None and eps >= 0
    if clamped and self.dtype in HALF:  # the bounds are rounded to the type: the upper one may be 1
        least = constant(self, eps)
        beyond = aten.logical_or.default(aten.lt.Tensor(self, least), aten.gt.Tensor(self, aten.sub.Tensor(1, least)))
    else:
        low, high = (eps, 1 - eps) if eps is not None and clamped else (0.0, 1.0)
        beyond = aten.logical_or.default(aten.lt.Scalar(self, low), aten.gt.Scalar(self, high))
    slope = aten.div.Tensor(grad_output, aten.mul.Tensor(self, aten.sub.Tensor(1, self)))
    return aten.where.self(beyond, _ZERO(slope) if clamped else _NAN(slope), slope)


@rule("aten.threshold_backward.default", compute="operands", operands=(1, 0))
def _threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Any:
    """Compare float16 and bfloat16 with the threshold in float32, where a number such as 0.3 is not rounded as much."""
    seen = aten._to_copy.default(self, dtype=torch.float32) if threshold and self.dtype in HALF else self
    return aten.where.self(aten.le.Scalar(seen, threshold), _ZERO(grad_output), grad_output)


@rule("aten.tanh_backward.default", compute="float32", operands=(0, 1))
def _tanh_backward(grad_output: Tensor, output: Tensor) -> Any:
    return aten.mul.Tensor(grad_output, aten.sub.Tensor(1, aten.mul.Tensor(output, output)))


@rule("aten.sigmoid_backward.default", compute="float32", operands=(0, 1))
def _sigmoid_backward(grad_output: Tensor, output: Tensor) -> Any:
    return aten.mul.Tensor(grad_output, aten.mul.Tensor(aten.sub.Tensor(1, output), output))


@rule("aten.native_dropout.default", recorded=True)
def _native_dropout(input: Tensor, p: float, train: bool | None) -> Any:
    """Return the tensor itself and a mask of its dtype if it has no elements, as eager does; otherwise new tensors.

    torch's table entry returns the tensor itself if it drops nothing, does not accept ``train=None``, and rejects complex numbers.
    """
    if not input.numel():
        return input, aten.empty_like.default(input)
    if train is False or p == 0:
        return aten.clone.default(input), aten.ones_like.default(input, dtype=torch.bool)
    if not input.is_complex():
        return NotImplemented if train else aten.native_dropout.default(input, p, True)
    kept = aten.native_dropout.default(aten.ones_like.default(input, dtype=input.dtype.to_real()), p, True)[1]
    return aten.mul.Scalar(aten.mul.Tensor(input, kept), 0.0 if p == 1 else 1 / (1 - p)), kept


@rule("aten.native_dropout_backward.default")
def _native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Any:
    dtype = grad_output.dtype
    if mask.dtype is not torch.bool or not dtype.is_floating_point:
        return NotImplemented
    if dtype is torch.float32 and grad_output.is_contiguous() and mask.is_contiguous():
        return aten.mul.Scalar(aten.mul.Tensor(grad_output, mask), scale)
    return elementwise_strides(aten.mul.Scalar(aten.mul.Tensor(grad_output, mask), scale), grad_output, mask)


# -- gated linear units -----------------------------------------------------------------------------------------------------


def _halves(x: Tensor, dim: int) -> Sequence[Tensor]:
    half = x.size(dim) // 2
    return aten.split_with_sizes.default(x, [half, half], dim)  # type: ignore[no-any-return]


@rule("aten.glu.default", compute="float32")
def _glu(self: Tensor, dim: int = -1) -> Any:
    return rows_in_blocks(_gated, self, self.size(dim) // 2, dim)


def _gated(self: Tensor, half: int, dim: int) -> Any:
    value, gate = aten.split_with_sizes.default(self, [half, half], dim)
    return aten.mul.Tensor(value, aten.sigmoid.default(gate))


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate to a contiguous result, as eager allocates it."""
    joined = aten.cat.default(parts, dim)
    return as_contiguous(joined)


@rule("aten.glu_jvp.default", recorded=True)
def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Any:
    (moved_value, moved_gate), (_, gate) = _halves(dx, dim), _halves(x, dim)
    open_ = aten.sigmoid.default(gate)
    opening = aten.sub.Tensor(moved_gate, aten.mul.Tensor(open_, moved_gate))
    return aten.add.Tensor(aten.mul.Tensor(moved_value, open_), aten.mul.Tensor(opening, glu))


@rule("aten.glu_backward_jvp.default", recorded=True)
def _glu_backward_jvp(grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int) -> Any:
    """Compute the differential of `grad_x`, which is ``[grad s, grad s (1 - s) a]``, with ``ds = s (1 - s) db``."""
    (value, gate), (moved_value, moved_gate), (of_value, _) = (_halves(one, dim) for one in (x, dx, grad_x))
    open_ = aten.sigmoid.default(gate)
    opening = aten.sub.Tensor(moved_gate, aten.mul.Tensor(moved_gate, open_))  # ``ds / s``
    first = aten.add.Tensor(aten.mul.Tensor(dgrad_glu, open_), aten.mul.Tensor(of_value, opening))
    passed = aten.mul.Tensor(value, open_)
    moved = aten.sub.Tensor(aten.sub.Tensor(moved_value, aten.mul.Tensor(moved_value, open_)), aten.mul.Tensor(passed, opening))
    second = aten.add.Tensor(aten.mul.Tensor(first, aten.sub.Tensor(value, passed)), aten.mul.Tensor(of_value, moved))
    return _joined([first, second], dim)


@rule("aten.threshold.default", recorded=True)
def _threshold_of_integers(self: Tensor, threshold: Any, value: Any) -> Any:
    """Convert both numbers to integers first, as eager does; for uint8 modulo 256."""
    if self.dtype.is_floating_point or self.dtype.is_complex:
        return NotImplemented
    least, found = (int(one) % 256 if self.dtype is torch.uint8 else int(one) for one in (threshold, value))
    seen = aten.le.Scalar(self, least)
    return aten.where.self(seen, aten.full.default([], found, dtype=self.dtype, device=self.device), self)


@rule("aten._add_relu.Tensor", recorded=True)
def _add_relu(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """Compute ``clamp(self + alpha * other, 0, largest number of self's dtype)`` in the promoted dtype.

    Eager keeps a NaN in its vectorized loop and makes it 0 in the scalar loop; here it is kept.
    """
    computed = promoted((self, other)) if isinstance(other, Tensor) else computed_in((self, other)) or self.dtype
    most = torch.finfo(self.dtype).max if self.dtype.is_floating_point else torch.iinfo(self.dtype).max
    alpha, most = held_number(+alpha, computed), held_number(most, computed)  # a bool is a number
    added = (aten.add.Tensor if isinstance(other, Tensor) else aten.add.Scalar)(self, other, alpha=alpha)
    return aten.clamp.default(added, 0, most)


@rule("aten._add_relu.Scalar", recorded=True)
def _add_relu_number(self: Tensor, other: Any, alpha: Any = 1) -> Any:
    return _add_relu(self, other, alpha=alpha)


@rule("aten.rrelu_with_noise.out")
def _rrelu_with_noise_out(*args: Any, out: Tensor, **options: Any) -> Any:
    return write_out(out, aten.rrelu_with_noise.default(*args, **options), args)


@rule("aten.glu_backward.default")
def _glu_backward(grad_output: Tensor, self: Tensor, dim: int) -> Any:
    """Round the gate to the dtype before its gradient is computed from it, as eager's kernel does."""
    dtype, rank, shape = self.dtype, self.dim(), list(self.shape)
    if not dtype.is_floating_point or grad_output.dtype is not dtype or not -rank <= dim < rank:
        return NotImplemented
    half, odd = shape[dim] // 2, shape[dim] % 2  # sizes may be symbols, which take no divmod
    shape[dim] = half
    if odd or list(grad_output.shape) != shape:
        return NotImplemented
    self = as_contiguous(self)
    grad_output = as_contiguous(grad_output)
    return rows_in_blocks(_gated_backward, self, grad_output, half, dim)


def _gated_backward(self: Tensor, grad_output: Tensor, half: int, dim: int) -> Any:
    value, gate = aten.split_with_sizes.default(self, [half, half], dim)
    gate = aten.sigmoid.default(gate)
    first = product = aten.mul.Tensor(gate, grad_output)
    if self.dtype in HALF:
        product = aten.mul.Tensor(widened(gate), widened(grad_output))
    through = aten.mul.Tensor(aten.sub.Tensor(1, widened(gate)), product)  # finite, also where the value is infinite
    return aten.cat.default([first, in_type(aten.mul.Tensor(through, widened(value)), self.dtype)], dim)
