"""Elementwise ops: most have no decomposition to Core ATen in torch, or a longer one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.decomps.math.float64 import as_number
from eagerdecomp.eager.out_quirks import out_quirks
from eagerdecomp.eager.promotion import FLOAT8, HALF, WIDE_UNSIGNED, computed_in, floating, in_type, number_like, promoted, widened
from eagerdecomp.eager.scalars import cast_number, cast_operand, held_number
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.compute import Constant, constant
from eagerdecomp.rules.link import Linkable, RunnerOf, has_kernels, link_on_call
from eagerdecomp.rules.restride import elementwise_strides
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.writeback import inplace_by, written_by

aten = torch.ops.aten

_ZERO = Constant(0.0)
_ONE = Constant(1.0)

#: Floating-point dtype -> the integer dtype of its size, for views of the bits.
_BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}


# -- bits of floats -------------------------------------------------------------------------------------------------------


@rule("aten.signbit.default", recorded=True)
def _signbit(self: Tensor) -> Any:
    if self.dtype is torch.bool or self.dtype in WIDE_UNSIGNED:
        return aten.full_like.default(self, False, dtype=torch.bool)
    # Read the bits: a comparison does not distinguish -0.0 from 0.0, nor one NaN from another.
    bits = _BITS.get(self.dtype)
    return aten.lt.Scalar(self if bits is None else aten.view.dtype(self, bits), 0)


def _sign_bit(dtype: torch.dtype) -> int:
    """Return the integer whose only bit is the sign of a float: the smallest one."""
    return torch.iinfo(_BITS[dtype]).min


@rule("aten.copysign.Tensor", compute="operands", operands=(0, 1), promotes=True)
def _copysign(self: Tensor, other: Tensor) -> Any:
    """Combine the bits: a NaN has a sign, which a set without `neg` loses if it multiplies by -1."""
    bits, sign = _BITS[self.dtype], _sign_bit(self.dtype)
    magnitude = aten.bitwise_and.Scalar(aten.view.dtype(self, bits), ~sign)
    signs = aten.bitwise_and.Scalar(aten.view.dtype(other, bits), sign)
    return aten.view.dtype(aten.bitwise_or.Tensor(magnitude, signs), self.dtype)


@rule("aten.copysign.Scalar")
def _copysign_of_number(self: Tensor, other: Any) -> Any:
    """Copy the sign of a Python number. The sign is known, so no `where` is needed."""
    if self.dtype.is_complex or isinstance(other, complex):
        return NotImplemented
    if not self.dtype.is_floating_point:
        self = aten._to_copy.default(self, dtype=torch.get_default_dtype())
    bits, sign = aten.view.dtype(self, _BITS[self.dtype]), _sign_bit(self.dtype)
    bits = aten.bitwise_or.Scalar(bits, sign) if math.copysign(1, other) < 0 else aten.bitwise_and.Scalar(bits, ~sign)
    return aten.view.dtype(bits, self.dtype)


def _nextafter(self: Tensor, other: Tensor) -> Any:
    dtype = promoted([self, other])
    bits = _BITS[dtype]
    self, other = (one if one.dtype is dtype else aten._to_copy.default(one, dtype=dtype) for one in (self, other))
    shape = broadcast_shapes(self.shape, other.shape)
    start, end = aten.expand.default(self, shape), aten.expand.default(other, shape)
    # A step away from zero adds 1 to the bits; a step towards zero subtracts 1.
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


def _skipping_nan(closer: OpOverload, whole: OpOverload) -> Callable[[Tensor, Tensor], Any]:
    """Compute `fmax` or `fmin`: return the other operand if one is NaN."""

    def run(self: Tensor, other: Tensor) -> Any:
        if not (self.dtype.is_floating_point or other.dtype.is_floating_point):
            return whole(self, other)
        takes_other = aten.logical_or.default(closer(self, other), aten.isnan.default(self))
        return aten.where.self(takes_other, other, self)

    return run


def _hypot(self: Tensor, other: Tensor) -> Any:
    if not (self.dtype.is_floating_point and self.dtype is other.dtype):
        return NotImplemented
    dtype = self.dtype
    if dtype in HALF:
        self, other = (aten._to_copy.default(x, dtype=torch.float32) for x in (self, other))
    left, right = aten.abs.default(self), aten.abs.default(other)
    large, small = aten.maximum.default(left, right), aten.minimum.default(left, right)
    # Divide by the larger side, so that no square overflows. Equal sides have the ratio 1, even if both are zero or infinite.
    ratio = aten.where.self(aten.eq.Tensor(small, large), number_like(large, 1.0), aten.div.Tensor(small, large))
    length = aten.mul.Tensor(large, aten.sqrt.default(aten.add.Scalar(aten.mul.Tensor(ratio, ratio), 1.0)))
    infinite = aten.logical_or.default(aten.isinf.default(self), aten.isinf.default(other))
    length = aten.where.self(infinite, number_like(large, math.inf), length)  # though the other side be NaN
    return length if dtype is length.dtype else aten._to_copy.default(length, dtype=dtype)


def _powers_of_two(exponent: Tensor) -> Any:
    return aten.pow.Tensor_Tensor(number_like(exponent, 2), exponent)


def _common_integers(self: Any, other: Any) -> list[Tensor]:
    """Return both operands as tensors of the promoted dtype. A Python number is truncated to the bits of that dtype."""
    tensors = [x for x in (self, other) if isinstance(x, Tensor)]
    dtype = promoted(tensors) if len(tensors) == 2 else torch.result_type(self, other)
    device = tensors[0].device
    sides = (x if isinstance(x, Tensor) else aten.full.default([], x, dtype=torch.int64, device=device) for x in (self, other))
    return [x if x.dtype is dtype else aten._to_copy.default(x, dtype=dtype) for x in sides]


@rule("aten.__lshift__.Tensor", "aten.__lshift__.Scalar", recorded=True)
def _shift_left(self: Any, other: Any) -> Any:
    self, other = _common_integers(self, other)
    bits = torch.iinfo(self.dtype).bits
    valid = aten.logical_and.default(aten.ge.Scalar(other, 0), aten.lt.Scalar(other, bits))
    moved = aten.mul.Tensor(self, _powers_of_two(aten.clamp.default(other, 0, bits - 1)))
    return aten.where.self(valid, moved, number_like(self, 0))


@rule("aten.__rshift__.Tensor", "aten.__rshift__.Scalar", recorded=True)
def _shift_right(self: Any, other: Any) -> Any:
    self, other = _common_integers(self, other)
    info = torch.iinfo(self.dtype)
    # The largest shift takes two steps, because its power of two does not fit a signed dtype.
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


@rule("aten.angle.default", recorded=True)
def _angle(self: Tensor) -> Any:
    if self.dtype.is_complex:
        if not self.is_contiguous():  # eager's result is contiguous whatever it is made of
            self = aten.clone.default(self, memory_format=torch.contiguous_format)
        parts = aten.view_as_real.default(self)
        return aten.atan2.default(aten.select.int(parts, -1, 1), aten.select.int(parts, -1, 0))
    # `lt` does not support uint16, uint32 and uint64. ``self != self`` is False for all their values.
    below = aten.lt.Scalar(self, 0) if self.dtype.is_signed or self.dtype.itemsize == 1 else aten.ne.Tensor(self, self)
    zero = aten.full.default([], 0.0, dtype=floating(self.dtype), device=self.device)
    turned = aten.where.self(below, number_like(zero, math.pi), zero)
    return (
        aten.where.self(aten.isnan.default(self), self, turned)
        if self.dtype.is_floating_point
        else elementwise_strides(turned, self)
    )


@rule("aten._conj_physical.default", recorded=True)
def _conj_physical(self: Tensor) -> Any:
    if not self.dtype.is_complex:
        return aten.clone.default(self)
    if self.is_conj():  # what its memory holds is the result
        return aten.clone.default(aten._conj.default(self))
    parts = aten.view_as_real.default(self)
    # Multiply the parts by 1 and -1: a product keeps the strides, and gives zeros the right sign.
    signs = aten.add.Scalar(aten.mul.Scalar(aten.arange.start_step(0, 2, 1, dtype=parts.dtype, device=self.device), -2), 1)
    return aten.view_as_complex.default(aten.mul.Tensor(parts, signs))


@rule("aten._efficientzerotensor.default", recorded=True)
def _efficient_zeros(size: Sequence[int], *, dtype: torch.dtype | None = None, device: Any = None, **options: Any) -> Any:
    """Return a tensor filled with zeros; `runtime/zero_tangents.py` makes sums and products ignore it, as eager does."""
    return aten.full.default(size, 0, dtype=dtype or torch.get_default_dtype(), device=device)


# -- one operand ------------------------------------------------------------------------------------------------------------


@rule("aten.frac.default", compute="operands")
def _frac(self: Tensor) -> Any:
    return aten.sub.Tensor(self, aten.trunc.default(self))


@rule("aten.sgn.default")
def _sgn(self: Tensor) -> Any:
    return NotImplemented if self.dtype.is_complex else aten.sign.default(self)


@rule("aten.exp2.default", recorded=True)
def _exp2(self: Tensor) -> Any:
    if self.dtype.is_complex:  # a complex power of an infinity is NaN, and so is a complex product with one
        return aten.exp.default(aten.view_as_complex.default(aten.mul.Tensor(aten.view_as_real.default(self), math.log(2))))
    dtype = self.dtype if self.dtype.is_floating_point else torch.get_default_dtype()
    # Not `pow.Scalar`, which returns contiguous results for any strides of the exponent.
    return aten.pow.Tensor_Tensor(aten.full.default([], 2.0, dtype=dtype, device=self.device), self)


@rule("aten.softshrink_backward.default", "aten.hardshrink_backward.default", compute="operands", operands=(0, 1))
def _shrink_backward(grad: Tensor, self: Tensor, lambd: float = 0.5) -> Any:
    return aten.where.self(aten.le.Scalar(aten.abs.default(self), lambd), _ZERO(grad), grad)


@rule("aten.nan_to_num.default")
def _nan_to_num(self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    """Clamp infinities to the largest values. For complex numbers, eager replaces real and imaginary parts separately."""
    dtype, result = self.dtype, self
    if dtype.is_complex and dtype is not torch.complex32:
        return _complex_nan_to_num(self, nan, posinf, neginf)
    if not dtype.is_floating_point:
        return NotImplemented
    if posinf is None or neginf is None:
        greatest = torch.finfo(dtype).max
        result = aten.clamp.default(self, -greatest if neginf is None else None, greatest if posinf is None else None)
    if posinf is not None:
        result = aten.where.self(aten.eq.Scalar(self, math.inf), constant(self, cast_number(posinf, dtype)), result)
    if neginf is not None:
        result = aten.where.self(aten.eq.Scalar(self, -math.inf), constant(self, cast_number(neginf, dtype)), result)
    return aten.where.self(aten.isnan.default(self), constant(self, 0.0 if nan is None else cast_number(nan, dtype)), result)


@link_on_call
def _complex_nan_to_num(self: Tensor, nan: float | None, posinf: float | None, neginf: float | None) -> Any:
    return aten.view_as_complex.default(_nan_to_num(aten.view_as_real.default(self), nan, posinf, neginf))


@rule("aten.sinc.default", compute="float32")
def _sinc(self: Tensor) -> Any:
    angle = aten.mul.Scalar(self, math.pi)
    return aten.where.self(aten.eq.Scalar(angle, 0), _ONE(self), aten.div.Tensor(aten.sin.default(angle), angle))


# -- sums of products -----------------------------------------------------------------------------------------------------


#: The dtypes in which `addcmul` and `addcdiv` round after each step.
_STEPS = frozenset({torch.float64, torch.complex64, torch.complex128})


# Numbers beyond this are checked: they may be beyond the range of a dtype.
_LARGE = 2.0**32


def _add_product(product: OpOverload, *, divides: bool) -> Callable[..., Any]:
    """Compute `addcmul` or `addcdiv`. As in eager, `value` multiplies the first factor, since a product without it may overflow."""

    def run(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
        dtype = self.dtype
        if tensor1.dtype is dtype is tensor2.dtype and (dtype is torch.float32 or dtype in _STEPS):
            if value.__class__ is not int or value != 1:
                if value.__class__ is not float or not -_LARGE <= value <= _LARGE:
                    value = +held_number(value, dtype)  # of a bool, its number
                tensor1 = aten.mul.Scalar(tensor1, value)
            returned = aten.add.Tensor(self, product(tensor1, tensor2))
        else:
            returned = mixed(self, tensor1, tensor2, value)
        if self.is_contiguous() and self.shape == returned.shape:  # then the result has the strides of `self`
            return returned
        return elementwise_strides(returned, self, tensor1, tensor2)

    def mixed(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Any:
        floats = [x.dtype.is_floating_point or x.dtype.is_complex for x in (tensor1, tensor2)]
        operands = (self, tensor1, tensor2)
        result = promoted(operands)
        if result is torch.bool or (divides and not any(floats)):
            raise Declined
        # Convert all operands to the result's dtype first. float16 and bfloat16 use float32, and round once at the end.
        wide = torch.float32 if result in HALF else result
        value = +held_number(value, wide)  # of a bool, its number
        self, tensor1, tensor2 = (x if x.dtype is wide else aten._to_copy.default(x, dtype=wide) for x in operands)
        returned = aten.add.Tensor(self, product(tensor1 if value == 1 else aten.mul.Scalar(tensor1, value), tensor2))
        return returned if result is wide else aten._to_copy.default(returned, dtype=result)

    return run


# Every floating-point dtype can represent numbers up to this.
_SMALL = 6e4


# -- filling --------------------------------------------------------------------------------------------------------------


@rule("aten.fill_.Scalar", "aten.zero_.default")
def _fill(self: Tensor, value: Any = 0) -> Tensor:
    """Write one value into the tensor directly, because the functional variant would need a whole tensor."""
    target = self
    if not self.is_contiguous() and 0 in self.stride():
        # Eager also fills expanded tensors, which `copy_` rejects. Write each memory location once.
        for dim, stride in enumerate(self.stride()):
            target = target if stride else aten.slice.Tensor(target, dim, 0, 1)
    if (value.__class__ is complex or not abs(value) <= _SMALL) and self.numel() != 1:  # one element is not checked
        value = held_number(value, self.dtype)
    if value.__class__ is float or value.__class__ is int:
        aten.copy_.default(target, constant(self, value))
    else:
        aten.copy_.default(target, aten.full.default([], value, dtype=self.dtype, device=self.device))
    return self


@rule("aten.round.decimals")
def _round_decimals(self: Tensor, *, decimals: int) -> Any:
    """Round to `decimals` as eager's kernel does, which divides by the power of ten where torch's decomposition multiplies."""
    if not self.is_floating_point() or self.dtype in FLOAT8:
        return NotImplemented
    if not decimals:
        return aten.round.default(self)
    wide = widened(self)
    power = 10.0 ** abs(decimals) if abs(decimals) <= 308 else math.inf
    power = power if power <= torch.finfo(wide.dtype).max else math.inf
    if decimals > 0:
        return in_type(aten.div.Scalar(aten.round.default(aten.mul.Scalar(wide, power)), power), self.dtype)
    return in_type(aten.mul.Scalar(aten.round.default(aten.div.Scalar(wide, power)), power), self.dtype)


@rule("aten.lerp.Scalar")
def _lerp(self: Tensor, end: Tensor, weight: Any) -> Any:
    """Interpolate from the nearer end, as eager does: two kernels, six for float16 and bfloat16."""
    dtype = self.dtype
    if (
        weight.__class__ is float
        and -0.5 < weight < 0.5
        and dtype is end.dtype
        and (dtype is torch.float32 or dtype is torch.float64)
    ):
        return aten.add.Tensor(self, aten.sub.Tensor(end, self), alpha=weight)
    if dtype is not end.dtype or not (dtype.is_floating_point or dtype.is_complex):
        return NotImplemented
    if weight.__class__ is complex or not abs(weight) <= _LARGE:
        weight = held_number(weight, torch.float32 if dtype in HALF else dtype)
    start, stop = (
        (aten._to_copy.default(self, dtype=torch.float32), aten._to_copy.default(end, dtype=torch.float32))
        if dtype in HALF
        else (self, end)
    )
    way = aten.sub.Tensor(stop, start)
    weight = weight if weight.__class__ is complex else float(weight)
    near = abs(weight) < 0.5
    result = aten.add.Tensor(start, way, alpha=weight) if near else aten.sub.Tensor(stop, way, alpha=1 - weight)
    if dtype in HALF:
        result = aten._to_copy.default(result, dtype=dtype)
    elif near or self.stride() == end.stride():
        return result
    # If interpolated from `end`, the result has the strides of `end`; eager's result has those of `self`.
    return elementwise_strides(result, self, end)


def _times_log(log: OpOverload) -> Callable[..., Any]:
    """Compute ``x * log(y)``, and 0 if x is 0 and y is not NaN.

    For float16 and bfloat16 eager rounds the logarithm before it multiplies.
    """

    def link(self: Tensor, other: Tensor) -> Any:
        return aten.where.self(
            aten.logical_and.default(aten.eq.Scalar(self, 0), aten.eq.Tensor(other, other)),
            _ZERO(self),
            aten.mul.Tensor(self, log(other)),
        )

    return link


def _of_number(op: OpOverload) -> Callable[..., Any]:
    """Make the rule of an overload with a scalar; torch's entry raises for one beyond the dtype, which is infinite in eager."""

    def run(self: Tensor, other: Any) -> Any:
        dtype = floating(torch.result_type(self, other))
        return op(self, as_number(cast_operand(other, dtype), self, dtype))

    return run


