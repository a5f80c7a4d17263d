"""Dead code: remove calls whose results nothing reads.

Calls that write stay. Random calls stay too, because a program must draw as many random numbers as its rule.
"""

from __future__ import annotations

from dataclasses import replace

from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.ir import KernelCall, Program, Slot, slots_in

__all__ = ["dead_code"]


def dead_code(program: Program) -> Program:
    needed: set[Slot] = set(slots_in(program.result))
    kept: list[KernelCall] = []
    for call in reversed(program.calls):
        facts = facts_of(call.op)
        if facts.mutated or facts.is_random or any(slot in needed for slot in call.results):
            kept.append(call)
            needed.update(call.reads)
    kept.reverse()
    constants = tuple((slot, value) for slot, value in program.constants if slot in needed)
    return replace(program, calls=tuple(kept), constants=constants)
