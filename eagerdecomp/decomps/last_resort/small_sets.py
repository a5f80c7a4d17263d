"""Core ops by fewer core ops, for sets too small to have them all: comparisons, bits, rounding, extremes, sums, functions.

Each rule is as exact as the kernel that it replaces: it uses identities without further rounding, or computes in float64 and
rounds once.
Formulas that would lose accuracy, such as a float64 logarithm to another base, are left out. These rules are tried last: a set with
the op itself, or with the ops of a better rule, never uses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.decomps.math.float64 import (
    absolute,
    acos,
    acosh,
    acosh_double,
    as_number,
    as_operand,
    asin,
    asinh,
    atan2,
    atanh,
    bitwise_and,
    bitwise_xor,
    cosh,
    cosh_double,
    differs,
    expm1,
    ge,
    in_common,
    is_integral,
    is_real,
    isnan,
    le,
    log1p,
    log1p_double,
    log_to,
    lt,
    neg,
    rounded_once,
    sign_of,
    sinh,
    sinh_double,
    sub,
    tan,
    tanh,
    tanh_double,
)
from eagerdecomp.eager.layouts import iterator_strides, keep_strides
from eagerdecomp.eager.promotion import HALF, computed_in, floating, in_type
from eagerdecomp.eager.scalars import cast_operand
from eagerdecomp.rules.restride import with_eager_strides
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64, wide_float, wide_of

aten = torch.ops.aten


def _of_two(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of two tensors: accept scalars, and return the strides of an elementwise kernel."""
    return with_eager_strides(_with_numbers(fn), {0: _as_both})


def _as_both(result: Tensor, self: Any, other: Any, **named: Any) -> Sequence[int] | None:
    return None if keep_strides([self, other]) else iterator_strides(result.shape, [self, other], computed_in([self, other]))