rule("aten.xlogy.Scalar_Other", recorded=True)(_of_number(op_called("aten.xlogy.Tensor")))
rule("aten.special_xlog1py.other_scalar", recorded=True)(_of_number(op_called("aten.special_xlog1py.default")))


@rule("aten.heaviside.default", compute="operands", operands=(0, 1))
def _heaviside(self: Tensor, values: Any) -> Any:
    return aten.where.self(aten.eq.Scalar(self, 0), values, aten.gt.Scalar(self, 0))


@rule("aten.masked_fill.Scalar")
def _masked_fill(self: Tensor, mask: Tensor, value: Any) -> Any:
    dtype = self.dtype
    if (
        (dtype is torch.float32 or dtype is torch.float64)
        and mask.dtype is torch.bool
        and (value.__class__ is float or value.__class__ is int)
        and self.is_contiguous()
        and mask.is_contiguous()
    ):
        return aten.where.self(mask, constant(self, value), self)
    if dtype is torch.bool and value.__class__ is complex:  # any number is a truth to eager
        value = bool(value)
    return aten.masked_fill.Scalar(self, mask, value)


def _product_by_scalar(self: Tensor, other: Any) -> Any:
    """Multiply in place by the scalar as a tensor of `self`'s dtype, which rounds it for float16 and bfloat16, as eager does."""
    if self.dtype not in HALF or isinstance(other, complex):
        return aten.mul.Scalar(self, other)
    return aten.mul.Tensor(self, aten.full.default([], other, dtype=self.dtype, device=self.device))


