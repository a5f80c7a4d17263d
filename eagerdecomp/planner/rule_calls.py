"""The calls that each rule makes, recorded once for a torch release and shipped as data.

A rule is a Python or C++ function, so it must run to show which ops it calls. ``tools/record_rules.py`` runs every rule on the
calls of torch's operator database (OpInfo) and writes ``rules.json.gz``: for each op, examples of its calls, the ops that each rule
calls for them, and the ops that the gradient calls. The planner reads which ops each rule called, and how often. A plan also reads
the examples.

The data of a rule is valid only while the rule's code is unchanged (`code_hash`). A plan runs a changed rule again, and the planner
does not skip it. ``python tools/record_rules.py --changed`` records such rules in seconds.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from eagerdecomp._torch.ops import dotted, op_named, op_names, torch_release
from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.shipped_data import nearest_release, shipped_data
from eagerdecomp.rules.code_hash import code_hash
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.shipped import is_made_of_ops

__all__ = ["FILE", "Footprint", "Footprints", "SeenCall", "SeenOp", "changed_rules", "is_changed", "load_calls", "load_footprints"]

#: The name of the file in ``data/torch-<release>``.
FILE = "rules.json.gz"

#: The ops that one call of a rule calls: op -> number of calls.
Footprint: TypeAlias = Mapping[str, int]

#: op -> `Rule.key` -> footprints of the rule, the most frequent first.
Footprints: TypeAlias = Mapping[str, Mapping[str, tuple[Footprint, ...]]]

_KINDS = 6  # maximum number of footprints per rule that the planner uses


@dataclass(frozen=True)
class SeenCall:
    """One kind of call: an example, and `Rule.key` -> the footprint of each rule that covers it."""

    example: str
    by_rule: Mapping[str, Footprint]


@dataclass(frozen=True)
class SeenOp:
    """The recorded data of one op.

    Attributes:
        eager: whether eager calls the op for the operator database; other ops were called only by rules.
        calls: kinds of call, the most frequent first.
        gradient: for each kind of call an example and the footprint of its backward; None if there is no gradient.
        changed: rules of this library that have changed since, and have no valid data.
    """

    eager: bool
    calls: tuple[SeenCall, ...]
    gradient: tuple[tuple[str, Footprint | None], ...]
    changed: tuple[Rule, ...] = ()


class _LazySeenOps(Mapping[str, SeenOp]):
    """Op -> what was recorded, from a line of text for each op. A line is parsed when its op is first looked up."""

    def __init__(self, lines: Mapping[str, str]) -> None:
        self._lines = lines
        self._read: dict[str, SeenOp] = {}

    def __getitem__(self, op: str) -> SeenOp:
        found = self._read.get(op)
        if found is None:
            found = self._read[op] = _current(op, self.entry(op))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def entry(self, op: str) -> Mapping[str, Any]:
        """Return the recorded data of an op, including rules that have changed since."""
        (entry,) = json.loads(f"{{{self._lines[op].removesuffix(',')}}}").values()
        for source in ("composite", "explicit"):
            if not is_made_of_ops(op, source):
                for _, by_rule, _ in entry["calls"]:
                    by_rule.pop(source, None)
        return entry  # type: ignore[no-any-return]


class _Footprints(Mapping[str, Mapping[str, tuple[Footprint, ...]]]):
    """The footprints of ops. The file is read at the first lookup, and a line is parsed when its op is looked up."""

    def __init__(self) -> None:
        self._found: dict[str, Mapping[str, tuple[Footprint, ...]]] = {}

    def __getitem__(self, op: str) -> Mapping[str, tuple[Footprint, ...]]:
        found = self._found.get(op)
        if found is None:
            found = self._found[op] = _footprints(load_calls().entry(op))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(load_calls())

    def __len__(self) -> int:
        return len(load_calls())


@functools.cache
def load_calls() -> _LazySeenOps:
    """Return the recorded data of each op that this torch has, by name, from the nearest release of torch (`nearest_release`)."""
    release = nearest_release(FILE)
    text = shipped_data(FILE, release)
    assert text is not None  # nearest_release names a release that has the file
    lines = {line[1 : line.index('"', 1)]: line for line in text.splitlines()[1:-1]}
    if release != torch_release():
        here = {dotted(name) for name in op_names()}
        lines = {op: line for op, line in lines.items() if op in here or not op.startswith(("aten.", "prims."))}
    return _LazySeenOps(lines)


def load_footprints() -> Footprints:
    """Return the footprints of each rule of each op, including rules that have changed since."""
    return _Footprints()


def is_changed(op: str, key: str) -> bool:
    """Return whether a rule of this library has changed since it was recorded."""
    calls = load_calls()
    return op in calls and any(rule.key == key for rule in calls[op].changed)


def changed_rules(op: str, hashes: Mapping[str, str]) -> tuple[set[str], tuple[Rule, ...]]:
    """Return the library's rules of an op that have changed since they were recorded, or were never recorded.

    Args:
        op: the op's name.
        hashes: `Rule.key` -> the hash of the rule when it was recorded.

    Returns:
        The keys of recorded rules that changed or are gone, and the rules as they are now.
    """
    found = op_named(op)
    rules = () if found is None else our_rules(found)
    changed = tuple(rule for rule in rules if hashes.get(rule.key) != code_hash(rule))
    return hashes.keys() - {rule.key for rule in rules if rule not in changed}, changed


def _current(op: str, entry: Mapping[str, Any]) -> SeenOp:
    """Return the recorded data of an op's rules that have not changed."""
    stale, changed = changed_rules(op, entry["hashes"])
    called = entry["footprints"]
    calls = (
        SeenCall(example, {key: called[number] for key, number in by_rule.items() if key not in stale})
        for example, by_rule, _ in entry["calls"]
    )
    gradient = tuple((example, footprint) for example, footprint in entry["gradient"])
    return SeenOp(entry["eager"], tuple(calls), gradient, changed)


def _footprints(entry: Mapping[str, Any]) -> Mapping[str, tuple[Footprint, ...]]:
    """Return the footprints of each rule of an op, the most frequent first."""
    called = entry["footprints"]
    weights: dict[str, Counter[int]] = {}
    for _, by_rule, weight in entry["calls"]:
        for key, number in by_rule.items():
            if weight:
                weights.setdefault(key, Counter())[number] += weight
    footprints = {}
    for key, found in weights.items():
        order = sorted(found, key=lambda number: (-found[number], sorted(called[number].items())))
        footprints[key] = tuple(called[number] for number in order[:_KINDS])
    return footprints