def _with_numbers(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Convert scalars to tensors: rules pass scalars to tensor overloads, as the dispatcher allows."""

    def run(self: Any, other: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(other, Tensor):
            other = as_operand(self, other)
        elif not isinstance(self, Tensor):
            self = as_operand(other, self)
        return fn(self, other, *more, **named)

    return run


def _by_tensor(op: OpOverload) -> Callable[..., Any]:
    """Make a rule that runs a scalar overload as the tensor overload."""

    def run(self: Tensor, other: Any) -> Any:
        return op(self, as_operand(self, other))

    return run


@rule("aten.reciprocal.default", recorded=True, source="small")
def _reciprocal(self: Tensor) -> Any:
    return aten.div.Tensor(as_number(1, self, floating(self.dtype)), self)


def _in_wide(compute: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    """Make the rule of a real function: integers in the default dtype, float16 and bfloat16 in float32, as in eager."""

    def run(self: Tensor) -> Any:
        dtype = floating(self.dtype)
        if not is_real(dtype):
            return NotImplemented
        return in_type(compute(in_type(self, torch.float32 if dtype in HALF else dtype)), dtype)

    return run


def _rsqrt(x: Tensor) -> Tensor:
    """Compute in the wide dtype and round once. In float32, root and division would round twice, more than eager does."""
    wide = in_type(x, wide_of(x.dtype))
    return in_type(aten.div.Tensor(as_number(1, wide), aten.sqrt.default(wide)), x.dtype)


def _square(x: Tensor) -> Tensor:
    result: Tensor = aten.mul.Tensor(x, x)
    return result


def _cube(x: Tensor) -> Tensor:
    result: Tensor = aten.mul.Tensor(_square(x), x)
    return result


def _sigmoid(x: Tensor) -> Tensor:
    one = as_number(1, x)
    result: Tensor = aten.div.Tensor(one, aten.add.Tensor(aten.exp.default(neg(x)), one))
    return result


@rule("aten.pow.Scalar", recorded=True, source="small")
def _pow_number(self: Any, exponent: Tensor) -> Any:
    return aten.pow.Tensor_Tensor(as_number(self, exponent, computed_in([exponent, self])), exponent)


@rule("aten.pow.Tensor_Scalar", recorded=True, source="small")
def _pow_by_number(self: Tensor, exponent: Any) -> Any:
    """Use eager's closed forms for float inputs (exponents 0.5, 2, 3, -0.5, -1)."""
    if self.dtype is torch.bool and isinstance(exponent, bool):
        return NotImplemented
    if self.dtype in (torch.float32, torch.float64):
        formula = _POWERS.get(exponent)
        if formula is not None:
            return formula(self)
    if self.is_complex() and exponent == 0:  # also for NaN, and for 0, whose logarithm is infinite
        return aten.full_like.default(self, 1)
    return aten.pow.Tensor_Tensor(self, as_operand(self, exponent))


_POWERS: dict[Any, Callable[[Tensor], Any]] = {
    0.5: op_called("aten.sqrt.default"),
    2: _square,
    3: _cube,
    -0.5: _in_wide(_rsqrt),
    -1: _reciprocal,
}


# -- rounding and remainders ------------------------------------------------------------------------------------------------


@rule("aten.ceil.default", recorded=True, source="small")
def _ceil(self: Tensor) -> Any:
    if is_integral(self.dtype):
        return aten.clone.default(self)
    return neg(aten.floor.default(neg(self))) if is_real(self.dtype) else NotImplemented


@rule("aten.trunc.default", recorded=True, source="small")
def _trunc(self: Tensor) -> Any:
    if is_integral(self.dtype):
        return aten.clone.default(self)
    if not is_real(self.dtype):
        return NotImplemented
    return aten.where.self(aten.gt.Tensor(self, as_number(0, self)), aten.floor.default(self), _ceil(self))


@rule("aten.round.default", recorded=True, source="small")
def _round(self: Tensor) -> Any:
    """Round to the nearest integer, halves to even.

    Round the magnitude, since its fraction is exact. Negating before and after keeps the sign of zeros.
    """
    if is_integral(self.dtype):
        return aten.clone.default(self)
    if not is_real(self.dtype):
        return NotImplemented
    above = aten.gt.Tensor(self, as_number(0, self))
    size = aten.where.self(above, self, neg(self))
    below = aten.floor.default(size)
    rest, half, one = sub(size, below), as_number(0.5, self), as_number(1, self)
    odd = aten.gt.Tensor(aten.fmod.Tensor(below, as_number(2, self)), half)
    up = aten.bitwise_or.Tensor(aten.gt.Tensor(rest, half), bitwise_and(aten.eq.Tensor(rest, half), odd))
    rounded = aten.where.self(up, aten.add.Tensor(below, one), below)
    return aten.where.self(above, rounded, neg(rounded))


def _remainder(self: Tensor, other: Tensor) -> Any:
    """Take `fmod`, and add the divisor if the signs of remainder and divisor differ."""
    left, right, dtype = in_common(self, other)
    if not is_real(dtype):
        return NotImplemented
    if dtype in HALF:
        left, right = in_type(left, torch.float32), in_type(right, torch.float32)
    rest = aten.fmod.Tensor(left, right)
    return in_type(aten.where.self(_points_away(rest, right), aten.add.Tensor(rest, right), rest), dtype)


@rule("aten.div.Tensor_mode", recorded=True)
def _div_mode(self: Tensor, other: Any, *, rounding_mode: str | None) -> Any:
    """Divide floats as eager does; of integers, divide the least one by -1, at which a kernel may stop the process.

    In float16 and bfloat16, eager rounds each step, unless the divisor is a single number. This it does not round either.
    """
    dtype = computed_in([self, other])
    if rounding_mode is None or dtype is None or not is_real(dtype) or dtype is torch.bool or not isinstance(self, Tensor):
        return NotImplemented
    if not dtype.is_floating_point:
        return _div_of_integers(self, other, dtype, rounding_mode)
    return _div_of_floats(self, other, dtype=dtype, rounding_mode=rounding_mode)


def _floats_divided(self: Tensor, other: Any, *, dtype: torch.dtype, rounding_mode: str) -> Tensor:
    single = not isinstance(other, Tensor) or other.numel() == 1
    wide = torch.float32 if dtype in HALF and single else dtype
    left = in_type(in_type(self, dtype), wide)
    right = in_type(other, wide) if isinstance(other, Tensor) else as_number(cast_operand(other, wide), self, wide)
    quotient = aten.div.Tensor(left, right)
    return in_type(_floor_of(left, right, quotient) if rounding_mode == "floor" else _trunc(quotient), dtype)


_div_of_floats = with_eager_strides(_floats_divided, {0: lambda result, self, other, **named: _as_both(result, self, other)})


def _div_of_integers(self: Tensor, other: Any, dtype: torch.dtype, rounding_mode: str) -> Any:
    if dtype not in (torch.int32, torch.int64) or not isinstance(other, Tensor):
        return NotImplemented if not isinstance(other, int) or other != -1 else neg(in_type(self, dtype))
    left, right, _ = in_common(self, other)
    turns = aten.eq.Tensor(right, as_number(-1, right))
    divided = aten.div.Tensor_mode(left, aten.where.self(turns, as_number(1, right), right), rounding_mode=rounding_mode)
    return aten.where.self(turns, neg(left), divided)


@rule("aten.div.Tensor_mode", recorded=True, source="small")
@_of_two
def _div_mode_of_integers(self: Tensor, other: Tensor, *, rounding_mode: str | None) -> Any:
    left, right, dtype = in_common(self, other)
    if rounding_mode is None:
        return aten.div.Tensor(self, other)
    if not is_real(dtype) or dtype is torch.bool or dtype.is_floating_point:
        return NotImplemented
    wide, by = in_type(left, torch.int64), in_type(right, torch.int64)
    rest = aten.fmod.Tensor(wide, by)
    whole = sub(wide, rest)
    # The first quotient is rounded, so some divisors may be left. Their quotient is exact in float64; float32 holds 24 of 64 bits.
    quotient = _quotient(whole, by)
    for _ in range(1 if has_float64() else 3):
        quotient = aten.add.Tensor(quotient, _quotient(sub(whole, aten.mul.Tensor(quotient, by)), by))
    if rounding_mode == "floor":
        quotient = sub(quotient, in_type(_points_away(rest, by), torch.int64))
    return in_type(quotient, dtype)


def _points_away(rest: Tensor, by: Tensor) -> Tensor:
    """Return where a remainder is not zero, and has another sign than the divisor."""
    zero = as_number(0, rest)
    apart: Tensor = bitwise_and(differs(rest, zero), bitwise_xor(aten.gt.Tensor(zero, by), aten.gt.Tensor(zero, rest)))
    return apart


def _quotient(left: Tensor, right: Tensor) -> Tensor:
    return in_type(_round(aten.div.Tensor(in_type(left, wide_float()), in_type(right, wide_float()))), torch.int64)


def _floor_of(left: Tensor, right: Tensor, quotient: Tensor) -> Tensor:
    """Return the floor of a quotient by the same steps as eager's kernel, which uses no remainder if the quotient overflows."""
    zero, one, most = as_number(0, left), as_number(1, left), as_number(math.inf, left)
    rest = aten.fmod.Tensor(left, right)
    overflows = bitwise_and(aten.eq.Tensor(absolute(quotient), most), differs(absolute(left), most))
    divided = aten.div.Tensor(aten.where.self(overflows, left, sub(left, rest)), right)
    divided = aten.where.self(_points_away(rest, right), sub(divided, one), divided)
    floored = aten.floor.default(divided)
    floored = aten.where.self(aten.gt.Tensor(sub(divided, floored), as_number(0.5, left)), aten.add.Tensor(floored, one), floored)
    floored = aten.where.self(aten.eq.Tensor(divided, zero), aten.mul.Tensor(quotient, zero), floored)
    result: Tensor = aten.where.self(aten.eq.Tensor(right, zero), quotient, floored)
    return result


# -- minima and maxima ------------------------------------------------------------------------------------------------------


@rule("aten.maximum.default", recorded=True, source="small")
@_of_two
def _greater(self: Tensor, other: Tensor) -> Any:
    left, right, dtype = in_common(self, other)
    if not is_real(dtype):
        return NotImplemented
    return aten.where.self(aten.bitwise_or.Tensor(aten.gt.Tensor(right, left), isnan(right)), right, left)


@rule("aten.minimum.default", recorded=True, source="small")
@_of_two
def _less(self: Tensor, other: Tensor) -> Any:
    left, right, dtype = in_common(self, other)
    if not is_real(dtype):
        return NotImplemented
    return aten.where.self(aten.bitwise_or.Tensor(aten.gt.Tensor(left, right), isnan(right)), right, left)


def _turned(x: Tensor) -> Tensor:
    """Map values so that their order is reversed. Applied twice, this returns `x`."""
    result: Tensor = aten.bitwise_not.default(x) if is_integral(x.dtype) else neg(x)
    return result


@rule("aten.amin.default", recorded=True, source="small")
def _amin(self: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    return _turned(aten.amax.default(_turned(self), dim, keepdim)) if is_real(self.dtype) else NotImplemented


def _first_greatest(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    values = aten.amax.default(self, [dim], True)
    if not self.dim():
        return values, as_number(0, self, torch.int64)
    seen, last = aten.eq.Tensor(self, values), self.size(dim) - 1
    if self.dtype.is_floating_point:
        seen = aten.bitwise_or.Tensor(seen, isnan(self))
    shape = [1] * self.dim()
    shape[dim] = last + 1
    from_end = aten.view.default(aten.arange.start_step(last, -1, -1, device=self.device), shape)
    farthest = aten.amax.default(aten.where.self(seen, from_end, as_number(-1, from_end)), [dim], True)
    places = sub(as_number(last, from_end), farthest)
    if keepdim:
        return values, places
    return aten.squeeze.dim(values, dim), aten.squeeze.dim(places, dim)


@rule("aten.max.dim", recorded=True, source="small")
def _max_dim(self: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _first_greatest(self, dim, keepdim) if is_real(self.dtype) else NotImplemented


@rule("aten.min.dim", recorded=True, source="small")
def _min_dim(self: Tensor, dim: int, keepdim: bool = False) -> Any:
    if not is_real(self.dtype):
        return NotImplemented
    values, places = _first_greatest(_turned(self), dim, keepdim)
    return _turned(values), places


def _arg(extreme: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if not is_real(self.dtype):
            return NotImplemented
        if dim is not None:
            return extreme(self, dim, keepdim)[1]
        place = extreme(aten.reshape.default(self, [-1]), 0, False)[1]
        return aten.view.default(place, [1] * self.dim()) if keepdim else place

    return run


# -- sums and products ------------------------------------------------------------------------------------------------------


@rule("aten.mean.dim", recorded=True, source="small")
def _mean(self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    kept = dtype or self.dtype
    if is_integral(kept):
        return NotImplemented
    dims = list(dim) if dim else list(range(self.dim()))
    count = math.prod(self.size(one) for one in dims) if self.dim() else 1
    total = aten.sum.dim_IntList(in_type(self, torch.float32 if kept in HALF else kept), dims, keepdim)
    return in_type(aten.div.Tensor(total, as_number(count, total)), kept)


def _spread(self: Tensor, dim: Sequence[int] | None, correction: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    dims = list(dim) if dim else list(range(self.dim()))
    count = math.prod(self.size(one) for one in dims) if self.dim() else 1
    wide = in_type(self, wide_of(self.dtype))
    mean = aten.div.Tensor(aten.sum.dim_IntList(wide, dims, True), as_number(count, wide))
    apart = sub(wide, mean)
    squares = aten.sum.dim_IntList(aten.mul.Tensor(apart, apart), dims, keepdim)
    if wide.dtype is torch.float32:  # take the rounding error of the mean out of the sum
        rest = aten.sum.dim_IntList(apart, dims, keepdim)
        squares = sub(squares, aten.div.Tensor(aten.mul.Tensor(rest, rest), as_number(count, wide)))
    spread = aten.div.Tensor(squares, as_number(max(0, count - (1 if correction is None else correction)), wide))
    middle = mean if keepdim else aten.view.default(mean, list(spread.shape))
    return in_type(spread, self.dtype), in_type(middle, self.dtype)


@rule("aten.var.correction", recorded=True, source="small")
def _var(self: Tensor, dim: Sequence[int] | None = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _spread(self, dim, correction, keepdim)[0] if self.dtype.is_floating_point else NotImplemented


@rule("aten.var_mean.correction", recorded=True, source="small")
def _var_mean(self: Tensor, dim: Sequence[int] | None = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _spread(self, dim, correction, keepdim) if self.dtype.is_floating_point else NotImplemented


@rule("aten.prod.dim_int", recorded=True, source="small")
def _prod_dim(self: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Multiply halves pairwise. Floats are multiplied in the wide dtype and rounded once, since eager has another order."""
    kept = dtype or (torch.int64 if is_integral(self.dtype) else self.dtype)
    held = in_type(in_type(self, kept), wide_of(kept) if kept.is_floating_point else kept)
    if not self.dim():
        return aten.clone.default(in_type(held, kept)) if held is self else in_type(held, kept)
    size = self.size(dim)
    if not size:
        shape = [one for at, one in enumerate(self.shape) if at != dim % self.dim()]
        shape = [1 if at == dim % self.dim() else one for at, one in enumerate(self.shape)] if keepdim else shape
        return aten.full.default(shape, 1, dtype=kept, device=self.device)
    while size > 1:
        half = size // 2
        product = aten.mul.Tensor(aten.slice.Tensor(held, dim, 0, half), aten.slice.Tensor(held, dim, half, 2 * half))
        held = aten.cat.default([product, aten.slice.Tensor(held, dim, 2 * half, size)], dim) if size % 2 else product
        size = half + size % 2
    result = in_type(held, kept)
    result = result if keepdim else aten.select.int(result, dim, 0)
    return aten.clone.default(result, memory_format=torch.contiguous_format) if self.size(dim) == 1 else result


@rule("aten.prod.default", recorded=True, source="small")
def _prod(self: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return _prod_dim(aten.reshape.default(self, [-1]), 0, False, dtype=dtype)


@rule("aten.mm.default", recorded=True, source="small")
def _mm(self: Tensor, mat2: Tensor) -> Any:
    if self.dim() != 2 or mat2.dim() != 2:
        return NotImplemented
    return aten.squeeze.dim(aten.bmm.default(aten.unsqueeze.default(self, 0), aten.unsqueeze.default(mat2, 0)), 0)


# -- indices ----------------------------------------------------------------------------------------------------------------


def _flip(self: Tensor, dims: Sequence[int]) -> Any:
    result, rank = self, self.dim()
    for dim in sorted(dim % rank for dim in dims) if rank else ():
        backwards = aten.arange.start_step(self.size(dim) - 1, -1, -1, device=self.device)
        result = aten.index.Tensor(result, [*[None] * dim, backwards])
    return aten.clone.default(self) if result is self else result


@rule("aten.scatter.value", recorded=True, source="small")
def _scatter_value(self: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    if self.dtype.is_complex is False and isinstance(value, complex):
        return NotImplemented
    filled = aten.expand.default(as_number(value, self), list(index.shape))
    return aten.scatter.src(self, dim, index, filled)


@rule("aten.topk.default", recorded=True, source="small")
def _topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not self.dim():
        return aten.clone.default(self), as_number(0, self, torch.int64)
    if k > self.size(dim):
        return NotImplemented
    ordered = aten.sort.default(self, dim, largest)
    return tuple(aten.clone.default(aten.slice.Tensor(x, dim, 0, k), memory_format=torch.contiguous_format) for x in ordered)


@rule("aten.arange.start_step", recorded=True, source="small")
def _arange(
    start: Any, end: Any, step: Any = 1, *, dtype: Any = None, layout: Any = None, device: Any = None, **options: Any
) -> Any:
    """Compute float32 ranges from integers, without float64. torch's reference computes them in float64."""
    if has_float64() or dtype is None or dtype not in (torch.float32, *HALF) or layout not in (None, torch.strided):
        return NotImplemented
    if not all(isinstance(one, (int, float)) and math.isfinite(one) for one in (start, end, step)) or not step:
        return NotImplemented
    count = math.ceil((end - start) / step)
    if count < 0:
        return NotImplemented
    places = in_type(aten.arange.start_step(0, count, 1, dtype=torch.int64, device=device), torch.float32)
    return in_type(aten.add.Scalar(aten.mul.Scalar(places, float(step)), float(start)), dtype)


# -- results in new memory, for programs that may not write in place -------------------------------------------------------


def _in_order_of(self: Tensor) -> tuple[list[int], list[int]]:
    """Return the dimensions in memory order, outermost first, and the inverse permutation."""
    order = sorted(range(self.dim()), key=lambda dim: (self.stride()[dim], self.shape[dim]), reverse=True)
    return order, [order.index(dim) for dim in range(self.dim())]


def _if_strided_as(self: Tensor, result: Tensor) -> Any:
    return result if result.stride() == self.stride() else NotImplemented


@rule("aten._native_batch_norm_legit_no_training.default", source="small")
def _batch_norm(input: Tensor, *rest: Any) -> Any:
    """Call an op that returns the statistics. torch's own rule writes them, which graphs of `torch.export` cannot contain."""
    *parameters, momentum, eps = rest
    return aten._native_batch_norm_legit_functional.default(input, *parameters, False, momentum, eps)[:3]


@rule("aten.copy.default", recorded=True, source="small")
def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Any:
    """Cast `src` to the dtype and device of `self`, in new memory."""
    order, back = _in_order_of(self)
    given = aten.permute.default(aten.expand.default(src, list(self.shape)), order)
    to = {"dtype": self.dtype, "device": self.device, "memory_format": torch.contiguous_format}
    return _if_strided_as(self, aten.permute.default(aten._to_copy.default(given, **to), back))


@rule("aten.fill.Scalar", recorded=True, source="small")
def _fill(self: Tensor, value: Any) -> Any:
    """Return a new tensor with the same metadata."""
    order, back = _in_order_of(self)
    made = aten.full.default([self.size(dim) for dim in order], value, dtype=self.dtype, device=self.device)
    return _if_strided_as(self, aten.permute.default(made, back))


@rule("aten.constant_pad_nd.default", recorded=True, source="small")
def _constant_pad_nd(self: Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    """Concatenate with tensors filled with the value. Negative padding slices the input."""
    rank = self.dim()
    if len(pad) % 2 or len(pad) // 2 > rank or suggested_memory_format(self) is not torch.contiguous_format:
        return NotImplemented
    result = self
    for number, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = rank - 1 - number
        if self.size(dim) + before + after < 0:
            return NotImplemented
        if before < 0 or after < 0:
            result = aten.slice.Tensor(result, dim, max(-before, 0), self.size(dim) - max(-after, 0))
        parts = []
        for width in (before, after):
            shape = [width if one == dim else result.size(one) for one in range(rank)]
            parts.append([aten.full.default(shape, value, dtype=self.dtype, device=self.device)] if width > 0 else [])
        if parts[0] or parts[1]:
            result = aten.cat.default([*parts[0], result, *parts[1]], dim)
    return aten.clone.default(result, memory_format=torch.contiguous_format)


for name in ("eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder"):
    rule(f"aten.{name}.Scalar", recorded=True, source="small")(_by_tensor(op_called(f"aten.{name}.Tensor")))
rule("aten.ne.Tensor", recorded=True, source="small")(_of_two(differs))
rule("aten.lt.Tensor", recorded=True, source="small")(_of_two(lt))
rule("aten.le.Tensor", recorded=True, source="small")(_of_two(le))
rule("aten.ge.Tensor", recorded=True, source="small")(_of_two(ge))
rule("aten.isnan.default", recorded=True, source="small")(isnan)
for name, function in (("bitwise_and", bitwise_and), ("bitwise_xor", bitwise_xor)):
    rule(f"aten.{name}.Tensor", recorded=True, source="small")(_of_two(function))
    rule(f"aten.{name}.Scalar", recorded=True, source="small")(_by_tensor(op_called(f"aten.{name}.Tensor")))
rule("aten.sub.Tensor", recorded=True, source="small")(_of_two(sub))
rule("aten.remainder.Tensor", recorded=True, source="small")(_of_two(_remainder))
rule("aten.atan2.default", recorded=True, source="small")(_of_two(rounded_once(atan2, atan2)))
rule("aten.neg.default", recorded=True, source="small")(neg)
rule("aten.abs.default", recorded=True, source="small")(absolute)
rule("aten.sign.default", recorded=True, source="small")(sign_of)
rule("aten.rsqrt.default", recorded=True, source="small")(_in_wide(_rsqrt))
rule("aten.sigmoid.default", recorded=True, source="small")(_in_wide(_sigmoid))
rule("aten.argmax.default", recorded=True, source="small")(_arg(_max_dim))
rule("aten.argmin.default", recorded=True, source="small")(_arg(_min_dim))
rule("aten.flip.default", recorded=True, source="small")(_flip)
for op, *formulas in (
    ("aten.expm1.default", expm1),
    ("aten.log1p.default", log1p, log1p_double),
    ("aten.tanh.default", tanh, tanh_double),
    ("aten.sinh.default", sinh, sinh_double),
    ("aten.cosh.default", cosh, cosh_double),
    ("aten.tan.default", tan),
    ("aten.asinh.default", asinh),
    ("aten.acosh.default", acosh, acosh_double),
    ("aten.atanh.default", atanh),
    ("aten.asin.default", asin),
    ("aten.acos.default", acos),
    ("aten.log2.default", log_to(2)),
    ("aten.log10.default", log_to(10)),
):
    rule(op, recorded=True, source="small")(rounded_once(*formulas))
