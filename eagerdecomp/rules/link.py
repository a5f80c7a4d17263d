"""What linked rules share: formulas of floats, which alone read types and layouts, and numbers that are made once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.eager.layouts import all_row_major, iterator_strides
from eagerdecomp.eager.promotion import floating, promoted, wide_type
from eagerdecomp.ops.plumbing import READ
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules.rule import Call, Rule, linked

__all__ = ["formula", "kept_number", "kept_numbers", "relaid", "told"]

aten = torch.ops.aten

_KEPT = 64


def told(read: Callable[..., Any], tell: Callable[[str], None]) -> Callable[..., Any]:
    """`READ`, which tells first why the call that reads is one that no program serves."""

    def run(tensor: Tensor) -> Any:
        tell(f"reads the data of a tensor ({READ})")
        return read(tensor)

    return run


def kept_number(call: Call, value: Any) -> Callable[[Tensor], Tensor]:
    """``number(like)``: `value` as a tensor without dimensions, of the type and on the device of `like`, which promotes nothing. It
    is made once for each and kept: nobody may write to it or hand it out."""
    full = call(aten.full.default)
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


def kept_numbers(call: Call) -> Callable[[Tensor, Any], Tensor]:
    """``number(like, value)``: the same for values that callers give, of which the first ones are kept."""
    full = call(aten.full.default)
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


def relaid(call: Call, result: Tensor, *operands: Tensor) -> Tensor:
    """`result` as an elementwise kernel of these operands lays it out."""
    if all_row_major(operands):
        return result
    shape, strides = result.shape, iterator_strides(result.shape, operands, result.dtype)
    if not result.numel() or all(n == 1 or s == w for n, s, w in zip(shape, result.stride(), strides, strict=True)):
        return result
    # Bound here: most calls need neither, and a set without them still serves those.
    copy = call(aten.empty_strided.default)(shape, strides, dtype=result.dtype, device=result.device)
    return call(aten.copy_.default)(copy, result)  # type: ignore[no-any-return]


def formula(
    op: OpOverload,
    link: Callable[[Call], Callable[..., Any]],
    *,
    operands: tuple[int, ...] = (0,),
    stepwise: bool = False,
    promotes: bool = False,
) -> Rule:
    """The linked rule of a formula of one floating type; a call of other or of several types is left to the rules behind it.

    Half types are computed in float32 and rounded once. The result lies as an elementwise kernel lays it out, as it does by itself
    where the operands are row-major, or there is but one.

    Args:
        op: the op.
        link: binds the formula's kernels and answers the formula, a function of the op's arguments.
        operands: the positions of the op's tensors, in the order in which eager's kernel meets them.
        stepwise: half types are rounded at every step, as in eager's kernel.
        promotes: operands of several real types are first made of the one that they promote to, integers of the default one.
    """
    make = _usual_call(op, operands)

    @functools.wraps(link)
    def linker(call: Call) -> Callable[..., Any]:
        compute, to, others = link(call), call(aten._to_copy.default), call(op)

        def rest(*args: Any, **kwargs: Any) -> Any:
            tensors = [args[at] for at in operands]
            dtype = tensors[0].dtype
            if promotes and not any(tensor.dtype.is_complex for tensor in tensors):
                dtype = floating(promoted(tensors))
            elif not dtype.is_floating_point or any(tensor.dtype is not dtype for tensor in tensors):
                return others(*args, **kwargs)
            wide = dtype if stepwise else wide_type(dtype)
            if promotes or wide is not dtype:
                cast = [to(arg, dtype=wide) if isinstance(arg, Tensor) and arg.dtype is not wide else arg for arg in args]
                answer = compute(*cast, **kwargs)
            else:
                answer = compute(*args, **kwargs)
            if wide is not dtype:
                answer = to(answer, dtype=dtype)
            return answer if len(tensors) == 1 else relaid(call, answer, *tensors)

        return make(compute, rest)

    return linked(op, linker)


def _usual_call(op: OpOverload, operands: Sequence[int]) -> Callable[..., Callable[..., Any]]:
    """``make(compute, rest) -> run``: `run` has the op's own signature and calls `compute` for float32 and float64 in row-major
    order, `rest` for anything else. Written out, since this is all that stands between a call and its kernels."""
    arguments = facts_of(op).arguments
    namespace: dict[str, Any] = {f"default_{a.name}": a.default for a in arguments}
    declared = [f"{a.name}=default_{a.name}" if a.has_default else a.name for a in arguments]
    passed = [f"{a.name}={a.name}" if a.kwarg_only else a.name for a in arguments]
    if named := [position for position, a in enumerate(arguments) if a.kwarg_only]:
        declared.insert(named[0], "*")
    first, *more = (arguments[at].name for at in operands)
    tests = [f"{name}.dtype is dtype" for name in more]
    if more:
        tests += [f"{name}.is_contiguous()" for name in (first, *more)]
        tests += [f"{name}.shape == {first}.shape" for name in more]  # else strides of dimensions of one element count
    source = f"""
def make(compute, rest, single, double):
    def run({", ".join(declared)}):
        dtype = {first}.dtype
        if {" and ".join(["(dtype is single or dtype is double)", *tests])}:
            return compute({", ".join(passed)})
        return rest({", ".join(passed)})
    return run
"""
    exec(compile(source, f"<formula of {op}>", "exec"), namespace)
    return functools.partial(namespace["make"], single=torch.float32, double=torch.float64)
