"""Writes by indices: without a kernel of them, and refused before anything is written."""

from __future__ import annotations

import pytest
import torch
from on_core import CORE, check

import eagerdecomp as ed


def test_index_add_of_float16_on_a_set_without_index_put() -> None:
    x, index = torch.tensor([1.0, 2.0], dtype=torch.float16), torch.tensor([1, 1])
    check(torch.index_add, x, 0, index, torch.tensor([2.0, 4.0], dtype=torch.float16), ops=CORE - {"aten.index_put.default"})


@pytest.mark.parametrize("name", ["index_add_", "index_copy_"])
def test_an_index_below_zero_is_refused_and_nothing_written(name: str) -> None:
    x = torch.arange(12.0).view(3, 4)
    with ed.EagerDecompMode(ed.core_aten()), pytest.raises((RuntimeError, IndexError), match="index -1 is out of bounds"):
        getattr(x, name)(0, torch.tensor([-1]), torch.ones(1, 4))
    assert torch.equal(x, torch.arange(12.0).view(3, 4))


def bag_gradient(weight: torch.Tensor, mode: str) -> torch.Tensor:
    leaf = weight.detach().requires_grad_()
    found = torch.nn.functional.embedding_bag(torch.tensor([1, 2, 4, 4]), leaf, torch.tensor([0, 1, 1]), mode=mode)
    return torch.autograd.grad(found.square().sum(), leaf)[0]


def test_bags_that_are_sums_or_means_need_no_scatter_reduce() -> None:
    weight, ops = torch.arange(15.0).view(5, 3), CORE - ["aten._embedding_bag", "aten.scatter_reduce.two"]
    for mode in ("sum", "mean"):
        check(bag_gradient, weight, mode, ops=ops)
    with ed.EagerDecompMode(ops), pytest.raises(ed.UnsupportedOpError, match=r"aten\.scatter_reduce\.two"):
        bag_gradient(weight, "max")
