"""The passes in order, each a function ``Program -> Program``. A comment at each gives the reason for its position.

The compiler runs `buffer_reuse` after all of them, because it needs the op set and the strides of values.
"""

from __future__ import annotations

from collections.abc import Callable

from eagerdecomp.program.ir import Program, check
from eagerdecomp.program.passes.common_subexpressions import common_subexpressions
from eagerdecomp.program.passes.dead_code import dead_code
from eagerdecomp.program.passes.view_chains import view_chains

__all__ = ["PIPELINE", "optimise"]

PIPELINE: tuple[tuple[str, Callable[[Program], Program]], ...] = (
    ("common_subexpressions", common_subexpressions),  # first: equal calls are easiest to see while nothing is rewritten
    ("view_chains", view_chains),  # leaves the inner views of a chain without readers
    ("dead_code", dead_code),  # last: removes what the others left unread
)


def optimise(program: Program) -> Program:
    """Apply every pass to the program, and check it after each."""
    for _, apply in PIPELINE:
        program = check(apply(program))
    return program
