"""Activations and their gradients in fewer kernels than the shipped entries take, half types in float32 with one rounding.

Each formula is written for operands of one floating type; any other call is left to the shipped entries.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.checks.shapes import broadcast_shapes
from eagerdecomp.eager.messages import cpp_name, not_implemented, scalar_type_name
from eagerdecomp.eager.promotion import HALF, computed_in, promoted
from eagerdecomp.eager.scalars import held_number
from eagerdecomp.rules.link import formula, kept_number, kept_numbers, relaid
from eagerdecomp.rules.rule import Call, Rule, linked, own
from eagerdecomp.rules.writeback import out_writer

__all__ = ["RULES"]

aten = torch.ops.aten


def _formula(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A plain formula of tensors of one floating type: computed in float32 where they are of a half type, rounded once."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        dtype = tensors[0].dtype
        if not dtype.is_floating_point or any(tensor.dtype is not dtype for tensor in tensors):
            return NotImplemented
        if dtype not in HALF:
            return fn(*args, **kwargs)
        wide = [aten._to_copy.default(arg, dtype=torch.float32) if isinstance(arg, Tensor) else arg for arg in args]
        answer = fn(*wide, **kwargs)
        return answer if answer is NotImplemented else aten._to_copy.default(answer, dtype=dtype)

    return run


# -- activations ------------------------------------------------------------------------------------------------------------


def _mish(call: Call) -> Callable[..., Any]:
    """No threshold is needed: where `exp` overflows, `tanh` is 1."""
    exp, log1p, tanh, mul = call(aten.exp.default), call(aten.log1p.default), call(aten.tanh.default), call(aten.mul.Tensor)
    return lambda self: mul(self, tanh(log1p(exp(self))))


def _softplus(call: Call) -> Callable[..., Any]:
    exp, log1p, gt, where = call(aten.exp.default), call(aten.log1p.default), call(aten.gt.Scalar), call(aten.where.self)
    scale, div = call(aten.mul.Scalar), call(aten.div.Scalar)

    def softplus(self: Tensor, beta: float = 1, threshold: float = 20) -> Any:
        if beta == 1:
            return where(gt(self, threshold), self, log1p(exp(self)))
        scaled = scale(self, beta)
        return where(gt(scaled, threshold), self, div(log1p(exp(scaled)), beta))

    return softplus


def _hardswish(call: Call) -> Callable[..., Any]:
    add, clamp, mul, div = call(aten.add.Scalar), call(aten.clamp.default), call(aten.mul.Tensor), call(aten.div.Scalar)
    return lambda self: div(mul(self, clamp(add(self, 3), 0, 6)), 6)


def _hardsigmoid(call: Call) -> Callable[..., Any]:
    add, clamp, div = call(aten.add.Scalar), call(aten.clamp.default), call(aten.div.Scalar)
    return lambda self: div(clamp(add(self, 3), 0, 6), 6)


def _silu(call: Call) -> Callable[..., Any]:
    sigmoid, mul = call(aten.sigmoid.default), call(aten.mul.Tensor)
    return lambda self: mul(self, sigmoid(self))


def _softshrink(self: Tensor, lambd: float = 0.5) -> Any:
    greatest = torch.finfo(self.dtype).max if self.dtype.is_floating_point else lambd
    if not 0 <= lambd <= greatest:
        kind = scalar_type_name(self.dtype)
        raise RuntimeError(f"lambda must be in range [0, {greatest:g}] for input dtype {kind}, but found {lambd:g}")
    return _shrunk_softly(self, lambd)


@_formula
def _shrunk_softly(self: Tensor, lambd: float) -> Any:
    return aten.sub.Tensor(self, aten.clamp.default(self, -lambd, lambd))


def _log_sigmoid_forward(call: Call) -> Callable[..., Any]:
    """The logarithm, and ``exp(-|x|)``, which its gradient on the CPU starts from. Both are row-major."""
    absolute, neg, exp, log1p = call(aten.abs.default), call(aten.neg.default), call(aten.exp.default), call(aten.log1p.default)
    clamp, sub = call(aten.clamp.default), call(aten.sub.Tensor)
    to, clone, others = call(aten._to_copy.default), call(aten.clone.default), call(aten.log_sigmoid_forward.default)

    def run(self: Tensor) -> Any:
        dtype = self.dtype
        if not dtype.is_floating_point:
            return others(self)
        if not self.is_contiguous():
            self = clone(self, memory_format=torch.contiguous_format)
        if dtype in HALF:
            self = to(self, dtype=torch.float32)
        buffer = exp(neg(absolute(self)))
        answer = sub(clamp(self, None, 0), log1p(buffer))
        return (to(answer, dtype=dtype), to(buffer, dtype=dtype)) if dtype in HALF else (answer, buffer)

    return run


def _logit(call: Call) -> Callable[..., Any]:
    clamp, clamp_between, sub = call(aten.clamp.default), call(aten.clamp.Tensor), call(aten.sub.Tensor)
    div, log, number = call(aten.div.Tensor), call(aten.log.default), kept_numbers(call)
    lt, where = call(aten.lt.Tensor), call(aten.where.self)

    def logit(self: Tensor, eps: float | None = None) -> Any:
        if eps is not None and eps >= 0:
            if eps > 0.5:  # the bounds are crossed: eager asks for the lower one first, `clamp` for the upper one
                low = number(self, eps)
                self = where(lt(self, low), low, clamp_between(self, None, sub(1, low)))
            elif self.dtype in HALF:
                low = number(self, eps)
                self = clamp_between(self, low, sub(1, low))
            else:
                self = clamp(self, eps, 1 - eps)
        return log(div(self, sub(1, self)))

    return logit


# -- their gradients --------------------------------------------------------------------------------------------------------

_TANH_SLOPE = 2 * math.sqrt(2 / math.pi)  # of twice the argument of gelu's tanh
_TANH_CUBIC = 0.044715


def _gelu_backward(call: Call) -> Callable[..., Any]:
    mul, scale, add, sub = call(aten.mul.Tensor), call(aten.mul.Scalar), call(aten.add.Tensor), call(aten.sub.Tensor)
    exp, neg, erf, sigmoid = call(aten.exp.default), call(aten.neg.default), call(aten.erf.default), call(aten.sigmoid.default)
    half, tanh_slope = kept_number(call, 0.5), kept_number(call, _TANH_SLOPE)

    def gelu_backward(grad: Tensor, self: Tensor, *, approximate: str = "none") -> Any:
        if approximate == "tanh":
            # ``(1 + tanh(z)) / 2`` is ``s = sigmoid(2 z)``: the gradient is ``s + s (1 - s) x (2 z)'``, and ``x (2 z)'`` is
            # ``3 (2 z - 2 slope x / 3)``.
            # Few names, since each holds its memory.
            gated = mul(self, add(tanh_slope(self), mul(self, self), alpha=_TANH_SLOPE * _TANH_CUBIC))
            gate = sigmoid(gated)
            gated = mul(gate, add(gated, self, alpha=-2 * _TANH_SLOPE / 3))
            gated = sub(gated, mul(gate, gated))
            slope = add(gate, gated, alpha=3)
            del gate, gated
            return mul(grad, slope)
        scaled = scale(self, math.sqrt(0.5))
        slope = add(half(self), erf(scaled), alpha=0.5)
        scaled = exp(neg(mul(scaled, scaled)))
        slope = add(slope, mul(self, scaled), alpha=1 / math.sqrt(2 * math.pi))
        del scaled
        return mul(grad, slope)

    return gelu_backward


def _silu_backward(call: Call) -> Callable[..., Any]:
    """``grad s (1 + x - x s)``."""
    sigmoid, mul, sub, add = call(aten.sigmoid.default), call(aten.mul.Tensor), call(aten.sub.Tensor), call(aten.add.Tensor)

    def silu_backward(grad: Tensor, self: Tensor) -> Any:
        gate = sigmoid(self)
        return mul(grad, add(gate, mul(gate, sub(self, mul(self, gate)))))

    return silu_backward


_NEGATIVE_SLOPE = (
    "In-place {} backward calculation is triggered with a negative slope which is not supported. This is caused by calling "
    "in-place forward function with a negative slope, please call out-of-place version instead."
)


def _elu(call: Call) -> Callable[..., Any]:
    """The shipped entry takes 0 for one below it, where a factor that is infinite or NaN goes in."""
    less, where, scale_by, expm1 = call(aten.lt.Scalar), call(aten.where.self), call(aten.mul.Scalar), call(aten.expm1.default)

    def elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
        below = scale_by(expm1(self if input_scale == 1 else scale_by(self, input_scale)), alpha * scale)
        return where(less(self, 0), below, self if scale == 1 else scale_by(self, scale))

    return elu


def _celu(self: Tensor, alpha: float = 1.0) -> Any:
    return aten.elu.default(self, alpha, 1.0, 1.0 / alpha)


def _elu_backward(call: Call) -> Callable[..., Any]:
    add, exp, scale_by, mul = call(aten.add.Scalar), call(aten.exp.default), call(aten.mul.Scalar), call(aten.mul.Tensor)
    le, where, number = call(aten.le.Scalar), call(aten.where.self), kept_numbers(call)

    def elu_backward(
        grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Tensor
    ) -> Any:
        factor, start = alpha * scale, self_or_result
        if is_result:
            if not alpha >= 0:  # nor NaN
                raise RuntimeError(_NEGATIVE_SLOPE.format("elu"))
            slope, factor = add(start, factor), input_scale
        else:
            slope = exp(start if input_scale == 1 else scale_by(start, input_scale))
            factor *= input_scale
        if factor != 1:
            slope = scale_by(slope, factor)
        return mul(grad_output, where(le(start, 0), slope, number(start, scale)))

    return elu_backward


def _hardswish_backward(call: Call) -> Callable[..., Any]:
    mul, add, lt, le = call(aten.mul.Tensor), call(aten.add.Tensor), call(aten.lt.Scalar), call(aten.le.Scalar)
    where, half, zero = call(aten.where.self), kept_number(call, 0.5), kept_number(call, 0.0)

    def hardswish_backward(grad_output: Tensor, self: Tensor) -> Any:
        inner = mul(grad_output, add(half(self), self, alpha=1 / 3))
        below = where(lt(self, 3), inner, grad_output)
        return where(le(self, -3), zero(below), below)

    return hardswish_backward


#: Eager's kernel holds the sixth as a float32, for float64 too.
_SIXTH = struct.unpack("f", struct.pack("f", 1 / 6))[0]


def _hardsigmoid_backward(call: Call) -> Callable[..., Any]:
    lt, absolute, where, scale = call(aten.lt.Scalar), call(aten.abs.default), call(aten.where.self), call(aten.mul.Scalar)
    zero = kept_number(call, 0.0)

    def hardsigmoid_backward(grad_output: Tensor, self: Tensor) -> Any:
        return where(lt(absolute(self), 3), scale(grad_output, _SIXTH), zero(grad_output))

    return hardsigmoid_backward


def _mish_backward(call: Call) -> Callable[..., Any]:
    tanh, log1p, exp, sigmoid = (
        call(aten.tanh.default),
        call(aten.log1p.default),
        call(aten.exp.default),
        call(aten.sigmoid.default),
    )
    mul, sub, add = call(aten.mul.Tensor), call(aten.sub.Tensor), call(aten.add.Tensor)

    def mish_backward(grad_output: Tensor, self: Tensor) -> Any:
        squashed = tanh(log1p(exp(self)))
        gated = mul(self, sigmoid(self))
        return mul(grad_output, add(squashed, sub(gated, mul(gated, mul(squashed, squashed)))))

    return mish_backward


def _log_sigmoid_backward(call: Call) -> Callable[..., Any]:
    """``sigmoid(-x)``; the buffer, which eager's CPU kernel starts from, holds nothing that `self` does not."""
    mul, sigmoid, neg = call(aten.mul.Tensor), call(aten.sigmoid.default), call(aten.neg.default)
    return lambda grad_output, self, buffer: mul(grad_output, sigmoid(neg(self)))


