"""Run rules without recorded data (a user's, or changed ones) on the recorded calls of their ops, and note the ops they call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from eagerdecomp.coverage.record_rule import NOT_TRIED, calls_of
from eagerdecomp.planner.rule_calls import SeenCall, SeenOp
from eagerdecomp.rules.rule import Rule

__all__ = ["with_rules"]


def with_rules(seen: Mapping[str, SeenOp], rules: Iterable[Rule]) -> tuple[Mapping[str, SeenOp], dict[str, str]]:
    """Add what these rules call on fake tensors to the recorded calls; also return op -> why a rule could not be run.

    If a rule cannot be run on a sample, fall back to the next rules' recorded calls.
    """
    found, notes = dict(seen), {}
    for rule in rules:
        op = str(rule.op)
        before = found.get(op, SeenOp(False, (), ()))
        calls, failed = [], []
        for call in before.calls:
            try:
                called = calls_of(rule, call.example, fake=True)
            except NOT_TRIED as error:
                failed.append(f"({call.example}): {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
                called = None
            calls.append(call if called is None else SeenCall(call.example, {**call.by_rule, rule.key: called}))
        found[op] = replace(before, calls=tuple(calls))
        if not before.calls:
            notes[op] = f"{rule}: no call of {op} was seen, so its kernels are not known"
        elif failed:
            notes[op] = f"{rule} could not be tried for {len(failed)} of {len(before.calls)} calls seen of {op}: {failed[0]}"
    return found, notes
