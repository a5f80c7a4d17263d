"""Elementwise ops without a shipped route to Core ATen, or with one that is longer than it need be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.layouts import as_operands, laid_out
from eagerdecomp.eager.messages import cpp_name, not_implemented
from eagerdecomp.eager.out_quirks import out_quirks
from eagerdecomp.eager.promotion import HALF, WIDE_UNSIGNED, number_like, promoted
from eagerdecomp.eager.scalars import cast_number, held_number
from eagerdecomp.rules.link import formula, kept_number, kept_numbers, relaid
from eagerdecomp.rules.rule import Call, Rule, linked, own
from eagerdecomp.rules.writeback import inplace_by

__all__ = ["REAL", "RULES"]
from eagerdecomp.eager.checks.shapes import broadcast_shapes

aten = torch.ops.aten

#: The integers of a floating type's size: its bits.
_BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}


def _laid_out_by_both(rule: Callable[..., Any]) -> Callable[..., Any]:
    """For rules of two operands that meet them in another order than eager's kernel does: by the first, where it decides."""
    return laid_out(rule, {0: as_operands(2)})


# -- bits of floats -------------------------------------------------------------------------------------------------------


def _signbit(self: Tensor) -> Any:
    if self.dtype.is_complex:
        raise RuntimeError("signbit is not implemented for complex tensors.")
    if self.dtype is torch.bool or self.dtype in WIDE_UNSIGNED:
        return aten.full_like.default(self, False, dtype=torch.bool)
    # By the bits: a comparison does not tell -0.0 from 0.0, nor one NaN from another.
    bits = _BITS.get(self.dtype)
    return aten.lt.Scalar(self if bits is None else aten.view.dtype(self, bits), 0)


def _copysign(call: Call) -> Callable[..., Any]:
    absolute, neg, where = call(aten.abs.default), call(aten.neg.default), call(aten.where.self)
    view, lt = call(aten.view.dtype), call(aten.lt.Scalar)

    def copysign(self: Tensor, other: Tensor) -> Any:
        magnitude = absolute(self)
        return where(lt(view(other, _BITS[other.dtype]), 0), neg(magnitude), magnitude)

    return copysign


def _copysign_of_number(call: Call) -> Callable[..., Any]:
    """A number's sign is known: nothing need be chosen."""
    absolute, neg, to = call(aten.abs.default), call(aten.neg.default), call(aten._to_copy.default)

    def run(self: Tensor, other: Any) -> Any:
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            self = to(self, dtype=torch.get_default_dtype())
        if self.dtype.is_complex or isinstance(other, complex):
            raise not_implemented("copysign_cpu", self.dtype.to_complex())
        magnitude = absolute(self)
        return neg(magnitude) if math.copysign(1, other) < 0 else magnitude

    return run


def _nextafter(self: Tensor, other: Tensor) -> Any:
    dtype = promoted([self, other])
    bits = _BITS.get(dtype)
    if bits is None:
        raise not_implemented("nextafter_cpu", dtype)
    self, other = (one if one.dtype is dtype else aten._to_copy.default(one, dtype=dtype) for one in (self, other))
    shape = broadcast_shapes(self.shape, other.shape)
    start, end = aten.expand.default(self, shape), aten.expand.default(other, shape)
    # Away from zero the bits of a magnitude count up, towards it down.
    outwards = aten.eq.Tensor(aten.lt.Tensor(start, end), aten.gt.Scalar(start, 0))
    pattern = aten.view.dtype(start, bits)
    one = aten.full.default([], 1, dtype=bits, device=self.device)
    moved = aten.where.self(outwards, aten.add.Tensor(pattern, one), aten.sub.Tensor(pattern, one))
    moved = aten.view.dtype(moved, self.dtype)
    smallest = number_like(self, torch.finfo(self.dtype).smallest_normal * torch.finfo(self.dtype).eps)
    from_zero = aten.where.self(aten.lt.Tensor(end, start), aten.neg.default(smallest), smallest)
    moved = aten.where.self(aten.eq.Scalar(start, 0), from_zero, moved)
    moved = aten.where.self(aten.eq.Tensor(start, end), end, moved)
    nan = aten.logical_or.default(aten.isnan.default(start), aten.isnan.default(end))
    return aten.where.self(nan, number_like(self, math.nan), moved)


