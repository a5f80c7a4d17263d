"""Pass programs that run often to the backend's `compile` hook, and run the compiled function instead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from torch import Tensor

from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp.errors import HookError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.codegen import generate
from eagerdecomp.program.fx import fake_like, graph_of, inputs_of
from eagerdecomp.program.ir import KernelCall, Program, Slot, evaluate, slots_in

__all__ = ["HITS_BEFORE_FUSING", "meet", "until_fused"]

#: Number of hits after which a program is compiled. A hook may take seconds, so rare programs are not worth it.
HITS_BEFORE_FUSING = 16


def until_fused(
    program: Program,
    compiled: Callable[..., Any],
    backend: Backend,
    kernel_of: Callable[[Any], Callable[..., Any]],
    put: Callable[[Callable[..., Any]], None],
) -> Callable[..., Any]:
    """Return a function that counts its calls of `compiled`, and calls the hook at the `HITS_BEFORE_FUSING`th.

    The last call before that runs the program call by call, to record the shapes and strides of its values. Then `put` receives the
    replacement of this function: the fused program, or `compiled` if the hook declined. The function raises `HookError` if the hook
    fails.

    Args:
        program: the program.
        compiled: what runs without a hook: the program, compiled to Python, or its linked rule. It has run once.
        backend: the backend with the hook.
        kernel_of: returns the kernel of an op.
        put: stores the replacement of the returned function.
    """
    if not _worth_fusing(program, backend):
        return compiled
    hits, at_work = 1, free_in_child(threading.Lock())
    made: dict[Slot, Any] = {}

    def counted(*arguments: Any) -> Any:
        nonlocal hits, made
        hits += 1
        if hits < HITS_BEFORE_FUSING - 1 or not at_work.acquire(blocking=False):
            return compiled(*arguments)
        try:
            if not made:
                values: dict[Slot, Any] = {}
                result = evaluate(program, kernel_of, arguments, values)
                with no_current_modes():
                    made = fake_like(values)
                return result
            lasting, first = _fused(program, compiled, backend, made, arguments)
            result = first(*arguments)
            put(lasting)
            return result
        finally:
            at_work.release()

    return counted


def _worth_fusing(program: Program, backend: Backend) -> bool:
    """Return whether at least two calls compute (are no views), and no op has a predicate, which must run at each call."""
    if any(backend.ops.predicate(call.op) is not None for call in program.calls):
        return False
    return sum(not facts_of(call.op).returns_alias for call in program.calls) > 1


def _fused(
    program: Program, compiled: Callable[..., Any], backend: Backend, made: dict[Slot, Any], arguments: Sequence[Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return two functions that run the fused program. The second also checks the results, for the first call."""
    assert backend.compile is not None
    inputs = inputs_of(program)
    outputs = tuple(slot for slot in dict.fromkeys(slots_in(program.result)) if slot not in inputs)
    graph = graph_of(replace(program, result=outputs), made)
    given = dict(zip(slots_in(program.parameters), _flat(program.parameters, arguments), strict=True))
    guard = _HookErrors(program, backend)
    with guard, no_current_modes():
        function = backend.compile(graph, [given[slot] for slot in inputs])
    if function is None or function is NotImplemented:
        return compiled, compiled
    guard.expect(callable(function), f"returned {function!r}, which cannot be called")

    def checked(*tensors: Any) -> Any:
        with guard:
            result = function(*tensors)
        guard.expect(isinstance(result, (tuple, list)), f"made a function that returns a {type(result).__name__}, not a tuple")
        guard.expect(len(result) == len(outputs), f"made a function that returns {len(result)} values, not {len(outputs)}")
        for slot, value in zip(outputs, result, strict=True):
            guard.expect(
                isinstance(value, Tensor) and _looks(value) == _looks(made[slot]),
                f"made a function that returns {_looks(value)} for {slot!r}, not {_looks(made[slot])}",
            )
        return result

    def unpacked(run: Callable[..., Any]) -> Callable[..., Any]:
        # Use codegen for a program of one call: it unpacks lists, and returns the caller's own tensor if the op does.
        call = KernelCall(program.op, inputs, (), outputs, packed=True)
        return _where_apart(program, generate(replace(program, constants=(), calls=(call,)), lambda _: run), compiled)

    return unpacked(function), unpacked(checked)


def _where_apart(program: Program, fused: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs `compiled` if a written input shares memory with another input, else `fused`.

    A fused kernel may write to an input before it has read all others. For inputs that the schema declares as written, the runtime
    makes this check.
    """
    facts = facts_of(program.op)
    taken = [number for number, one in enumerate(facts.arguments) if one.holds_tensors or one.kind == "Generator"]
    named = zip(taken, program.parameters, strict=True)
    declared = {slot for number, parameter in named if number in facts.mutated for slot in slots_in(parameter)}
    slots = list(slots_in(program.parameters))
    written = _written_inputs(program)
    if written <= declared:
        return fused

    def guarded(*arguments: Any) -> Any:
        given = dict(zip(slots, _flat(program.parameters, arguments), strict=True))
        changed = [value for slot, value in given.items() if slot in written]
        kept = [value for slot, value in given.items() if slot not in written]
        return (compiled if meet(changed, kept) else fused)(*arguments)

    return guarded


def _written_inputs(program: Program) -> set[Slot]:
    """Return the parameters that the program writes, directly or through a view."""
    whose = {slot: slot for slot in slots_in(program.parameters)}
    written: set[Slot] = set()
    for call in program.calls:
        written.update(whose[slot] for slot in call.writes() if slot in whose)
        if facts_of(call.op).returns_alias:
            bases = [whose[slot] for slot in call.reads if slot in whose]
            whose.update((slot, bases[0]) for slot in call.results if slot is not None and bases)
    return written


def meet(written: Sequence[Any], read: Sequence[Any]) -> bool:
    """Return whether a written tensor shares memory with another tensor, or is passed twice; other values are ignored."""
    written = [value for value in written if isinstance(value, Tensor)]
    read = [value for value in read if isinstance(value, Tensor)]
    owners = {tensor.untyped_storage()._cdata for tensor in written}
    if len(owners) == len(written) and not any(tensor.untyped_storage()._cdata in owners for tensor in read):
        return False
    # Tensors may be slices of one buffer, as in optimizers: compare address ranges.
    end = end_written = 0
    for start, stop, is_written in sorted(
        [*(_span(tensor, True) for tensor in written), *(_span(tensor, False) for tensor in read)]
    ):
        if start < (end if is_written else end_written):
            return True
        end = max(end, stop)
        end_written = max(end_written, stop) if is_written else end_written
    return False


def _span(tensor: Tensor, is_written: bool) -> tuple[int, int, bool]:
    start = tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size() if tensor.numel() else start, is_written


def _flat(parameters: Any, arguments: Any) -> Iterator[Any]:
    """Yield the arguments, one for each slot of the parameters."""
    for parameter, argument in zip(parameters, arguments, strict=True):
        if isinstance(parameter, Slot):
            yield argument
        else:
            yield from _flat(parameter, argument)


def _looks(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return (*value.shape,), value.stride(), value.dtype, str(value.device)


class _HookErrors:
    """Context that turns errors of a hook into `HookError`, which names the op and the program."""

    def __init__(self, program: Program, backend: Backend) -> None:
        self._program = program
        self._backend = backend

    def expect(self, right: bool, fault: str) -> None:
        if not right:
            raise HookError(self._backend.name, str(self._program.op), fault, str(self._program))

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Exception):
            fault = f"raised {type(error).__name__}: {error}"
            raise HookError(self._backend.name, str(self._program.op), fault, str(self._program)) from error
