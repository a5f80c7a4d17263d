"""The search: an AND-OR graph of ops (any rule will do) and rules (every op it calls is needed), solved for the cheapest routes.

An op of the set costs one kernel call. A rule costs what the ops it calls cost together; an op costs what its cheapest closed rule
costs. Costs grow along every route, so the least ones are a fixed point reached from above, and a circle of rules never closes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from eagerdecomp.footprints import Footprint, Footprints

__all__ = ["Costs", "solve"]


class Costs:
    """What each op costs on one op set, in kernel calls; infinite where no known rule closes."""

    def __init__(self, by_op: dict[str, float], footprints: Footprints, passes: Callable[[str], bool]) -> None:
        self._by_op = by_op
        self._footprints = footprints
        self._passes = passes

    def of(self, op: str) -> float:
        """Kernel calls by the cheapest closed route."""
        return 0.0 if self._passes(op) else self._by_op.get(op, math.inf)

    def of_rule(self, op: str, source: str) -> tuple[int, float]:
        """How a rule ranks, the less the better: closed for every call seen (0), unknown (1), closed for some (2) or none (3); then
        the kernel calls of the call seen most often among the closed ones."""
        seen = self._footprints.get(op, {}).get(source)
        if not seen:
            return (1, math.inf)
        costs = [_sum(footprint, self.of) for footprint in seen]
        closed = [cost for cost in costs if cost < math.inf]
        if not closed:
            return (3, math.inf)
        return (0 if len(closed) == len(costs) else 2, closed[0])


def solve(footprints: Footprints, supported: frozenset[str], passes: Callable[[str], bool]) -> Costs:
    """The least cost of every op whose rules are known.

    Args:
        footprints: what each rule calls.
        supported: the op set, by name.
        passes: whether an op outside the set passes as plumbing, at no cost.
    """
    by_op: dict[str, float] = dict.fromkeys(supported, 1.0)
    callers: dict[str, set[str]] = {}
    for op, rules in footprints.items():
        for seen in rules.values():
            for footprint in seen:
                for called in footprint:
                    callers.setdefault(called, set()).add(op)

    def known(op: str) -> float:
        return 0.0 if passes(op) else by_op.get(op, math.inf)

    waiting = deque(op for op in footprints if op not in supported)
    queued = set(waiting)
    while waiting:
        op = waiting.popleft()
        queued.discard(op)
        best = min((_sum(footprint, known) for seen in footprints[op].values() for footprint in seen), default=math.inf)
        if best < by_op.get(op, math.inf):
            by_op[op] = best
            for caller in callers.get(op, ()):
                if caller not in supported and caller not in queued:
                    queued.add(caller)
                    waiting.append(caller)
    return Costs(by_op, footprints, passes)


def _sum(footprint: Footprint, cost: Callable[[str], float]) -> float:
    return sum(times * cost(op) for op, times in footprint.items()) if footprint else 0.0
