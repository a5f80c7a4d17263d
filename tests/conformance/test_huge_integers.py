"""`conformance/huge_integers.py`: calls with huge and negative integers are refused, or return, as fast as in eager."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from conformance.huge_integers import costly, huge_calls
from eagerdecomp.planner.rule_calls import load_calls

pytestmark = pytest.mark.full

DRAWN = random.Random(0).sample([name for name in sorted(load_calls()) if huge_calls(name)], 24)


@pytest.mark.parametrize("name", [*DRAWN, "aten.adaptive_max_pool2d.default", "aten.eye.m", "aten.im2col.default"])
def test_huge_integers_cost_no_more_than_in_eager(name: str) -> None:
    assert costly(huge_calls(name), ed.core_aten()) == []


@ed.register_decomposition("aten.tril_indices.default")
def by_a_list(row: int, col: int, offset: int = 0, **options: Any) -> Any:
    pairs = [(i, j) for i in range(max(row, 0)) for j in range(max(0, min(col, i + offset + 1)))]
    return torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t()


def test_a_list_as_long_as_an_argument_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = ed.EagerDecompMode
    monkeypatch.setattr("conformance.huge_integers.ed.EagerDecompMode", lambda ops: mode(ops, rules=[by_a_list]))
    found = costly(huge_calls("aten.tril_indices.default"), ed.core_aten())
    assert any("killed by SIGXCPU" in text or "MemoryError" in text or "no memory" in text for text in found)
