"""Repairs: ops whose shipped rule is wrong or fails on calls that eager takes, and that belong to no family of their own."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.decomp_tables import full_table, reference
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import same_storage
from eagerdecomp.eager.messages import dimension_error, not_held
from eagerdecomp.eager.promotion import HALF, can_cast, promoted
from eagerdecomp.rules.rule import Rule, own

__all__ = ["RULES"]

aten = torch.ops.aten


def _masked_fill(self: Tensor, mask: Tensor, value: Tensor) -> Any:
    """Eager reads the value, and refuses what the type of `self` does not hold; the shipped entry casts it."""
    if value.dim() or _holds(self.dtype, value.dtype):
        return NotImplemented
    number = aten._local_scalar_dense.default(value)
    if isinstance(number, complex) and not self.dtype.is_complex and (not number.imag or self.dtype is torch.bool):
        number = bool(number) if self.dtype is torch.bool else number.real
    return aten.masked_fill.Scalar(self, mask, number)


def _compared(of_tensors: OpOverload) -> Callable[..., Any]:
    """Eager rounds the number to the half type that it is compared in; the shipped entries compare in float32."""

    def run(self: Tensor, other: Any) -> Any:
        if self.dtype not in HALF or isinstance(other, (bool, complex)):
            return NotImplemented
        return of_tensors(self, aten.scalar_tensor.default(other, dtype=self.dtype, device=self.device))

    return run


def _where(condition: Tensor, self: Tensor, other: Tensor) -> Any:
    """Eager still takes a condition of bytes."""
    if condition.dtype is not torch.uint8:
        return NotImplemented
    return aten.where.self(aten.ne.Scalar(condition, 0), self, other)


def _holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether a number of the other dtype is in the range of this one, or is a truth."""
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


def _view_copy(self: Tensor, size: list[int]) -> Tensor:
    """Unlike `view`, eager's `view_copy` takes strides that no view has; the shipped entries do not."""
    shaped: Tensor = aten.reshape.default(self, size)
    return aten.clone.default(shaped, memory_format=torch.contiguous_format) if same_storage(shaped, self) else shaped


