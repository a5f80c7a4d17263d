"""Reuse memory: write a result into a temporary that is not needed any more, if the op set has the in-place or ``out=`` form.

``%3 = add(%2, %0)`` becomes ``add_(%2, %0)`` or ``add(%2, %0, out=%2)`` if nothing reads ``%2`` or a view of it afterwards, and the
result has the dtype, device, shape and strides of ``%2``. It needs the strides of values (`layouts_of`). Other passes expect a
program without in-place ops, so this one runs last. It changes nothing if the set has no in-place and ``out=`` ops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, packet_overloads
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.eager.strides import is_dense
from eagerdecomp.ops.schema import facts_of, functional_variant
from eagerdecomp.program.ir import KernelCall, Program, Slot, evaluate, map_slots, slots_in

__all__ = ["BufferLayout", "has_writers", "layouts_of", "reuse"]


@dataclass(frozen=True)
class BufferLayout:
    """The dtype, device, shape and strides of a tensor. A result may be written into its memory only if all of these are equal."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def layouts_of(
    program: Program, kernel_of: Callable[[OpOverload], Callable[..., Any]], arguments: Sequence[Any]
) -> tuple[Any, dict[Slot, BufferLayout]]:
    """Run the program; return its results, and the layouts of the plain, dense tensors that its kernels made."""
    layouts: dict[Slot, BufferLayout] = {}
    calls = iter(program.calls)

    def noting(op: OpOverload) -> Callable[..., Any]:
        kernel, call = kernel_of(op), next(calls)

        def run(*args: Any, **kwargs: Any) -> Any:
            result = kernel(*args, **kwargs)
            (slot, *others) = call.results or (None,)
            if slot is not None and not others and type(result) is Tensor and result.layout is torch.strided and is_dense(result):
                layouts[slot] = BufferLayout(result.dtype, result.device, tuple(result.shape), result.stride())
            return result

        return run

    return evaluate(program, noting, arguments), layouts


def has_writers(program: Program, holds: Callable[[OpOverload], bool]) -> bool:
    """Return whether the set holds an in-place or ``out=`` form of a pointwise op of the program."""
    variants = (variant for call in program.calls if _by_elements(call.op) for variant in _variants(call.op)[:2])
    return any(variant is not None and holds(variant) for variant in variants)


def reuse(program: Program, layouts: Mapping[Slot, BufferLayout], holds: Callable[[OpOverload], bool]) -> Program:
    """Replace calls by in-place and ``out=`` ops that write into temporaries. `holds` returns whether the set has an op."""
    last = {slot: index for index, call in enumerate(program.calls) for slot in call.reads}
    kept = set(slots_in(program.result))
    free = _of_their_own(program)
    now: dict[Slot, Slot] = {}
    calls: list[KernelCall] = []

    def current(slot: Slot) -> Slot:
        return now.get(slot, slot)

    for index, call in enumerate(program.calls):
        (slot, *others) = call.results or (None,)
        renamed = _renamed(call, current)
        if slot is not None and not others and slot in free and _by_elements(call.op):
            dying = {current(s) for s in call.reads if s in free and last[s] == index and s not in kept}
            fitting = {s for s in dying if layouts.get(s) is not None and layouts.get(s) == layouts.get(slot)}
            written = next(_writing(renamed, fitting, holds), None)
            if written is not None and layouts[slot].dtype not in HALF:  # some in-place kernels round intermediate values there
                renamed, now[slot] = written
        calls.append(renamed)
    return replace(program, calls=tuple(calls), result=map_slots(program.result, current))


def _renamed(call: KernelCall, current: Callable[[Slot], Slot]) -> KernelCall:
    args = tuple(map_slots(arg, current) for arg in call.args)
    return replace(call, args=args, kwargs=tuple((name, map_slots(value, current)) for name, value in call.kwargs))


def _of_their_own(program: Program) -> set[Slot]:
    """Return the results of functional ops that no call aliases, mutates or returns."""
    made = {slot for call in program.calls if facts_of(call.op).is_functional for slot in call.results if slot is not None}
    for call in program.calls:
        facts = facts_of(call.op)
        if facts.returns_alias or facts.mutated:
            made.difference_update(call.reads)
    return made


def _by_elements(op: OpOverload) -> bool:
    return torch.Tag.pointwise in op.tags and not facts_of(op).is_random


def _writing(call: KernelCall, fitting: set[Slot], holds: Callable[[OpOverload], bool]) -> Iterator[tuple[KernelCall, Slot]]:
    """Yield each form of the call that writes into one of the `fitting` temporaries, and that temporary."""
    in_place, out, name = _variants(call.op)
    if in_place is not None and holds(in_place) and call.args and call.args[0] in fitting:
        yield replace(call, op=in_place, results=(None,)), call.args[0]
    if out is not None and holds(out):
        for slot in call.reads:
            if slot in fitting:
                yield replace(call, op=out, kwargs=(*call.kwargs, (name, slot)), results=(None,)), slot


@functools.cache
def _variants(op: OpOverload) -> tuple[OpOverload | None, OpOverload | None, str]:
    """Return the in-place and the ``out=`` variant of a functional op, and the name of the ``out=`` argument."""
    packet = op._schema.name
    variants = [other for other in (*packet_overloads(f"{packet}_"), *packet_overloads(packet)) if functional_variant(other) is op]
    in_place = next((other for other in variants if facts_of(other).is_inplace), None)
    out = next((other for other in variants if facts_of(other).is_out and len(facts_of(other).mutated) == 1), None)
    return in_place, out, facts_of(out).arguments[facts_of(out).mutated[0]].name if out is not None else ""
