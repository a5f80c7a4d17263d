"""The compiler: a recording becomes a program, and the program a function once it has proved useful."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerdecomp._torch import OpOverload
from eagerdecomp.cache import OpPrograms
from eagerdecomp.codegen import generate
from eagerdecomp.passes import optimise
from eagerdecomp.program import Program, check, evaluate

__all__ = ["install_program"]

# Generating and compiling Python costs about as much as the recording: a call seen once or twice is replayed as it is.
_HITS_BEFORE_CODEGEN = 1


def install_program(table: OpPrograms, key: Any, program: Program, kernel_of: Callable[[OpOverload], Callable[..., Any]]) -> None:
    """Store a program under its key: replayed call by call at first, compiled after `_HITS_BEFORE_CODEGEN` hits."""
    check(program)
    hits = 0

    def replay(*arguments: Any) -> Any:
        nonlocal hits
        hits += 1
        if hits > _HITS_BEFORE_CODEGEN:
            compiled = generate(optimise(program), kernel_of)
            table.replace(key, compiled)
            return compiled(*arguments)
        return evaluate(program, kernel_of, arguments)

    table.store(key, replay, program)
