"""Simultaneous rotations: what they make diagonal, and that the loop ends."""

from __future__ import annotations

import pytest
import torch
from on_core import rand

from eagerdecomp.decomps.math import rotations

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_logarithm_has_the_same_eigenvectors_and_orders_them_alike(dtype: torch.dtype) -> None:
    basis = torch.linalg.qr(rand(30, 30, dtype=dtype))[0]
    values = torch.logspace(0, -4, 30, dtype=dtype.to_real())
    matrix = (basis * values) @ basis.mH
    found = rotations.logarithm_of(matrix.unsqueeze(0))
    assert found is not None
    near = 100 * torch.finfo(dtype).eps
    torch.testing.assert_close(found[0] @ matrix, matrix @ found[0], atol=near, rtol=0)
    logarithms = (basis.mH @ found[0] @ basis).diagonal().real
    slopes = logarithms.diff() / values.log().diff() * torch.tensor(4.0).log()
    torch.testing.assert_close(slopes, torch.ones_like(slopes), atol=0.6, rtol=0)
    assert rotations.logarithm_of(torch.eye(30, dtype=dtype).unsqueeze(0)) is None


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("norm", [1e-9, 0.01, 0.2, 1.2])
def test_a_rotation_is_the_exponential_of_half_the_matrix(norm: float, short: bool) -> None:
    skew = rand(1, 6, 6, dtype=torch.float64)
    skew = skew - skew.mT
    skew = skew * (norm / torch.linalg.matrix_norm(skew, 2))
    found, length = rotations._rotation(2 * skew, torch.eye(6, dtype=torch.float64), short)
    assert norm <= length <= 1.3 * norm
    apart = found.mT @ found - torch.eye(6, dtype=torch.float64)
    assert torch.linalg.matrix_norm(apart, 2) <= max(1e-15, 1e-5 * norm**10, norm**4 / 3 if norm < 0.05 else 0)
    # About the same angles will do: they are Jacobi's where a pair is alone.
    assert torch.linalg.matrix_norm(found - torch.linalg.matrix_exp(skew), 2) <= 0.2 * norm**3 + 1e-15


@pytest.mark.parametrize("count", [1, 2])
def test_a_long_step_is_shortened(count: int) -> None:
    skew = rand(count, 6, 6, dtype=torch.float64)
    skew = 100 * (skew - skew.mT)
    found, length = rotations._rotation(skew, torch.eye(6, dtype=torch.float64), False)
    assert length > 10
    assert torch.linalg.matrix_norm(found.mT @ found - torch.eye(6), 2).max() < 1e-3


def test_the_loop_ends_where_rounding_errors_are_larger_than_it_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotations, "_STEPS", 4)
    matrix = torch.ones(1, 12, 12)
    found = rotations.diagonalized(matrix)
    assert found is not None
    torch.testing.assert_close(found[1].amax(), torch.tensor(12.0))