def _softplus_backward(call: Call) -> Callable[..., Any]:
    scale, mul, sigmoid = call(aten.mul.Scalar), call(aten.mul.Tensor), call(aten.sigmoid.default)
    gt, where = call(aten.gt.Scalar), call(aten.where.self)

    def softplus_backward(grad_output: Tensor, self: Tensor, beta: float, threshold: float) -> Any:
        scaled = self if beta == 1 else scale(self, beta)
        sloped = mul(grad_output, sigmoid(scaled))
        if threshold >= 17 and self.dtype is torch.float32:  # from there on the sigmoid is 1
            return sloped
        return where(gt(scaled, threshold), grad_output, sloped)

    return softplus_backward


def _logit_backward(call: Call) -> Callable[..., Any]:
    lt, gt, lt_tensor, gt_tensor = call(aten.lt.Scalar), call(aten.gt.Scalar), call(aten.lt.Tensor), call(aten.gt.Tensor)
    either, sub, mul, div = call(aten.logical_or.default), call(aten.sub.Tensor), call(aten.mul.Tensor), call(aten.div.Tensor)
    where, number = call(aten.where.self), kept_numbers(call)
    zero, nan = kept_number(call, 0.0), kept_number(call, math.nan)

    def logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Any:
        clamped = eps is not None and eps >= 0
        if clamped and self.dtype in HALF:  # the bounds are rounded to the type: the upper one may be 1
            least = number(self, eps)
            beyond = either(lt_tensor(self, least), gt_tensor(self, sub(1, least)))
        else:
            low, high = (eps, 1 - eps) if eps is not None and clamped else (0.0, 1.0)
            beyond = either(lt(self, low), gt(self, high))
        slope = div(grad_output, mul(self, sub(1, self)))
        return where(beyond, zero(slope) if clamped else nan(slope), slope)

    return logit_backward


