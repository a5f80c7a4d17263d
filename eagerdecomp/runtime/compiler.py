"""Store recorded programs in the cache, and compile a program to Python when it is called again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import OpSet
from eagerdecomp.program.codegen import generate
from eagerdecomp.program.compile_hook import until_fused
from eagerdecomp.program.constant_hoisting import hoist
from eagerdecomp.program.ir import Program, check, evaluate
from eagerdecomp.program.key import Guard, exact_guards
from eagerdecomp.program.passes import optimise
from eagerdecomp.program.passes.buffer_reuse import has_writers, layouts_of, reuse
from eagerdecomp.runtime.cache import OpPrograms

__all__ = ["install_program"]

# Hits before a program is compiled: compilation takes about as long as recording, so rare programs are evaluated instead.
_HITS_BEFORE_CODEGEN = 1


def install_program(
    table: OpPrograms,
    key: Any,
    program: Program,
    kernel_of: Callable[[OpOverload], Callable[..., Any]],
    backend: Backend | None = None,
    guards: tuple[Guard, ...] | None = None,
    linked: Callable[..., Any] | None = None,
) -> None:
    """Store a program under its key.

    The program is first evaluated call by call. After `_HITS_BEFORE_CODEGEN` hits it is compiled to Python; after many more hits it
    is passed to the backend's compile hook, if there is one. Tensors that depend only on sizes are cached. If the key holds all
    facts, the strides of all values are known. Kernels then reuse the memory of temporaries, if the set has in-place or ``out=``
    ops. A program of a linked rule is only for the hook: until the hook has compiled it, the linked rule runs.

    Args:
        table: the programs of the op.
        key: the key of the recorded call.
        program: the program.
        kernel_of: returns the kernel of an op.
        backend: the backend.
        guards: the guards of the key.
        linked: runs the linked rule, on the program's arguments; None for a recorded rule.
    """
    check(program)
    hits = 0
    strides_are_fixed = guards is not None and set(exact_guards(program.op)) <= set(guards)
    always_supported = functools.partial(_always_supported, backend.ops if backend is not None else OpSet())

    def replace(run: Callable[..., Any]) -> None:
        table.replace(key, run, guards)

    def replay(*arguments: Any) -> Any:
        nonlocal hits
        hits += 1
        if hits <= _HITS_BEFORE_CODEGEN:
            return evaluate(program, kernel_of, arguments) if linked is None else linked(*arguments)
        optimised = optimise(program)
        compiled, result = (linked, linked(*arguments)) if linked is not None else compiled_to_python(optimised, arguments)
        if backend is not None and backend.compile is not None:
            compiled = until_fused(optimised, compiled, backend, kernel_of, replace)
        replace(compiled)
        return result

    def compiled_to_python(optimised: Program, arguments: Sequence[Any]) -> tuple[Callable[..., Any], Any]:
        remaining, cached_tensors = hoist(optimised, kernel_of, always_supported, arguments)
        if strides_are_fixed and has_writers(remaining, always_supported):
            # Evaluate once more to record the strides of all values: they are the same whenever this program runs.
            result, layouts = layouts_of(optimised, kernel_of, arguments)
            return generate(reuse(remaining, layouts, always_supported), kernel_of, cached_tensors), result
        compiled = generate(remaining, kernel_of, cached_tensors)
        return compiled, compiled(*arguments)

    table.store(key, replay, program, guards)


def _always_supported(ops: OpSet, op: OpOverload) -> bool:
    return op in ops and ops.predicate(op) is None
