"""Empty batches, NaN, pivots of no matrix and dtypes that are refused: strides, info and errors are eager's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import outcome
from on_core import check, on_core
from torch import Tensor

linalg = torch.linalg


def flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [tensor for one in result for tensor in flat(one)]


def layout(result: Any) -> list[tuple[torch.Size, tuple[int, ...], bool]]:
    return [(tensor.shape, tensor.stride(), tensor.is_conj()) for tensor in flat(result)]


def same_layout(run: Callable[[], Any]) -> None:
    """Results have eager's shapes, strides (of empty tensors and of one element too) and conjugate bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert layout(on_core(run)) == layout(run())


def right(x: Tensor, columns: int) -> Tensor:
    return x.new_zeros(*x.shape[:-1], columns)


def below(x: Tensor, rows: int) -> Tensor:
    return x.new_zeros(*x.shape[:-2], rows, x.size(-1))


def pivots(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:-1], dtype=torch.int32)


def zeros(x: Tensor) -> Tensor:
    return x.new_zeros(x.shape[:-1])


#: Calls with a square matrix.
SQUARE: dict[str, Callable[[Tensor], Any]] = {
    "solve": lambda x: linalg.solve(x, right(x, 2)),
    "solve from the right": lambda x: linalg.solve(x, below(x, 2), left=False),
    "solve_ex": lambda x: linalg.solve_ex(x, right(x, 1)),
    "inv": linalg.inv,
    "inv_ex": linalg.inv_ex,
    "matrix_power": lambda x: linalg.matrix_power(x, -2),
    "cholesky": linalg.cholesky,
    "upper cholesky": lambda x: linalg.cholesky(x, upper=True),
    "cholesky_solve": lambda x: torch.cholesky_solve(right(x, 2), x),
    "cholesky_inverse": torch.cholesky_inverse,
    **{
        f"lu_solve {left} {adjoint}": lambda x, left=left, adjoint=adjoint: linalg.lu_solve(
            x, pivots(x), right(x, 2) if left else below(x, 2), left=left, adjoint=adjoint
        )
        for left in (True, False)
        for adjoint in (True, False)
    },
    **{
        f"solve_triangular {upper} {left}": lambda x, upper=upper, left=left: linalg.solve_triangular(
            x, right(x, 2) if left else below(x, 2), upper=upper, left=left
        )
        for upper in (True, False)
        for left in (True, False)
    },
    "triangular_solve": lambda x: torch.triangular_solve(right(x, 2), x),
    "ldl_factor": linalg.ldl_factor,
    "ldl_solve": lambda x: linalg.ldl_solve(x, pivots(x), right(x, 2)),
    "eigh": linalg.eigh,
    "eigvalsh": linalg.eigvalsh,
    "eig": linalg.eig,
    "lu_factor": linalg.lu_factor,
    "lu": linalg.lu,
    "lu_unpack": lambda x: torch.lu_unpack(x, pivots(x)),
    "qr": linalg.qr,
    "complete qr": lambda x: linalg.qr(x, "complete"),
    "geqrf": torch.geqrf,
    "svd": linalg.svd,
    "svdvals": linalg.svdvals,
    "householder_product": lambda x: linalg.householder_product(x, zeros(x)),
    "ormqr": lambda x: torch.ormqr(x, zeros(x), right(x, 2)),
    "lstsq": lambda x: linalg.lstsq(x, right(x, 2)),
    "lstsq by gelsd": lambda x: linalg.lstsq(x, right(x, 2), driver="gelsd"),
}


@pytest.mark.parametrize("shape", [(0, 3, 3), (0, 16, 16), (2, 0, 0)])
@pytest.mark.parametrize("name", SQUARE)
def test_no_elements(name: str, shape: tuple[int, ...]) -> None:
    for dtype in (torch.float32, torch.complex128):
        same_layout(lambda: SQUARE[name](torch.zeros(shape, dtype=dtype)))  # noqa: B023 - called at once


@pytest.mark.parametrize("shape", [(0, 3, 2), (0, 2, 3), (2, 0, 3), (2, 3, 0)])
@pytest.mark.parametrize("run", [linalg.qr, linalg.svd, linalg.lu_factor, linalg.lu, torch.geqrf], ids=lambda run: run.__name__)
def test_no_elements_of_rectangles(run: Callable[[Tensor], Any], shape: tuple[int, ...]) -> None:
    same_layout(lambda: run(torch.zeros(shape)))


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 1), (2, 1, 1)])
def test_one_eigenvalue_is_no_view_of_a_complex_number(shape: tuple[int, ...]) -> None:
    matrix = torch.ones(shape, dtype=torch.complex64)
    for run in (linalg.eigvalsh, lambda x: linalg.eigh(x)[0]):
        same_layout(lambda: run(matrix))  # noqa: B023 - called at once
        assert on_core(lambda: run(matrix)).untyped_storage().nbytes() == 4 * matrix.numel()  # noqa: B023


