"""`arange`, `linspace` and `logspace`, with the steps and roundings of eager's kernels.

The two short forms of `arange` are linked: a new size takes 7 us instead of 330.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.eager.promotion import HALF, in_type
from eagerdecomp.eager.scalars import held_number
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64, wide_complex, wide_float

aten = torch.ops.aten


@rule("aten.arange.default")
def _arange(end: Any, **kwargs: Any) -> Any:
    return aten.arange.start_step(0, end, 1, **kwargs)


@rule("aten.arange.start")
def _arange_start(start: Any, end: Any, **kwargs: Any) -> Any:
    return aten.arange.start_step(start, end, 1, **kwargs)


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
    first, last = (held(held_number(edge, dtype)).value for edge in (start, end))
    step = held(held(last - first).value / held(steps - 1).value).value
    return _from_both_ends(first, last, step, steps, dtype, device)


@rule("aten.linspace.default", recorded=True)
def _linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, layout: Any = None, device: Any = None, **options: Any
) -> Any:
    """Count each half from its own end, as eager does. torch's table entry counts the middle of an odd number from the first end.

    For integers, truncate the ends and compute in float64; the table entry computes in float32 and truncates only the results. For
    float16 and bfloat16, round each step, as the kernel does.
    """
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
    first, last = (held_number(edge, dtype) for edge in (start, end))
    if not held.min:  # uint8 accepts negative integers, and wraps them around
        first, last = first % (held.max + 1), last % (held.max + 1)
    if not has_float64():
        return in_type(_linspace_of_integers(first, last, steps, device), dtype)
    step = (float(last) - float(first)) / (steps - 1)
    return aten._to_copy.default(_from_both_ends(first, last, step, steps, torch.float64, device), dtype=dtype)


def _linspace_of_integers(first: int, last: int, steps: int, device: Any) -> Any:
    """Compute in int64, where float32 would be the widest float: it holds 24 bits of an integer."""
    whole, rest = divmod(last - first, steps - 1)
    places = aten.arange.start_step(0, steps, dtype=torch.int64, device=device)
    shares = aten.mul.Scalar(places, rest)
    part = aten.div.Scalar_mode(shares, steps - 1, rounding_mode="floor")
    values = aten.add.Scalar(aten.add.Tensor(aten.mul.Scalar(places, whole), part), first)
    # The cast truncates. These are rounded down, so negative ones with a fraction are one too low.
    fraction = aten.ne.Tensor(aten.mul.Scalar(part, steps - 1), shares)
    low = aten.logical_and.default(aten.lt.Scalar(values, 0), fraction)
    return aten.add.Tensor(values, aten._to_copy.default(low, dtype=torch.int64))


@rule("aten.logspace.default", recorded=True)
def _logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, layout: Any = None, **options: Any
) -> Any:
    """Return powers of the base in the requested dtype.

    torch's reference uses the default complex dtype for complex ends, and truncates the start of a single step to an integer.
    """
    is_complex = isinstance(start, complex) or isinstance(end, complex)
    dtype = dtype or (torch.get_default_dtype().to_complex() if is_complex else torch.get_default_dtype())
    if layout not in (None, torch.strided):
        return NotImplemented
    device = options.get("device")
    if steps == 1 and not dtype.is_floating_point:
        # ATen fills the result with `std::pow`. Unlike Python's `**`, it does not raise beyond the range of a float.
        power = aten.pow.Scalar(base, aten.full.default([], start, dtype=wide_complex() if is_complex else wide_float()))
        return aten._to_copy.default(aten.view.default(power, [1]), dtype=dtype, device=device)
    # torch's reference refuses a negative base.
    if not is_complex and (base >= 0 or not dtype.is_floating_point):
        return NotImplemented if has_float64() else _logspace_single(start, end, steps, base, dtype, device)
    if steps == 0:
        return aten.full.default([0], 0, dtype=dtype, device=device)
    return aten.pow.Scalar(base, aten.linspace.default(start, end, steps, dtype=dtype, device=device))


def _logspace_single(start: Any, end: Any, steps: int, base: float, dtype: torch.dtype, device: Any) -> Any:
    """Compute powers in float32. Powers that are integers up to rounding are made exact, because a cast to integers truncates."""
    whole = not dtype.is_floating_point
    ends = (int(start), int(end)) if whole else (start, end)
    powers = aten.pow.Scalar(base, aten.linspace.default(*ends, steps, dtype=torch.float32, device=device))
    if whole:
        near = aten.round.default(powers)
        beside = aten.abs.default(aten.sub.Tensor(powers, near))
        powers = aten.where.self(aten.le.Tensor(beside, aten.mul.Scalar(aten.abs.default(powers), 1e-6)), near, powers)
    return in_type(powers, dtype)


def _of_tensors(scalars: OpOverload) -> Callable[..., Any]:
    """Read the ends as scalars, as eager does. torch's reference drops imaginary parts, and computes `logspace` in float64."""

    def steps(start: Any, end: Any, *more: Any, **options: Any) -> Any:
        is_complex = any(x.dtype.is_complex if isinstance(x, Tensor) else isinstance(x, complex) for x in (start, end))
        if has_float64() and not is_complex:
            return NotImplemented
        ends = (aten._local_scalar_dense.default(x) if isinstance(x, Tensor) else x for x in (start, end))
        return scalars(*ends, *more, **options)

    return steps


for name in ("linspace", "logspace"):
    for sides in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        rule(f"aten.{name}.{sides}", recorded=True)(_of_tensors(op_called(f"aten.{name}.default")))
