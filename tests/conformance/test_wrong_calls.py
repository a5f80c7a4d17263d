"""`conformance/wrong_calls.py`: calls that are wrong in one place raise in the mode as in eager, by class and text."""

from __future__ import annotations

import random

import pytest
import torch

import eagerdecomp as ed
from conformance.wrong_calls import SETS, Wrong, differences, differing, drawn_calls, mixed_calls, stored_calls
from eagerdecomp.coverage.analysis import aten_ops
from eagerdecomp.planner.rule_calls import load_calls

DRAWN = random.Random(0).sample(sorted(load_calls()), 120)
PARTS = 12


@pytest.mark.parametrize("ops", [pytest.param(name, marks=() if name == "core" else pytest.mark.full) for name in SETS])
@pytest.mark.parametrize("part", range(PARTS))
def test_stored_calls_raise_as_in_eager(part: int, ops: str) -> None:
    assert differences([*stored_calls()][part::PARTS], SETS[ops]()) == []


@pytest.mark.full
@pytest.mark.parametrize("ops", SETS)
@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_calls_raise_as_in_eager(part: int, ops: str) -> None:
    calls = [one for name in DRAWN[part::PARTS] for one in drawn_calls(name, 0)]
    assert differences(calls, SETS[ops]()) == []


@pytest.mark.full
def test_mixed_dtypes_promote_as_in_eager() -> None:
    ops = random.Random(0).sample([op for op in aten_ops() if torch.Tag.pointwise in op.tags], 100)
    assert differences([one for op in ops for one in mixed_calls(op, 0, 3)], ed.core_aten()) == []


def test_a_wrong_value_of_mixed_dtypes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list(mixed_calls(torch.ops.aten.logaddexp2.default, 0, 20))
    assert [text for one in calls if (text := differing(one, ed.core_aten()))] == []
    wrong = ed.register_decomposition("aten.logaddexp2.default")(lambda x, y: torch.ops.aten.add.Tensor(x, y))
    mode = ed.EagerDecompMode
    monkeypatch.setattr("conformance.wrong_calls.ed.EagerDecompMode", lambda ops: mode(ops, rules=[wrong]))
    assert any(" values, the worst" in differing(one, ed.core_aten()) for one in calls)


def test_a_call_that_only_the_mode_accepts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Wrong(torch.ops.aten.gelu.default, [torch.ones(3, dtype=torch.int64)], {}, "integers")
    assert differing(whole, ed.core_aten()) == ""
    accepting = ed.register_decomposition("aten.gelu.default")(lambda x, approximate="none": torch.ops.aten.abs.default(x))
    mode = ed.EagerDecompMode
    monkeypatch.setattr("conformance.wrong_calls.ed.EagerDecompMode", lambda ops: mode(ops, rules=[accepting]))
    assert "error returns, eager NotImplementedError" in differing(whole, ed.core_aten())