# -- two operands ---------------------------------------------------------------------------------------------------------


def _skipping_nan(name: str, closer: OpOverload, whole: OpOverload) -> Callable[[Tensor, Tensor], Any]:
    """`fmax` and `fmin`: the other operand where one is NaN."""

    def run(self: Tensor, other: Tensor) -> Any:
        if self.dtype.is_complex or other.dtype.is_complex:
            raise RuntimeError(f"{name} not implemented for complex tensors.")
        if not (self.dtype.is_floating_point or other.dtype.is_floating_point):
            return whole(self, other)
        takes_other = aten.logical_or.default(closer(self, other), aten.isnan.default(self))
        return aten.where.self(takes_other, other, self)

    return run


def _hypot(self: Tensor, other: Tensor) -> Any:
    if not (computed := promoted((self, other))).is_floating_point:
        raise not_implemented("hypot_cpu", computed)
    if not (self.dtype.is_floating_point and self.dtype is other.dtype):
        return NotImplemented
    dtype = self.dtype
    if dtype in HALF:
        self, other = (aten._to_copy.default(x, dtype=torch.float32) for x in (self, other))
    left, right = aten.abs.default(self), aten.abs.default(other)
    large, small = aten.maximum.default(left, right), aten.minimum.default(left, right)
    # Scaled by the larger side, so that no square overflows; equal sides, zero and infinity among them, have the ratio 1.
    ratio = aten.where.self(aten.eq.Tensor(small, large), number_like(large, 1.0), aten.div.Tensor(small, large))
    length = aten.mul.Tensor(large, aten.sqrt.default(aten.add.Scalar(aten.mul.Tensor(ratio, ratio), 1.0)))
    infinite = aten.logical_or.default(aten.isinf.default(self), aten.isinf.default(other))
    length = aten.where.self(infinite, number_like(large, math.inf), length)  # though the other side be NaN
    return length if dtype is length.dtype else aten._to_copy.default(length, dtype=dtype)


def _powers_of_two(exponent: Tensor) -> Any:
    return aten.pow.Tensor_Tensor(number_like(exponent, 2), exponent)


def _common_integers(self: Any, other: Any, name: str) -> list[Tensor]:
    """Both as tensors of the type that they promote to; one may be a number, which is cut to the type's bits."""
    tensors = [x for x in (self, other) if isinstance(x, Tensor)]
    dtype = promoted(tensors) if len(tensors) == 2 else torch.result_type(self, other)
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        raise not_implemented(f"{name}_cpu", dtype)
    device = tensors[0].device
    sides = (x if isinstance(x, Tensor) else aten.full.default([], x, dtype=torch.int64, device=device) for x in (self, other))
    return [x if x.dtype is dtype else aten._to_copy.default(x, dtype=dtype) for x in sides]


def _shift_left(self: Any, other: Any) -> Any:
    self, other = _common_integers(self, other, "lshift")
    bits = torch.iinfo(self.dtype).bits
    valid = aten.logical_and.default(aten.ge.Scalar(other, 0), aten.lt.Scalar(other, bits))
    moved = aten.mul.Tensor(self, _powers_of_two(aten.clamp.default(other, 0, bits - 1)))
    return aten.where.self(valid, moved, number_like(self, 0))


def _shift_right(self: Any, other: Any) -> Any:
    self, other = _common_integers(self, other, "rshift")
    info = torch.iinfo(self.dtype)
    # Two steps, since the power of two for the last shift of a signed type does not fit it.
    furthest = info.bits - 1
    valid = aten.logical_and.default(aten.ge.Scalar(other, 0), aten.lt.Scalar(other, info.bits))
    first = aten.clamp.default(other, 0, furthest - 1)
    moved = aten.div.Tensor_mode(self, _powers_of_two(first), rounding_mode="floor")
    halved = aten.div.Tensor_mode(moved, number_like(self, 2), rounding_mode="floor")
    moved = aten.where.self(aten.eq.Scalar(other, furthest), halved, moved)
    beyond = number_like(self, 0)
    if info.min < 0:
        beyond = aten.where.self(aten.lt.Scalar(self, 0), number_like(self, -1), beyond)
    return aten.where.self(valid, moved, beyond)


