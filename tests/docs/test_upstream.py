"""The table of rules that could go upstream marks a shipped entry that is not its operator, and has the existing rules."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

aten = torch.ops.aten
ROOT = Path(__file__).parents[2]

STALE = "docs/numbers/upstream.md is stale: run python tools/upstream_table.py"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("upstream_table")


X = torch.tensor([[1.5, -2.5, 0.1], [3.25, 7.0, -0.9]])

ENTRIES: dict[str, Callable[[Tensor], Any]] = {
    "same": lambda x: aten.sub.Tensor(x, aten.trunc.default(x)),
    "wrong value: 2 of 2": lambda x: aten.sub.Tensor(x, aten.floor.default(x)),
    "less exact: 2 of 2": lambda x: aten.add.Scalar(aten.sub.Tensor(x, aten.trunc.default(x)), 1e-4),
    "wrong strides: 1 of 2": lambda x: aten.sub.Tensor(x, aten.trunc.default(x)).contiguous(),
    "does not close: 2 of 2": lambda x: torch.ops.prims.sub(x, torch.ops.prims.trunc(x)),
}


@pytest.mark.parametrize("reported", ENTRIES)
def test_an_entry_is_distinguished_from_its_operator(tool: Any, monkeypatch: pytest.MonkeyPatch, reported: str) -> None:
    ops = tool.eligible()
    monkeypatch.setattr(tool, "shipped", lambda op: ENTRIES[reported] if op is aten.frac.default else None)
    monkeypatch.setattr(tool, "eligible", lambda: ops)
    rows = tool.measure([[(aten.frac.default, (X,), {})]])
    assert rows["aten.frac.default"].text() == reported


def test_rows_are_those_of_the_existing_rules(tool: Any) -> None:
    page = tool.FILE.read_text(encoding="utf-8")
    rows, unseen = page.split("No sample calls ")
    named = re.findall(r"^\| `([^`]*)` \| `([^`]*)`", rows, re.M)
    short = {str(op).removeprefix("aten.").removesuffix(".default"): tool.rule_files()[str(op)] for op in tool.eligible()}
    assert dict(named) | {op: short.get(op) for op in re.findall("`([^`]*)`", unseen)} == short, STALE


@pytest.mark.nightly
def test_the_page_is_what_is_measured(tool: Any) -> None:
    assert tool.main(["--check"]) == 0
