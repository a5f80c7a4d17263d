"""Which ops can be reached from a set of kernels, and at what cost: an AND-OR graph and its least closure.

An op closes if a kernel runs it, or if each of its calls has a way of which every op closes. A way costs what its ops cost
together; a call costs what its cheapest way costs; an op costs what its most expensive call costs. Ops close in the order of their
costs (Knuth's generalization of Dijkstra's algorithm), so each closes by its cheapest way, and never in a circle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from eagerdecomp.planner.rule_calls import Footprint, Footprints

__all__ = ["Clauses", "Closure", "Costs", "each_without", "without_self_calls"]

#: op -> for each of its calls, the ways it may go: each the ops that must all close, with how often they are called.
Clauses: TypeAlias = Mapping[str, Sequence[Sequence[Footprint]]]

_KERNEL = -1  # in the place of a way


class Closure:
    """The ops that close, as kernels are added and taken back.

    Adding costs as much as the closed ops have users, not as much as the graph, so that thousands of choices can be tried.

    Args:
        clauses: the graph. An op without calls, or with a call that has no way, closes by a kernel only.
        base: the first kernels.
        costs: the costs of kernels, 1 for those that are not in it; None if no costs are asked for: nothing costs anything.
    """

    def __init__(self, clauses: Clauses, base: Iterable[str] = (), costs: Mapping[str, float] | None = None) -> None:
        self._costs = costs
        self._closed: dict[str, float] = {}  # what each op costs, in the order in which they closed
        self._way_of: dict[str, int] = {}
        self._users: dict[str, list[int]] = {}  # op -> the ways that need it
        self._ways: list[Footprint] = []
        self._open_in_way: list[int] = []  # how many ops of a way are not closed
        self._op_of_way: list[str] = []
        self._call_of_way: list[int] = []
        self._ways_of_call: list[int] = []  # how many ways of a call are closed
        self._open_calls: dict[str, int] = {}
        waiting = list(self._kernels(base))
        for op, calls in clauses.items():
            self._open_calls[op] = len(calls)
            for ways in calls:
                for number, way in enumerate(ways, len(self._ways)):
                    self._call_of_way.append(len(self._ways_of_call))
                    self._op_of_way.append(op)
                    self._open_in_way.append(len(way))
                    for needed in way:
                        self._users.setdefault(needed, []).append(number)
                    if not way:
                        waiting.append((0.0, 0, number, op))
                self._ways += ways
                self._ways_of_call.append(0)
        self._close(waiting)

    def __contains__(self, op: object) -> bool:
        return op in self._closed

    def holds(self, ops: Set[str]) -> bool:
        """Return whether all of these close."""
        return self._closed.keys() >= ops

    @property
    def closed(self) -> frozenset[str]:
        """All ops that close."""
        return frozenset(self._closed)

    def cost(self, op: str) -> float:
        """Return the cost of an op; infinite if it does not close."""
        return self._closed.get(op, math.inf)

    def way(self, op: str) -> Footprint | None:
        """Return the way by which an op closed; None for a kernel and for an op that does not close."""
        way = self._way_of[op] if op in self._closed else _KERNEL
        return None if way == _KERNEL else self._ways[way]

    def add(self, kernels: Iterable[str]) -> list[str]:
        """Add kernels and return the ops that close by them and did not before, the last one first."""
        before = len(self._closed)
        self._close(list(self._kernels(kernels)))
        backwards = reversed(self._closed)
        return [next(backwards) for _ in range(len(self._closed) - before)]

    def take_back(self, closed: Sequence[str]) -> None:
        """Undo the last `add`, which returned these."""
        for op in closed:
            del self._closed[op]
            for way in self._users.get(op, ()):
                if not self._open_in_way[way]:
                    self._shut(way)
                self._open_in_way[way] += 1

    def opened_by(self, kernels: Iterable[str]) -> list[str]:
        """Return the ops that would close by kernels and do not now."""
        found = self.add(kernels)
        self.take_back(found)
        return found

    def _kernels(self, ops: Iterable[str]) -> Iterator[tuple[float, int, int, str]]:
        return ((0.0 if self._costs is None else self._costs.get(op, 1.0), 0, _KERNEL, op) for op in ops)

    def _close(self, waiting: list[tuple[float, int, int, str]]) -> None:
        heapify(waiting)
        pushed = 0  # of ways that cost the same, the one that was complete first
        while waiting:
            cost, _, way, op = heappop(waiting)
            if (way != _KERNEL and not self._opens(way)) or op in self._closed:
                continue
            self._closed[op] = cost
            self._way_of[op] = way
            for user in self._users.get(op, ()):
                self._open_in_way[user] -= 1
                if not self._open_in_way[user]:
                    pushed += 1
                    total = 0.0 if self._costs is None else _sum(self._ways[user], self._closed.__getitem__)
                    heappush(waiting, (total, pushed, user, self._op_of_way[user]))

    def _opens(self, way: int) -> bool:
        """Count a way that closed; return whether it was the last that its op waited for."""
        call = self._call_of_way[way]
        self._ways_of_call[call] += 1
        if self._ways_of_call[call] > 1:
            return False
        op = self._op_of_way[way]
        self._open_calls[op] -= 1
        return not self._open_calls[op]

    def _shut(self, way: int) -> None:
        call = self._call_of_way[way]
        self._ways_of_call[call] -= 1
        if not self._ways_of_call[call]:
            self._open_calls[self._op_of_way[way]] += 1


def each_without(closure: Closure, ops: Sequence[str], left_out: set[str]) -> Iterator[str]:
    """Yield each op in turn, while `closure` has all the others but those that the caller has put into `left_out` by then.

    By halves, so that each op is added once for each doubling of their number, not once for each other op.
    """
    if len(ops) == 1:
        yield ops[0]
        return
    half = len(ops) // 2
    for mine, others in ((ops[:half], ops[half:]), (ops[half:], ops[:half])):
        if mine:
            added = closure.add(op for op in others if op not in left_out)
            yield from each_without(closure, mine, left_out)
            closure.take_back(added)


def without_self_calls(clauses: Clauses) -> Clauses:
    """Return the graph in which an op does not wait for itself."""
    return {
        op: [[{called: times for called, times in way.items() if called != op} for way in call] for call in calls]
        for op, calls in clauses.items()
    }


class Costs:
    """Costs of ops and their rules on one op set, in kernel calls, from the recorded footprints.

    Only the part of the graph that an op depends on is solved when its cost is asked for: a small part of the whole.

    Args:
        footprints: what each rule calls.
        supported: the op set, by name.
        passes: whether an op outside the set passes as plumbing, at no cost.
        without: the keys of rules that the set has no use for.
        changed: whether a rule, by its op and key, is not the one that was seen; asked of one that would rank last.
        closed: the keys of rules of which each is known to close for some calls, without a look at the footprints.
        price: what one call of a kernel costs.
    """

    def __init__(
        self,
        footprints: Footprints,
        supported: frozenset[str],
        passes: Callable[[str], bool],
        without: Set[str] = frozenset(),
        changed: Callable[[str, str], bool] = lambda op, key: False,
        price: Callable[[str], float] = lambda op: 1.0,
        closed: Set[str] = frozenset(),
    ) -> None:
        self._footprints = footprints
        self._without = without
        self._changed = changed
        self._passes = passes
        self._closed_rules = closed
        self._supported = supported
        #: Final costs. Two threads may find the cost of the same op at once; they find the same.
        self._known: dict[str, float] = {op: 0.0 if passes(op) else price(op) for op in supported}

    def priced(self, price: Callable[[str], float]) -> Costs:
        """Return the costs of the same rules on the same set by other prices of its kernels."""
        return Costs(self._footprints, self._supported, self._passes, self._without, self._changed, price, self._closed_rules)

    def of(self, op: str) -> float:
        """Return the cost of the cheapest closed route, in kernel calls; infinite if no known rule closes."""
        found = self._known.get(op)
        if found is None:
            self._known.update(self._solve(op))
            found = self._known[op]
        return found

    def of_rule(self, op: str, key: str) -> tuple[int, float]:
        """Rank a rule, less is better: closed for every call seen (0), unknown (1), closed for some (2) or none (3); then by the
        kernel calls of the call seen most often among the closed ones."""
        costs = self._of_footprints(op, key)
        if not costs:
            return (1, math.inf)
        closed = [cost for cost in costs if cost < math.inf]
        if not closed:
            return (1 if self._changed(op, key) else 3, math.inf)
        return (0 if len(closed) == len(costs) else 2, closed[0])

    def leads_nowhere(self, op: str, key: str) -> bool:
        """Return whether `of_rule` ranks the rule last: it was seen, and no call of it closed."""
        return key not in self._closed_rules and self.of_rule(op, key)[0] == 3

    def _of_footprints(self, op: str, key: str) -> list[float]:
        seen = self._footprints.get(op, {}).get(key, ())
        return [_sum(footprint, self.of) for footprint in seen]

    def _solve(self, asked: str) -> dict[str, float]:
        """Return the costs of an op and of all ops that it depends on."""
        clauses: dict[str, Sequence[Sequence[Footprint]]] = {}
        known: dict[str, float] = {}
        waiting = [asked]
        while waiting:
            op = waiting.pop()
            if op in clauses or op in known:
                continue
            if op in self._known or self._passes(op):
                known[op] = self._known.get(op, 0.0)
                continue
            rules = self._footprints.get(op, {}).items()
            ways: list[Footprint] = [footprint for key, seen in rules if key not in self._without for footprint in seen]
            clauses[op] = [ways]
            waiting.extend(called for way in ways for called in way)
        closure = Closure(clauses, (op for op, cost in known.items() if cost < math.inf), known)
        return known | {op: closure.cost(op) for op in clauses}


def _sum(footprint: Footprint, cost: Callable[[str], float]) -> float:
    return sum([times * cost(op) for op, times in footprint.items()], 0.0)
