"""Closing: which ops of a graph close, as kernels are added and taken back.

An op closes where each of its calls has a way of which every op closes; a kernel closes its own op. Each addition costs as much as
the ops that it closes have users, not as much as the graph, so that thousands of choices can be tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TypeAlias

__all__ = ["Clauses", "Closing", "closure", "each_without"]

#: op -> for each of its calls the ways it may go, each the ops that all must close.
Clauses: TypeAlias = Mapping[str, tuple[tuple[frozenset[str], ...], ...]]


class Closing:
    """The least set of ops such that an op is in it whose every call has a way within it.

    An op without calls, or with a call that has no way, closes by itself alone.

    Args:
        clauses: the graph.
        base: what closes from the start.
    """

    def __init__(self, clauses: Clauses, base: Iterable[str] = ()) -> None:
        self._closed: dict[str, None] = {}  # in the order in which they closed
        self._users: dict[str, list[int]] = {}  # op -> the ways that wait for it
        self._open_in_way: list[int] = []
        self._call_of_way: list[int] = []
        self._ways_of_call: list[int] = []  # how many of a call's ways are open to it
        self._op_of_call: list[str] = []
        self._open_calls: dict[str, int] = {}
        first = []
        for op, calls in clauses.items():
            self._open_calls[op] = len(calls)
            for ways in calls:
                self._ways_of_call.append(0)
                self._op_of_call.append(op)
                for way in ways:
                    number = len(self._open_in_way)
                    self._open_in_way.append(len(way))
                    self._call_of_way.append(len(self._op_of_call) - 1)
                    for needed in way:
                        self._users.setdefault(needed, []).append(number)
                    if not way and self._opens_call(number):
                        first.append(op)
        self._close([*first, *base])

    def __contains__(self, op: object) -> bool:
        return op in self._closed

    def holds(self, ops: Set[str]) -> bool:
        """Whether all of these close."""
        return self._closed.keys() >= ops

    @property
    def closed(self) -> frozenset[str]:
        """All that closes."""
        return frozenset(self._closed)

    def add(self, kernels: Iterable[str]) -> list[str]:
        """Add kernels; what closes by them that did not, they themselves among it."""
        before = len(self._closed)
        self._close(list(kernels))
        backwards = reversed(self._closed)
        return [next(backwards) for _ in range(len(self._closed) - before)]

    def take_back(self, closed: Sequence[str]) -> None:
        """Undo the last `add`, which answered these."""
        for op in closed:
            del self._closed[op]
            for way in self._users.get(op, ()):
                if not self._open_in_way[way]:
                    self._shuts_call(way)
                self._open_in_way[way] += 1

    def opened_by(self, kernels: Iterable[str]) -> list[str]:
        """What would close by kernels that does not."""
        found = self.add(kernels)
        self.take_back(found)
        return found

    def _close(self, waiting: list[str]) -> None:
        while waiting:
            op = waiting.pop()
            if op in self._closed:
                continue
            self._closed[op] = None
            for way in self._users.get(op, ()):
                self._open_in_way[way] -= 1
                if not self._open_in_way[way] and self._opens_call(way):
                    waiting.append(self._op_of_call[self._call_of_way[way]])

    def _opens_call(self, way: int) -> bool:
        """Note that all of a way closes; whether its op closes by that."""
        call = self._call_of_way[way]
        self._ways_of_call[call] += 1
        if self._ways_of_call[call] > 1:
            return False
        op = self._op_of_call[call]
        self._open_calls[op] -= 1
        return not self._open_calls[op]

    def _shuts_call(self, way: int) -> None:
        call = self._call_of_way[way]
        self._ways_of_call[call] -= 1
        if not self._ways_of_call[call]:
            self._open_calls[self._op_of_call[call]] += 1


def closure(clauses: Clauses, base: Iterable[str]) -> frozenset[str]:
    """The ops that close, with those given."""
    return Closing(clauses, base).closed


def each_without(closing: Closing, ops: Sequence[str], left_out: set[str]) -> Iterator[str]:
    """Each op in turn, while `closing` holds all the others, less those that the caller has put into `left_out` by then.

    By halves, so that each op is added once for each doubling of their number, not once for each other op.
    """
    if len(ops) == 1:
        yield ops[0]
        return
    half = len(ops) // 2
    for mine, others in ((ops[:half], ops[half:]), (ops[half:], ops[:half])):
        if mine:
            added = closing.add(op for op in others if op not in left_out)
            yield from each_without(closing, mine, left_out)
            closing.take_back(added)
