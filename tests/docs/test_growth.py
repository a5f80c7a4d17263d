"""The tool that finds rules whose time or memory grows faster than eager's."""

from __future__ import annotations

import functools
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
    calls = [functools.partial(torch.cumprod, torch.ones(length), 0) for length in (256, 1024, 4096)]
    assert "memory" in tool.row_of("cumprod", 5, 1, calls, [by_a_table]).failed
    assert "memory" not in tool.row_of("cumprod", 5, 1, calls).failed


def test_all_dimensions_of_one_size_are_stretched(tool: Any) -> None:
    x, y = torch.ones(5, 3), torch.ones(3, 5)
    (left, right), named = tool.stretched(((x, [y]), {"dim": 5}), 5, 20)
    assert (left.shape, right[0].shape, named) == ((20, 3), (3, 20), {"dim": 5})
    assert tool.sizes_of((x, [y])) == [5, 3]


def test_the_page_has_the_head_of_the_table(tool: Any) -> None:
    page = (ROOT / "docs" / "numbers" / "growth.md").read_text(encoding="utf-8")
    assert "\n".join(tool.HEAD) in page
    assert "python tools/growth.py" in page
