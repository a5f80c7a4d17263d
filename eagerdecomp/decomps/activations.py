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

from eagerdecomp.layouts import LAYOUTS, as_operands, laid_out
from eagerdecomp.precision import HALF
from eagerdecomp.promotion import number_like
from eagerdecomp.rules import Rule, own
from eagerdecomp.spelling import not_implemented, scalar_type_name

__all__ = ["RULES"]

aten = torch.ops.aten


def _formula(fn: Callable[..., Any], *, operands: int = 1, stepwise: bool = False) -> Callable[..., Any]:
    """A formula of `operands` tensors of one floating type: computed in float32 where they are of a half type, rounded once (or
    at every step, if `stepwise`), and laid out as an elementwise kernel lays its result out."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        dtype = tensors[0].dtype
        if not dtype.is_floating_point or any(tensor.dtype is not dtype for tensor in tensors):
            return NotImplemented
        if stepwise or dtype not in HALF:
            return fn(*args, **kwargs)
        wide = [aten._to_copy.default(arg, dtype=torch.float32) if isinstance(arg, Tensor) else arg for arg in args]
        answer = fn(*wide, **kwargs)
        return answer if answer is NotImplemented else aten._to_copy.default(answer, dtype=dtype)

    return run if operands == 1 else laid_out(run, {0: as_operands(operands)})


# -- activations ------------------------------------------------------------------------------------------------------------


def _mish(self: Tensor) -> Any:
    """No threshold is needed: where `exp` overflows, `tanh` is 1."""
    soft = aten.log1p.default(aten.exp.default(self))
    return aten.mul.Tensor(self, aten.tanh.default(soft))


def _softplus(self: Tensor, beta: float = 1, threshold: float = 20) -> Any:
    scaled = self if beta == 1 else aten.mul.Scalar(self, beta)
    soft = aten.log1p.default(aten.exp.default(scaled))
    if beta != 1:
        soft = aten.div.Scalar(soft, beta)
    return aten.where.self(aten.gt.Scalar(scaled, threshold), self, soft)


def _hardswish(self: Tensor) -> Any:
    gate = aten.clamp.default(aten.add.Scalar(self, 3), 0, 6)
    return aten.div.Scalar(aten.mul.Tensor(self, gate), 6)


def _hardsigmoid(self: Tensor) -> Any:
    return aten.div.Scalar(aten.clamp.default(aten.add.Scalar(self, 3), 0, 6), 6)


def _softshrink(self: Tensor, lambd: float = 0.5) -> Any:
    _check_lambda(self, lambd)
    return aten.sub.Tensor(self, aten.clamp.default(self, -lambd, lambd))


def _check_lambda(self: Tensor, lambd: float) -> None:
    greatest = torch.finfo(self.dtype).max
    if not 0 <= lambd <= greatest:
        kind = scalar_type_name(self.dtype)
        raise RuntimeError(f"lambda must be in range [0, {greatest:g}] for input dtype {kind}, but found {lambd:g}")


def _log_sigmoid_forward(self: Tensor) -> Any:
    """The logarithm, and ``exp(-|x|)``, which its gradient on the CPU starts from."""
    if not self.dtype.is_floating_point:
        return NotImplemented
    dtype = self.dtype
    if not self.is_contiguous():  # both results are row-major
        self = aten.clone.default(self, memory_format=torch.contiguous_format)
    if dtype in HALF:
        self = aten._to_copy.default(self, dtype=torch.float32)
    buffer = aten.exp.default(aten.neg.default(aten.abs.default(self)))
    answer = aten.sub.Tensor(aten.clamp.default(self, None, 0), aten.log1p.default(buffer))
    if dtype in HALF:
        answer, buffer = (aten._to_copy.default(x, dtype=dtype) for x in (answer, buffer))
    return answer, buffer


def _logit(self: Tensor, eps: float | None = None) -> Any:
    if eps is not None and eps >= 0:
        half = self.dtype in HALF
        self = aten.clamp.Tensor(self, *_bounds(self, eps)) if half else aten.clamp.default(self, eps, 1 - eps)
    return aten.log.default(aten.div.Tensor(self, aten.rsub.Scalar(self, 1)))


def _bounds(like: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`eps` and ``1 - eps``, each rounded to the type: in a half type the latter may be 1."""
    low = number_like(like, eps)
    return low, aten.rsub.Scalar(low, 1)


# -- their gradients --------------------------------------------------------------------------------------------------------

_TANH_SLOPE = 2 * math.sqrt(2 / math.pi)  # of twice the argument of gelu's tanh
_TANH_CUBIC = 0.044715