def _threshold_backward(call: Call) -> Callable[..., Any]:
    """Half types meet the threshold in float32, in which alone 0.3 is 0.3; zero is zero in any."""
    le, where, to, zero = call(aten.le.Scalar), call(aten.where.self), call(aten._to_copy.default), kept_number(call, 0.0)

    def threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Any:
        met = to(self, dtype=torch.float32) if threshold and self.dtype in HALF else self
        return where(le(met, threshold), zero(grad_output), grad_output)

    return threshold_backward


def _leaky_relu_backward(call: Call) -> Callable[..., Any]:
    gt, where, scale = call(aten.gt.Scalar), call(aten.where.self), call(aten.mul.Scalar)

    def leaky_relu_backward(grad_output: Tensor, self: Tensor, negative_slope: float, self_is_result: bool) -> Any:
        if self_is_result and not negative_slope >= 0:  # nor NaN: the sign of the input is lost
            raise RuntimeError(
                _NEGATIVE_SLOPE.format("leakyReLu") + " File an issue at https://github.com/pytorch/pytorch if you do require "
                "supporting in-place leakRelu backward calculation with negative slope"
            )
        return where(gt(self, 0), grad_output, scale(grad_output, negative_slope))

    return leaky_relu_backward


def _prelu_kernel(call: Call) -> Callable[..., Any]:
    gt, where, mul = call(aten.gt.Scalar), call(aten.where.self), call(aten.mul.Tensor)
    return lambda self, weight: where(gt(self, 0), self, mul(weight, self))


