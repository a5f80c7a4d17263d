"""The tool that finds rules whose work or memory grows faster than eager's."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

import eagerdecomp as ed

ROOT = Path(__file__).parents[2]
aten = torch.ops.aten

pytestmark = pytest.mark.full


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("growth")


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


def test_products_and_factorizations_are_counted_by_their_multiplications(tool: Any) -> None:
    def work(run: Any) -> int:
        with tool.Kernels() as kernels:
            run()
        return int(kernels.seen.work)

    x = torch.eye(32)
    assert work(lambda: x @ x) == 32**3 + 3 * 32**2
    assert work(lambda: torch.linalg.inv(x)) > 32**3
    assert work(lambda: x + x) == 3 * 32**2
    assert work(lambda: x.t()) == 0


def test_peak_memory_counts_live_tensors(tool: Any) -> None:
    x = torch.ones(1000)
    with tool.Kernels() as kernels:
        y = x + 1
        for _ in range(5):
            y = y + 1
    assert kernels.seen.peak == 2 * 4000


def test_what_grows_along_a_size(tool: Any) -> None:
    x, y = torch.ones(5, 3), torch.ones(3, 5)
    value = ((x, [y]), {"dim": 5})
    (left, right), named = tool.Stretch(5).applied(value, 20)
    assert (left.shape, right[0].shape, named) == ((20, 3), (3, 20), {"dim": 5})
    (left, right), named = tool.Stretch(5, -1, with_integers=True).applied(value, 20)
    assert (left.shape, right[0].shape, named) == ((5, 3), (3, 20), {"dim": 20})
    assert [str(stretch) for _, stretch in tool.stretches(value)][-1] == "an argument of 5"


@pytest.mark.parametrize(
    "words",
    [["--match", "nosuchthing"], ["--match", "["], ["--processes", "0"], ["--memory", "0"], ["--markdown", "absent/page.md"]],
)
def test_a_wrong_command_line_ends_with_2(tool: Any, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        tool.main(["--match", "^abs$", *words])
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


#: Rows of the page that are known to fail and are not fixed yet; `ALLOWED` has those with a good reason.
FASTER = {
    "linalg.eigh",
    "linalg.eigvalsh",
    "linalg.matrix_rank.hermitian",
    "linalg.pinv.hermitian",
    "linalg.pinv.singular",
    "nn.functional.embedding_bag",
    "sparse.mm.reduce",
}


def test_the_page_has_the_head_of_the_table_and_no_other_failure(tool: Any) -> None:
    page = (ROOT / "docs" / "numbers" / "growth.md").read_text(encoding="utf-8")
    assert "\n".join(tool.HEAD) in page
    assert "python tools/growth.py" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 400
    assert {row.split("`")[1] for row in rows if not row.endswith("|  |")} <= FASTER | tool.ALLOWED.keys()
