"""View chains: replace a view of a view by a view of the first tensor.

``permute(permute(x, a), b)`` becomes one permute. Calls that read ``alias(x)`` or ``detach(x)`` read `x` instead, because these are
the same in a program without writes. `dead_code` later removes the inner views. A view that the program returns stays unchanged.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from eagerdecomp._torch.ops import op_called
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.ir import KernelCall, Program, Slot, map_slots

__all__ = ["view_chains"]

aten = torch.ops.aten

_RENAMINGS = (op_called("aten.alias.default"), op_called("aten.detach.default"))


def view_chains(program: Program) -> Program:
    if any(facts_of(call.op).mutated for call in program.calls):
        return program
    made: dict[Slot, KernelCall] = {}
    calls: list[KernelCall] = []
    for call in program.calls:
        call = _past_renamings(call, made)
        if call.op is aten.permute.default:
            call = _past_permute(call, made)
        for slot in call.results:
            if slot is not None:
                made[slot] = call
        calls.append(call)
    return replace(program, calls=tuple(calls))


def _past_renamings(call: KernelCall, made: dict[Slot, KernelCall]) -> KernelCall:
    def source(slot: Slot) -> Slot:
        inner = made.get(slot)
        while inner is not None and inner.op in _RENAMINGS:
            slot = inner.args[0]
            inner = made.get(slot)
        return slot

    if all(source(slot) == slot for slot in call.reads):
        return call
    args = tuple(map_slots(arg, source) for arg in call.args)
    return replace(call, args=args, kwargs=tuple((name, map_slots(value, source)) for name, value in call.kwargs))


def _past_permute(call: KernelCall, made: dict[Slot, KernelCall]) -> KernelCall:
    inner = made.get(call.args[0])
    if inner is None or inner.op is not aten.permute.default:
        return call
    first, second = inner.args[1], call.args[1]
    rank = len(first)
    combined = [first[dim % rank] for dim in second]
    return replace(call, args=(inner.args[0], combined))