def _tanh_backward(call: Call) -> Callable[..., Any]:
    mul, sub = call(aten.mul.Tensor), call(aten.sub.Tensor)

    def tanh_backward(grad_output: Tensor, output: Tensor) -> Any:
        return sub(grad_output, mul(grad_output, mul(output, output)))

    return tanh_backward


def _sigmoid_backward(call: Call) -> Callable[..., Any]:
    mul, sub = call(aten.mul.Tensor), call(aten.sub.Tensor)
    return lambda grad_output, output: mul(grad_output, mul(sub(1, output), output))


def _native_dropout(input: Tensor, p: float, train: bool | None) -> Any:
    """Of no elements eager answers the tensor itself, and a mask of its type, of any other a new one. The shipped entry answers the
    tensor where it drops nothing, takes no word for not training, and refuses complex numbers."""
    if not input.numel():
        return input, aten.empty_like.default(input)
    if train is False or p == 0:
        return aten.clone.default(input), aten.ones_like.default(input, dtype=torch.bool)
    if not input.is_complex():
        return NotImplemented if train else aten.native_dropout.default(input, p, True)
    kept = aten.native_dropout.default(aten.ones_like.default(input, dtype=input.dtype.to_real()), p, True)[1]
    return aten.mul.Scalar(aten.mul.Tensor(input, kept), 0.0 if p == 1 else 1 / (1 - p)), kept


