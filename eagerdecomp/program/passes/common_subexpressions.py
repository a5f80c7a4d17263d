"""Common subexpressions: replace equal calls of a program by one call.

A program with writes stays unchanged, because a write may come between two equal calls. Random calls are never merged. Calls whose
results the program returns are never merged either, because eager returns distinct tensors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.ir import KernelCall, Program, Slot, exposed, map_slots

__all__ = ["common_subexpressions"]


def common_subexpressions(program: Program) -> Program:
    if any(facts_of(call.op).mutated for call in program.calls):
        return program
    escaping = exposed(program)  # nothing is written
    known: dict[Any, tuple[Slot | None, ...]] = {}
    merged: dict[Slot, Slot] = {}
    kept: list[KernelCall] = []
    for call in program.calls:
        call = _renamed(call, merged)
        identity = _identity(call)
        if identity is None or any(slot in escaping for slot in call.results):
            kept.append(call)
        elif identity in known:
            merged.update((mine, first) for mine, first in zip(call.results, known[identity], strict=True) if mine and first)
        else:
            known[identity] = call.results
            kept.append(call)
    return replace(program, calls=tuple(kept))


def _renamed(call: KernelCall, merged: dict[Slot, Slot]) -> KernelCall:
    if not any(slot in merged for slot in call.reads):
        return call

    def rename(slot: Slot) -> Slot:
        return merged.get(slot, slot)

    args = tuple(map_slots(arg, rename) for arg in call.args)
    return replace(call, args=args, kwargs=tuple((name, map_slots(value, rename)) for name, value in call.kwargs))


def _identity(call: KernelCall) -> Any:
    """Return a key that equal calls share; None if equal calls may return different values."""
    if facts_of(call.op).is_random or not all(call.results):
        return None
    return (call.op, _typed(call.args), _typed(call.kwargs))


def _typed(value: Any) -> Any:
    """Return a literal with its type and its text: ``1 == 1.0 == True``, ``-0.0 == 0.0`` and ``nan != nan``."""
    if isinstance(value, (list, tuple)):
        return tuple(_typed(item) for item in value)
    if isinstance(value, (Slot, torch.Generator)):
        return value
    return (type(value), repr(value))
