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


@pytest.mark.parametrize("name", ["sort", "hypot", "linalg_qr", "_linalg_eigh"])
def test_errors_are_ours_and_eagers_against_float64(name: str) -> None:
    run = next(ops[name] for ops in TOOL.OPS.values() if name in ops)
    assert all(0 <= error < 30 for error in TOOL.errors(name, run))
    wide = TOOL.Data(torch.float64, random=True)
    if name == "_linalg_eigh":  # a vector's sign is nobody's
        values, vectors = run(wide)
        assert TOOL._error(name, wide, (values, -vectors), run) < 1e-6
        assert TOOL._error(name, wide, (values * 1.001, vectors), run) > 1000
    else:
        assert TOOL._error(name, wide, run(wide), run) == 0


def test_one_digit_is_shown_rounded_up() -> None:
    assert [TOOL.shown(error) for error in (0.0, 0.31, 0.4, 2.0, 9.2, 19.0)] == ["exact", "0.4", "0.4", "2", "10", "20"]


@pytest.mark.full
def test_the_page_is_what_the_tool_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(TOOL, "errors", lambda name, run: (1.0, 1.0))
    assert TOOL.without_measurements(TOOL.FILE.read_text()) == TOOL.without_measurements(TOOL.page())
