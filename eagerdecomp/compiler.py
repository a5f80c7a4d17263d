"""The compiler: a recording becomes a program, and the program a function once it has proved useful."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from eagerdecomp._torch import OpOverload
from eagerdecomp.backend import Backend
from eagerdecomp.cache import OpPrograms
from eagerdecomp.codegen import generate
from eagerdecomp.fusing import until_fused
from eagerdecomp.key import Column
from eagerdecomp.passes import optimise
from eagerdecomp.program import Program, check, evaluate

__all__ = ["install_program"]

# Generating and compiling Python costs about as much as the recording: a call seen once or twice is replayed as it is.
_HITS_BEFORE_CODEGEN = 1


def install_program(
    table: OpPrograms,
    key: Any,
    program: Program,
    kernel_of: Callable[[OpOverload], Callable[..., Any]],
    backend: Backend | None = None,
    columns: tuple[Column, ...] | None = None,
) -> None:
    """Store a program under its key: replayed call by call at first, compiled after `_HITS_BEFORE_CODEGEN` hits, and given to the
    backend's hook, if it has one, once it has been hit often."""
    check(program)
    hits = 0

    def replay(*arguments: Any) -> Any:
        nonlocal hits
        hits += 1
        if hits > _HITS_BEFORE_CODEGEN:
            improved = optimise(program)
            compiled = generate(improved, kernel_of)
            if backend is not None and backend.compile is not None:
                compiled = until_fused(improved, compiled, backend, kernel_of, functools.partial(table.replace, key))
            table.replace(key, compiled)
            return compiled(*arguments)
        return evaluate(program, kernel_of, arguments)

    table.store(key, replay, program, columns)
