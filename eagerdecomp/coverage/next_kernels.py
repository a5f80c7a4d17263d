"""Find the kernels to write next, and small op sets that are enough for given ops.

Both search one graph (`planner/closure`). An op is closed if it has a kernel, or if each of its calls has a decomposition into
closed ops. A kernel *enables* the ops that its addition closes. More kernels never close fewer ops. So if one kernel enables the
op of another, the first is at least as good a choice. Connected components of the graph (of the ops not closed yet) are searched
separately.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eagerdecomp.planner.closure import Clauses, Closure, each_left_out, without_self_calls
from eagerdecomp.planner.rule_calls import Footprint

__all__ = [
    "Choice",
    "KernelToWrite",
    "Ranked",
    "SmallSet",
    "choose_kernels",
    "fewest_kernels",
    "kernels_used",
    "order_kernels",
    "rank_kernels",
    "smallest_set",
]

# The exhaustive search takes parts of the graph with at most this many candidates: 2 ** 12 sets, each of which needs a fixed point.
_EXACT = 12


@dataclass(frozen=True)
class KernelToWrite:
    """One kernel to write, and the ops that it enables. An op that needs several kernels is listed at only one of them."""

    op: str
    enables: tuple[str, ...]


class Ranked(NamedTuple):
    """A kernel to write, with how many ops it enables: alone, and after those ranked before it."""

    op: str
    alone: int
    together: int


@dataclass(frozen=True)
class Choice:
    """Kernels to write, sorted by the number of ops that each enables, the most first.

    Attributes:
        kernels: the kernels.
        bound: no choice of as many kernels enables more ops than this.
    """

    kernels: tuple[KernelToWrite, ...]
    bound: int

    @property
    def enabled(self) -> int:
        """The number of ops that the kernels enable together."""
        return sum(len(kernel.enables) for kernel in self.kernels)

    @property
    def exact(self) -> bool:
        """Whether no other choice of as many kernels enables more ops."""
        return self.enabled == self.bound


@dataclass(frozen=True)
class SmallSet:
    """A set of ops to which given ops decompose. No op of it can be removed, but a different set may be smaller.

    Attributes:
        ops: the set.
        necessary: the ops of it that every such set contains.
    """

    ops: tuple[str, ...]
    necessary: tuple[str, ...]


def _waiting(clauses: Clauses, closed: Collection[str], wanted: Iterable[str]) -> Clauses:
    """Return the part of the graph that wanted ops depend on and that is not closed yet."""
    found: dict[str, list[list[Footprint]]] = {}
    waiting = sorted(op for op in wanted if op not in closed)  # the order decides between ways that are as good
    while waiting:
        op = waiting.pop()
        if op in found:
            continue
        left: list[list[Footprint]] = [
            [{c: times for c, times in way.items() if c != op and c not in closed} for way in call] for call in clauses.get(op, ())
        ]
        found[op] = [call for call in left if all(call)]
        waiting.extend(needed for call in found[op] for way in call for needed in way)
        if left and not found[op]:  # only calls of the op itself are missing: only its own kernel enables it
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
    """Return at most `count` kernels that enable the most wanted ops.

    Parts of the graph with few candidates are searched exhaustively, others greedily. `Choice.bound` is an upper bound.

    Args:
        clauses: the graph.
        closed: the ops that are closed already.
        wanted: the ops to enable; those that are closed already do not count.
        count: maximum number of kernels to return.
        avoid: a cost. Of kernels that enable each other, the one with the lowest is returned.
        may: returns whether an op that is not wanted may be proposed.
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
    """Return those of `kernels` that enable wanted ops, in an order to write them in.

    First come the `count` kernels that enable the most ops together, each placed where it enables the most beyond those before it.
    The others follow, sorted by the number of ops that each enables alone.
    """
    targets = frozenset(op for op in wanted if op not in closed)
    calls = _waiting(clauses, closed, targets)
    graph = Closure(calls)

    def enabled(op: str) -> int:
        return len(targets.intersection(graph.enabled_by([op])))

    alone = {op: enabled(op) for op in sorted(kernels) if op in calls}
    candidates = _undominated(graph, alone, lambda op: (avoid(op), op))
    chosen, _ = _share_out([_table(graph, calls, part, targets, count) for part in _parts(calls, candidates)], count)
    rest = sorted(alone.keys() - {*chosen}, key=lambda op: (-alone[op], op))
    ranked: list[Ranked] = []
    left = sorted(chosen)
    while left or rest:
        op = max(left, key=enabled) if left else rest.pop(0)
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
    """Return kernels that enable all wanted ops: those in `first`, and others, none of which can be left out."""
    targets = frozenset(op for op in wanted if op not in closed)
    calls = _waiting(clauses, closed, targets.union(first))
    graph = Closure(calls)
    graph.add(first)
    left = targets - graph.closed
    candidates = _undominated(
        graph, [op for op in calls if op not in graph and (op in left or may(op))], lambda op: (avoid(op), op)
    )
    enabled = {op: len(targets.intersection(graph.enabled_by([op]))) for op in candidates}
    spare: set[str] = set()
    for op in each_left_out(graph, sorted(candidates, key=lambda op: (enabled[op], op)), spare) if candidates else ():
        if graph.holds(targets):
            spare.add(op)
    return (*first, *sorted(enabled.keys() - spare, key=lambda op: (-enabled[op], op)))


