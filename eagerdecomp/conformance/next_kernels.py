"""The next kernels to write: those of Core ATen that a backend lacks, by how many of ATen's ops each would open.

It is the planner's question (`eagerdecomp.plan`), asked of the ops alone that the suite would find absent. No kernel runs.
"""

from __future__ import annotations

from eagerdecomp.conformance.results import Opening
from eagerdecomp.coverage.analysis import aten_ops
from eagerdecomp.coverage.next_kernels import rank_kernels
from eagerdecomp.coverage.routes import Routes
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.planner.planner import planner_of
from eagerdecomp.planner.rule_calls import load_calls

__all__ = ["openings"]


def openings(backend: Backend, *, together: int = 10) -> tuple[Opening, ...]:
    """The missing kernels that open an op: the best next `together` of them first, then the others by what each opens alone.

    An op is opened where every call seen of it gets a route to the backend's kernels. A missing kernel whose own op is
    decomposed already, and which no other op waits for, is not among them.
    """
    missing = {str(op): op for op in core_aten() if op not in backend.ops}
    routes = Routes(planner_of(backend), load_calls())
    names = [str(op) for op in aten_ops() if not is_passthrough_name(str(op))]
    routes.know(names)
    # Of an op that has rules, of which no call was seen, nobody knows what it waits for.
    wanted = [op for op in names if op not in routes.closed and (routes.kinds(op) or not routes.rules(op))]

    def avoid(op: str) -> int:
        return 2 if op in missing and facts_of(missing[op]).mutated else 0

    ranked = rank_kernels(routes.clauses(routes.graph(names)), routes.closed, wanted, missing, together, avoid)
    return tuple(Opening(missing[one.op], one.alone, one.together) for one in ranked)