def _gelu_backward(grad: Tensor, self: Tensor, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        # ``(1 + tanh(z)) / 2`` is ``s = sigmoid(2 z)``: the gradient is ``s + s (1 - s) x (2 z)'``, and ``x (2 z)'`` is
        # ``3 (2 z) - 2 slope x``.
        bent = aten.add.Scalar(aten.mul.Scalar(aten.mul.Tensor(self, self), _TANH_SLOPE * _TANH_CUBIC), _TANH_SLOPE)
        doubled = aten.mul.Tensor(self, bent)
        gate = aten.sigmoid.default(doubled)
        slope = aten.add.Tensor(aten.mul.Scalar(doubled, 3), self, alpha=-2 * _TANH_SLOPE)
        slope = aten.sub.Tensor(slope, aten.mul.Tensor(gate, slope))
        return aten.mul.Tensor(grad, aten.add.Tensor(gate, aten.mul.Tensor(gate, slope)))
    scaled = aten.mul.Scalar(self, math.sqrt(0.5))
    density = aten.exp.default(aten.neg.default(aten.mul.Tensor(scaled, scaled)))
    below = aten.add.Scalar(aten.mul.Scalar(aten.erf.default(scaled), 0.5), 0.5)
    slope = aten.add.Tensor(below, aten.mul.Tensor(self, density), alpha=1 / math.sqrt(2 * math.pi))
    return aten.mul.Tensor(grad, slope)


_NEGATIVE_SLOPE = (
    "In-place elu backward calculation is triggered with a negative slope which is not supported. This is caused by calling "
    "in-place forward function with a negative slope, please call out-of-place version instead."
)


def _elu_backward(
    grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Tensor
) -> Any:
    factor, start = alpha * scale, self_or_result
    if is_result:
        if alpha < 0:
            raise RuntimeError(_NEGATIVE_SLOPE)
        slope, factor = aten.add.Scalar(start, factor), input_scale
    else:
        slope = aten.exp.default(start if input_scale == 1 else aten.mul.Scalar(start, input_scale))
        factor *= input_scale
    if factor != 1:
        slope = aten.mul.Scalar(slope, factor)
    return aten.mul.Tensor(grad_output, aten.where.self(aten.le.Scalar(start, 0), slope, number_like(start, scale)))


def _hardswish_backward(grad_output: Tensor, self: Tensor) -> Any:
    inner = aten.mul.Tensor(grad_output, aten.add.Scalar(aten.div.Scalar(self, 3), 0.5))
    below = aten.where.self(aten.lt.Scalar(self, 3), inner, grad_output)
    return aten.where.self(aten.le.Scalar(self, -3), number_like(below, 0.0), below)


#: Eager's kernel holds the sixth as a float32, for float64 too.
_SIXTH = struct.unpack("f", struct.pack("f", 1 / 6))[0]


def _hardsigmoid_backward(grad_output: Tensor, self: Tensor) -> Any:
    inside = aten.lt.Scalar(aten.abs.default(self), 3)
    return aten.where.self(inside, aten.mul.Scalar(grad_output, _SIXTH), number_like(grad_output, 0.0))


def _mish_backward(grad_output: Tensor, self: Tensor) -> Any:
    squashed = aten.tanh.default(aten.log1p.default(aten.exp.default(self)))
    gated = aten.mul.Tensor(self, aten.sigmoid.default(self))
    slope = aten.sub.Tensor(gated, aten.mul.Tensor(gated, aten.mul.Tensor(squashed, squashed)))
    return aten.mul.Tensor(grad_output, aten.add.Tensor(squashed, slope))


def _log_sigmoid_backward(grad_output: Tensor, self: Tensor, buffer: Tensor) -> Any:
    """``sigmoid(-x)``; the buffer, which eager's CPU kernel starts from, holds nothing that `self` does not."""
    return aten.mul.Tensor(grad_output, aten.sigmoid.default(aten.neg.default(self)))


def _softplus_backward(grad_output: Tensor, self: Tensor, beta: float, threshold: float) -> Any:
    scaled = self if beta == 1 else aten.mul.Scalar(self, beta)
    sloped = aten.mul.Tensor(grad_output, aten.sigmoid.default(scaled))
    return aten.where.self(aten.gt.Scalar(scaled, threshold), grad_output, sloped)


def _logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Any:
    clamped = eps is not None and eps >= 0
    if eps is not None and clamped and self.dtype in HALF:
        least, most = _bounds(self, eps)
        beyond = aten.logical_or.default(aten.lt.Tensor(self, least), aten.gt.Tensor(self, most))
    else:
        low, high = (eps, 1 - eps) if eps is not None and clamped else (0.0, 1.0)
        beyond = aten.logical_or.default(aten.lt.Scalar(self, low), aten.gt.Scalar(self, high))
    slope = aten.div.Tensor(grad_output, aten.mul.Tensor(self, aten.rsub.Scalar(self, 1)))
    return aten.where.self(beyond, number_like(slope, 0.0 if clamped else math.nan), slope)


def _threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Any:
    """Half types meet the threshold in float32, in which alone 0.3 is 0.3; zero is zero in any."""
    dtype = grad_output.dtype
    if dtype not in HALF or self.dtype is not dtype or not threshold:
        return NotImplemented
    below = aten.le.Scalar(aten._to_copy.default(self, dtype=torch.float32), threshold)
    return aten.where.self(below, number_like(grad_output, 0.0), grad_output)


def _native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Any:
    if not grad_output.dtype.is_floating_point or mask.dtype is not torch.bool:
        return NotImplemented
    if grad_output.dtype in HALF:  # eager rounds the factor, too
        return aten.mul.Tensor(grad_output, aten.mul.Scalar(aten._to_copy.default(mask, dtype=grad_output.dtype), scale))
    return aten.mul.Scalar(aten.mul.Tensor(grad_output, mask), scale)


def _masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Any:
    if grad_output.shape != mask.shape:
        raise RuntimeError("Mask shape should match grad shape")
    if mask.dtype is not torch.bool:
        raise RuntimeError("Mask should be a boolean tensor")
    if output.dtype is not grad_output.dtype:
        wanted, found = scalar_type_name(grad_output.dtype), scalar_type_name(output.dtype)
        raise RuntimeError(f"expected scalar type {wanted} but found {found}")
    dim = output.dim() - 1 if dim is None else dim
    zero = number_like(grad_output, 0.0)
    grad = aten._softmax_backward_data.default(aten.where.self(mask, zero, grad_output), output, dim, output.dtype)
    return aten.where.self(mask, zero, grad)  # the output is NaN where a whole row is masked


# -- gated linear units -----------------------------------------------------------------------------------------------------


def _halves(x: Tensor, dim: int) -> Sequence[Tensor]:
    rank = x.dim()
    if not rank:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    if x.size(dim) % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim % rank} is size {x.size(dim)}")
    half = x.size(dim) // 2
    return aten.split_with_sizes.default(x, [half, half], dim)  # type: ignore[no-any-return]


