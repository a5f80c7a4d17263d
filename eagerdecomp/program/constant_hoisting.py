"""Hoisting: what a program makes of sizes and literals alone (indices, masks, zeros) is made once for each choice of sizes.

Kept are small tensors of the CPU, whose kernels are done when they return, and no more than `_MOST` bytes of them for a program. No
call writes to them and no caller gets them. A call with fake tensors, which real ones must not meet, runs the whole program.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.codegen import Hoisted, generate
from eagerdecomp.program.ir import KernelCall, Program, Slot, bind, changes_sizes, computed, evaluate, exposed, slots_in
from eagerdecomp.program.symbolic_sizes import Expression

__all__ = ["hoist"]

#: Bytes of one tensor, and of all tensors that a program keeps.
_LARGEST = 1 << 14
_MOST = 1 << 16

#: What is made more often than this is worth compiling.
_MAKES_BEFORE_CODEGEN = 2


def hoist(
    program: Program,
    kernel_of: Callable[[OpOverload], Callable[..., Any]],
    always: Callable[[OpOverload], bool],
    arguments: Sequence[Any],
) -> tuple[Program, Hoisted | None]:
    """The program without the calls whose results it can keep, and what is kept.

    Args:
        always: whether an op runs the same kernel at every call.
        arguments: those of a call; what is large for them is not kept.
    """
    tensors = [slot for slot in _parameters(program) if any(slot in call.reads() for call in program.calls)]
    if not tensors or not any(_is_root(call) for call in program.calls) or any(changes_sizes(call) for call in program.calls):
        return program, None
    calls, values = _made_of_sizes(program, kernel_of, always, arguments, tensors)
    made = dict.fromkeys(slot for call in calls for slot in call.results if slot is not None)
    rest = tuple(call for call in program.calls if not any(slot in made for slot in call.results))
    needed = {slot for call in rest for slot in call.reads()}
    slots = tuple(slot for slot in made if slot in needed)
    if not slots:
        return program, None
    found = (size for call in calls for size in _sizes((call.args, call.kwargs)) if size.operands[0] not in made)
    sizes = tuple(dict.fromkeys(found))
    store = _Store(replace(program, calls=tuple(calls), result=slots), kernel_of)
    store.keep(computed(sizes, values), computed(slots, values))
    kept = Hoisted(slots, sizes, tuple(tensors), store.found.get, store.make, lambda *values: evaluate(program, kernel_of, values))
    return replace(program, calls=rest), kept


class _Store:
    """The values of one program by its sizes, the oldest of which go where they become too many."""

    def __init__(self, program: Program, kernel_of: Callable[[OpOverload], Callable[..., Any]]) -> None:
        self.found: OrderedDict[tuple[Any, ...], tuple[Tensor, ...]] = OrderedDict()
        self._program = program
        self._kernel_of = kernel_of
        self._run: Callable[..., Any] | None = None
        self._makes = 0
        self._counts: dict[tuple[Any, ...], int] = {}
        self._held = 0
        self._lock = free_in_child(threading.Lock())

    def make(self, sizes: tuple[Any, ...], *arguments: Any) -> Any:
        """The values for a call's arguments, kept where they are fit for it."""
        self._makes += 1
        if self._run is None and self._makes > _MAKES_BEFORE_CODEGEN:
            self._run = generate(self._program, self._kernel_of)
        values = self._run(*arguments) if self._run is not None else evaluate(self._program, self._kernel_of, arguments)
        self.keep(sizes, values)
        return values

    def keep(self, sizes: tuple[Any, ...], values: tuple[Tensor, ...]) -> None:
        """Keep the values, unless they are fake or too much."""
        count = 0
        for value in values:
            if type(value) is not Tensor:
                return
            count += value.untyped_storage().nbytes()
        if count > _MOST:
            return
        with self._lock:
            if sizes not in self.found:
                self.found[sizes] = values
                self._counts[sizes] = count
                self._held += count
            while self._held > _MOST:
                oldest, _ = self.found.popitem(last=False)
                self._held -= self._counts.pop(oldest)


def _made_of_sizes(
    program: Program,
    kernel_of: Callable[[OpOverload], Callable[..., Any]],
    always: Callable[[OpOverload], bool],
    arguments: Sequence[Any],
    tensors: Sequence[Slot],
) -> tuple[list[KernelCall], dict[Slot, Any]]:
    """The calls that read no data, made here to see whether what they make is fit to be kept, and their values."""
    values: dict[Slot, Any] = {}
    bind(program.parameters, arguments, values)
    shaped, made = set(tensors), set[Slot]()
    out_of_hand = exposed(program)
    calls: list[KernelCall] = []
    for call in program.calls:
        facts = facts_of(call.op)
        if facts.mutated or facts.is_random or facts.reads_data or not always(call.op) or not all(call.results) or not call.results:
            continue
        if any(slot in out_of_hand for slot in call.results) or ("pin_memory", True) in call.kwargs:
            continue
        if not made.issuperset(_read((call.args, call.kwargs))) or not (made | shaped).issuperset(call.reads()):
            continue
        kwargs = {name: computed(value, values) for name, value in call.kwargs}
        result = kernel_of(call.op)(*(computed(arg, values) for arg in call.args), **kwargs)
        results = result if call.packed else (result,)
        if all(map(_is_fit, results)):
            made.update(slot for slot in call.results if slot is not None)
            values.update((slot, value) for slot, value in zip(call.results, results, strict=True) if slot is not None)
            calls.append(call)
    return calls, values


def _is_fit(value: Any) -> bool:
    if type(value) is not Tensor or value.layout is not torch.strided or value.device.type != "cpu":
        return False
    return not value.requires_grad and value.untyped_storage().nbytes() <= _LARGEST


def _is_root(call: KernelCall) -> bool:
    return next(_read((call.args, call.kwargs)), None) is None and not facts_of(call.op).is_random


def _parameters(program: Program) -> list[Slot]:
    """The slots of tensors that the caller gives."""
    arguments = [a for a in facts_of(program.op).arguments if a.holds_tensors or a.kind == "Generator"]
    return [
        slot
        for argument, parameter in zip(arguments, program.parameters, strict=True)
        if argument.holds_tensors
        for slot in slots_in(parameter)
    ]


def _read(value: Any) -> Iterator[Slot]:
    """The slots whose tensors a nested argument hands to a kernel: not those of which it asks but the size."""
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _read(item)


def _sizes(value: Any) -> Iterator[Expression]:
    """Each size of a tensor that a nested argument is computed from."""
    if isinstance(value, Expression):
        if value.operator in ("size", "numel"):
            yield value
        else:
            yield from _sizes(value.operands)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _sizes(item)