def _native_dropout_backward(call: Call) -> Callable[..., Any]:
    mul, scale_by, to = call(aten.mul.Tensor), call(aten.mul.Scalar), call(aten._to_copy.default)
    others = call(aten.native_dropout_backward.default)

    def run(grad_output: Tensor, mask: Tensor, scale: float) -> Any:
        dtype = grad_output.dtype
        if mask.dtype is not torch.bool or not dtype.is_floating_point:
            return others(grad_output, mask, scale)
        if dtype is torch.float32 and grad_output.is_contiguous() and mask.is_contiguous():
            return scale_by(mul(grad_output, mask), scale)
        if dtype in HALF:  # eager rounds the factor, too
            return relaid(call, mul(grad_output, scale_by(to(mask, dtype=dtype), scale)), grad_output, mask)
        return relaid(call, scale_by(mul(grad_output, mask), scale), grad_output, mask)

    return run


# -- gated linear units -----------------------------------------------------------------------------------------------------


def _halves(x: Tensor, dim: int) -> Sequence[Tensor]:
    half = _half(x, dim)
    return aten.split_with_sizes.default(x, [half, half], dim)  # type: ignore[no-any-return]


def _half(x: Tensor, dim: int) -> int:
    rank = x.dim()
    if not rank:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    size = x.size(dim)
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim % rank} is size {size}")
    return size // 2


def _glu(call: Call) -> Callable[..., Any]:
    split, mul, sigmoid = call(aten.split_with_sizes.default), call(aten.mul.Tensor), call(aten.sigmoid.default)

    def glu(self: Tensor, dim: int = -1) -> Any:
        half = _half(self, dim)
        value, gate = split(self, [half, half], dim)
        return mul(value, sigmoid(gate))

    return glu


def _glu_backward(grad_output: Tensor, self: Tensor, dim: int) -> Any:
    """Of half types too the gate is rounded before the gradient of its own argument starts from it, as in eager's kernel."""
    value, gate = _halves(self, dim)
    if grad_output.shape != value.shape or grad_output.dtype is not self.dtype or not self.dtype.is_floating_point:
        return NotImplemented
    open_ = aten.sigmoid.default(gate)
    of_value = aten.mul.Tensor(grad_output, open_)
    return _joined([of_value, _formula(_through_gate)(grad_output, open_, value)], dim)


