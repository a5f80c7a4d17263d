"""Helpers of linked rules: choose the dtype in which a float formula is computed, and cache constant tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.eager.layouts import Wanted
from eagerdecomp.eager.promotion import floating, promoted, wide_type
from eagerdecomp.ops.passthrough import READ
from eagerdecomp.rules.link import Linkable
from eagerdecomp.rules.restride import elementwise_strides, with_layout

__all__ = [
    "CAST",
    "Compute",
    "Constant",
    "computed",
    "constant",
    "kept_number",
    "kept_numbers",
    "reporting",
]

aten = torch.ops.aten

_FULL = op_called("aten.full.default")

#: The op by which `computed` converts operands and results.
CAST = op_called("aten._to_copy.default")

_KEPT = 64


def reporting(read: Callable[..., Any], report: Callable[[str], None]) -> Callable[..., Any]:
    """Return `READ`, wrapped to first report that the call reads data, so that no program can be cached for it."""
    why = f"reads the data of a tensor ({READ})"

    def run(tensor: Tensor) -> Any:
        report(why)
        return read(tensor)

    return run


def kept_number(value: Any, full: Callable[..., Any] = _FULL) -> Callable[[Tensor], Tensor]:
    """Return ``number(like)``, which returns `value` as a 0-dim tensor of the dtype and device of `like`, so that nothing promotes.

    The tensor is cached for each dtype and device: do not write to it and do not return it to the user.
    """
    kept: dict[torch.dtype | tuple[torch.dtype, torch.device], Tensor] = {}

    def number(like: Tensor) -> Tensor:
        key = like.dtype if like.is_cpu else (like.dtype, like.device)  # to hash a device is a third of the price
        found = kept.get(key)
        return make(like, key) if found is None or like.__class__ is FakeTensor else found

    def make(like: Tensor, key: Any) -> Tensor:
        made: Tensor = full([], value, dtype=like.dtype, device=like.device)
        if made.__class__ is Tensor:
            kept[key] = made
        return made

    return number


def kept_numbers(full: Callable[..., Any] = _FULL) -> Callable[[Tensor, Any], Tensor]:
    """Return ``number(like, value)``: as `kept_number`, for values of callers; only the first 64 tensors are cached."""
    kept: dict[Any, Tensor] = {}

    def number(like: Tensor, value: Any) -> Tensor:
        key = value or str(value), like.dtype, like.is_cpu or like.device  # -0.0 is not 0.0
        found = kept.get(key)
        return make(like, value, key) if found is None or like.__class__ is FakeTensor else found

    def make(like: Tensor, value: Any, key: Any) -> Tensor:
        made: Tensor = full([], value, dtype=like.dtype, device=like.device)
        if made.__class__ is Tensor and len(kept) < _KEPT:
            kept[key] = made
        return made

    return number


class Constant(Linkable):
    """``ZERO = Constant(0.0)``, then ``ZERO(like)`` in a rule: a 0-dim tensor of the dtype and on the device of `like`.

    The tensor is created once per handler, dtype and device: a rule may neither write to it nor return it. It has the operand's
    dtype, so it does not take part in type promotion as a wrapped number would.
    """

    def __init__(self, value: Any) -> None:
        super().__init__(lambda call: kept_number(value, call(_FULL)))


#: ``constant(like, value)``: as `Constant`, for a value that the caller of an op passes.
constant = Linkable(lambda call: kept_numbers(call(_FULL)))


@dataclass(frozen=True)
class Compute:
    """How to compute a float formula. It covers calls whose operands have one floating dtype; others go to the next rule.

    The result gets the strides that an elementwise kernel would return. With one operand that is not cast, or contiguous operands,
    the formula already returns those.

    Attributes:
        dtype: ``"float32"`` computes float16 and bfloat16 in float32 and rounds once; ``"operands"`` computes in the dtype of the
            operands and rounds at every step, as some of eager's kernels do.
        operands: the positions of the op's tensors, in the order of the operands of eager's kernel.
        promotes: first convert operands of different real dtypes to their common dtype, and integers to the default dtype.
        layout: the strides of the result; None for those of an elementwise kernel.
    """

    dtype: Literal["float32", "operands"]
    operands: tuple[int, ...] = (0,)
    promotes: bool = False
    layout: Wanted | None = None


def computed(how: Compute, formula: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the op's arguments that runs `formula` as `how` says; NotImplemented for calls it does not cover."""
    operands, stepwise, promotes, layout = how.operands, how.dtype == "operands", how.promotes, how.layout
    to, strided, laid = CAST, elementwise_strides, with_layout  # held here, so that linking copies no globals: all rules share them

    def rest(*args: Any, **kwargs: Any) -> Any:
        tensors = [args[at] for at in operands]
        dtype = tensors[0].dtype
        if promotes and not any(tensor.dtype.is_complex for tensor in tensors):
            dtype = floating(promoted(tensors))
        elif not dtype.is_floating_point or any(tensor.dtype is not dtype for tensor in tensors):
            return NotImplemented
        wide = dtype if stepwise else wide_type(dtype)
        if promotes or wide is not dtype:
            cast = [to(arg, dtype=wide) if isinstance(arg, Tensor) and arg.dtype is not wide else arg for arg in args]
            result = formula(*cast, **kwargs)
        else:
            result = formula(*args, **kwargs)
        if result is NotImplemented:
            return NotImplemented
        if wide is not dtype:
            result = to(result, dtype=dtype)
        if layout is not None:
            return laid(result, layout(result, *args))
        return result if len(tensors) == 1 and wide is dtype else strided(result, *tensors)

    return rest
