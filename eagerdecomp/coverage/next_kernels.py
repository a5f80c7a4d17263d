"""Gaps: which kernels to write next, and how small a set can carry given ops.

Both are questions about one graph: an op closes where each of its calls has a way of which every op closes (`planner/closure`), and
a kernel closes its own op. What closes grows with what there is, so a kernel that another one opens is never the better choice, and
parts of the graph that share no open op are settled apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eagerdecomp.planner.closure import Clauses, Closure, each_without, without_self_calls
from eagerdecomp.planner.rule_calls import Footprint

__all__ = ["Choice", "Kernel", "Ranked", "SmallSet", "choose_kernels", "fewest_kernels", "rank_kernels", "smallest_set"]

# A part of the graph with more candidates than this is not searched through: 2 ** 12 sets, each a fixed point.
_EXACT = 12


@dataclass(frozen=True)
class Kernel:
    """One kernel to write, and the ops that it opens; one that waits for several kernels counts at one of them."""

    op: str
    opens: tuple[str, ...]


class Ranked(NamedTuple):
    """A kernel to write, with how many ops it opens: alone, and after those ranked before it."""

    op: str
    alone: int
    together: int


@dataclass(frozen=True)
class Choice:
    """Kernels to write, the one that opens most first.

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


def _waiting(clauses: Clauses, closed: Collection[str], wanted: Iterable[str]) -> Clauses:
    """The dependencies of the wanted ops that do not close yet."""
    found: dict[str, list[list[Footprint]]] = {}
    waiting = [op for op in wanted if op not in closed]
    while waiting:
        op = waiting.pop()
        if op in found:
            continue
        left: list[list[Footprint]] = [
            [{c: times for c, times in way.items() if c != op and c not in closed} for way in call] for call in clauses.get(op, ())
        ]
        found[op] = [call for call in left if all(call)]
        waiting.extend(needed for call in found[op] for way in call for needed in way)
        if left and not found[op]:  # it closes but for calls of its own op: nothing is known to open it but itself
            found[op] = [[]]
    return found


def _any_op(op: str) -> bool:
    return True


def choose_kernels(
    clauses: Clauses,
    closed: Collection[str],
    wanted: Collection[str],
    count: int,
    avoid: Callable[[str], int],
    may: Callable[[str], bool] = _any_op,
) -> Choice:
    """The kernels that open most of the wanted ops: at most so many.

    Parts of the graph with few candidates are searched through, others greedily; `Choice.bound` says how good the whole is.

    Args:
        clauses: the graph.
        closed: what closes already.
        wanted: the ops to be opened; those that close count for nothing.
        count: how many kernels.
        avoid: between kernels that open each other, the one with the least number is taken.
        may: which ops, beside the wanted ones, may be proposed.
    """
    targets = frozenset(op for op in wanted if op not in closed)
    calls = _waiting(clauses, closed, targets)
    graph = Closure(calls)
    candidates = _undominated(graph, [op for op in calls if op in targets or may(op)], lambda op: (avoid(op), op))
    chosen, bound = _share_out([_table(graph, calls, part, targets, count) for part in _parts(calls, candidates)], count)
    return Choice(_in_order(graph, chosen, targets), bound)


def rank_kernels(
    clauses: Clauses,
    closed: Collection[str],
    wanted: Collection[str],
    kernels: Iterable[str],
    count: int,
    avoid: Callable[[str], int],
) -> tuple[Ranked, ...]:
    """Those of the given kernels that open some of the wanted ops: the `count` of them that open most together come first, each the
    one that opens most beside those before it, then the others, by what each opens alone."""
    targets = frozenset(op for op in wanted if op not in closed)
    calls = _waiting(clauses, closed, targets)
    graph = Closure(calls)

    def opened(op: str) -> int:
        return len(targets.intersection(graph.opened_by([op])))

    alone = {op: opened(op) for op in sorted(kernels) if op in calls}
    candidates = _undominated(graph, alone, lambda op: (avoid(op), op))
    chosen, _ = _share_out([_table(graph, calls, part, targets, count) for part in _parts(calls, candidates)], count)
    rest = sorted(alone.keys() - {*chosen}, key=lambda op: (-alone[op], op))
    ranked: list[Ranked] = []
    left = sorted(chosen)
    while left or rest:
        op = max(left, key=opened) if left else rest.pop(0)
        if op in left:
            left.remove(op)
        ranked.append(Ranked(op, alone[op], len(targets.intersection(graph.add([op])))))
    return tuple(one for one in ranked if one.alone or one.together)


