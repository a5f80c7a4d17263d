"""Bunch and Kaufman's factorization on Core ATen: eager's pivots and factors, and solutions by LAPACK's test criteria."""

from __future__ import annotations

import pytest
import torch
from on_core import check, on_core, rand
from torch import Tensor

from eagerdecomp.eager.observe import significant_strides

aten = torch.ops.aten
factor = aten.linalg_ldl_factor_ex.default
solve = aten.linalg_ldl_solve.default

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(1, 1), (2, 2), (3, 3), (7, 7), (2, 3, 5, 5), (20, 20)]

#: Of LAPACK's ``dchksy``.
THRESHOLD = 30.0


def whole(x: Tensor, hermitian: bool) -> Tensor:
    strict = x.tril(-1)
    diagonal = x.diagonal(0, -2, -1)
    return strict + (strict.mH if hermitian else strict.mT) + torch.diag_embed(diagonal.real.to(x.dtype) if hermitian else diagonal)


@pytest.mark.full
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_choices_of_pivots(dtype: torch.dtype, hermitian: bool) -> None:
    """Entries of few sizes and no chance: every kind of pivot at every place, chosen as eager chooses."""
    sizes = torch.tensor([0.0, 1e-3, 1.0, 1.7, 40.0])
    matrices = rand(120, 5, 5, dtype=dtype) * sizes[torch.randint(5, (120, 5, 5))].to(dtype)
    _, pivots, info = torch.linalg.ldl_factor_ex(matrices, hermitian=hermitian)
    assert all((pivots[:, at] < 0).any() and (pivots[:, at] > 0).any() for at in range(5))
    matrices = matrices[info == 0]
    check(factor, matrices, hermitian=hermitian, strides=False)


@pytest.mark.full
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_residuals_of_solutions(shape: tuple[int, ...], dtype: torch.dtype, hermitian: bool) -> None:
    matrix, right = rand(*shape, dtype=dtype), rand(*shape[:-1], 3, dtype=dtype)
    factors, pivots, _ = on_core(lambda: factor(matrix, hermitian=hermitian))
    found = on_core(lambda: solve(factors, pivots, right, hermitian=hermitian))
    system = whole(matrix, hermitian)
    missed = (system @ found - right).abs().sum(-2)
    scale = system.abs().sum(-2).amax(-1, True) * found.abs().sum(-2)
    assert (missed <= THRESHOLD * torch.finfo(dtype).eps * scale).all()
    assert significant_strides(found) == significant_strides(solve(factors, pivots, right, hermitian=hermitian))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_errors_of_a_large_hermitian_matrix_do_not_grow(dtype: torch.dtype) -> None:
    # Imaginary parts of pivots once grew to 1e5 roundings at 65 rows.
    matrix = torch.randn(65, 65, dtype=dtype)
    matrix = matrix + matrix.mH
    right = torch.randn(65, 3, dtype=dtype)

    def missed() -> float:
        factors, pivots = torch.linalg.ldl_factor(matrix, hermitian=True)
        return float((matrix @ torch.linalg.ldl_solve(factors, pivots, right, hermitian=True) - right).norm())

    assert on_core(missed) <= 4 * missed()


def test_right_sides_of_other_batches() -> None:
    matrix, right = rand(5, 5, dtype=torch.float64), rand(2, 3, 5, 2, dtype=torch.float64)
    factors, pivots, _ = torch.linalg.ldl_factor_ex(matrix)
    # Eager reads past the end of one factorization for several right sides: what it gives for each is the standard.
    found = on_core(lambda: solve(factors.expand(3, 5, 5), pivots.expand(3, 5), right))
    want = torch.stack([torch.stack([solve(factors, pivots, one) for one in row]) for row in right])
    torch.testing.assert_close(found, want)
