"""The matrix exponential on Core ATen: batches of several norms, and rotations."""

from __future__ import annotations

import pytest
import torch
from on_core import check, on_core

exponential = torch.ops.aten.linalg_matrix_exp.default


def test_each_matrix_of_a_batch_by_its_own_norm() -> None:
    batch = torch.randn(4, 3, 3, dtype=torch.float64) * torch.tensor([1e-8, 0.1, 1.0, 9.0]).view(4, 1, 1)
    check(exponential, batch)


@pytest.mark.parametrize("angle", [1e2, 3e3])
def test_rotations_stay_orthogonal(angle: float) -> None:
    x = torch.randn(4, 4, dtype=torch.float64)
    found = on_core(lambda: exponential(angle * (x - x.mT)))
    missed = (found.mT @ found - torch.eye(4, dtype=torch.float64)).abs().amax()
    assert missed < 100 * angle * torch.finfo(torch.float64).eps
