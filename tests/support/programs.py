"""Programs for tests: written by hand, or recorded from a call as the runtime does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import eagerdecomp as ed
from eagerdecomp._torch.modes import without_torch_function
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.ops.schema import arguments_of, facts_of
from eagerdecomp.planner.planner import Planner
from eagerdecomp.program.ir import KernelCall, Program, Slot, map_slots, slots_in
from eagerdecomp.program.key import program_arguments
from eagerdecomp.rules.rule import Rule
from eagerdecomp.tracing.recorder import Recorder, Recording

aten = torch.ops.aten

#: Slots by number.
S = [Slot(number) for number in range(24)]


def call(results: Slot | Sequence[Slot | None] | None, op: OpOverload, *args: Any, **kwargs: Any) -> KernelCall:
    """Return a kernel call. Pass a list of results if the kernel returns several."""
    packed = isinstance(results, (list, tuple))
    made = tuple(results) if isinstance(results, (list, tuple)) else (results,)
    return KernelCall(op, args, tuple(kwargs.items()), made, packed)


def program(
    parameters: Sequence[Any],
    calls: Sequence[KernelCall],
    result: Any,
    *,
    constants: Sequence[tuple[Slot, Any]] = (),
    op: OpOverload = aten.silu.default,
) -> Program:
    return Program(op, tuple(parameters), tuple(constants), tuple(calls), result)


def native(op: OpOverload) -> Callable[..., Any]:
    """Return torch's kernel of the op."""
    return builtin(op)


def planner_for(ops: Any, rules: Sequence[Rule] = ()) -> Planner:
    """Return the planner of a mode on these ops."""
    return ed.EagerDecompMode(ops, rules=rules)._runtime.planner


def record(
    op: OpOverload, *args: Any, ops: Any = None, rules: Sequence[Rule] = (), **kwargs: Any
) -> tuple[Recording, tuple[Any, ...], Any]:
    """Record one call; return the recording, the arguments of its program, and the result."""
    planner = planner_for(ed.core_aten() if ops is None else ops, rules)
    values = program_arguments(op, arguments_of(op, args, kwargs))
    recorder = Recorder(planner.decide, op, values)
    with without_torch_function():
        result = recorder.run(planner.decide(op).rules, args, kwargs)
    return recorder.recording(result), values, result


def recorded(op: OpOverload, *args: Any, **kwargs: Any) -> Program:
    """Return the program of one call."""
    recording, _, _ = record(op, *args, **kwargs)
    assert recording.program is not None, recording.why_not
    return recording.program


def reads_nothing_dead(program: Program) -> bool:
    """Return whether each call mutates, is random, or has a result that a later call or the program's result reads."""
    needed = set(slots_in(program.result))
    for one in reversed(program.calls):
        facts = facts_of(one.op)
        if not (facts.mutated or facts.is_random or any(slot in needed for slot in one.results)):
            return False
        needed.update(one.reads)
    return True


__all__ = ["S", "call", "map_slots", "native", "planner_for", "program", "reads_nothing_dead", "record", "recorded"]
