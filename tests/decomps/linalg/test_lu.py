"""Linear systems on Core ATen: sizes at the ends of blocks, pivots, residuals, and what other devices than the CPU do."""

from __future__ import annotations

import math

import pytest
import torch
from compare import assert_same
from on_core import check, kernel_calls, on_core, rand
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp import Backend
from eagerdecomp.decomps.linalg.lu import _factored

aten = torch.ops.aten
solve_triangular = aten.linalg_solve_triangular.default
lu_factor = aten.linalg_lu_factor_ex.default

DTYPES = [torch.float64, torch.complex128]


def mild(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Square, and well conditioned in its triangles too."""
    return 0.3 * rand(*shape, dtype=dtype) + torch.eye(shape[-1], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("size", [15, 40, 100])
def test_backward_error_of_ill_conditioned_triangles(size: int, upper: bool, dtype: torch.dtype) -> None:
    """LAPACK's own criterion, for triangles whose condition is about ``2 ** size``."""
    matrix = rand(size, size, dtype=dtype)
    matrix = matrix.triu() if upper else matrix.tril()
    right = matrix @ rand(size, 2, dtype=dtype)
    found = on_core(lambda: solve_triangular(matrix, right, upper=upper))
    missed = torch.linalg.matrix_norm(right - matrix @ found, 1)
    scale = torch.linalg.matrix_norm(matrix, 1) * torch.linalg.matrix_norm(found, 1) * size * torch.finfo(dtype).eps
    assert missed / scale < 30


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 34, 36), (36, 34)])
def test_lu(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = rand(*shape, dtype=dtype)
    check(lu_factor, matrix)
    check(aten.linalg_lu.default, matrix)
    check(aten.lu_unpack.default, *lu_factor(matrix)[:2])


def test_kernel_calls_of_triangles_and_lu() -> None:
    """A triangle of up to 12 rows: 4 a row. A larger one: 40 for the inverses of its blocks, 5 for each block. LU: 14 a column.

    LU of a single matrix of more than 16 rows: 7 a column.
    """
    eight, nine, more = mild(8, 8), mild(9, 9), mild(64, 64)
    assert kernel_calls(lambda: solve_triangular(eight, eight, upper=True)) <= 40
    assert kernel_calls(lambda: solve_triangular(more, more, upper=True)) <= 60
    assert kernel_calls(lambda: lu_factor(nine)) - kernel_calls(lambda: lu_factor(eight)) <= 14
    assert kernel_calls(lambda: lu_factor(mild(48, 48))) - kernel_calls(lambda: lu_factor(mild(40, 40))) == 7 * 8


@pytest.mark.parametrize("shape", [(17, 17), (64, 64), (65, 70), (1, 130, 130)])
def test_a_matrix_whose_columns_have_one_largest_entry(shape: tuple[int, ...]) -> None:
    matrix = rand(*shape)
    factors, pivots, info = on_core(lambda: lu_factor(matrix))
    want = lu_factor(matrix)
    torch.testing.assert_close(factors, want[0], rtol=1e-9, atol=1e-9)
    assert torch.equal(pivots, want[1])
    assert torch.equal(info, want[2])


@pytest.mark.parametrize("bad", [0.0, math.nan])
@pytest.mark.parametrize("column", [0, 30, 69])
def test_a_column_without_a_pivot(column: int, bad: float) -> None:
    matrix = mild(70, 70)
    matrix[:, column] = bad
    found, want = on_core(lambda: lu_factor(matrix)), lu_factor(matrix)
    assert torch.equal(found[2], want[2])
    if not bad:
        torch.testing.assert_close(found[0], want[0])
        assert torch.equal(found[1], want[1])


def test_kernels_by_which_a_pivot_divided_by_itself_is_not_one() -> None:
    """The rest of a pivot's row may then be chosen again, in a matrix of low rank."""
    div = lambda x, y: x * ((1 / y) * (1 - 2**-20))  # noqa: E731
    backend = Backend("reciprocal", ed.core_aten(), {"aten.div.Tensor": div})
    matrix = rand(40, 2) @ rand(2, 40)
    with ed.EagerDecompMode(backend):
        order, lower, upper = torch.linalg.lu(matrix)
    assert torch.equal(order.sum(0), torch.ones(40, dtype=order.dtype))
    torch.testing.assert_close(order @ lower @ upper, matrix, rtol=1e-4, atol=1e-4)


def test_interchanges_are_brought_in_order_in_few_calls() -> None:
    factors, pivots, _ = lu_factor(rand(64, 64))
    assert kernel_calls(lambda: aten.lu_unpack.default(factors, pivots)) <= 60


@pytest.mark.parametrize("kind", ["two values", "few integers", "permutation"])
def test_pivots_among_equals_are_lapacks(kind: str) -> None:
    """Nothing rounds in the first columns, so that candidates are equal in size over and over."""
    size = 40
    matrix = {
        "two values": lambda: torch.where(torch.rand(size, size) < 0.5, 1.0, -1.0),
        "few integers": lambda: torch.randint(-2, 3, (size, size)).float(),
        "permutation": lambda: torch.eye(size)[torch.randperm(size)],
    }[kind]()
    check(lu_factor, matrix.double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (6, 3), (3, 6), (2, 40, 40), (33, 70)])
def test_without_exchanges_on_other_devices(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Eager has this on CUDA only, so the factors are checked by their product."""
    matrix = rand(*shape, dtype=dtype) + 8 * torch.eye(*shape[-2:], dtype=dtype)
    found = on_core(lambda: _factored(matrix if matrix.dim() == 3 else matrix[None], pivoting=False))
    packed, steps = found.packed.mT.reshape(shape), min(shape[-2:])
    lower, upper = packed.tril(-1)[..., :steps] + torch.eye(shape[-2], steps, dtype=dtype), packed.triu()[..., :steps, :]
    torch.testing.assert_close(lower @ upper, matrix)
    assert found.pivots.tolist() == [[*range(1, steps + 1)]] * (shape[0] if len(shape) == 3 else 1)
    for function in (torch.linalg.lu_factor_ex, torch.linalg.lu):
        want = function(matrix.to("meta"), pivot=False)
        assert_same(on_core(lambda: function(matrix.to("meta"), pivot=False)), want)  # noqa: B023 - called at once


def test_a_zero_on_the_diagonal_without_exchanges_is_divided_by() -> None:
    found = _factored(torch.tensor([[[0.0, 1.0], [1.0, 1.0]]]), pivoting=False)
    assert found.packed.mT.tolist() == [[[0.0, 1.0], [math.inf, -math.inf]]]