@rule("aten.mul_.Scalar")
@Linkable
def _mul_scalar_(call: RunnerOf) -> Callable[..., Any]:
    found = inplace_by(_product_by_scalar, call, out_quirks(aten.mul_.Scalar), operands=0)
    if not has_kernels(call, aten.mul.Scalar_out):
        return found
    direct = written_by(call(aten.mul.Scalar_out), found)
    return lambda self, other: (found if self.dtype in HALF else direct)(self, other)


@rule("aten.rsub.Scalar")
def _rsub(self: Tensor, other: Any, alpha: Any = 1) -> Any:
    """Equal torch's entry; linked rules call it, and would otherwise run a program of one kernel."""
    if self.dtype is torch.bool:
        return NotImplemented
    return aten.sub.Tensor(other, self) if alpha.__class__ is int and alpha == 1 else aten.sub.Tensor(other, self, alpha=alpha)


@rule("aten.masked_fill.Tensor", recorded=True)
def _masked_fill_by_tensor(self: Tensor, mask: Tensor, value: Tensor) -> Any:
    """Read the value and reject one that `self`'s dtype cannot represent, as eager does; torch's table entry casts it."""
    if value.dim() or _holds_dtype(self.dtype, value.dtype):
        return NotImplemented
    number = aten._local_scalar_dense.default(value)
    if isinstance(number, complex) and not self.dtype.is_complex and (not number.imag or self.dtype is torch.bool):
        number = bool(number) if self.dtype is torch.bool else number.real
    return aten.masked_fill.Scalar(self, mask, number)


