"""Calls on small op sets with unusual layouts give eager's result, eager's error, or have no route."""

from __future__ import annotations

from collections import Counter

import pytest
from sampled import part_of

from conformance.cases import full_name, opinfos
from conformance.judge import Observed
from conformance.small_sets import SETS, _judged, failures
from eagerdecomp import UnsupportedOpError

FIXED = (
    "nn.functional.group_norm",
    "nn.functional.layer_norm",
    "unflatten",
    "take_along_dim",
    "view_as_complex",
    "nn.functional.glu",
)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.* runs natively")
def test_a_fixed_sample_of_calls_passes() -> None:
    infos = [info for info in opinfos() if full_name(info) in FIXED]
    assert len(infos) == len(FIXED)
    counts: Counter[str] = Counter()
    found = list(failures(infos, ("infra", "core less views", "core less 0"), samples=1, counts=counts))
    assert found == [], "\n".join(map(str, found))
    assert counts["passed"] > 40


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.* runs natively")
def test_a_larger_sample_of_calls_passes() -> None:
    found = list(failures(part_of(opinfos(), 40), tuple(SETS)))
    assert found == [], "\n".join(map(str, found))


def test_an_error_that_differs_from_eagers_is_a_failure() -> None:
    result = Observed([], None, [], None, [], [])
    assert _judged(result, RuntimeError("view size"))[0] == "failed"
    assert _judged(RuntimeError("a"), IndexError("a"))[0] == "failed"
    assert _judged(RuntimeError("a"), result)[0] == "failed"
    assert _judged(RuntimeError("a"), RuntimeError("b")) == ("eager's error", "")
    assert _judged(result, UnsupportedOpError("op", "call")) == ("unsupported", "")
    assert _judged(result, result) == ("passed", "")
