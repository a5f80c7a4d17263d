"""Shared parts of linked rules: the dtype in which a formula of floats is computed, and constants that are made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.eager.layouts import all_contiguous, iterator_strides
from eagerdecomp.eager.promotion import floating, promoted, wide_type
from eagerdecomp.ops.plumbing import READ
from eagerdecomp.rules.link import Linkable, link_on_call

__all__ = [
    "Compute",
    "Constant",
    "computed",
    "constant",
    "elementwise_strides",
    "kept_number",
    "kept_numbers",
    "restrided",
    "reporting",
]

aten = torch.ops.aten

_FULL = aten.full.default
_KEPT = 64


def reporting(read: Callable[..., Any], report: Callable[[str], None]) -> Callable[..., Any]:
    """`READ`, which first records why no program serves the call that reads."""
    why = f"reads the data of a tensor ({READ})"

    def run(tensor: Tensor) -> Any:
        report(why)
        return read(tensor)

    return run


def kept_number(value: Any, full: Callable[..., Any] = _FULL) -> Callable[[Tensor], Tensor]:
    """``number(like)``: `value` as a tensor without dimensions, of the type and on the device of `like`, which promotes nothing. It
    is made once for each and kept: nobody may write to it or hand it out."""
    kept: dict[torch.dtype | tuple[torch.dtype, torch.device], Tensor] = {}

    def number(like: Tensor) -> Tensor:
        found = kept.get(like.dtype if like.is_cpu else (like.dtype, like.device))  # to hash a device is a third of the price
        return make(like) if found is None or like.__class__ is FakeTensor else found

    def make(like: Tensor) -> Tensor:
        made: Tensor = full([], value, dtype=like.dtype, device=like.device)
        if made.__class__ is Tensor:
            kept[like.dtype if like.is_cpu else (like.dtype, like.device)] = made
        return made

    return number


def kept_numbers(full: Callable[..., Any] = _FULL) -> Callable[[Tensor, Any], Tensor]:
    """``number(like, value)``: the same for values that callers give, of which the first ones are kept."""
    kept: dict[Any, Tensor] = {}

    def number(like: Tensor, value: Any) -> Tensor:
        found = kept.get((value or str(value), like.dtype, like.is_cpu or like.device))  # -0.0 is not 0.0
        return make(like, value) if found is None or like.__class__ is FakeTensor else found

    def make(like: Tensor, value: Any) -> Tensor:
        made: Tensor = full([], value, dtype=like.dtype, device=like.device)
        if made.__class__ is Tensor and len(kept) < _KEPT:
            kept[value or str(value), like.dtype, like.is_cpu or like.device] = made
        return made

    return number


class Constant(Linkable):
    """``ZERO = Constant(0.0)``, then ``ZERO(like)`` in a rule: a 0-dim tensor of the dtype and on the device of `like`.

    It is made once per handler, dtype and device: a rule may neither write to it nor return it. Unlike a wrapped number it has
    its operand's dtype, so that it promotes nothing.
    """

    def __init__(self, value: Any) -> None:
        super().__init__(lambda call: kept_number(value, call(_FULL)))


#: ``constant(like, value)``: as `Constant`, for a value that the caller of an op gives.
constant = Linkable(lambda call: kept_numbers(call(_FULL)))


def elementwise_strides(result: Tensor, *operands: Tensor) -> Tensor:
    """Return the result with the strides that an elementwise kernel of these operands gives it."""
    if all_contiguous(operands):
        return result
    shape, strides = result.shape, iterator_strides(result.shape, operands, result.dtype)
    if not result.numel() or all(n == 1 or s == w for n, s, w in zip(shape, result.stride(), strides, strict=True)):
        return result
    return restrided(result, strides)


@link_on_call  # most calls need no copy, and a set without these ops still serves those
def restrided(result: Tensor, strides: Sequence[int]) -> Tensor:
    """Return a copy of the result with these strides."""
    copy = aten.empty_strided.default(result.shape, strides, dtype=result.dtype, device=result.device)
    return aten.copy_.default(copy, result)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Compute:
    """How a formula of floats is computed. It takes calls whose operands are of one floating dtype; others go to the next rule.

    The result gets the strides that an elementwise kernel gives it: a formula of contiguous operands, or of one, has them already.

    Attributes:
        dtype: ``"float32"`` computes float16 and bfloat16 in float32 and rounds once; ``"operands"`` computes in the dtype of the
            operands and rounds at every step, as some of eager's kernels do.
        operands: the positions of the op's tensors, in the order in which eager's kernel meets them.
        promotes: operands of several real dtypes are first converted to the one that they promote to, integers to the default one.
    """

    dtype: Literal["float32", "operands"]
    operands: tuple[int, ...] = (0,)
    promotes: bool = False


def computed(how: Compute, formula: Callable[..., Any], next_rules: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the op's arguments that runs `formula` as `how` says; `next_rules` take the other calls."""
    operands, stepwise, promotes = how.operands, how.dtype == "operands", how.promotes
    to, strided = aten._to_copy.default, elementwise_strides  # held here, so that linking copies no globals: all rules share them

    def rest(*args: Any, **kwargs: Any) -> Any:
        tensors = [args[at] for at in operands]
        dtype = tensors[0].dtype
        if promotes and not any(tensor.dtype.is_complex for tensor in tensors):
            dtype = floating(promoted(tensors))
        elif not dtype.is_floating_point or any(tensor.dtype is not dtype for tensor in tensors):
            return next_rules(*args, **kwargs)
        wide = dtype if stepwise else wide_type(dtype)
        if promotes or wide is not dtype:
            cast = [to(arg, dtype=wide) if isinstance(arg, Tensor) and arg.dtype is not wide else arg for arg in args]
            result = formula(*cast, **kwargs)
        else:
            result = formula(*args, **kwargs)
        if result is NotImplemented:
            return next_rules(*args, **kwargs)
        if wide is not dtype:
            result = to(result, dtype=dtype)
        return result if len(tensors) == 1 else strided(result, *tensors)

    return rest
