"""Rank the missing kernels of Core ATen by the number of ATen ops that each would give a route.

This is `eagerdecomp.plan`, restricted to the ops that the suite reports as absent. No kernel runs.
"""

from __future__ import annotations

from eagerdecomp.conformance.results import NextKernel
from eagerdecomp.coverage.analysis import aten_ops, sample_routes
from eagerdecomp.coverage.next_kernels import rank_kernels
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of

__all__ = ["next_kernels"]


def next_kernels(backend: Backend, *, together: int = 10) -> tuple[NextKernel, ...]:
    """Return the missing kernels that enable ops: first the best choice of `together` kernels, then the others, each counted alone.

    A kernel enables an op if every recorded call of the op then decomposes to the backend's kernels. A missing kernel is left
    out if its own op already decomposes and no other op needs it.
    """
    missing = {str(op): op for op in core_aten() if op not in backend.ops}
    names = [str(op) for op in aten_ops() if not is_passthrough_name(str(op))]
    routes = sample_routes(backend, names)
    # What an op needs is unknown if it has rules but no recorded call.
    wanted = [op for op in names if op not in routes.closed and (routes.kinds(op) or not routes.rules(op))]

    def avoid(op: str) -> int:
        return 2 if op in missing and facts_of(missing[op]).mutated else 0

    ranked = rank_kernels(routes.clauses(routes.graph(names), without="small"), routes.closed, wanted, missing, together, avoid)
    return tuple(NextKernel(missing[one.op], one.alone, one.together) for one in ranked)
