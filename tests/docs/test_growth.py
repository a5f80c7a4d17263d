"""The tool that finds rules whose work or memory grows faster than eager's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import eagerdecomp as ed

ROOT = Path(__file__).parents[2]
aten = torch.ops.aten

pytestmark = pytest.mark.full

#: The module that the fixture `tool` returns.
TOOL = "growth"


@ed.register_decomposition(aten.cumprod.default)
def by_a_table(self: torch.Tensor, dim: int) -> Any:
    """Multiply each number by all before it."""
    length = self.size(0)
    table = aten.expand.default(aten.unsqueeze.default(self, 0), [length, length])
    places = aten.arange.start_step(0, length, 1)
    before = aten.ge.Tensor(aten.unsqueeze.default(places, 1), aten.unsqueeze.default(places, 0))
    return aten.prod.dim_int(aten.where.self(before, table, aten.full.default([], 1.0)), 1)


def test_a_table_of_the_square_of_the_length_fails_and_a_scan_does_not(tool: Any) -> None:
    def call_of(length: int) -> Any:
        return torch.cumprod, (torch.ones(length), 0), {}

    table = tool.row_of("cumprod", "5 at -1", tool.LENGTHS[1], call_of, [by_a_table])
    assert table.failed == "work, memory"
    assert table.our_work == pytest.approx(2, abs=0.1)
    scan = tool.row_of("cumprod", "5 at -1", tool.LENGTHS[1], call_of)
    assert not scan.failed
    assert scan.our_work == pytest.approx(1, abs=0.3)


#: Rows of the page that are known to fail and are not fixed yet; `ALLOWED` has those with a good reason.
FASTER = {
    *("linalg.eigh", "linalg.eigvalsh", "linalg.matrix_rank.hermitian", "linalg.pinv.hermitian", "linalg.pinv.singular"),
    *("nn.functional.embedding_bag", "sparse.mm.reduce"),
}


def test_the_page_has_the_head_of_the_table_and_no_other_failure(tool: Any) -> None:
    page = (ROOT / "docs" / "numbers" / "growth.md").read_text(encoding="utf-8")
    assert "\n".join(tool.HEAD) in page
    assert "python tools/growth.py" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 400
    assert {row.split("`")[1] for row in rows if not row.endswith("|  |")} <= FASTER | tool.ALLOWED.keys()