@pytest.mark.parametrize("left", [True, False])
def test_complex_solutions_have_eagers_conjugate_bit(left: bool) -> None:
    torch.manual_seed(0)
    matrix, other = torch.randn(2, 3, 3, dtype=torch.complex128), torch.randn(2, 3, 3, dtype=torch.complex128)
    factors, places = linalg.lu_factor(matrix)
    for run in (
        lambda: linalg.solve(matrix, other, left=left),
        lambda: linalg.lu_solve(factors, places, other, left=left),
        lambda: linalg.lu_solve(factors, places, other, left=left, adjoint=True),
    ):
        same_layout(run)
        torch.testing.assert_close(on_core(run), run())


# -- out= -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (7,), (4, 4), (0, 3)])
def test_strides_of_out_that_is_resized(shape: tuple[int, ...]) -> None:
    matrix, factors = torch.eye(4) + 0.1, torch.ones(4)
    for run in (
        lambda out: torch.cholesky_solve(torch.ones(4, 2), matrix, out=out),
        lambda out: torch.cholesky_inverse(matrix, out=out),
        lambda out: torch.ormqr(matrix, factors, matrix, out=out),
        lambda out: linalg.householder_product(matrix, factors, out=out),
    ):
        same_layout(lambda: run(torch.zeros(shape)))  # noqa: B023 - called at once


# -- NaN --------------------------------------------------------------------------------------------------------------


def test_ldl_reports_a_last_pivot_that_is_nan() -> None:
    matrix = torch.eye(3)
    matrix[2, 0] = torch.nan
    check(linalg.ldl_factor_ex, matrix)
    check(lambda: linalg.ldl_factor(matrix))
    check(lambda x: linalg.ldl_factor_ex(x).info, torch.full((1, 1), torch.nan))


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_zeros_below_the_diagonal_of_qr_stay_zero_with_nan(mode: str) -> None:
    matrix = torch.eye(4, 3)
    matrix[2, 0] = torch.nan
    check(lambda x: linalg.qr(x, mode)[1].tril(-1), matrix)


# -- batches and ranks of least squares -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((3, 4, 4), (2, 4, 4)),
        ((3, 4, 4), (1, 4, 4)),
        ((3, 4, 4), (4, 4)),
        ((4, 4, 4), (4, 5)),
        ((1, 4, 4), (4, 1)),
        ((2, 4, 4, 4), (2, 4, 5)),
        ((1, 4, 4), (3, 4, 2)),
        ((2, 1, 5, 4), (1, 3, 5, 2)),
        ((0, 4, 4), (2, 4, 4)),
        ((2, 3, 5), (1, 3, 5)),
    ],
)
def test_batches_of_least_squares(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    matrix, given = torch.randn(one, dtype=torch.float64), torch.randn(other, dtype=torch.float64)
    for driver in ("gels", "gelsy", "gelsd"):
        check(linalg.lstsq, matrix, given, driver=driver)
        kind, _ = outcome(lambda: linalg.lstsq(matrix, given, driver=driver))  # noqa: B023 - called at once
        if kind == "error":
            check(lambda: linalg.lstsq(matrix, given, driver=driver))  # noqa: B023 - called at once


@pytest.mark.parametrize("driver", ["gelsd", "gelss"])
@pytest.mark.parametrize("rcond", [-1.0, 0.5, None])
def test_rank_by_a_negative_rcond(driver: str, rcond: float | None) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(5, 3)
    matrix[:, 2] = matrix[:, 0]

    def run(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = linalg.lstsq(x, torch.ones(5, 2), rcond=rcond, driver=driver)
        return found.solution, found.rank, found.residuals

    check(run, matrix)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [-3, 0, 4, 9])
@pytest.mark.parametrize("shape", [(3, 3), (3, 4)])
def test_pivots_of_no_matrix(first: int, shape: tuple[int, int]) -> None:
    places, matrix = torch.tensor([first, 2, 3], dtype=torch.int32), torch.ones(shape)
    check(lambda: torch.lu_unpack(matrix, places))
    check(lambda: torch.lu_unpack(matrix, places, unpack_data=False))
    check(torch.lu_unpack, matrix, places, unpack_pivots=False)
    if shape == (3, 3):
        check(lambda: linalg.lu_solve(matrix, places, matrix))
        check(lambda: linalg.lu_solve(matrix, places, matrix, left=False))
        check(linalg.lu_solve, matrix, places, torch.ones(3, 0))
