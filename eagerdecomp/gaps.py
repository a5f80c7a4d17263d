"""Gaps: which kernels to write next, and how small a set can carry given ops.

Both are questions about one graph: an op closes where each of its calls has a way of which every op closes (`routes.Clauses`), and
a kernel closes its own op. What closes grows with what there is, so a kernel that another one opens is never the better choice, and
parts of the graph that share no open op are settled apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eagerdecomp.routes import Clauses, Closer

__all__ = ["Choice", "Kernel", "SmallSet", "choose_kernels", "fewest_kernels", "smallest_set"]

# A part of the graph with more candidates than this is not searched through: 2 ** 12 sets, each a fixed point.
_EXACT = 12


@dataclass(frozen=True)
class Kernel:
    """One kernel to write, and the ops that it opens beyond those of the kernels before it."""

    op: str
    opens: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """Kernels to write, in an order in which each next one opens most.

    Attributes:
        kernels: the kernels.
        bound: no choice of as many kernels opens more ops than this.
    """

    kernels: tuple[Kernel, ...]
    bound: int

    @property
    def opened(self) -> int:
        """How many ops they open together."""
        return sum(len(kernel.opens) for kernel in self.kernels)

    @property
    def exact(self) -> bool:
        """Whether it is known that none opens more."""
        return self.opened == self.bound


@dataclass(frozen=True)
class SmallSet:
    """A set of ops that carries others: none of it can be left out, though another set might be smaller.

    Attributes:
        ops: the set.
        necessary: those of it that any set must hold.
    """

    ops: tuple[str, ...]
    necessary: tuple[str, ...]


class _Open:
    """What does not close yet, as ops that wait for ops."""

    def __init__(self, clauses: Clauses, closed: Collection[str], wanted: Iterable[str]) -> None:
        self.calls: dict[str, tuple[tuple[frozenset[str], ...], ...]] = {}
        waiting = [op for op in wanted if op not in closed]
        while waiting:
            op = waiting.pop()
            if op in self.calls:
                continue
            left = [tuple(way - {op} - closed_in(way, closed) for way in call) for call in clauses.get(op, ())]
            self.calls[op] = tuple(call for call in left if not any(not way for way in call)) if left else ()
            waiting.extend(needed for call in self.calls[op] for way in call for needed in way)
            if left and not self.calls[op]:  # it closes but for calls of its own op: nothing is known to open it but itself
                self.calls[op] = ((),)
        self._closer = Closer(self.calls)

    def opened(self, kernels: Iterable[str]) -> frozenset[str]:
        """What closes with these kernels."""
        return self._closer.closed(kernels)


def closed_in(way: frozenset[str], closed: Collection[str]) -> frozenset[str]:
    """Those of a way's ops that close."""
    return frozenset(op for op in way if op in closed)


def choose_kernels(
    clauses: Clauses, closed: Collection[str], wanted: Collection[str], count: int, avoid: Callable[[str], int]
) -> Choice:
    """The kernels that open most of the wanted ops: at most so many.

    Parts of the graph with few candidates are searched through, others greedily; `Choice.bound` says how good the whole is.

    Args:
        clauses: the graph.
        closed: what closes already.
        wanted: the ops to be opened; those that close count for nothing.
        count: how many kernels.
        avoid: between kernels that open each other, the one with the least number is taken.
    """
    targets = frozenset(op for op in wanted if op not in closed)
    open_ops = _Open(clauses, closed, targets)
    alone = {op: open_ops.opened([op]) for op in open_ops.calls}
    best = _undominated(alone, lambda op: (avoid(op), op))
    reaching = _reached_by(open_ops.calls)
    parts = _parts(open_ops.calls, best)
    tables = [_Part(calls, part, targets, reaching, min(count, len(part))) for calls, part in parts]
    chosen, bound = _share_out(tables, count)
    return Choice(_in_order(open_ops, chosen, targets), bound)


def fewest_kernels(
    clauses: Clauses, closed: Collection[str], wanted: Collection[str], avoid: Callable[[str], int]
) -> tuple[str, ...]:
    """Kernels that open all the wanted ops; none of them can be left out."""
    targets = frozenset(op for op in wanted if op not in closed)
    open_ops = _Open(clauses, closed, targets)
    alone = {op: open_ops.opened([op]) for op in open_ops.calls}
    chosen: list[str] = []
    for calls, kept in _parts(open_ops.calls, _undominated(alone, lambda op: (avoid(op), op))):
        closer, goal = Closer(calls), targets & calls.keys()
        for op in sorted(kept, key=lambda op: (len(alone[op] & targets), op)):
            if goal <= closer.closed(other for other in kept if other != op):
                kept.remove(op)
        chosen.extend(kept)
    return tuple(sorted(chosen, key=lambda op: (-len(alone[op] & targets), op)))