def _compared(of_tensors: OpOverload) -> Callable[..., Any]:
    """Round the number to float16 or bfloat16 before comparing, as eager does; torch's table entries compare in float32."""

    def run(self: Tensor, other: Any) -> Any:
        if self.dtype not in HALF or isinstance(other, (bool, complex)):
            return NotImplemented
        return of_tensors(self, aten.scalar_tensor.default(other, dtype=self.dtype, device=self.device))

    return run


@rule("aten.where.self", recorded=True)
def _where_of_bytes(condition: Tensor, self: Tensor, other: Tensor) -> Any:
    """Accept a uint8 condition, as eager still does."""
    if condition.dtype is not torch.uint8:
        return NotImplemented
    return aten.where.self(aten.ne.Scalar(condition, 0), self, other)


def _holds_dtype(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Return whether every number of the other dtype fits in this one, or the other is bool."""
    if dtype is other or other is torch.bool or (dtype.is_complex and not other.is_complex):
        return True
    if dtype is torch.bool:
        return not other.is_complex
    if other.is_complex:
        return dtype is torch.complex128
    return all(abs(edge) <= torch.finfo(dtype).max for edge in _edges(other)) if dtype.is_floating_point else _within(dtype, other)


def _within(dtype: torch.dtype, other: torch.dtype) -> bool:
    (low, high), (least, most) = _edges(dtype), _edges(other)
    return not other.is_floating_point and low <= least and most <= high


def _edges(dtype: torch.dtype) -> tuple[float, float]:
    held = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return held.min, held.max


@rule("aten.add.Tensor", recorded=True)
def _add_bools(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Handle bools: torch's table entry multiplies them by `alpha`, and fails if that makes integers of them."""
    of_bools = all(x.dtype is torch.bool if isinstance(x, Tensor) else isinstance(x, bool) for x in (self, other))
    if not of_bools or alpha == 1 or isinstance(alpha, (float, complex)):
        return NotImplemented
    like = self if isinstance(self, Tensor) else other
    sides = [x if isinstance(x, Tensor) else aten.full.default([], x, dtype=torch.bool, device=like.device) for x in (self, other)]
    # ``alpha=False``: add zeros, but still broadcast.
    return aten.logical_or.default(sides[0], sides[1] if alpha else aten.logical_xor.default(sides[1], sides[1]))


def _rounds_operand(op: OpOverload) -> Callable[..., Any]:
    """Make a rule for float16 and bfloat16: eager first rounds an operand of another dtype, and torch's table entry does not."""

    def run(self: Any, other: Any) -> Any:
        dtype = computed_in([self, other])
        if dtype not in HALF or all(isinstance(one, Tensor) and one.dtype is dtype for one in (self, other)):
            return NotImplemented
        like = self if isinstance(self, Tensor) else other
        numbers = (self, other)
        return op(*(in_type(x, dtype) if isinstance(x, Tensor) else number_like(like, cast_operand(x, dtype)) for x in numbers))

    return run


_POWER = _rounds_operand(op_called("aten.pow.Tensor_Tensor"))


@rule("aten.pow.Tensor_Scalar", recorded=True)
def _pow_by_number(self: Tensor, exponent: Any) -> Any:
    """Handle cases that torch's table entry computes differently.

    It treats a bool raised to a bool as an integer. It takes roots of float16 for the exponents 0.5 and -0.5; eager does so for all
    other floating-point dtypes. A root of -inf is NaN, and its power is inf. Eager multiplies bfloat16 twice for the exponent 3.
    """
    if self.dtype is torch.bfloat16 and exponent == 3:
        return aten.mul.Tensor(aten.mul.Tensor(self, self), self)
    if exponent in (0.5, -0.5) if self.dtype is torch.bfloat16 else exponent in (0, 1, 2, -1, -2):
        return NotImplemented
    if self.dtype in HALF:
        return _POWER(self, exponent)
    if not isinstance(exponent, bool) or self.dtype is not torch.bool:
        return NotImplemented
    return aten.clone.default(self) if exponent else aten.full_like.default(self, True)


def _lerp_by_tensor(self: Tensor, end: Tensor, weight: Tensor) -> Any:
    """Interpolate from the nearer end, as eager does. torch's table entry imports sympy and rejects bools."""
    dtype = promoted((self, end, weight))
    wide = torch.float32 if dtype in HALF else dtype
    self, end, weight = (x if x.dtype is wide else aten._to_copy.default(x, dtype=wide) for x in (self, end, weight))
    near = aten.lt.Scalar(aten.abs.default(weight), 0.5)
    weight = aten.where.self(near, weight, aten.sub.Scalar(weight, 1))
    result = aten.add.Tensor(aten.where.self(near, self, end), aten.mul.Tensor(weight, aten.sub.Tensor(end, self)))
    return result if wide is dtype else aten._to_copy.default(result, dtype=dtype)


rule("aten.addcmul.default")(_add_product(op_called("aten.mul.Tensor"), divides=False))
rule("aten.addcdiv.default")(_add_product(op_called("aten.div.Tensor"), divides=True))
rule("aten.xlogy.Tensor", compute="operands", operands=(0, 1), promotes=True)(_times_log(op_called("aten.log.default")))
rule("aten.special_xlog1py.default", compute="operands", operands=(0, 1), promotes=True)(
    _times_log(op_called("aten.log1p.default"))
)
rule("aten.lerp.Tensor", recorded=True)(_lerp_by_tensor)
rule("aten.pow.Scalar", "aten.pow.Tensor_Tensor", recorded=True)(_POWER)
rule("aten.remainder.Scalar", "aten.remainder.Tensor", recorded=True)(_rounds_operand(op_called("aten.remainder.Tensor")))
rule("aten.fmod.Scalar", "aten.fmod.Tensor", recorded=True)(_rounds_operand(op_called("aten.fmod.Tensor")))
rule("aten.nextafter.default", recorded=True)(_nextafter)
rule("aten.fmax.default", recorded=True)(_skipping_nan(op_called("aten.lt.Tensor"), op_called("aten.maximum.default")))
rule("aten.fmin.default", recorded=True)(_skipping_nan(op_called("aten.gt.Tensor"), op_called("aten.minimum.default")))
rule("aten.hypot.default", recorded=True)(_hypot)
rule("aten.bitwise_left_shift.Tensor", recorded=True)(_shift_left)
rule("aten.bitwise_right_shift.Tensor", recorded=True)(_shift_right)

for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    rule(f"aten.{name}.Scalar", recorded=True)(_compared(op_called(f"aten.{name}.Tensor")))