def fewest_kernels(
    clauses: Clauses,
    closed: Collection[str],
    wanted: Collection[str],
    avoid: Callable[[str], int],
    may: Callable[[str], bool] = _any_op,
    first: Sequence[str] = (),
) -> tuple[str, ...]:
    """Kernels that open all the wanted ops: those given `first`, and others of which none can be left out beside them."""
    targets = frozenset(op for op in wanted if op not in closed)
    calls = _waiting(clauses, closed, targets.union(first))
    graph = Closure(calls)
    graph.add(first)
    left = targets - graph.closed
    candidates = _undominated(
        graph, [op for op in calls if op not in graph and (op in left or may(op))], lambda op: (avoid(op), op)
    )
    opened = {op: len(targets.intersection(graph.opened_by([op]))) for op in candidates}
    spare: set[str] = set()
    for op in each_without(graph, sorted(candidates, key=lambda op: (opened[op], op)), spare) if candidates else ():
        if graph.holds(targets):
            spare.add(op)
    return (*first, *sorted(opened.keys() - spare, key=lambda op: (-opened[op], op)))


def smallest_set(clauses: Clauses, base: Collection[str], wanted: Collection[str], avoid: Callable[[str], int]) -> SmallSet:
    """A small set, beside `base`, on which all the wanted ops close: every op that they lead to, less what can be left out, the ops
    that fewest lead to first."""
    calls = without_self_calls(clauses)
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
    graph = Closure({op: calls[op] for op in reached if op in calls}, base)
    goal = frozenset(wanted)
    order = sorted(reached, key=lambda op: (-avoid(op), users.get(op, 0), op))
    necessary = [op for op in each_without(graph, order, set()) if not graph.holds(goal)]
    spare: set[str] = set()
    for op in each_without(graph, order, spare):
        if graph.holds(goal):
            spare.add(op)
    return SmallSet(tuple(sorted(reached - spare)), tuple(sorted(necessary)))


def _undominated(graph: Closure, ops: Iterable[str], rank: Callable[[str], tuple[int, str]]) -> list[str]:
    """The ops that no other opens; of those that open each other, the first by rank."""
    alone = {op: frozenset(graph.opened_by([op])) for op in ops}
    kernels_to_add: dict[str, list[str]] = {op: [] for op in alone}
    for op, opened in alone.items():
        for other in opened:
            if other != op and other in kernels_to_add:
                kernels_to_add[other].append(op)
    return [op for op, others in kernels_to_add.items() if not any(op not in alone[o] or rank(o) < rank(op) for o in others)]


def _parts(calls: Clauses, candidates: Collection[str]) -> list[list[str]]:
    """The candidates of each part of the graph; parts share no op."""
    root = {op: op for op in calls}

    def find(op: str) -> str:
        while root[op] != op:
            root[op] = root[root[op]]
            op = root[op]
        return op

    for op, found in calls.items():
        for needed in {needed for call in found for way in call for needed in way}:
            root[find(op)] = find(needed)
    parts: dict[str, list[str]] = {}
    for op in sorted(candidates):
        parts.setdefault(find(op), []).append(op)
    return list(parts.values())


def _callers(calls: Clauses) -> dict[str, set[str]]:
    callers: dict[str, set[str]] = {}
    for op, found in calls.items():
        for needed in {needed for call in found for way in call for needed in way}:
            callers.setdefault(needed, set()).add(op)
    return callers


