"""The calls that each rule was seen to make, harvested once for a torch version and shipped as data.

A rule is a Python or C++ function; what it calls is known only by running it. The tools run every rule on the calls of torch's
operator database:

- ``tools/harvest_footprints.py`` writes ``footprints.json``, which the planner reads: per op and rule source, the distinct lists of
  ops that one call made, most frequent first. A rule without a footprint is not worse, only unknown.
- ``tools/harvest_calls.py`` writes ``calls.json``, which only a plan reads: the same by kind of call, with an example of each, also
  in a few other dtypes, and what the gradient of each op calls.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from eagerdecomp.ops.shipped_data import shipped_data

__all__ = ["Footprint", "Footprints", "SeenCall", "SeenOp", "load_calls", "load_footprints"]

#: What one call of a rule called: op -> how often.
Footprint: TypeAlias = Mapping[str, int]

#: op -> rule source -> the footprints seen, most frequent first.
Footprints: TypeAlias = Mapping[str, Mapping[str, tuple[Footprint, ...]]]


class _ByLine(Mapping[str, Mapping[str, tuple[Footprint, ...]]]):
    """The footprints of a text that holds one op a line, each line read when its op is asked for: few ever are."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = {line[1 : line.index('"', 1)]: line for line in lines}
        self._read: dict[str, Mapping[str, tuple[Footprint, ...]]] = {}

    def __getitem__(self, op: str) -> Mapping[str, tuple[Footprint, ...]]:
        found = self._read.get(op)
        if found is None:
            (rules,) = json.loads(f"{{{self._lines[op].removesuffix(',')}}}").values()
            found = self._read[op] = {source: tuple(seen) for source, seen in rules.items()}
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


@functools.cache
def load_footprints() -> Footprints:
    """The shipped footprints; none where they were harvested from another torch release, since its rules call other ops."""
    text = shipped_data("footprints.json")
    return {} if text is None else _ByLine(text.splitlines()[1:-1])


@dataclass(frozen=True)
class SeenCall:
    """One kind of call: an example, and what each rule that took it called."""

    example: str
    by_source: Mapping[str, Footprint]


@dataclass(frozen=True)
class SeenOp:
    """What was seen of one op.

    Attributes:
        eager: eager calls it for the operator database; others are met within rules.
        calls: kinds of call, the most frequent first.
        gradient: an example and what its backward called, for each kind; None where autograd has no gradient for it.
    """

    eager: bool
    calls: tuple[SeenCall, ...]
    gradient: tuple[tuple[str, Footprint | None], ...]


@functools.cache
def load_calls() -> Mapping[str, SeenOp]:
    """Return what was seen of each op, by name; nothing where it was harvested from another torch release."""
    text = shipped_data("calls.json")
    return {} if text is None else {op: _seen(entry) for op, entry in json.loads(text)["ops"].items()}


def _seen(entry: Mapping[str, Any]) -> SeenOp:
    footprints = entry["footprints"]
    calls = tuple(
        SeenCall(example, {source: footprints[number] for source, number in by_source.items()})
        for example, by_source in entry["calls"]
    )
    return SeenOp(entry["eager"], calls, tuple((example, footprint) for example, footprint in entry["gradient"]))