def _linalg_vector_norm(
    self: Tensor, ord: Any = 2, dim: list[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """The shipped entry takes a maximum before it casts to the wider `dtype`: the norm is rounded to the narrow one. Of a tensor of
    no elements it takes a dimension counted from the end, or that is not there, for an empty one."""
    if dim is not None and not self.numel():
        if outside := [at for at in dim if not -self.dim() <= at < self.dim()]:
            raise dimension_error(outside[0], self.dim())
        dim = [at % self.dim() for at in dim]
    if dtype is not None and dtype is not self.dtype and dtype.is_complex == self.dtype.is_complex and can_cast(self.dtype, dtype):
        self, dtype = aten._to_copy.default(self, dtype=dtype), None
    return full_table()[aten.linalg_vector_norm.default](self, ord, dim, keepdim, dtype=dtype)


def _add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Of bools: the shipped entry multiplies them by a number, and fails where that makes integers of them."""
    of_bools = all(x.dtype is torch.bool if isinstance(x, Tensor) else isinstance(x, bool) for x in (self, other))
    if not of_bools or alpha == 1 or isinstance(alpha, (float, complex)):
        return NotImplemented
    like = self if isinstance(self, Tensor) else other
    sides = [x if isinstance(x, Tensor) else aten.full.default([], x, dtype=torch.bool, device=like.device) for x in (self, other)]
    # What is added to no effect is there for its shape.
    return aten.logical_or.default(sides[0], sides[1] if alpha else aten.logical_xor.default(sides[1], sides[1]))


def _pow(self: Tensor, exponent: Any) -> Any:
    """Of bools by a bool: the shipped entry counts it as an integer."""
    if not isinstance(exponent, bool) or self.dtype is not torch.bool:
        return NotImplemented
    return aten.clone.default(self) if exponent else aten.full_like.default(self, True)


def _as_strided(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Any:
    """torch lists its reference in no table; and `prims.as_strided` says that it writes, so that torch's fallback for a lazy bit
    would hand it a copy."""
    offset = self.storage_offset() if storage_offset is None else storage_offset
    flips = [flip for flip, lazy in ((aten._conj.default, self.is_conj()), (aten._neg_view.default, self.is_neg())) if lazy]
    for flip in flips:
        self = flip(self)
    found = _strided(self, size, stride, offset)
    for flip in flips:
        found = flip(found)
    return found


def _view(self: Tensor, size: list[int]) -> Any:
    """The reference takes `prims.as_strided` for some shapes, before which lazy bits have to go (`_as_strided`)."""
    if self.is_conj():
        return aten._conj.default(aten.view.default(aten._conj.default(self), size))
    return aten._neg_view.default(aten.view.default(aten._neg_view.default(self), size)) if self.is_neg() else NotImplemented


def _strided(self: Tensor, size: list[int], stride: list[int], offset: int | torch.SymInt) -> Any:
    """`prims.as_strided` multiplies the sizes up without a start, so that it fails where there are none."""
    if size:
        return reference("as_strided")(self, size, stride, offset)
    return aten.squeeze.dim(reference("as_strided")(self, [1], [1], offset), 0)


def _lerp_of_integers(self: Tensor, end: Tensor, weight: Tensor) -> Any:
    """By a weight without dimensions, which promotes them; the shipped entry subtracts bools."""
    if self.dtype.is_floating_point or self.dtype.is_complex:
        return NotImplemented
    dtype = promoted((self, end, weight))
    return aten.lerp.Tensor(*(aten._to_copy.default(x, dtype=dtype) for x in (self, end, weight)))


def _linspace_of_half(start: Any, end: Any, steps: int, dtype: torch.dtype, device: Any) -> Tensor:
    first, last, count = (aten.full.default([], value, dtype=dtype, device=device) for value in (start, end, steps - 1))
    step = aten.div.Tensor(aten.sub.Tensor(last, first), count)
    places = aten.arange.start_step(0, steps, device=device)
    near, far = (aten._to_copy.default(at, dtype=dtype) for at in (places, aten.sub.Scalar(aten.neg.default(places), 1 - steps)))
    rising = aten.add.Tensor(aten.mul.Tensor(near, step), first)
    falling = aten.sub.Tensor(last, aten.mul.Tensor(far, step))
    return aten.where.self(aten.lt.Scalar(places, steps // 2), rising, falling)  # type: ignore[no-any-return]


def _from_both_ends(first: float, last: float, step: float, steps: int, dtype: torch.dtype, device: Any) -> Tensor:
    places = aten.arange.start_step(0, steps, dtype=dtype, device=device)
    rising = aten.add.Scalar(aten.mul.Scalar(places, step), first)
    falling = aten.add.Scalar(aten.mul.Scalar(aten.sub.Scalar(places, steps - 1), step), last)
    return aten.where.self(aten.lt.Scalar(places, steps // 2), rising, falling)  # type: ignore[no-any-return]


def _linspace_of_floats(start: Any, end: Any, steps: int, dtype: torch.dtype, device: Any) -> Any:
    held = ctypes.c_float if dtype is torch.float32 else ctypes.c_double if dtype is torch.float64 else None
    if held is None or not isinstance(start, (int, float)) or not isinstance(end, (int, float)):
        return NotImplemented
    first, last = held(start).value, held(end).value
    if math.isinf(first) != math.isinf(start) or math.isinf(last) != math.isinf(end):
        raise not_held(dtype)
    step = held(held(last - first).value / held(steps - 1).value).value
    return _from_both_ends(first, last, step, steps, dtype, device)


def _linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, layout: Any = None, device: Any = None, **options: Any
) -> Any:
    """Each half counted from its own end; the shipped entry counts the middle of an odd number from the first. Of integers: from
    ends that are cut to integers, in float64; the shipped entry cuts the results alone, of float32. Of half types: each step is
    rounded, as the kernel rounds it."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype in HALF and steps > 1 and layout in (None, torch.strided) and not isinstance(start, complex):
        return _linspace_of_half(start, end, steps, dtype, device)
    if dtype.is_complex or dtype is torch.bool or steps < 2:
        return NotImplemented
    if layout not in (None, torch.strided) or isinstance(start, complex) or isinstance(end, complex):
        return NotImplemented
    if dtype.is_floating_point:
        return _linspace_of_floats(start, end, steps, dtype, device) if isinstance(steps, int) else NotImplemented
    held = torch.iinfo(dtype)
    for edge in (start, end):
        # Bytes take integers below zero for what their bits say.
        if not (held.min if held.min or isinstance(edge, float) else -held.max) <= edge <= held.max:
            raise not_held(dtype)
    first, last = (int(edge) % (held.max + 1) if not held.min else int(edge) for edge in (start, end))
    step = (float(last) - float(first)) / (steps - 1)
    return aten._to_copy.default(_from_both_ends(first, last, step, steps, torch.float64, device), dtype=dtype)


def _logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, layout: Any = None, **options: Any
) -> Any:
    """Powers of the base in the requested dtype.

    torch's reference uses the default complex dtype for complex ends, and truncates the start of a single step to an integer.
    """
    is_complex = isinstance(start, complex) or isinstance(end, complex)
    dtype = dtype or (torch.get_default_dtype().to_complex() if is_complex else torch.get_default_dtype())
    if layout not in (None, torch.strided):
        return NotImplemented
    device = options.get("device")
    if steps == 1 and not dtype.is_floating_point:
        # As `std::pow` does, of which ATen fills the result: without the error of Python's `**` beyond the range of a float.
        power = aten.pow.Scalar(base, aten.full.default([], start, dtype=torch.complex128 if is_complex else torch.float64))
        return aten._to_copy.default(aten.expand.default(power, [1]), dtype=dtype, device=device)
    if not is_complex:
        return NotImplemented
    if steps == 0:
        return aten.full.default([0], 0, dtype=dtype, device=device)
    return aten.pow.Scalar(base, aten.linspace.default(start, end, steps, dtype=dtype, device=device))


def _of_complex_tensors(scalars: OpOverload) -> Callable[..., Any]:
    """Ends read as complex scalars, as eager reads them; torch's reference drops their imaginary parts."""

    def steps(start: Any, end: Any, *more: Any, **options: Any) -> Any:
        if not any(x.dtype.is_complex if isinstance(x, Tensor) else isinstance(x, complex) for x in (start, end)):
            return NotImplemented
        ends = (aten._local_scalar_dense.default(x) if isinstance(x, Tensor) else x for x in (start, end))
        return scalars(*ends, *more, **options)

    return steps


RULES: tuple[Rule, ...] = (
    own(aten.logspace.default, _logspace),
    *(
        own(getattr(packet, sides), _of_complex_tensors(packet.default))
        for packet in (aten.linspace, aten.logspace)
        for sides in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
    ),
    *(own(getattr(aten, name).Scalar, _compared(getattr(aten, name).Tensor)) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    own(aten.add.Tensor, _add),
    own(aten.pow.Tensor_Scalar, _pow),
    own(aten.lerp.Tensor, _lerp_of_integers),
    own(aten.linspace.default, _linspace),
    own(aten.as_strided.default, _as_strided),
    own(aten.view.default, _view),
    own(aten.masked_fill.Tensor, _masked_fill),
    own(aten.view_copy.default, _view_copy),
    own(aten.where.self, _where),
    own(aten.linalg_vector_norm.default, _linalg_vector_norm),
)
