"""Footprints: which ops each rule calls, harvested once for a torch version and shipped as data.

A rule is a Python or C++ function; what it calls is known only by running it. ``tools/harvest_footprints.py`` runs every rule on
the calls of torch's operator database and writes ``footprints.json``: per op and rule source, the distinct lists of ops that one
call made, most frequent first. A rule without a footprint is not worse, only unknown.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from eagerdecomp.ops.shipped_data import shipped_data

__all__ = ["Footprint", "Footprints", "load_footprints"]

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