def _through_gate(grad: Tensor, open_: Tensor, value: Tensor) -> Tensor:
    through = aten.mul.Tensor(aten.mul.Tensor(grad, open_), value)
    return aten.sub.Tensor(through, aten.mul.Tensor(through, open_))  # type: ignore[no-any-return]


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Row-major, as eager allocates it."""
    joined = aten.cat.default(parts, dim)
    return joined if joined.is_contiguous() else aten.clone.default(joined, memory_format=torch.contiguous_format)  # type: ignore[no-any-return]


def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Any:
    if x.dtype not in (torch.float32, torch.float64):
        raise not_implemented("glu_jvp_cpu", x.dtype)
    (moved_value, moved_gate), (_, gate) = _halves(dx, dim), _halves(x, dim)
    open_ = aten.sigmoid.default(gate)
    opening = aten.sub.Tensor(moved_gate, aten.mul.Tensor(open_, moved_gate))
    return aten.add.Tensor(aten.mul.Tensor(moved_value, open_), aten.mul.Tensor(opening, glu))


def _glu_backward_jvp(grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int) -> Any:
    """The differential of ``[grad s, grad s (1 - s) a]``, with ``ds = s (1 - s) db``."""
    (value, gate), (moved_value, moved_gate) = _halves(x, dim), _halves(dx, dim)
    open_ = aten.sigmoid.default(gate)
    opening = aten.sub.Tensor(moved_gate, aten.mul.Tensor(moved_gate, open_))  # ``ds / s``
    first = aten.mul.Tensor(open_, aten.add.Tensor(dgrad_glu, aten.mul.Tensor(grad_glu, opening)))
    of_value = aten.mul.Tensor(grad_glu, open_)
    moved = aten.add.Tensor(aten.mul.Tensor(first, value), aten.mul.Tensor(of_value, moved_value))
    closing = aten.mul.Tensor(aten.mul.Tensor(of_value, value), aten.mul.Tensor(open_, opening))
    second = aten.sub.Tensor(aten.sub.Tensor(moved, aten.mul.Tensor(moved, open_)), closing)
    return _joined([first, second], dim)


def _threshold_of_integers(self: Tensor, threshold: Any, value: Any) -> Any:
    """Eager makes both numbers integers first, of bytes without their sign."""
    if self.dtype.is_floating_point or self.dtype.is_complex:
        return NotImplemented
    least, found = (int(one) % 256 if self.dtype is torch.uint8 else int(one) for one in (threshold, value))
    met = aten.le.Scalar(self, least)
    return aten.where.self(met, aten.full.default([], found, dtype=self.dtype, device=self.device), self)


#: The dtypes of `self` that `_add_relu` takes, whose largest number also bounds the result.
_BOUNDED = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64})


def _add_relu(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """``clamp(self + alpha * other, 0, the largest number of self's dtype)``, in the dtype that both promote to.

    Eager keeps a NaN in its vectorized loop and makes it 0 in the scalar one; here it is kept.
    """
    if isinstance(other, Tensor):
        broadcast_shapes(self.shape, other.shape)
        computed = promoted((self, other))
    else:
        computed = computed_in((self, other)) or self.dtype
    if self.dtype not in _BOUNDED:
        raise RuntimeError(f"Unsupported datatype for add_relu:{cpp_name(self.dtype)}")
    if computed not in _BOUNDED and computed is not torch.uint8:
        raise not_implemented("add_clamp_cpu", computed)
    most = torch.finfo(self.dtype).max if self.dtype.is_floating_point else torch.iinfo(self.dtype).max
    alpha, most = held_number(+alpha, computed), held_number(most, computed)  # a bool is a number
    added = (aten.add.Tensor if isinstance(other, Tensor) else aten.add.Scalar)(self, other, alpha=alpha)
    return aten.clamp.default(added, 0, most)


def _add_relu_number(self: Tensor, other: Any, alpha: Any = 1) -> Any:
    return _add_relu(self, other, alpha=alpha)


def _rrelu_with_noise_out(call: Call) -> Callable[..., Any]:
    functional, write = call(aten.rrelu_with_noise.default), out_writer(call)

    def run(*args: Any, out: Tensor, **options: Any) -> Tensor:
        return write(out, functional(*args, **options), args)

    return run


RULES: tuple[Rule, ...] = (
    linked(aten.rrelu_with_noise.out, _rrelu_with_noise_out),
    own(aten._add_relu.Tensor, _add_relu),
    own(aten._add_relu.Scalar, _add_relu_number),
    own(aten.threshold.default, _threshold_of_integers),
    formula(aten.mish.default, _mish),
    formula(aten.softplus.default, _softplus),
    formula(aten.hardswish.default, _hardswish),
    formula(aten.hardsigmoid.default, _hardsigmoid),
    formula(aten.silu.default, _silu),
    own(aten.softshrink.default, _softshrink),
    formula(aten.logit.default, _logit, stepwise=True),
    linked(aten.log_sigmoid_forward.default, _log_sigmoid_forward),
    formula(aten.gelu_backward.default, _gelu_backward, operands=(0, 1)),
    formula(aten.silu_backward.default, _silu_backward, operands=(0, 1)),
    formula(aten.elu.default, _elu),
    own(aten.celu.default, _celu),
    formula(aten.elu_backward.default, _elu_backward, operands=(0, 5)),
    formula(aten.hardswish_backward.default, _hardswish_backward, operands=(0, 1)),
    formula(aten.hardsigmoid_backward.default, _hardsigmoid_backward, operands=(0, 1)),
    formula(aten.mish_backward.default, _mish_backward, operands=(0, 1)),
    formula(aten.log_sigmoid_backward.default, _log_sigmoid_backward, operands=(0, 1, 2)),
    formula(aten.softplus_backward.default, _softplus_backward, operands=(0, 1)),
    formula(aten.logit_backward.default, _logit_backward, operands=(0, 1), stepwise=True),
    formula(aten.threshold_backward.default, _threshold_backward, operands=(1, 0), stepwise=True),
    formula(aten.leaky_relu_backward.default, _leaky_relu_backward, operands=(1, 0)),
    formula(aten.tanh_backward.default, _tanh_backward, operands=(0, 1)),
    formula(aten.sigmoid_backward.default, _sigmoid_backward, operands=(0, 1)),
    formula(aten._prelu_kernel.default, _prelu_kernel, operands=(0, 1)),
    own(aten.native_dropout.default, _native_dropout),
    linked(aten.native_dropout_backward.default, _native_dropout_backward),
    formula(aten.glu.default, _glu),
    own(aten.glu_backward.default, _glu_backward),
    own(aten.glu_jvp.default, _glu_jvp),
    own(aten.glu_backward_jvp.default, _formula(_glu_backward_jvp)),
)
