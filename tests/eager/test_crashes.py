"""Calls for which eager's kernels crash or do not end. Eager itself is not run here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import on_core

aten = torch.ops.aten
ONE = torch.ones(())


@pytest.mark.parametrize(
    ("op", "args", "words"),
    [
        (aten.nll_loss_backward.default, (ONE, torch.ones(3, 4), torch.tensor([0, 9, 1]), None, 1, -100, ONE), "Target 9 is out"),
        (aten.nll_loss2d_backward.default, (ONE, torch.ones(1, 4, 1, 1), torch.tensor([[[-1]]]), None, 1, -100, ONE), "Target -1"),
        (aten.adaptive_max_pool2d_backward.default, (torch.ones(1, 1, 1), torch.ones(1, 2, 2), torch.tensor([[[7]]])), "index out"),
        (
            aten.adaptive_max_pool3d_backward.default,
            (torch.ones(3, 1, 1, 1), torch.ones(1, 2, 2, 2), torch.zeros(3, 1, 1, 1, dtype=torch.int64)),
            "expected a gradient with the planes",
        ),
        (
            aten.fractional_max_pool3d_backward.default,
            (torch.ones(3, 1, 1, 1), torch.ones(1, 2, 2, 2), [1] * 3, [1] * 3, torch.zeros(3, 1, 1, 1, dtype=torch.int64)),
            "must have the shape",
        ),
        (
            aten._masked_softmax_backward.default,
            (torch.ones(2, 16), torch.ones(1, 2), torch.zeros(2, 16, dtype=torch.bool), 1),
            "expected an output of the shape",
        ),
    ],
    ids=str,
)
def test_gradients_refuse_what_the_kernel_writes_elsewhere(op: Any, args: tuple[Any, ...], words: str) -> None:
    with pytest.raises((RuntimeError, IndexError), match=words):
        on_core(lambda: op(*args))


def test_a_binomial_count_of_nan_ends() -> None:
    assert on_core(lambda: torch.binomial(torch.tensor([float("nan"), 3.0]), torch.tensor([0.5, 1.0])))[1] == 3


def test_distances_of_no_rows_have_a_gradient() -> None:
    x = torch.zeros(0, 3, requires_grad=True)
    assert on_core(lambda: torch.autograd.grad(torch.nn.functional.pdist(x).sum(), x)[0]).shape == (0, 3)
