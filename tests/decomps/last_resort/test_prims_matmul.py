"""Products of matrices on prims: sums of products."""

from __future__ import annotations

import pytest
import torch
from on_core import check

import eagerdecomp as ed
from eagerdecomp.decomps.math import one_hot_indexing

PRIMS = ed.prims()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32])
def test_products_of_matrices(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    left, right = (torch.randn(3, 5, 4) * 3).to(dtype), (torch.randn(3, 4, 2) * 3).to(dtype)
    check(torch.bmm, left, right, ops=PRIMS)
    check(torch.mm, left[0], right[0], ops=PRIMS)
    check(torch.mm, left[0], left[0].t(), ops=PRIMS)
    check(torch.mm, left[0][:, :0], right[0][:0], ops=PRIMS)


def test_a_large_product_is_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot_indexing, "BLOCK", 40)
    torch.manual_seed(0)
    check(torch.mm, torch.randn(7, 5), torch.randn(5, 3), ops=PRIMS)
    check(torch.bmm, torch.randn(2, 7, 5), torch.randn(2, 5, 3), ops=PRIMS)


@pytest.mark.full
def test_convolutions_linear_layers_and_attention_train_on_prims() -> None:
    def step(image: torch.Tensor, weight: torch.Tensor, matrix: torch.Tensor) -> list[torch.Tensor]:
        given = [one.requires_grad_() for one in (image, weight, matrix)]
        made = torch.nn.functional.conv2d(given[0], given[1], padding=1).flatten(2)
        seen = torch.nn.functional.scaled_dot_product_attention(made, made, made)
        return list(torch.autograd.grad(torch.nn.functional.linear(seen, given[2]).square().sum(), given))

    torch.manual_seed(0)
    shapes = (2, 3, 4, 4), (4, 3, 3, 3), (2, 16)
    check(step, *(torch.randn(shape, dtype=torch.float64) for shape in shapes), ops=PRIMS)


@pytest.mark.full
def test_sets_of_aten_are_reported_that_they_lack_a_product() -> None:
    ops = ed.core_aten() - ["aten.mm", "aten.bmm", "aten.addmm"]
    with ed.EagerDecompMode(ops), pytest.raises(ed.UnsupportedOpError):
        torch.mm(torch.ones(2, 3), torch.ones(3, 2))
    assert ed.plan(ops, ops=["aten.mm.default"])["aten.mm.default"].status == "missing"
    assert ed.plan(PRIMS, ops=["aten.mm.default"])["aten.mm.default"].status == "closed"