def _glu(self: Tensor, dim: int = -1) -> Any:
    value, gate = _halves(self, dim)
    return aten.mul.Tensor(value, aten.sigmoid.default(gate))


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


RULES: tuple[Rule, ...] = (
    own(aten.mish.default, _formula(_mish)),
    own(aten.softplus.default, _formula(_softplus)),
    own(aten.hardswish.default, _formula(_hardswish)),
    own(aten.hardsigmoid.default, _formula(_hardsigmoid)),
    own(aten.softshrink.default, _formula(_softshrink)),
    own(aten.logit.default, _formula(_logit, stepwise=True)),
    own(aten.log_sigmoid_forward.default, _log_sigmoid_forward),
    own(aten.gelu_backward.default, _formula(_gelu_backward, operands=2)),
    own(aten.elu_backward.default, _formula(_elu_backward, operands=2)),
    own(aten.hardswish_backward.default, _formula(_hardswish_backward, operands=2)),
    own(aten.hardsigmoid_backward.default, _formula(_hardsigmoid_backward, operands=2)),
    own(aten.mish_backward.default, _formula(_mish_backward, operands=2)),
    own(aten.log_sigmoid_backward.default, _formula(_log_sigmoid_backward, operands=2)),
    own(aten.softplus_backward.default, _formula(_softplus_backward, operands=2)),
    own(aten.logit_backward.default, _formula(_logit_backward, operands=2, stepwise=True)),
    own(aten.threshold_backward.default, _threshold_backward),
    own(aten.native_dropout_backward.default, _native_dropout_backward),
    own(
        aten._masked_softmax_backward.default,
        laid_out(_masked_softmax_backward, LAYOUTS["aten._softmax_backward_data.default"]),
    ),
    own(aten.glu.default, _formula(_glu)),
    own(aten.glu_backward.default, _glu_backward),
    own(aten.glu_jvp.default, _glu_jvp),
    own(aten.glu_backward_jvp.default, _formula(_glu_backward_jvp)),
)
