"""Constant hoisting: compute tensors that depend only on input sizes once per combination of sizes, and cache them.

Such tensors are, for example, masks and indices. This runs only on the CPU, because CPU kernels are synchronous. A program caches
at most `_MOST` bytes. No call writes to a cached tensor, and no caller gets one. A call with fake tensors runs the whole program,
because fake and real tensors must not be mixed.
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

#: Maximum bytes of one cached tensor, and of all cached tensors of a program.
_LARGEST = 1 << 14
_MOST = 1 << 16

#: Number of cache misses after which the hoisted calls are compiled.
_MISSES_BEFORE_CODEGEN = 2


def hoist(
    program: Program,
    kernel_of: Callable[[OpOverload], Callable[..., Any]],
    always: Callable[[OpOverload], bool],
    arguments: Sequence[Any],
) -> tuple[Program, Hoisted | None]:
    """Remove from a program the calls whose results can be cached; return the shorter program and the hoisted calls, if any.

    Args:
        program: the program.
        kernel_of: returns the kernel of an op.
        always: returns whether an op runs the same kernel at every call.
        arguments: the arguments of a sample call. Tensors that are large for this call are not cached.
    """
    read = {slot for call in program.calls for slot in call.reads}
    tensors = [slot for slot in _parameters(program) if slot in read]
    if (
        not tensors
        or not any(_reads_no_tensor(call) for call in program.calls)
        or any(changes_sizes(call) for call in program.calls)
    ):
        return program, None
    calls, values = _calls_of_sizes(program, kernel_of, always, arguments, tensors)
    hoisted = dict.fromkeys(slot for call in calls for slot in call.results if slot is not None)
    rest = tuple(call for call in program.calls if not any(slot in hoisted for slot in call.results))
    needed = {slot for call in rest for slot in call.reads}
    slots = tuple(slot for slot in hoisted if slot in needed)
    if not slots:
        return program, None
    sizes_read = (size for call in calls for size in _sizes((call.args, call.kwargs)) if size.operands[0] not in hoisted)
    sizes = tuple(dict.fromkeys(sizes_read))
    cache = _Cache(replace(program, calls=tuple(calls), result=slots), kernel_of)
    cache.add(computed(sizes, values), computed(slots, values))
    kept = Hoisted(
        slots, sizes, tuple(tensors), cache.entries.get, cache.compute, lambda *values: evaluate(program, kernel_of, values)
    )
    return replace(program, calls=rest), kept


class _Cache:
    """The hoisted values of one program, by input sizes. Evicts the oldest when over `_MOST` bytes."""

    def __init__(self, program: Program, kernel_of: Callable[[OpOverload], Callable[..., Any]]) -> None:
        self.entries: OrderedDict[tuple[Any, ...], tuple[Tensor, ...]] = OrderedDict()
        self._program = program
        self._kernel_of = kernel_of
        self._run: Callable[..., Any] | None = None
        self._misses = 0
        self._bytes: dict[tuple[Any, ...], int] = {}
        self._total_bytes = 0
        self._lock = free_in_child(threading.Lock())

    def compute(self, sizes: tuple[Any, ...], *arguments: Any) -> Any:
        """Return the values for a call. On a miss, compute them, and cache them if they are small enough."""
        self._misses += 1
        if self._run is None and self._misses > _MISSES_BEFORE_CODEGEN:
            self._run = generate(self._program, self._kernel_of)
        values = self._run(*arguments) if self._run is not None else evaluate(self._program, self._kernel_of, arguments)
        self.add(sizes, values)
        return values

    def add(self, sizes: tuple[Any, ...], values: tuple[Tensor, ...]) -> None:
        """Cache the values, unless they are fake or larger than `_MOST` bytes."""
        count = 0
        for value in values:
            if type(value) is not Tensor:
                return
            count += value.untyped_storage().nbytes()
        if count > _MOST:
            return
        with self._lock:
            if sizes not in self.entries:
                self.entries[sizes] = values
                self._bytes[sizes] = count
                self._total_bytes += count
            while self._total_bytes > _MOST:
                oldest, _ = self.entries.popitem(last=False)
                self._total_bytes -= self._bytes.pop(oldest)


def _calls_of_sizes(
    program: Program,
    kernel_of: Callable[[OpOverload], Callable[..., Any]],
    always: Callable[[OpOverload], bool],
    arguments: Sequence[Any],
    tensors: Sequence[Slot],
) -> tuple[list[KernelCall], dict[Slot, Any]]:
    """Return the calls that can be hoisted, and their values: they depend only on sizes, and their results can be cached."""
    values: dict[Slot, Any] = {}
    bind(program.parameters, arguments, values)
    inputs, hoisted = set(tensors), set[Slot]()
    escaping_slots = exposed(program)
    calls: list[KernelCall] = []
    for call in program.calls:
        facts = facts_of(call.op)
        if facts.mutated or facts.is_random or facts.reads_data or not always(call.op) or not all(call.results) or not call.results:
            continue
        if any(slot in escaping_slots for slot in call.results) or ("pin_memory", True) in call.kwargs:
            continue
        if not hoisted.issuperset(_read((call.args, call.kwargs))) or not (hoisted | inputs).issuperset(call.reads):
            continue
        kwargs = {name: computed(value, values) for name, value in call.kwargs}
        result = kernel_of(call.op)(*(computed(arg, values) for arg in call.args), **kwargs)
        results = result if call.packed else (result,)
        if all(map(_can_be_cached, results)):
            hoisted.update(slot for slot in call.results if slot is not None)
            values.update((slot, value) for slot, value in zip(call.results, results, strict=True) if slot is not None)
            calls.append(call)
    return calls, values


def _can_be_cached(value: Any) -> bool:
    if type(value) is not Tensor or value.layout is not torch.strided or value.device.type != "cpu":
        return False
    return not value.requires_grad and value.untyped_storage().nbytes() <= _LARGEST


def _reads_no_tensor(call: KernelCall) -> bool:
    return next(_read((call.args, call.kwargs)), None) is None and not facts_of(call.op).is_random


def _parameters(program: Program) -> list[Slot]:
    """Return the slots of the tensors that the caller passes."""
    arguments = [a for a in facts_of(program.op).arguments if a.holds_tensors or a.kind == "Generator"]
    return [
        slot
        for argument, parameter in zip(arguments, program.parameters, strict=True)
        if argument.holds_tensors
        for slot in slots_in(parameter)
    ]


def _read(value: Any) -> Iterator[Slot]:
    """Yield the slots of the tensors that a nested argument passes to a kernel; excludes tensors used only for their size."""
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _read(item)


def _sizes(value: Any) -> Iterator[Expression]:
    """Yield each tensor size from which a nested argument is computed."""
    if isinstance(value, Expression):
        if value.operator in ("size", "numel"):
            yield value
        else:
            yield from _sizes(value.operands)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _sizes(item)
