"""Routes found with fake tensors: known failures are skipped, which does not change the result."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import eagerdecomp as ed
from conformance.scoreboard import random_core_subset
from eagerdecomp.tracing.recorder import Recorder
from eagerdecomp.tracing.recursion import Chain


def net() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Softmax(-1))
    return model, (torch.randn(4, 8),)


@pytest.mark.full
@pytest.mark.parametrize("ops", [ed.infra(), *(random_core_subset(0.7, seed) for seed in (1, 2, 3))], ids=["infra", "1", "2", "3"])
def test_known_failures_are_skipped_without_other_effects(ops: ed.OpSet, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, apply = [0], Recorder._apply

    def counted(*args: Any) -> Any:
        runs[0] += 1
        return apply(*args)

    monkeypatch.setattr(Recorder, "_apply", counted)
    found = ed.plan(ops, model=net)
    remembered, runs[0] = runs[0], 0
    monkeypatch.setattr(Chain, "known_failure", lambda *_: None)
    again = ed.plan(ops, model=net)
    assert [(one.op, one.status, one.kernels) for one in found.ops] == [(one.op, one.status, one.kernels) for one in again.ops]
    assert found.with_status("missing")
    assert remembered < runs[0]
