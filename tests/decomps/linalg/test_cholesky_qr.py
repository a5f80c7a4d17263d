"""Cholesky and QR on Core ATen: factors, info, what is solved and built by them, and gradients are eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from on_core import check, kernel_calls, on_core
from torch import Tensor

aten = torch.ops.aten

DTYPES = [torch.float64, torch.complex128]
SHAPES = [(0, 0), (1, 1), (2, 2), (5, 5), (0, 3, 3), (2, 2, 3, 3), (18, 18)]


def rand(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def definite(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    matrix = rand(*shape, dtype=dtype)
    return matrix @ matrix.mH + shape[-1] * torch.eye(shape[-1], dtype=dtype)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_reads_one_triangle(upper: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = definite(*shape, dtype=dtype)
    half = matrix.triu() if upper else matrix.tril()
    check(aten.linalg_cholesky_ex.default, half, upper=upper)
    check(aten.cholesky.default, half.mT.contiguous().mT, upper)
    factor = torch.linalg.cholesky(matrix, upper=upper)
    check(aten.cholesky_inverse.default, factor, upper)
    check(aten._cholesky_solve_helper.default, rand(*shape[:-1], 2, dtype=dtype), factor, upper)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("diagonal", [[-1.0, 1, 1], [1.0, 0, 2], [1.0, 1, -3], [1.0, 2, 3]])
def test_info_says_which_minor_is_not_positive(diagonal: list[float], upper: bool) -> None:
    matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64)) + 0.1
    check(aten.linalg_cholesky_ex.default, torch.stack([torch.eye(3, dtype=torch.float64), matrix]), upper=upper)
    check(torch.linalg.cholesky, matrix)
    check(aten.cholesky.default, matrix)
    check(lambda x: torch.linalg.cholesky_ex(x, check_errors=True), matrix)


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


def test_an_imaginary_part_on_the_diagonal_is_ignored() -> None:
    matrix = definite(40, 40, dtype=torch.complex128)
    check(aten.linalg_cholesky_ex.default, matrix + 0.5j * torch.eye(40))


def test_info_of_a_larger_matrix() -> None:
    """The 50th minor is the first that is not positive; the columns before it are those of the factor."""
    matrix = definite(2, 70, 70)
    matrix[0, 49, 49] = -1.0
    check(aten.linalg_cholesky_ex.default, matrix)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (5, 3), (3, 5), (2, 4, 2), (3, 0), (0, 3), (19, 2)])
def test_qr_has_lapacks_signs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = rand(*shape, dtype=dtype)
    check(aten.geqrf.default, matrix)
    for mode in ("reduced", "complete", "r"):
        check(aten.linalg_qr.default, matrix, mode)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "matrix", [torch.zeros(4, 3), torch.eye(4), torch.ones(4, 4).triu(), -torch.eye(3), torch.ones(3, 3)[:, :1]]
)
def test_qr_of_columns_that_need_no_reflection(matrix: Tensor, dtype: torch.dtype) -> None:
    check(aten.linalg_qr.default, matrix.to(dtype))
    check(aten.geqrf.default, matrix.to(dtype))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_qr_is_orthogonal_and_a_factorization(dtype: torch.dtype) -> None:
    matrix = rand(60, 40, dtype=dtype)
    matrix[:, 20] = matrix[:, 19] * (1 + 1e-6)  # nearly dependent columns
    unitary, upper = on_core(lambda: torch.linalg.qr(matrix))
    eps = torch.finfo(dtype).eps
    assert torch.linalg.matrix_norm(unitary.mH @ unitary - torch.eye(40), 1) < 30 * 40 * eps
    assert torch.linalg.matrix_norm(unitary @ upper - matrix, 1) < 30 * 40 * eps * torch.linalg.matrix_norm(matrix, 1)


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
@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 4), (0, 3, 2), (3, 0), (2, 40, 40), (50, 35)])
def test_products_of_reflections(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    factors, tau = aten.geqrf(rand(*shape, dtype=dtype))
    check(aten.linalg_householder_product.default, factors, tau)
    other = rand(*shape[:-1], 2, dtype=dtype)
    for transpose in (False, True):
        check(aten.ormqr.default, factors, tau, other, True, transpose)
        check(aten.ormqr.default, factors, tau, other.mT.contiguous(), False, transpose)


@pytest.mark.full
@pytest.mark.parametrize(
    "run",
    [
        torch.linalg.cholesky,
        lambda x: torch.linalg.qr(x)[0],
        lambda x: torch.linalg.qr(x)[1],
        lambda x: torch.cholesky_solve(x, torch.linalg.cholesky(x)),
        lambda x: torch.cholesky_inverse(torch.linalg.cholesky(x)),
        lambda x: torch.linalg.householder_product(*torch.geqrf(x.detach())).matmul(x),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(dtype: torch.dtype, run: Callable[[Tensor], Tensor]) -> None:
    def gradient(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        out = run(leaf @ leaf.mH + 4 * torch.eye(3, dtype=x.dtype))
        weights = torch.arange(1.0, out.numel() + 1, dtype=torch.float64).view(out.shape)
        return torch.autograd.grad((out.abs() * weights).sum(), leaf)[0]

    check(gradient, rand(2, 3, 3, dtype=dtype))


@pytest.mark.full
def test_kernel_calls() -> None:
    """A column costs 5 calls of Cholesky's factorization and 16 of QR's, whose panels add few."""
    larger = definite(128, 128)
    assert kernel_calls(lambda: torch.linalg.cholesky_ex(larger)) <= 6 * 128
    assert kernel_calls(lambda: torch.linalg.qr(larger)) <= 20 * 128
    eight, nine = definite(8, 8), definite(9, 9)
    for op, each in ((aten.linalg_cholesky_ex.default, 5), (aten.geqrf.default, 16)):
        assert kernel_calls(lambda: op(nine)) - kernel_calls(lambda: op(eight)) <= each  # noqa: B023 - called at once
