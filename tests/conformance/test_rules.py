"""`conformance/rules.py`: rules run as kernels through the conformance suite, which finds broken ones."""

from __future__ import annotations

import functools

import pytest

from conformance.mutants.rules import BROKEN_RULES, BrokenRule
from conformance.rules import decomposed_ops, differences, found, run
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.opset import NAMED_SETS, resolve_ops

CORE = NAMED_SETS["core"]()

RIGHT = ("mish", "logsumexp", "roll", "index_add", "upsample_nearest2d", "addmv", "hardswish", "erfinv")


@pytest.mark.parametrize("name", [f"aten.{one}.default" for one in RIGHT])
def test_a_rule_equals_eager(name: str) -> None:
    report = run(CORE, resolve_ops([name]), 60, processes=1)
    assert differences(report) == []
    assert report.results[0].cases >= 40


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


SOME = ("aten.mish.default", "aten.hardswish.default", "aten.logsumexp.default", "aten.t.default", "aten.mode.default")


@pytest.mark.parametrize("broken", [one for one in BROKEN_RULES if one.op in SOME], ids=lambda one: one.name)
def test_a_broken_rule_is_found(broken: BrokenRule) -> None:
    assert found(broken, CORE, 60)
