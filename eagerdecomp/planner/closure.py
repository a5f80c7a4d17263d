"""Compute which ops have a route to a set of kernels, and at what cost: the least closure of an AND-OR graph.

An op *closes* if it has a kernel, or if each of its calls has a *way* (the ops that one rule calls) in which every op closes. A way
costs the sum of its ops. A call costs as much as its cheapest way, and an op as much as its most expensive call. Ops close in the
order of their costs (Knuth's generalization of Dijkstra's algorithm), so each closes by its cheapest way, and never in a cycle.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from eagerdecomp.planner.rule_calls import Footprint, Footprints

__all__ = ["Clauses", "Closure", "OpCosts", "each_left_out", "without_self_calls"]

#: op -> for each of its calls, the alternative ways. A way is a `Footprint`: op -> number of calls. All its ops must close.
Clauses: TypeAlias = Mapping[str, Sequence[Sequence[Footprint]]]

_KERNEL = -1  # instead of the index of a way


class Closure:
    """The ops that close, while kernels are added and removed.

    The time of `add` depends on how many ways use the ops that close, not on the size of the graph.

    Args:
        clauses: the graph. An op without calls, or with a call that has no way, closes by a kernel only.
        base: the kernels to start with; `add` adds more.
        costs: the costs of kernels, with default 1; None to compute no costs.
    """

    def __init__(self, clauses: Clauses, base: Iterable[str] = (), costs: Mapping[str, float] | None = None) -> None:
        self._costs = costs
        self._closed: dict[str, float] = {}  # op -> cost, in the order in which ops closed
        self._way_of: dict[str, int] = {}
        self._users: dict[str, list[int]] = {}  # op -> the ways that need it
        self._ways: list[Footprint] = []
        self._open_in_way: list[int] = []  # way -> number of its ops that are not closed
        self._op_of_way: list[str] = []
        self._call_of_way: list[int] = []
        self._ways_of_call: list[int] = []  # call -> number of its ways that are closed
        self._open_calls: dict[str, int] = {}
        queue = list(self._kernels(base))
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
                        queue.append((0.0, 0, number, op))
                self._ways += ways
                self._ways_of_call.append(0)
        self._close(queue)

    def __contains__(self, op: object) -> bool:
        return op in self._closed

    def holds(self, ops: Set[str]) -> bool:
        """Return whether all of these ops close."""
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
        """Add kernels, and return the ops that close now and did not before, the last one first."""
        before = len(self._closed)
        self._close(list(self._kernels(kernels)))
        backwards = reversed(self._closed)
        return [next(backwards) for _ in range(len(self._closed) - before)]

    def take_back(self, closed: Sequence[str]) -> None:
        """Undo the last `add`, which returned these ops."""
        for op in closed:
            del self._closed[op]
            for way in self._users.get(op, ()):
                if not self._open_in_way[way]:
                    self._count_reopened(way)
                self._open_in_way[way] += 1

    def enabled_by(self, kernels: Iterable[str]) -> list[str]:
        """Return the ops that are not closed now, but would be with these additional kernels."""
        found = self.add(kernels)
        self.take_back(found)
        return found

    def _kernels(self, ops: Iterable[str]) -> Iterator[tuple[float, int, int, str]]:
        return ((0.0 if self._costs is None else self._costs.get(op, 1.0), 0, _KERNEL, op) for op in ops)

    def _close(self, queue: list[tuple[float, int, int, str]]) -> None:
        heapify(queue)
        tie_break = 0  # the way that was complete first comes first
        while queue:
            cost, _, way, op = heappop(queue)
            if (way != _KERNEL and not self._closes_op(way)) or op in self._closed:
                continue
            self._closed[op] = cost
            self._way_of[op] = way
            for user in self._users.get(op, ()):
                self._open_in_way[user] -= 1
                if not self._open_in_way[user]:
                    tie_break += 1
                    total = 0.0 if self._costs is None else _sum(self._ways[user], self._closed.__getitem__)
                    heappush(queue, (total, tie_break, user, self._op_of_way[user]))

    def _closes_op(self, way: int) -> bool:
        """Count a way that closed; return whether its op closes now."""
        call = self._call_of_way[way]
        self._ways_of_call[call] += 1
        if self._ways_of_call[call] > 1:
            return False
        op = self._op_of_way[way]
        self._open_calls[op] -= 1
        return not self._open_calls[op]

    def _count_reopened(self, way: int) -> None:
        call = self._call_of_way[way]
        self._ways_of_call[call] -= 1
        if not self._ways_of_call[call]:
            self._open_calls[self._op_of_way[way]] += 1


def each_left_out(closure: Closure, ops: Sequence[str], left_out: set[str]) -> Iterator[str]:
    """Yield each op in turn. While an op is yielded, `closure` has kernels for all other `ops`, but not for that op.

    The caller may add ops to `left_out` meanwhile: `closure` then gets no kernels for these either.

    The list is split in halves recursively, so that each op is added O(log n) times, not n times.
    """
    if len(ops) == 1:
        yield ops[0]
        return
    half = len(ops) // 2
    for mine, others in ((ops[:half], ops[half:]), (ops[half:], ops[:half])):
        if mine:
            added = closure.add(op for op in others if op not in left_out)
            yield from each_left_out(closure, mine, left_out)
            closure.take_back(added)


def without_self_calls(clauses: Clauses) -> Clauses:
    """Return the graph without calls of an op to itself."""
    return {
        op: [[{called: times for called, times in way.items() if called != op} for way in call] for call in calls]
        for op, calls in clauses.items()
    }


class OpCosts:
    """Costs of ops and their rules on one op set, in kernel calls, from the recorded footprints.

    `of` solves only the part of the graph on which the op depends, a small part of the whole.

    Args:
        footprints: what each rule calls.
        supported: the op set, by name.
        passes: returns whether an op outside the set is a passthrough op, at no cost.
        without: the keys of rules that the set does not use.
        changed: returns whether a rule, by its op and key, has changed since it was recorded.
        unrecorded: the ops with a rule that the footprints lack, so that they may close though none of their recorded calls does.
        price: returns the cost of one call of a kernel.
    """

    def __init__(
        self,
        footprints: Footprints,
        supported: frozenset[str],
        passes: Callable[[str], bool],
        without: Set[str] = frozenset(),
        changed: Callable[[str, str], bool] = lambda op, key: False,
        price: Callable[[str], float] = lambda op: 1.0,
        unrecorded: Set[str] = frozenset(),
    ) -> None:
        self._footprints = footprints
        self._without = without
        self._changed = changed
        self._passes = passes
        self._unrecorded = unrecorded
        self._supported = supported
        #: Final costs. Two threads may compute the cost of one op at the same time; their results are equal.
        self._known: dict[str, float] = {op: 0.0 if passes(op) else price(op) for op in supported}

    def priced(self, price: Callable[[str], float]) -> OpCosts:
        """Return the costs of the same rules on the same set with other prices of kernels."""
        return self._with(self._supported, price, self._unrecorded)

    def of(self, op: str) -> float:
        """Return the cost of the cheapest closed route, in kernel calls; infinite if no known rule closes."""
        found = self._known.get(op)
        if found is None:
            self._known.update(self._solve(op))
            found = self._known[op]
        return found

    def rank_of_rule(self, op: str, key: str) -> tuple[int, float]:
        """Return the rank of a rule as two numbers; lower is better.

        The first number is 0 if the rule closes for all recorded calls, 1 if that is unknown, 2 for some calls, 3 for none. The
        second is the cost of the most frequent call that closes, in kernel calls.
        """
        costs = self._of_footprints(op, key)
        if not costs:
            return (1, math.inf)
        closed = [cost for cost in costs if cost < math.inf]
        if not closed:
            return (1 if self._changed(op, key) or self._may_close(op, key) else 3, math.inf)
        return (0 if len(closed) == len(costs) else 2, closed[0])

    def may_open(self, op: str, kernels: Iterable[str]) -> list[str]:
        """Return the kernels that may give an op without a route one, by its recorded calls; else all."""
        kernels = list(kernels)
        clauses, _, closure = self._part(op)
        if not clauses.get(op, ((),))[0] or op in closure:
            return kernels
        return [kernel for kernel in kernels if kernel not in clauses or op in closure.enabled_by([kernel])]

    def _with(self, supported: frozenset[str], price: Callable[[str], float], unrecorded: Set[str]) -> OpCosts:
        return OpCosts(self._footprints, supported, self._passes, self._without, self._changed, price, unrecorded)

    @functools.cached_property
    def _hopeful(self) -> OpCosts:
        """The costs if each op closes that has a rule without footprints."""
        return self._with(self._supported | self._unrecorded, lambda op: 0.0, frozenset())

    def _may_close(self, op: str, key: str) -> bool:
        if self._unrecorded <= self._supported:
            return False
        return min(self._hopeful._of_footprints(op, key), default=math.inf) < math.inf

    def _of_footprints(self, op: str, key: str) -> list[float]:
        seen = self._footprints.get(op, {}).get(key, ())
        return [_sum(footprint, self.of) for footprint in seen]

    def _solve(self, target: str) -> dict[str, float]:
        """Return the costs of an op and of all ops that it depends on."""
        clauses, known, closure = self._part(target)
        return known | {op: closure.cost(op) for op in clauses}

    def _part(self, target: str) -> tuple[Clauses, dict[str, float], Closure]:
        """Return the part of the graph on which an op depends: its clauses, the ops whose cost is known, and its closure."""
        clauses: dict[str, Sequence[Sequence[Footprint]]] = {}
        known: dict[str, float] = {}
        queue = [target]
        while queue:
            op = queue.pop()
            if op in clauses or op in known:
                continue
            if op in self._known or self._passes(op):
                known[op] = self._known.get(op, 0.0)
                continue
            rules = self._footprints.get(op, {}).items()
            ways: list[Footprint] = [footprint for key, seen in rules if key not in self._without for footprint in seen]
            clauses[op] = [ways]
            queue.extend(called for way in ways for called in way)
        return clauses, known, Closure(clauses, (op for op, cost in known.items() if cost < math.inf), known)


def _sum(footprint: Footprint, cost: Callable[[str], float]) -> float:
    return sum([times * cost(op) for op, times in footprint.items()], 0.0)