# -- complex numbers ------------------------------------------------------------------------------------------------------


def _angle(self: Tensor) -> Any:
    if self.dtype.is_complex:
        if not self.is_contiguous():  # eager's result is row-major whatever it is made of
            self = aten.clone.default(self, memory_format=torch.contiguous_format)
        parts = aten.view_as_real.default(self)
        return aten.atan2.default(aten.select.int(parts, -1, 1), aten.select.int(parts, -1, 0))
    # Of the wide unsigned integers there is no order.
    below = aten.lt.Scalar(self, 0) if self.dtype.is_signed or self.dtype.itemsize == 1 else aten.ne.Tensor(self, self)
    if not self.dtype.is_floating_point:
        self = aten.full.default([], 0.0, dtype=torch.get_default_dtype(), device=self.device)
        return aten.where.self(below, number_like(self, math.pi), self)
    turned = aten.where.self(below, number_like(self, math.pi), number_like(self, 0.0))
    return aten.where.self(aten.isnan.default(self), self, turned)


def _conj_physical(self: Tensor) -> Any:
    if not self.dtype.is_complex:
        return self
    if self.is_conj():  # what its memory holds is the answer
        return aten.clone.default(aten._conj.default(self))
    parts = aten.view_as_real.default(self)
    # 1 for the real part, -1 for the other: a product keeps the layout, and the sign of every zero right.
    signs = aten.add.Scalar(aten.mul.Scalar(aten.arange.start_step(0, 2, 1, dtype=parts.dtype, device=self.device), -2), 1)
    return aten.view_as_complex.default(aten.mul.Tensor(parts, signs))


