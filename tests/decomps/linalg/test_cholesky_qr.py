"""Cholesky and QR on Core ATen: residuals, panels, columns of every size, and what they cost."""

from __future__ import annotations

import pytest
import torch
from on_core import check, kernel_calls, on_core, rand
from torch import Tensor

aten = torch.ops.aten

DTYPES = [torch.float64, torch.complex128]


def definite(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    matrix = rand(*shape, dtype=dtype)
    return matrix @ matrix.mH + shape[-1] * torch.eye(shape[-1], dtype=dtype)


def smooth(size: int, dtype: torch.dtype) -> Tensor:
    """The kernel matrix of points close to each other: neighbouring rows are nearly equal, and pivots small."""
    at = torch.linspace(0, 1, size, dtype=torch.float64)
    matrix = torch.exp(-50 * (at - at.unsqueeze(1)) ** 2)
    return (matrix + 30 * size * torch.finfo(dtype).eps * torch.eye(size)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
@pytest.mark.parametrize("size", [30, 70])
def test_the_residual_of_cholesky_is_lapacks(size: int, dtype: torch.dtype) -> None:
    """Within 4 times eager's, by the diagonal, for matrices of bad condition and with rows of very different sizes."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    scale = 10.0 ** -torch.linspace(0, 12, size, dtype=torch.float64)
    for matrix in (smooth(size, dtype), (scale.unsqueeze(1) * smooth(size, dtype) * scale).to(dtype)):
        root = matrix.to(wide).diagonal().real.sqrt()
        found = on_core(lambda: torch.linalg.cholesky(matrix))  # noqa: B023 - called at once
        ours, eagers = (
            float(((factor @ factor.mH - matrix.to(wide)).abs() / root / root.unsqueeze(1)).max())
            for factor in (found.to(wide), torch.linalg.cholesky(matrix).to(wide))
        )
        assert ours <= 4 * max(eagers, torch.finfo(dtype).eps)


def test_info_of_a_larger_matrix() -> None:
    """The 50th minor is the first that is not positive; the columns before it are those of the factor."""
    matrix = definite(2, 70, 70)
    matrix[0, 49, 49] = -1.0
    check(aten.linalg_cholesky_ex.default, matrix)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(70, 70), (2, 45, 70), (70, 45)])
def test_qr_by_panels(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """More columns than a panel has, some of zeros beyond their head or throughout."""
    matrix = rand(*shape, dtype=dtype)
    matrix[..., 1:, 0] = 0
    matrix[..., 40] = 0
    check(aten.geqrf.default, matrix)
    check(aten.linalg_qr.default, matrix, "complete")


@pytest.mark.parametrize("size", [10, 70])
def test_qr_of_columns_of_every_size(size: int) -> None:
    """Squares of the columns, and of what their projections leave, are far beyond the range."""
    scale = torch.logspace(-300, 300, size, dtype=torch.float64)
    matrix = rand(size, size) * scale
    matrix[2:, 5] = 1e-200 * matrix[:1, 5]
    unitary, upper = on_core(lambda: torch.linalg.qr(matrix))
    assert (unitary.mT @ unitary - torch.eye(size)).abs().max() < 1e-13
    lengths = (matrix / scale).norm(dim=0)
    assert ((unitary @ (upper / scale) - matrix / scale).norm(dim=0) < 1e-13 * lengths).all()


def test_roundings_of_panels_do_not_add_up_where_entries_are_alike() -> None:
    """All products of one panel with the others round alike: eleven roundings of the whole, if R is not refined."""
    matrix = torch.ones(65, 65, dtype=torch.float64)
    basis, upper = on_core(lambda: torch.linalg.qr(matrix))
    assert (basis @ upper - matrix).norm() <= 6 * torch.finfo(matrix.dtype).eps * matrix.norm()


@pytest.mark.parametrize("seed", range(4))
def test_a_repeated_column_leaves_only_rounding_errors(seed: int) -> None:
    """No bound is zero: the matrix product of two equal rows with a vector may round each of them in its own way."""
    torch.manual_seed(seed)
    column = rand(9, 1)
    matrix = torch.cat([rand(9, 2), column, column, -4 * column], 1)
    upper = on_core(lambda: torch.linalg.qr(matrix))[1]
    assert (upper.diagonal()[3:].abs() <= len(matrix) * torch.finfo(matrix.dtype).eps * matrix.norm()).all()


def test_a_column_of_zeros_leaves_zero() -> None:
    """`gels`, which refuses matrices that are not of full rank, looks for zeros on the diagonal."""
    matrix = rand(9, 5)
    matrix[:, 3] = 0
    assert on_core(lambda: torch.linalg.qr(matrix))[1].diagonal()[3] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 40, 40), (50, 35)])
def test_products_of_reflections(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    factors, tau = aten.geqrf(rand(*shape, dtype=dtype))
    check(aten.linalg_householder_product.default, factors, tau)
    other = rand(*shape[:-1], 2, dtype=dtype)
    for transpose in (False, True):
        check(aten.ormqr.default, factors, tau, other, True, transpose)
        check(aten.ormqr.default, factors, tau, other.mT.contiguous(), False, transpose)


@pytest.mark.full
def test_kernel_calls() -> None:
    """A column costs 5 calls of Cholesky's factorization and 16 of QR's, whose panels add few."""
    larger = definite(128, 128)
    assert kernel_calls(lambda: torch.linalg.cholesky_ex(larger)) <= 6 * 128
    assert kernel_calls(lambda: torch.linalg.qr(larger)) <= 20 * 128
    eight, nine = definite(8, 8), definite(9, 9)
    for op, each in ((aten.linalg_cholesky_ex.default, 5), (aten.geqrf.default, 16)):
        assert kernel_calls(lambda: op(nine)) - kernel_calls(lambda: op(eight)) <= each  # noqa: B023 - called at once
