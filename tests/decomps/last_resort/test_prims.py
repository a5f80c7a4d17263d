"""Picking, placing and products on prims in blocks; random numbers of eager's stream."""

from __future__ import annotations

import pytest
import torch
from on_core import check, on_core

import eagerdecomp as ed
from eagerdecomp.decomps.math import one_hot_indexing

PRIMS = ed.prims()


@pytest.mark.full
def test_long_dimensions_are_processed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot_indexing, "BLOCK", 40)
    torch.manual_seed(0)
    x, index = torch.randn(9, 5) * 4, torch.tensor([[3, 0, 8, 8, 1], [1, 1, 2, 0, 7], [0, 0, 0, 0, 0]])
    check(torch.gather, x, 0, index, ops=PRIMS, exact=True)
    check(torch.scatter, x, 0, index, x, ops=PRIMS, exact=True)
    check(torch.scatter_add, x, 0, index, x, ops=PRIMS)
    check(torch.nonzero, x > 0, ops=PRIMS)
    check(torch.sort, x, 0, ops=PRIMS, exact=True)


def test_a_large_product_is_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot_indexing, "BLOCK", 40)
    torch.manual_seed(0)
    check(torch.mm, torch.randn(7, 5), torch.randn(5, 3), ops=PRIMS)
    check(torch.bmm, torch.randn(2, 7, 5), torch.randn(2, 5, 3), ops=PRIMS)


@pytest.mark.full
def test_sets_of_aten_are_reported_that_they_lack_a_product() -> None:
    ops = ed.core_aten() - ["aten.mm", "aten.bmm", "aten.addmm"]
    with ed.EagerDecompMode(ops), pytest.raises(ed.UnsupportedOpError):
        torch.mm(torch.ones(2, 3), torch.ones(3, 2))
    assert ed.plan(ops, ops=["aten.mm.default"])["aten.mm.default"].status == "missing"
    assert ed.plan(PRIMS, ops=["aten.mm.default"])["aten.mm.default"].status == "closed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_uniform_numbers_are_those_of_eagers_own_stream(dtype: torch.dtype) -> None:
    def draw() -> list[torch.Tensor]:
        torch.manual_seed(5)
        return [torch.rand(3, 4, dtype=dtype), torch.rand(2, dtype=dtype)]

    for ours, theirs in zip(on_core(draw, PRIMS), draw(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