def _efficient_zeros(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    """Plain zeros, which kernels can read; `zeros` drops them from sums and products as eager does."""
    return aten.full.default(size, 0, dtype=dtype or torch.get_default_dtype(), device=device)


# -- one operand ------------------------------------------------------------------------------------------------------------


def _exp2(self: Tensor) -> Any:
    dtype = self.dtype if self.dtype.is_floating_point or self.dtype.is_complex else torch.get_default_dtype()
    # Not `pow.Scalar`, which answers row-major results whatever the layout of its exponent.
    return aten.pow.Tensor_Tensor(aten.full.default([], 2.0, dtype=dtype, device=self.device), self)


def _shrink_backward(call: Call) -> Callable[..., Any]:
    le, absolute, where, zero = call(aten.le.Scalar), call(aten.abs.default), call(aten.where.self), kept_number(call, 0.0)
    return lambda grad, self, lambd=0.5: where(le(absolute(self), lambd), zero(grad), grad)


def _nan_to_num(call: Call) -> Callable[..., Any]:
    """A clamp makes infinities the largest numbers. Of complex numbers eager mends real and imaginary parts apart."""
    clamp, eq, isnan = call(aten.clamp.default), call(aten.eq.Scalar), call(aten.isnan.default)
    where, number, zero = call(aten.where.self), kept_numbers(call), kept_number(call, 0.0)
    others = call(aten.nan_to_num.default)

    def run(self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
        dtype, result = self.dtype, self
        if not dtype.is_floating_point:
            if not dtype.is_complex:
                return others(self, nan, posinf, neginf)
            parts = run(call(aten.view_as_real.default)(self), nan, posinf, neginf)
            return call(aten.view_as_complex.default)(parts)
        if posinf is None or neginf is None:
            greatest = torch.finfo(dtype).max
            result = clamp(self, -greatest if neginf is None else None, greatest if posinf is None else None)
        if posinf is not None:
            result = where(eq(self, math.inf), number(self, cast_number(posinf, dtype)), result)
        if neginf is not None:
            result = where(eq(self, -math.inf), number(self, cast_number(neginf, dtype)), result)
        return where(isnan(self), number(self, cast_number(nan, dtype)) if nan else zero(self), result)

    return run


def _sinc(call: Call) -> Callable[..., Any]:
    scale, eq, sin, div = call(aten.mul.Scalar), call(aten.eq.Scalar), call(aten.sin.default), call(aten.div.Tensor)
    where, one = call(aten.where.self), kept_number(call, 1.0)

    def sinc(self: Tensor) -> Any:
        angle = scale(self, math.pi)
        return where(eq(angle, 0), one(self), div(sin(angle), angle))

    return sinc


# -- sums of products -----------------------------------------------------------------------------------------------------


#: The types that `addcmul` and `addcdiv` round in after each step.
_STEPS = frozenset({torch.float64, torch.complex64, torch.complex128})


# A factor beyond this may carry a product out of the range of its type.
_LARGE = 2.0**32


def _add_product(name: str, product: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """`addcmul` and `addcdiv` in two kernels: the product, then `add` with `value` as its `alpha`. Eager multiplies by `value`
    first; the results differ by no more than the product's own rounding, and in half types not at all."""

    def link(call: Call) -> Callable[..., Any]:
        combine, add, to = call(product), call(aten.add.Tensor), call(aten._to_copy.default)
        scale = call(aten.mul.Scalar)

        def run(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
            dtype = self.dtype
            if tensor1.dtype is dtype is tensor2.dtype and (dtype is torch.float32 or dtype in _STEPS):
                if value.__class__ is int and value == 1:
                    answer = add(self, combine(tensor1, tensor2))
                else:
                    value = +held_number(value, dtype)  # of a bool, its number
                    if dtype.is_complex or not abs(value) <= _LARGE:  # there it shows which of both products is made first
                        tensor1, value = scale(tensor1, value), 1
                    answer = add(self, combine(tensor1, tensor2), alpha=value)
            else:
                answer = mixed(self, tensor1, tensor2, value)
            if self.is_contiguous() and self.shape == answer.shape:  # which settles it
                return answer
            return relaid(call, answer, self, tensor1, tensor2)

        def mixed(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Any:
            floats = [x.dtype.is_floating_point or x.dtype.is_complex for x in (tensor1, tensor2)]
            if name == "addcdiv" and not any(floats):
                raise RuntimeError(_INTEGER_ADDCDIV)
            operands = (self, tensor1, tensor2)
            result = promoted(operands)
            if result is torch.bool:
                raise not_implemented(f"{name}_cpu_out", result)
            # Every operand in the result's type first, half types in float32, rounded once at the end.
            wide = torch.float32 if result in HALF else result
            value = +held_number(value, wide)  # of a bool, its number
            self, tensor1, tensor2 = (x if x.dtype is wide else to(x, dtype=wide) for x in operands)
            if value != 1 and (wide is not result or wide.is_complex or not abs(value) <= _LARGE):  # there the rounding shows
                tensor1, value = scale(tensor1, value), 1
            answer = add(self, combine(tensor1, tensor2), alpha=value)
            return answer if result is wide else to(answer, dtype=result)

        return run

    return link


_INTEGER_ADDCDIV = (
    "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true division of "
    "tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / tensor2))"
    ".to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for float inputs. The future addcdiv behavior "
    "is just the latter implementation: (input + value * tensor1 / tensor2), for all dtypes."
)


# A number that every type of floats holds.
_SMALL = 6e4


# -- filling --------------------------------------------------------------------------------------------------------------


def _fill(call: Call) -> Callable[..., Any]:
    """One value for all, written straight into the tensor: the functional twin would make all of them first."""
    full, copy_, slice_ = call(aten.full.default), call(aten.copy_.default), call(aten.slice.Tensor)
    number, zero = kept_numbers(call), kept_number(call, 0)

    def run(self: Tensor, value: Any = 0) -> Tensor:
        target = self
        if not self.is_contiguous() and 0 in self.stride():
            # Eager fills expanded tensors too, where `copy_` refuses: their memory once.
            for dim, stride in enumerate(self.stride()):
                target = target if stride else slice_(target, dim, 0, 1)
        if (value.__class__ is complex or not abs(value) <= _SMALL) and self.numel() != 1:  # one element is not checked
            value = held_number(value, self.dtype)
        if value.__class__ is float or value.__class__ is int:
            copy_(target, number(self, value) if value else zero(self))
        else:
            copy_(target, full([], value, dtype=self.dtype, device=self.device))
        return self

    return run


def _lerp(call: Call) -> Callable[..., Any]:
    """Towards `end` from the nearer side, as eager computes it: two kernels, six for half types."""
    subtract, add, to = call(aten.sub.Tensor), call(aten.add.Tensor), call(aten._to_copy.default)

    def run(self: Tensor, end: Tensor, weight: Any) -> Any:
        dtype = self.dtype
        if dtype is not end.dtype:
            raise RuntimeError(f"expected dtype {cpp_name(dtype)} for `end` but got dtype {cpp_name(end.dtype)}")
        if not (dtype.is_floating_point or dtype.is_complex):
            raise not_implemented("lerp_kernel_scalar", dtype)
        if weight.__class__ is complex or not abs(weight) <= _LARGE:
            weight = held_number(weight, torch.float32 if dtype in HALF else dtype)
        start, stop = (to(self, dtype=torch.float32), to(end, dtype=torch.float32)) if dtype in HALF else (self, end)
        way = subtract(stop, start)
        weight = weight if weight.__class__ is complex else float(weight)
        near = abs(weight) < 0.5
        answer = add(start, way, alpha=weight) if near else subtract(stop, way, alpha=1 - weight)
        if dtype in HALF:
            answer = to(answer, dtype=dtype)
        elif near or self.stride() == end.stride():
            return answer
        # Counted from `end`, the result lies as `end` does first of all; eager's as `self` does.
        return relaid(call, answer, self, end)

    return run


def _times_log(log: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """``x log y``, and 0 where x is 0 and y is a number: in half types eager rounds the logarithm before it multiplies."""

    def link(call: Call) -> Callable[..., Any]:
        logarithm, mul, where, zero = call(log), call(aten.mul.Tensor), call(aten.where.self), kept_number(call, 0.0)
        both, is_zero, equal = call(aten.logical_and.default), call(aten.eq.Scalar), call(aten.eq.Tensor)

        def times_log(self: Tensor, other: Tensor) -> Any:
            return where(both(is_zero(self, 0), equal(other, other)), zero(self), mul(self, logarithm(other)))

        return times_log

    return link


def _log_add_exp(call: Call) -> Callable[..., Any]:
    """The larger plus ``log1p(exp(smaller - larger))``; the larger bounded there, so that two equal infinities have a distance."""
    maximum, minimum, clamp = call(aten.maximum.default), call(aten.minimum.default), call(aten.clamp.default)
    sub, exp, log1p, add = call(aten.sub.Tensor), call(aten.exp.default), call(aten.log1p.default), call(aten.add.Tensor)

    def log_add_exp(self: Tensor, other: Tensor) -> Any:
        larger, greatest = maximum(self, other), torch.finfo(self.dtype).max
        return add(larger, log1p(exp(sub(minimum(self, other), clamp(larger, -greatest, greatest)))))

    return log_add_exp


def _heaviside(call: Call) -> Callable[..., Any]:
    eq, gt, where = call(aten.eq.Scalar), call(aten.gt.Scalar), call(aten.where.self)
    return lambda self, values: where(eq(self, 0), values, gt(self, 0))


def _masked_fill(call: Call) -> Callable[..., Any]:
    where, number, others = call(aten.where.self), kept_numbers(call), call(aten.masked_fill.Scalar)

    def run(self: Tensor, mask: Tensor, value: Any) -> Any:
        dtype = self.dtype
        if (
            (dtype is torch.float32 or dtype is torch.float64)
            and mask.dtype is torch.bool
            and (value.__class__ is float or value.__class__ is int)
            and self.is_contiguous()
            and mask.is_contiguous()
        ):
            return where(mask, number(self, value), self)
        if dtype is torch.bool and value.__class__ is complex:  # any number is a truth to eager
            value = bool(value)
        return others(self, mask, value)

    return run


def _mul_scalar_(call: Call) -> Callable[..., Any]:
    """Eager multiplies by the scalar as a tensor of the type of `self`, which rounds it in half types; out of place it does not."""
    by_scalar, by_tensor, full = call(aten.mul.Scalar), call(aten.mul.Tensor), call(aten.full.default)

    def product(self: Tensor, other: Any) -> Any:
        if self.dtype not in HALF or isinstance(other, complex):
            return by_scalar(self, other)
        return by_tensor(self, full([], other, dtype=self.dtype, device=self.device))

    return inplace_by(product, call, out_quirks(aten.mul_.Scalar), operands=0)


def _rsub(call: Call) -> Callable[..., Any]:
    sub, others = call(aten.sub.Tensor), call(aten.rsub.Scalar)

    def run(self: Tensor, other: Any, alpha: Any = 1) -> Any:
        if self.dtype is torch.bool:
            return others(self, other, alpha)
        return sub(other, self) if alpha.__class__ is int and alpha == 1 else sub(other, self, alpha=alpha)

    return run


def _frac(call: Call) -> Callable[..., Any]:
    trunc, sub = call(aten.trunc.default), call(aten.sub.Tensor)
    return lambda self: sub(self, trunc(self))


#: Rules of real operands for ops whose complex operands have a rule of another family.
REAL: tuple[Rule, ...] = (formula(aten.logaddexp.default, _log_add_exp, operands=(0, 1)),)

RULES: tuple[Rule, ...] = (
    linked(aten.mul_.Scalar, _mul_scalar_),
    linked(aten.rsub.Scalar, _rsub),
    formula(aten.frac.default, _frac, stepwise=True),
    formula(aten.xlogy.Tensor, _times_log(aten.log.default), operands=(0, 1), stepwise=True, promotes=True),
    formula(aten.special_xlog1py.default, _times_log(aten.log1p.default), operands=(0, 1), stepwise=True, promotes=True),
    formula(aten.heaviside.default, _heaviside, operands=(0, 1), stepwise=True),
    linked(aten.nan_to_num.default, _nan_to_num),
    formula(aten.sinc.default, _sinc),
    linked(aten.masked_fill.Scalar, _masked_fill),
    own(aten.signbit.default, _signbit),
    formula(aten.copysign.Tensor, _copysign, operands=(0, 1), stepwise=True, promotes=True),
    linked(aten.copysign.Scalar, _copysign_of_number),
    own(aten.nextafter.default, _laid_out_by_both(_nextafter)),
    own(aten.fmax.default, _skipping_nan("fmax", aten.lt.Tensor, aten.maximum.default)),
    own(aten.fmin.default, _skipping_nan("fmin", aten.gt.Tensor, aten.minimum.default)),
    own(aten.hypot.default, _laid_out_by_both(_hypot)),
    own(aten.bitwise_left_shift.Tensor, _laid_out_by_both(_shift_left)),
    own(aten.bitwise_right_shift.Tensor, _laid_out_by_both(_shift_right)),
    own(aten.__lshift__.Tensor, _shift_left),
    own(aten.__lshift__.Scalar, _shift_left),
    own(aten.__rshift__.Tensor, _shift_right),
    own(aten.__rshift__.Scalar, _shift_right),
    own(aten.angle.default, _angle),
    own(aten._conj_physical.default, _conj_physical),
    own(aten._efficientzerotensor.default, _efficient_zeros),
    own(aten.exp2.default, _exp2),
    formula(aten.softshrink_backward.default, _shrink_backward, operands=(0, 1), stepwise=True),
    formula(aten.hardshrink_backward.default, _shrink_backward, operands=(0, 1), stepwise=True),
    linked(aten.addcmul.default, _add_product("addcmul", aten.mul.Tensor)),
    linked(aten.addcdiv.default, _add_product("addcdiv", aten.div.Tensor)),
    linked(aten.lerp.Scalar, _lerp),
    linked(aten.fill_.Scalar, _fill),
    linked(aten.zero_.default, _fill),
)
