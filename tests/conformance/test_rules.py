"""`conformance/rules.py`: rules run as kernels through the conformance suite, which finds broken ones."""

from __future__ import annotations

import functools
import re

import pytest

from conformance.mutants.rules import BROKEN_RULES, BrokenRule
from conformance.rules import UNDRAWN, decomposed_ops, differences, found, run, undrawn
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.opset import NAMED_SETS, resolve_ops

CORE = NAMED_SETS["core"]()

#: So many parts have all ops with few calls each; the default tier tries one part, the full tier all.
QUICK = 36


@pytest.mark.parametrize("part", [pytest.param(part, marks=pytest.mark.full if part else ()) for part in range(QUICK)])
def test_rules_equal_eager_in_few_calls(part: int) -> None:
    report = run(CORE, every_op("core")[part::QUICK], 5, processes=1)
    assert differences(report) == []
    assert sum(one.cases > 0 for one in report.results) > 0.8 * len(report.results)


PARTS = 20


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["core", "prims", "tiny"])
@pytest.mark.parametrize("part", range(PARTS))
def test_all_rules_equal_eager(part: int, name: str) -> None:
    assert differences(run(NAMED_SETS[name](), every_op(name)[part::PARTS], 25, processes=1)) == []


@functools.cache
def every_op(name: str) -> list[OpOverload]:
    return decomposed_ops(NAMED_SETS[name]())


@pytest.mark.parametrize("name", ["gelu_backward.default", "elu_backward.default", "digamma.default", "lerp.Tensor"])
def test_what_is_permitted_hides_no_other_fault(name: str) -> None:
    assert found(BrokenRule(f"aten.{name}", "one more", lambda run, a: run() + 1), CORE, 40)


def test_rules_for_small_sets_are_among_them() -> None:
    assert resolve_ops(["aten.silu.default"])[0] in decomposed_ops(NAMED_SETS["tiny"]())


def test_every_rule_has_calls_or_a_reason_why_not() -> None:
    names = [op._schema.name.partition("::")[2] for op in undrawn()]
    assert [name for name in names if not any(re.fullmatch(one, name) for one in UNDRAWN)] == []
    assert [one for one in UNDRAWN if not any(re.fullmatch(one, name) for name in names)] == []


SOME = ("aten.mish.default", "aten.hardswish.default", "aten.logsumexp.default", "aten.t.default", "aten.mode.default")


@pytest.mark.parametrize("broken", [one for one in BROKEN_RULES if one.op in SOME], ids=lambda one: one.name)
def test_a_broken_rule_is_found(broken: BrokenRule) -> None:
    assert found(broken, CORE, 60)