def smallest_set(clauses: Clauses, base: Collection[str], wanted: Collection[str], avoid: Callable[[str], int]) -> SmallSet:
    """A small set, beside `base`, on which all the wanted ops close: every op that they lead to, less what can be left out, the ops
    that fewest lead to first."""
    calls = {op: tuple(tuple(way - {op} for way in call) for call in found) for op, found in clauses.items()}
    users: dict[str, int] = {}
    for found in calls.values():
        for op in {op for call in found for way in call for op in way}:
            users[op] = users.get(op, 0) + 1
    reached: set[str] = set()
    waiting = list(wanted)
    while waiting:
        op = waiting.pop()
        if op not in reached and op not in base:
            reached.add(op)
            waiting.extend(needed for call in calls.get(op, ()) for way in call for needed in way)
    closer = Closer({op: calls[op] for op in reached if op in calls})
    goal = set(wanted)
    kept = set(reached)
    necessary = []
    for op in sorted(reached, key=lambda op: (-avoid(op), users.get(op, 0), op)):
        if goal <= closer.closed({*base, *kept} - {op}):
            kept.discard(op)
        elif not goal <= closer.closed({*base, *reached} - {op}):
            necessary.append(op)
    return SmallSet(tuple(sorted(kept)), tuple(sorted(necessary)))


def _undominated(alone: Mapping[str, frozenset[str]], rank: Callable[[str], tuple[int, str]]) -> list[str]:
    """The ops that no other opens; of those that open each other, the first by rank."""
    openers: dict[str, list[str]] = {op: [] for op in alone}
    for op, opened in alone.items():
        for other in opened:
            if other != op and other in openers:
                openers[other].append(op)
    return [op for op, others in openers.items() if not any(op not in alone[o] or rank(o) < rank(op) for o in others)]


def _reached_by(calls: Clauses) -> Callable[[str], frozenset[str]]:
    """Which ops may come to close by an op, whatever else is there: all that lead to it."""
    callers: dict[str, set[str]] = {}
    for op, found in calls.items():
        for needed in {needed for call in found for way in call for needed in way}:
            callers.setdefault(needed, set()).add(op)

    def reached(op: str) -> frozenset[str]:
        met = {op}
        waiting = [op]
        while waiting:
            for caller in callers.get(waiting.pop(), ()):
                if caller not in met:
                    met.add(caller)
                    waiting.append(caller)
        return frozenset(met)

    return reached


def _parts(calls: Clauses, candidates: Collection[str]) -> list[tuple[Clauses, list[str]]]:
    """The parts of the graph that share no op, each with its candidates."""
    root = {op: op for op in calls}
    kept = set(candidates)

    def find(op: str) -> str:
        while root[op] != op:
            root[op] = root[root[op]]
            op = root[op]
        return op

    for op, found in calls.items():
        for needed in {needed for call in found for way in call for needed in way}:
            root[find(op)] = find(needed)
    parts: dict[str, tuple[dict[str, tuple[tuple[frozenset[str], ...], ...]], list[str]]] = {}
    for op in sorted(calls):
        within, found_in = parts.setdefault(find(op), ({}, []))
        within[op] = calls[op]
        if op in kept:
            found_in.append(op)
    return list(parts.values())


class _Part:
    """One part of the graph: what so many kernels in it open, and a bound on what any could."""

    def __init__(
        self,
        calls: Clauses,
        candidates: Sequence[str],
        targets: frozenset[str],
        reaching: Callable[[str], frozenset[str]],
        most: int,
    ) -> None:
        closer = Closer(calls)

        def gain(kernels: Iterable[str]) -> int:
            return len(closer.closed(kernels) & targets)

        self.sets: list[tuple[str, ...]] = [()]
        self.opens = [0]
        self.bounds = [0]
        if len(candidates) <= _EXACT:
            for size in range(1, most + 1):
                best = max(itertools.combinations(candidates, size), key=gain)
                self.sets.append(best)
                self.opens.append(gain(best))
            self.bounds = self.opens
            return
        reach = sorted((len(reaching(op) & targets) for op in candidates), reverse=True)
        whole = gain(candidates)
        chosen: tuple[str, ...] = ()
        for size in range(1, most + 1):
            chosen = (*chosen, max((op for op in candidates if op not in chosen), key=lambda op: gain([*chosen, op])))
            self.sets.append(chosen)
            self.opens.append(gain(chosen))
            self.bounds.append(min(whole, sum(reach[:size])))


def _share_out(parts: Sequence[_Part], count: int) -> tuple[list[str], int]:
    """Which sets of the parts open most together, at most `count` kernels in all; and the bound on any."""
    best: list[tuple[int, tuple[str, ...]]] = [(0, ())] * (count + 1)
    bound = [0] * (count + 1)
    for part in parts:
        sizes = range(len(part.sets))
        best = [
            max(
                (
                    (best[total - size][0] + part.opens[size], best[total - size][1] + part.sets[size])
                    for size in sizes
                    if size <= total
                ),
                key=lambda found: (found[0], -len(found[1])),
            )
            for total in range(count + 1)
        ]
        bound = [max(bound[total - size] + part.bounds[size] for size in sizes if size <= total) for total in range(count + 1)]
    return list(best[count][1]), bound[count]


def _in_order(open_ops: _Open, kernels: Collection[str], targets: frozenset[str]) -> tuple[Kernel, ...]:
    """The kernels, each next one that which opens most beyond those before it."""
    told: list[Kernel] = []
    opened: frozenset[str] = frozenset()
    left = sorted(kernels)
    while left:
        found = {op: open_ops.opened([*(kernel.op for kernel in told), op]) & targets for op in left}
        op = max(left, key=lambda op: len(found[op]))
        told.append(Kernel(op, tuple(sorted(found[op] - opened))))
        opened = found[op]
        left.remove(op)
    return tuple(told)
