"""The search: an AND-OR graph of ops (any rule will do) and rules (every op it calls is needed), solved for the cheapest routes.

An op of the set costs one kernel call. A rule costs what the ops it calls cost together; an op costs what its cheapest closed rule
costs. Costs grow along every route, so the least ones are a fixed point reached from above, and a circle of rules never closes.

The graph is solved as far as is asked: an op's cost depends on the ops that its rules lead to, a small part of the whole.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from eagerdecomp.planner.rule_calls import Footprint, Footprints

__all__ = ["Costs"]


class Costs:
    """What each op costs on one op set, in kernel calls; infinite where no known rule closes.

    Args:
        footprints: what each rule calls.
        supported: the op set, by name.
        passes: whether an op outside the set passes as plumbing, at no cost.
        without: a source whose rules the set has no use for.
    """

    def __init__(self, footprints: Footprints, supported: frozenset[str], passes: Callable[[str], bool], without: str = "") -> None:
        self._footprints = footprints
        self._without = without
        self._passes = passes
        #: What is known for good. Threads may settle the same ops at once, and come to the same.
        self._settled: dict[str, float] = {op: 0.0 if passes(op) else 1.0 for op in supported}

    def of(self, op: str) -> float:
        """Kernel calls by the cheapest closed route."""
        found = self._settled.get(op)
        if found is None:
            self._settled.update({op: 0.0} if self._passes(op) else self._solve(op))
            found = self._settled[op]
        return found

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

    def leads_nowhere(self, op: str, source: str) -> bool:
        """Whether `of_rule` ranks the rule last: it was seen, and no call of it closed."""
        seen = self._footprints.get(op, {}).get(source)
        return bool(seen) and all(_sum(footprint, self.of) == math.inf for footprint in seen or ())

    def _rules(self, op: str) -> list[tuple[Footprint, ...]]:
        """What the rules of an op were seen to call, rule by rule."""
        return [seen for source, seen in self._footprints.get(op, {}).items() if source != self._without]

    def _solve(self, asked: str) -> dict[str, float]:
        """The costs of an op, and of all that it depends on and that is not settled."""
        callers: dict[str, list[str]] = {asked: []}
        waiting = deque([asked])
        while waiting:
            op = waiting.popleft()
            for seen in self._rules(op):
                for footprint in seen:
                    for called in footprint:
                        if called in self._settled or self._passes(called):
                            continue
                        if called not in callers:
                            callers[called] = []
                            waiting.append(called)
                        callers[called].append(op)
        by_op: dict[str, float] = dict.fromkeys(callers, math.inf)

        def known(op: str) -> float:
            return by_op[op] if op in by_op else self._settled.get(op, 0.0)  # what passes is in neither

        waiting.extend(reversed(callers))  # those that lead no further first
        queued = set(waiting)
        while waiting:
            op = waiting.popleft()
            queued.discard(op)
            best = min((_sum(footprint, known) for seen in self._rules(op) for footprint in seen), default=math.inf)
            if best < by_op[op]:
                by_op[op] = best
                for caller in callers[op]:
                    if caller not in queued:
                        queued.add(caller)
                        waiting.append(caller)
        return by_op


def _sum(footprint: Footprint, cost: Callable[[str], float]) -> float:
    return sum([times * cost(op) for op, times in footprint.items()], 0.0)
