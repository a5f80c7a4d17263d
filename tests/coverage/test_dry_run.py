"""Routes found with fake tensors: known failures are skipped, which does not change the result."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from on_core import CORE

import eagerdecomp as ed
from eagerdecomp.coverage.plan_report import Plan
from eagerdecomp.tracing.recorder import Recorder
from eagerdecomp.tracing.recursion import Chain


def net() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Softmax(-1))
    return model, (torch.randn(4, 8),)


def core_sample(seed: int) -> ed.OpSet:
    names = sorted(map(str, CORE))
    return ed.infra() | random.Random(seed).sample(names, 60)


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    runs = [0]
    apply = Recorder._apply

    def counted(*args: Any) -> Any:
        runs[0] += 1
        return apply(*args)

    monkeypatch.setattr(Recorder, "_apply", counted)
    return runs


def outcome(made: Plan) -> dict[str, Any]:
    return {one.op: (one.status, one.kernels, one.missing) for one in made.ops}


@pytest.mark.full
@pytest.mark.parametrize("ops", [ed.infra(), core_sample(1), core_sample(2), core_sample(3)], ids=["infra", "1", "2", "3"])
def test_known_failures_are_skipped_without_other_effects(ops: ed.OpSet, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = count_runs(monkeypatch)
    found = ed.plan(ops, model=net)
    remembered, runs[0] = runs[0], 0
    monkeypatch.setattr(Chain, "known_failure", lambda *_: None)
    again = ed.plan(ops, model=net)
    assert {op: reported[:2] for op, reported in outcome(found).items()} == {
        op: reported[:2] for op, reported in outcome(again).items()
    }
    assert found.with_status("missing")
    assert remembered < runs[0]
