"""`linspace` and `logspace`, with the steps and roundings of eager's kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.eager.messages import not_held
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


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
    for edge in (start, end):
        # uint8 accepts negative integers, and wraps them around.
        if not (held.min if held.min or isinstance(edge, float) else -held.max) <= edge <= held.max:
            raise not_held(dtype)
    first, last = (int(edge) % (held.max + 1) if not held.min else int(edge) for edge in (start, end))
    step = (float(last) - float(first)) / (steps - 1)
    return aten._to_copy.default(_from_both_ends(first, last, step, steps, torch.float64, device), dtype=dtype)


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
        power = aten.pow.Scalar(base, aten.full.default([], start, dtype=torch.complex128 if is_complex else torch.float64))
        return aten._to_copy.default(aten.expand.default(power, [1]), dtype=dtype, device=device)
    if not is_complex:
        return NotImplemented
    if steps == 0:
        return aten.full.default([0], 0, dtype=dtype, device=device)
    return aten.pow.Scalar(base, aten.linspace.default(start, end, steps, dtype=dtype, device=device))


def _of_complex_tensors(scalars: OpOverload) -> Callable[..., Any]:
    """Read the ends as complex scalars, as eager does; torch's reference drops their imaginary parts."""

    def steps(start: Any, end: Any, *more: Any, **options: Any) -> Any:
        if not any(x.dtype.is_complex if isinstance(x, Tensor) else isinstance(x, complex) for x in (start, end)):
            return NotImplemented
        ends = (aten._local_scalar_dense.default(x) if isinstance(x, Tensor) else x for x in (start, end))
        return scalars(*ends, *more, **options)

    return steps


for name in ("linspace", "logspace"):
    for sides in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        rule(f"aten.{name}.{sides}", recorded=True)(_of_complex_tensors(op_called(f"aten.{name}.default")))