def order_kernels(needs: Mapping[str, Iterable[str]], kernels: Collection[str]) -> tuple[KernelToWrite, ...]:
    """Sort kernels by the number of ops that each enables, the most first, from the kernels that each op needs."""
    return _in_order(Closure({op: [[dict.fromkeys(needed, 1)]] for op, needed in needs.items()}), kernels, frozenset(needs))


def kernels_used(
    clauses: Clauses, closed: Collection[str], kernels: Collection[str], ops: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return which of `kernels` each op decomposes to, for the ops that `kernels` close.

    Of each call, the first rule is taken whose ops closed before the op itself, so the route has no cycle.
    """
    wanted = set(ops)
    calls = _waiting(clauses, closed, wanted.union(kernels))
    order = list(reversed(Closure(calls).add(kernels)))
    place = {op: number for number, op in enumerate(order)}
    used: dict[str, frozenset[str]] = {}
    for op in order:
        ways = () if op in kernels else [next(way for way in call if _before(way, place, place[op])) for call in calls[op]]
        used[op] = (
            frozenset([op]) if op in kernels else frozenset(kernel for way in ways for called in way for kernel in used[called])
        )
    return {op: tuple(kernel for kernel in kernels if kernel in used[op]) for op in order if op in wanted}


def _before(way: Footprint, place: Mapping[str, int], limit: int) -> bool:
    return all(place.get(op, limit) < limit for op in way)


def smallest_set(clauses: Clauses, base: Collection[str], wanted: Collection[str], avoid: Callable[[str], int]) -> SmallSet:
    """Return a small set that closes all wanted ops together with `base`.

    The search starts with every op that a wanted op decomposes to, and removes each op that can be removed, those with the fewest
    users first.
    """
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
    necessary = [op for op in each_left_out(graph, order, set()) if not graph.holds(goal)]
    spare: set[str] = set()
    for op in each_left_out(graph, order, spare):
        if graph.holds(goal):
            spare.add(op)
    return SmallSet(tuple(sorted(reached - spare)), tuple(sorted(necessary)))


def _undominated(graph: Closure, ops: Iterable[str], rank: Callable[[str], tuple[int, str]]) -> list[str]:
    """Return the ops that no other op enables; of ops that enable each other, the first by rank."""
    alone = {op: frozenset(graph.enabled_by([op])) for op in ops}
    enabled_by_ops: dict[str, list[str]] = {op: [] for op in alone}
    for op, enabled in alone.items():
        for other in enabled:
            if other != op and other in enabled_by_ops:
                enabled_by_ops[other].append(op)
    return [op for op, others in enabled_by_ops.items() if not any(o not in alone[op] or rank(o) < rank(op) for o in others)]


def _parts(calls: Clauses, candidates: Collection[str]) -> list[list[str]]:
    """Group the candidates by connected component of the graph."""
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
    """Return the ops that depend on `op`, directly or not. A kernel of it can enable only these."""
    seen = {op}
    waiting = [op]
    while waiting:
        further = callers.get(waiting.pop(), set()) - seen
        seen |= further
        waiting.extend(further)
    return seen


class _Table(NamedTuple):
    """For 0, 1, 2... kernels of one part of the graph: the best set found, the ops that it enables, and an upper bound."""

    sets: list[tuple[str, ...]]
    enables: list[int]
    bounds: list[int]


def _table(graph: Closure, calls: Clauses, candidates: Sequence[str], targets: frozenset[str], count: int) -> _Table:
    most = min(count, len(candidates))
    if len(candidates) <= _EXACT:
        sets, enables = _best_sets(graph, candidates, targets, most)
        return _Table(sets, enables, enables)
    sets, enables = _grown_sets(graph, candidates, targets, most)
    return _Table(sets, enables, _bounds(graph, calls, candidates, targets, most))


def _best_sets(
    graph: Closure, candidates: Sequence[str], targets: frozenset[str], most: int
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Find the best set of each size up to `most` by exhaustive search."""
    sets: list[tuple[str, ...]] = [()] * (most + 1)
    enables = [0] * (most + 1)

    def grow(chosen: tuple[str, ...], enabled: int, start: int) -> None:
        size = len(chosen)
        if enabled > enables[size]:
            sets[size], enables[size] = chosen, enabled
        for place in range(start, len(candidates) if size < most else 0):
            added = graph.add([candidates[place]])
            grow((*chosen, candidates[place]), enabled + len(targets.intersection(added)), place + 1)
            graph.take_back(added)

    grow((), 0, 0)
    return sets, enables


def _grown_sets(
    graph: Closure, candidates: Sequence[str], targets: frozenset[str], most: int
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Build a set of each size greedily: the previous set and the candidate that enables the most."""
    sets: list[tuple[str, ...]] = [()]
    enables = [0]
    added: list[str] = []
    for _ in range(most):
        left = [op for op in candidates if op not in sets[-1]]
        op = max(left, key=lambda op: len(targets.intersection(graph.enabled_by([op]))))
        newly = graph.add([op])
        sets.append((*sets[-1], op))
        enables.append(enables[-1] + len(targets.intersection(newly)))
        added += newly
    graph.take_back(added)
    return sets, enables


def _bounds(graph: Closure, calls: Clauses, candidates: Sequence[str], targets: frozenset[str], most: int) -> list[int]:
    """Return for each size an upper bound on the ops that a set enables.

    It is the smaller of two numbers: of the ops that all candidates enable together, and of the ops that depend on each candidate,
    summed over the candidates with the most.
    """
    whole = len(targets.intersection(graph.enabled_by(candidates)))
    callers = _callers(calls)
    reach = sorted((len(targets & _leading_to(callers, op)) for op in candidates), reverse=True)
    return [min(whole, sum(reach[:size])) for size in range(most + 1)]


def _share_out(parts: Sequence[_Table], count: int) -> tuple[list[str], int]:
    """Combine the parts: return at most `count` kernels that enable the most ops, and an upper bound for any such choice."""
    best: list[tuple[int, tuple[str, ...]]] = [(0, ())] * (count + 1)
    bound = [0] * (count + 1)
    for part in parts:
        sizes = range(len(part.sets))
        best = [
            max(
                (
                    (best[total - size][0] + part.enables[size], best[total - size][1] + part.sets[size])
                    for size in sizes
                    if size <= total
                ),
                key=lambda found: (found[0], -len(found[1])),
            )
            for total in range(count + 1)
        ]
        bound = [max(bound[total - size] + part.bounds[size] for size in sizes if size <= total) for total in range(count + 1)]
    return list(best[count][1]), bound[count]


def _in_order(graph: Closure, kernels: Collection[str], targets: frozenset[str]) -> tuple[KernelToWrite, ...]:
    """Sort kernels by the number of ops that each enables, the most first.

    The kernels are added one by one, each time the one that enables the most. So an op that needs several is listed at the last.
    """
    ranked: list[KernelToWrite] = []
    left, added = sorted(kernels), []
    while left:
        op = max(left, key=lambda op: len(targets.intersection(graph.enabled_by([op]))))
        newly = graph.add([op])
        ranked.append(KernelToWrite(op, tuple(sorted(targets.intersection(newly)))))
        added += newly
        left.remove(op)
    graph.take_back(added)
    return tuple(sorted(ranked, key=lambda kernel: -len(kernel.enables)))
