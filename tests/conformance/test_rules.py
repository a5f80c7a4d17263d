"""`conformance/rules.py`: each rule, run as a kernel, equals eager in the conformance suite; the suite finds broken rules."""

from __future__ import annotations

import pytest

from conformance.mutants.rules import BROKEN_RULES, BrokenRule
from conformance.rules import decomposed_ops, found, run, unexpected
from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.opset import NAMED_SETS

CORE = NAMED_SETS["core"]()
PARTS = 24


@pytest.mark.parametrize(
    "ops", [pytest.param(name, marks=() if name == "core" else pytest.mark.full) for name in ("core", "prims", "tiny")]
)
@pytest.mark.parametrize("part", range(PARTS))
def test_our_rules_equal_eager(part: int, ops: str) -> None:
    held = NAMED_SETS[ops]()
    wanted = [op for op in decomposed_ops(held) if any(rule.source == "own" for rule in our_rules(op))]
    assert unexpected(run(held, wanted[part::PARTS], "quick", 0, processes=1)) == []


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_all_that_decomposes_equals_eager(part: int) -> None:
    assert unexpected(run(CORE, decomposed_ops(CORE)[part::PARTS], "quick", 1, processes=1)) == []


@pytest.mark.parametrize("broken", BROKEN_RULES[:6], ids=lambda one: one.name)
def test_a_broken_rule_is_found(broken: BrokenRule) -> None:
    assert found(broken, CORE, "quick", 0)


@pytest.mark.full
@pytest.mark.parametrize("broken", BROKEN_RULES[6:], ids=lambda one: one.name)
def test_every_broken_rule_is_found(broken: BrokenRule) -> None:
    assert found(broken, CORE, "quick", 0)
