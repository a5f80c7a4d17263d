"""The matrix exponential on Core ATen: norms of every size, and what is not finite."""

from __future__ import annotations

import math

import pytest
import torch
from on_core import check, kernel_calls, on_core
from torch import Tensor

exponential = torch.ops.aten.linalg_matrix_exp.default


def test_each_matrix_of_a_batch_by_its_own_norm() -> None:
    batch = torch.randn(4, 3, 3, dtype=torch.float64) * torch.tensor([1e-8, 0.1, 1.0, 9.0]).view(4, 1, 1)
    check(exponential, batch)


LARGE = [
    torch.diag(torch.tensor([-1e6, -1e6])),
    torch.diag(torch.tensor([-1e6, 0.0])),
    torch.diag(torch.tensor([-1e10, 0.0], dtype=torch.float64)),
    torch.tensor([[-1e6, 1e6], [0.0, -1e6]]),
    torch.diag(torch.tensor([1e6, 0.0])),
    torch.tensor([[1.0, 2.0], [math.inf, 3.0]]),
    torch.tensor([[1.0, math.nan], [0.0, 3.0]], dtype=torch.float64),
]


@pytest.mark.parametrize("x", LARGE)
def test_large_norms_and_what_is_not_finite(x: Tensor) -> None:
    found, want = on_core(lambda: exponential(torch.stack([x, x / x.abs().amax()]))), exponential(x)
    torch.testing.assert_close(found[0], want, equal_nan=True)


@pytest.mark.parametrize("angle", [1e2, 3e3])
def test_rotations_stay_orthogonal(angle: float) -> None:
    x = torch.randn(4, 4, dtype=torch.float64)
    found = on_core(lambda: exponential(angle * (x - x.mT)))
    missed = (found.mT @ found - torch.eye(4, dtype=torch.float64)).abs().amax()
    assert missed < 100 * angle * torch.finfo(torch.float64).eps


def test_kernel_calls() -> None:
    x = torch.randn(3, 3)
    assert kernel_calls(lambda: exponential(x)) <= 130
    assert kernel_calls(lambda: exponential(x.double())) <= 137
