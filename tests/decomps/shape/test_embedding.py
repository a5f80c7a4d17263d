"""Bags of embeddings where a backend has one of two kernels, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check, kernel_calls
from torch import Tensor

aten = torch.ops.aten

NAMES = ["sum", "mean", "max"]
#: Core ATen without the ops that hold a whole embedding, so that ours are used.
WITHOUT = CORE - ["aten._embedding_bag", "aten.embedding", "aten.embedding_dense_backward"]

INDICES = torch.tensor([1, 2, 4, 5, 4, 4, 1])
OFFSETS = torch.tensor([0, 2, 2, 4])


def table(dtype: torch.dtype) -> Tensor:
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def bag_and_gradient(weight: Tensor, mode: str) -> Any:
    leaf = weight.detach().requires_grad_()
    output = F.embedding_bag(INDICES, leaf, OFFSETS, mode=mode)
    weights = torch.arange(1.0, output.numel() + 1, dtype=torch.float64).view(output.shape).to(output.dtype) / 8
    return output.detach(), torch.autograd.grad(output, leaf, weights)[0]


@pytest.mark.parametrize("native", ["_embedding_bag", "_embedding_bag_backward"])
@pytest.mark.parametrize("mode", NAMES)
def test_a_backend_with_one_of_the_two_trains_right(mode: str, native: str) -> None:
    for dtype in (torch.float32, torch.float64):
        check(bag_and_gradient, table(dtype), mode, ops=WITHOUT | {f"aten.{native}"})


def test_what_it_costs() -> None:
    def backward(mode: int) -> int:
        saved = aten._embedding_bag(weight, INDICES, OFFSETS, False, mode)[1:]
        fixed = (6, False, mode, False, None)
        return kernel_calls(lambda: aten._embedding_bag_backward(grad, INDICES, OFFSETS, *saved, *fixed))

    grad = torch.ones(4, 3)
    weight = table(torch.float32)
    assert kernel_calls(lambda: aten._embedding_bag_forward_only(weight, INDICES, OFFSETS)) == 1
    assert [backward(mode) for mode in (0, 1, 2)] == [8, 5, 6]
