"""Harvest ``footprints.json``: run every rule on the calls of torch's operator database and write down what it calls.

    python tools/harvest_footprints.py [--match REGEX] [--output FILE] [--check]

Each op that eager dispatches for an operator's samples, forward and backward, is a call to run the op's rules on; what those call
comes next, until every rule reached has been seen in a few kinds of call. No mode of ours is on: each op runs natively.
``--check`` compares with the file instead of writing it and exits with 1 where our own rules have come to call other ops.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from dispatched import Call, Listener, copied, heard
from harvested import by_line, options_of, told

import eagerdecomp
from eagerdecomp._torch.modes import without_torch_function
from eagerdecomp._torch.ops import OpOverload, torch_release
from eagerdecomp._torch.tensors import lazy_bits_visible
from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.schema import arguments_of, tensors_in
from eagerdecomp.program.key import key_of
from eagerdecomp.rules.rule import NoRoute, Rule
from eagerdecomp.rules.shipped import shipped_rules

FILE = Path(eagerdecomp.__file__).parent / "data" / f"torch-{torch_release()}" / "footprints.json"

CALLS = 12  # distinct calls per op whose rules are run
KINDS = 6  # distinct footprints kept per rule


def _works_unheard(rule: Rule, given: Sequence[Any], answer: Any, listener: Listener) -> bool:
    """Whether a C++ kernel made its result by no op, or filled by none the memory it allocated: on a backend it is no route."""
    heard = {id(tensor) for tensor in tensors_in([given, listener.answers])}
    if any(id(tensor) not in heard for tensor in tensors_in(answer)):
        return True
    allocates = {str(op).startswith("aten.empty") or str(op).startswith("aten.new_empty") for op, _, _ in listener.calls}
    return allocates == {True} and "empty" not in str(rule.op)


class Harvest:
    """What has been seen, and the calls that are still to be run."""

    most_calls = CALLS

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, Counter[tuple[tuple[str, int], ...]]]] = {}
        self._keys: dict[OpOverload, set[Any]] = {}
        self._waiting: deque[Call] = deque()

    def add(self, calls: Sequence[Call]) -> None:
        """Take calls in, run the rules of their ops, and of what those call."""
        self._waiting.extend(calls)
        while self._waiting:
            self._run(*self._waiting.popleft())

    def _run(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keys = self._keys.setdefault(op, set())
        try:
            key = key_of(op, arguments_of(op, args, kwargs))
            if key in keys or len(keys) >= self.most_calls:
                return
            keys.add(key)
        except TypeError:  # an argument without a key: a storage, a sparse tensor
            return
        found: dict[str, tuple[tuple[str, int], ...]] = {}
        for rule in self.rules(op):
            calls = self._listen(rule, args, kwargs)
            if calls is not None:
                footprint = tuple(sorted(Counter(str(called) for called, _, _ in calls).items()))
                found[rule.source] = footprint
                self.seen.setdefault(str(op), {}).setdefault(rule.source, Counter())[footprint] += 1
                self._waiting.extend(calls)
        self.met(op, args, kwargs, found)

    def rules(self, op: OpOverload) -> tuple[Rule, ...]:
        """Every rule there is for an op."""
        # Not the rules of the last resort: plans and `carrying_set` would count on them, at many calls for each op.
        return tuple(rule for rule in (*our_rules(op), *shipped_rules(op)) if rule.source != "small")

    def met(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], found: dict[str, tuple[tuple[str, int], ...]]
    ) -> None:
        """Told of each distinct call and of what each rule that takes it called; for whoever wants to know more."""

    def _listen(self, rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Call] | None:
        args, kwargs = copied(args), copied(kwargs)  # out of the listener's hearing
        with without_torch_function(), lazy_bits_visible(), torch._C._AutoDispatchBelowAutograd(), Listener() as listener:
            try:
                answer = rule(*args, **kwargs)
            except (NoRoute, RuntimeError, TypeError, ValueError, LookupError, AssertionError, NotImplementedError, AttributeError):
                return None  # the rule does not take this call
        if answer is NotImplemented or _works_unheard(rule, (*args, *kwargs.values()), answer, listener):
            return None
        return listener.calls

    def data(self) -> dict[str, Any]:
        """The footprints, in the order of the file."""
        return {
            op: {
                source: [dict(footprint) for footprint, _ in sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0]))[:KINDS]]
                for source, kinds in sorted(by_source.items())
            }
            for op, by_source in sorted(self.seen.items())
        }


def harvest(match: str) -> dict[str, Any]:
    """Footprints of every rule reached from the operators whose name matches."""
    found = Harvest()
    for calls in heard(match):
        found.add(calls)
    return found.data()


def main() -> int:
    options = options_of(__doc__, FILE, "operators whose name matches this expression")
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    rules = harvest(options.match)
    if not options.check:
        options.output.write_text(by_line("rules", rules), encoding="utf-8")
        return 0
    kept = json.loads(options.output.read_text(encoding="utf-8"))["rules"]
    stale = [
        f"{op} ({source})"
        for op, by_source in rules.items()
        for source, seen in by_source.items()
        if source in ("own", "schema") and not any(footprint in kept.get(op, {}).get(source, []) for footprint in seen)
    ]
    return told(stale)


if __name__ == "__main__":
    sys.exit(main())