def _leading_to(callers: Mapping[str, set[str]], op: str) -> set[str]:
    """The ops that lead to one: what may close by it, whatever else is there."""
    seen = {op}
    waiting = [op]
    while waiting:
        further = callers.get(waiting.pop(), set()) - seen
        seen |= further
        waiting.extend(further)
    return seen


class _Table(NamedTuple):
    """The most ops that 0, 1, 2... kernels of one part of the graph open."""

    sets: list[tuple[str, ...]]
    opens: list[int]
    bounds: list[int]


def _table(graph: Closure, calls: Clauses, candidates: Sequence[str], targets: frozenset[str], count: int) -> _Table:
    most = min(count, len(candidates))
    if len(candidates) <= _EXACT:
        sets, opens = _best_sets(graph, candidates, targets, most)
        return _Table(sets, opens, opens)
    sets, opens = _grown_sets(graph, candidates, targets, most)
    return _Table(sets, opens, _bounds(graph, calls, candidates, targets, most))


def _best_sets(
    graph: Closure, candidates: Sequence[str], targets: frozenset[str], most: int
) -> tuple[list[tuple[str, ...]], list[int]]:
    """The best set of each size up to `most`, by exhaustive search."""
    sets: list[tuple[str, ...]] = [()] * (most + 1)
    opens = [0] * (most + 1)

    def grow(chosen: tuple[str, ...], opened: int, start: int) -> None:
        size = len(chosen)
        if opened > opens[size]:
            sets[size], opens[size] = chosen, opened
        for place in range(start, len(candidates) if size < most else 0):
            added = graph.add([candidates[place]])
            grow((*chosen, candidates[place]), opened + len(targets.intersection(added)), place + 1)
            graph.take_back(added)

    grow((), 0, 0)
    return sets, opens


def _grown_sets(
    graph: Closure, candidates: Sequence[str], targets: frozenset[str], most: int
) -> tuple[list[tuple[str, ...]], list[int]]:
    """A set of each size, greedily: the one before plus the candidate that opens most."""
    sets: list[tuple[str, ...]] = [()]
    opens = [0]
    added: list[str] = []
    for _ in range(most):
        left = [op for op in candidates if op not in sets[-1]]
        op = max(left, key=lambda op: len(targets.intersection(graph.opened_by([op]))))
        newly = graph.add([op])
        sets.append((*sets[-1], op))
        opens.append(opens[-1] + len(targets.intersection(newly)))
        added += newly
    graph.take_back(added)
    return sets, opens


def _bounds(graph: Closure, calls: Clauses, candidates: Sequence[str], targets: frozenset[str], most: int) -> list[int]:
    """An upper bound on what a set of each size opens: what all open, and what leads to those to which most leads."""
    whole = len(targets.intersection(graph.opened_by(candidates)))
    callers = _callers(calls)
    reach = sorted((len(targets & _leading_to(callers, op)) for op in candidates), reverse=True)
    return [min(whole, sum(reach[:size])) for size in range(most + 1)]


def _share_out(parts: Sequence[_Table], count: int) -> tuple[list[str], int]:
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


def _in_order(graph: Closure, kernels: Collection[str], targets: frozenset[str]) -> tuple[Kernel, ...]:
    """The kernels, the one that opens most first. An op that waits for several counts at the last of them, where each next one is
    that which opens most beyond those before it."""
    ranked: list[Kernel] = []
    left, added = sorted(kernels), []
    while left:
        op = max(left, key=lambda op: len(targets.intersection(graph.opened_by([op]))))
        newly = graph.add([op])
        ranked.append(Kernel(op, tuple(sorted(targets.intersection(newly)))))
        added += newly
        left.remove(op)
    graph.take_back(added)
    return tuple(sorted(ranked, key=lambda kernel: -len(kernel.opens)))
