"""The page of linear algebra, Fourier transforms, sorting and the rest: its reasons, and its errors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import torch

from eagerdecomp.planner.rule_calls import load_calls

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "tools"))
TOOL: ModuleType = importlib.import_module("mathematics_table")


def test_each_rule_that_was_observed_to_read_data_is_named_with_the_reason() -> None:
    def reads(calls: Mapping[str, int]) -> bool:
        return not {"aten._local_scalar_dense.default", "aten.nonzero.default", "aten.masked_select.default"}.isdisjoint(calls)

    observed = {
        op
        for op, seen in load_calls().items()
        if any(reads(called) for call in seen.calls for key, called in call.by_rule.items() if key.startswith("own"))
    }
    named = set(TOOL.READERS).union(*(names for names, _, _ in TOOL.ELSEWHERE))
    assert {op.split(".")[1] for op in observed} <= named
    assert all(hasattr(torch.ops.aten, name) for name in named)


def test_errors_on_the_page_are_within_lapacks_threshold_or_twice_eagers() -> None:
    rows = [line.split(" | ") for line in TOOL.FILE.read_text().splitlines() if line.startswith("| `") and line.count(" | ") == 6]
    assert len(rows) == sum(map(len, TOOL.OPS.values()))
    for name, *_, ours, eagers, _, _ in rows:
        assert (ours == "exact") == (eagers == "exact"), name
        assert ours == "exact" or float(ours) <= max(30, 2 * float(eagers)), name


@pytest.mark.full
def test_the_page_is_what_the_tool_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(TOOL, "errors", lambda name, run: (1.0, 1.0))
    assert TOOL.without_measurements(TOOL.FILE.read_text()) == TOOL.without_measurements(TOOL.page())
