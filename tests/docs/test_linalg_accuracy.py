"""The page on the accuracy of linear algebra: it has all calls, no ratio is over 4, and a part of it is computed again."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (ROOT / "docs" / "numbers" / "linalg_accuracy.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| call")
]

#: The module that the fixture `tool` returns.
TOOL = "linalg_accuracy"


def test_the_page_has_every_call_and_the_gradient_of_each_that_has_one(tool: ModuleType) -> None:
    assert list(dict.fromkeys(row[0] for row in ROWS)) == list(tool.OPS)
    assert {row[0] for row in ROWS if row[1] == "gradient"} == {name for name, op in tool.OPS.items() if op.parts is not None}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}, {row[1]}")
def test_no_error_is_over_four_times_that_of_eager(row: list[str]) -> None:
    assert row[-1] == "none" or float(row[-1].partition(":")[0]) <= 4


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
def test_errors_of_small_matrices_are_within_the_bounds(tool: ModuleType, dtype: torch.dtype) -> None:
    """More rows than a block of 32."""
    found = [one for name, op in tool.OPS.items() for kind in op.kinds for one in tool.compared(name, kind, 40, dtype)]
    assert len(found) > 100
    assert [one for one in found if not one.holds] == []
