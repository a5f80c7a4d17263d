"""Linear systems on Core ATen: solutions, factors, pivots, info, errors and gradients are eager's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import check, kernel_calls, on_core
from torch import Tensor

from eagerdecomp.decomps.linalg.lu import _factored

aten = torch.ops.aten
solve_triangular = aten.linalg_solve_triangular.default
lu_factor = aten.linalg_lu_factor_ex.default

DTYPES = [torch.float64, torch.complex128]
SHAPES = [(0, 0), (1, 1), (2, 2), (5, 5), (3, 4, 4), (0, 3, 3), (2, 2, 3, 3)]


def rand(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def mild(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Square, and well conditioned in its triangles too."""
    return 0.3 * rand(*shape, dtype=dtype) + torch.eye(shape[-1], dtype=dtype)


def column_by_column(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def gapped(x: Tensor) -> Tensor:
    return torch.stack([x, x], -1).flatten(-2)[..., ::2]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x,
    "columns": column_by_column,
    "gapped": gapped,
}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


# -- triangular systems -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (16, 16), (17, 17), (2, 33, 33)])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems(upper: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix, right = mild(*shape, dtype=dtype), rand(*shape[:-1], 3, dtype=dtype)
    check(solve_triangular, matrix, right, upper=upper)
    check(solve_triangular, matrix.mT, right.mT, upper=upper, left=False, unitriangular=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_triangular_systems_in_other_layouts(layout: str) -> None:
    matrix, right = LAYOUTS[layout](mild(2, 4, 4)), LAYOUTS[layout](rand(2, 4, 3))
    check(solve_triangular, matrix, right, upper=True)
    check(solve_triangular, matrix, right.mT, upper=False, left=False)


@pytest.mark.full
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (1, 3, 3), (0, 3, 3)])
def test_triangular_systems_with_conjugated_matrices_lie_as_eagers(shape: tuple[int, ...], left: bool) -> None:
    matrix = mild(*shape, dtype=torch.complex128)
    other = rand(*shape[:-2], *((3, 2) if left else (2, 3)), dtype=torch.complex128)
    more = rand(4, *other.shape, dtype=torch.complex128)
    views = (Tensor.conj, Tensor.adjoint, lambda x: column_by_column(x).conj(), lambda x: gapped(x).mH)
    for view in views:  # seen inside the call: copies of arguments have no lazy bits
        for right in (other, column_by_column(other), more):
            check(lambda a, b, view=view: solve_triangular(view(a), b, upper=True, left=left), matrix, right)
    check(lambda a, b: solve_triangular(a.mH, b.conj(), upper=True, left=left), matrix, other)


@pytest.mark.parametrize(("one", "other"), [((2, 1), (3,)), ((), (2, 3)), ((4,), ())])
def test_batches_broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    matrix, right = mild(*one, 3, 3), rand(*other, 3, 2)
    check(solve_triangular, matrix, right, upper=True)
    check(aten._linalg_solve_ex.default, matrix, right)
    factors, pivots, _ = lu_factor(matrix)
    check(aten.linalg_lu_solve.default, factors, pivots, right)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_older_triangular_solve(dtype: torch.dtype, transpose: bool) -> None:
    check(aten.triangular_solve.default, rand(2, 4, 3, dtype=dtype), mild(4, 4, dtype=dtype), True, transpose)


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


def test_the_delta_rule_of_linear_attention() -> None:
    """Qwen3-Next's chunks, with their gradients."""

    def run(matrix: Tensor, right: Tensor) -> tuple[Tensor, ...]:
        leaves = [matrix.detach().requires_grad_(), right.detach().requires_grad_()]
        out = torch.linalg.solve_triangular(*leaves, upper=False, unitriangular=True)
        return out.detach(), *torch.autograd.grad((out**2).sum(), leaves)

    check(run, 0.1 * rand(2, 2, 1, 64, 64), rand(2, 2, 1, 64, 8))


# -- LU -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (5, 3), (3, 5), (2, 4, 2), (3, 0), (0, 3), (2, 34, 36), (36, 34)])
def test_lu(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = rand(*shape, dtype=dtype)
    check(lu_factor, matrix)
    check(aten.linalg_lu.default, matrix)
    check(aten.lu_unpack.default, *lu_factor(matrix)[:2])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_lu_in_other_layouts(dtype: torch.dtype, layout: str) -> None:
    matrix = LAYOUTS[layout](rand(2, 4, 4, dtype=dtype))
    for op in (
        lu_factor,
        aten.linalg_lu.default,
        aten._linalg_det.default,
        aten._linalg_slogdet.default,
        aten.linalg_inv_ex.default,
    ):
        check(op, matrix)
    check(aten._linalg_solve_ex.default, matrix, LAYOUTS[layout](rand(2, 4, 3, dtype=dtype)))


def test_of_equal_candidates_the_first_is_the_pivot() -> None:
    check(lu_factor, torch.tensor([[1.0, 2, 0], [-1, 1, 3], [1, -2, 1]], dtype=torch.float64))


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("pivots", [False, True])
def test_parts_of_an_unpacked_factorization(pivots: bool, data: bool) -> None:
    check(aten.lu_unpack.default, *lu_factor(rand(2, 4, 3))[:2], data, pivots)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_solving_with_factors(dtype: torch.dtype, adjoint: bool, left: bool) -> None:
    factors, pivots, _ = lu_factor(rand(2, 4, 4, dtype=dtype))
    right = rand(2, 4, 3, dtype=dtype)
    check(aten.linalg_lu_solve.default, factors, pivots, right if left else right.mT, left=left, adjoint=adjoint)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_solutions_inverses_and_determinants(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix, right = rand(*shape, dtype=dtype), rand(*shape[:-1], 2, dtype=dtype)
    check(aten._linalg_solve_ex.default, matrix, right)
    check(aten._linalg_solve_ex.default, matrix, right.mT, left=False)
    check(aten.linalg_inv_ex.default, matrix)
    check(aten._linalg_det.default, matrix)
    check(aten._linalg_slogdet.default, matrix)


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4)])
def test_right_sides_that_are_vectors(shape: tuple[int, ...]) -> None:
    check(aten._linalg_solve_ex.default, rand(*shape[:-1], 4, 4), rand(*shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_residual_of_a_larger_system(dtype: torch.dtype) -> None:
    matrix, right = rand(70, 70, dtype=dtype), rand(70, 2, dtype=dtype)
    found = on_core(lambda: torch.linalg.solve(matrix, right))
    missed = torch.linalg.matrix_norm(right - matrix @ found, 1)
    scale = torch.linalg.matrix_norm(matrix, 1) * torch.linalg.matrix_norm(found, 1) * 70 * torch.finfo(dtype).eps
    assert missed / scale < 30


# Powers of two, so that no step of an elimination rounds: whether a pivot is zero must not go by the processor.
SINGULAR = torch.tensor([[1.0, 2, 4], [2, 4, 8], [1, 0, 1]])


@pytest.mark.full
@pytest.mark.parametrize("matrix", [SINGULAR, torch.zeros(2, 3, 3), torch.stack([torch.eye(3), SINGULAR])])
def test_singular_matrices(matrix: Tensor) -> None:
    check(lu_factor, matrix)
    check(aten._linalg_det.default, matrix)
    check(aten._linalg_slogdet.default, matrix)
    check(lambda x: torch.linalg.inv_ex(x).info, matrix)
    # The loud forms: LinAlgError, or a plain RuntimeError, as eager.
    for run in (torch.linalg.inv, torch.inverse, torch.linalg.lu_factor, lambda x: torch.linalg.solve(x, x)):
        check(run, matrix)
    check(lambda x: torch.linalg.inv_ex(x, check_errors=True), matrix)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (2, 3, 0), (0, 3, 3)])
def test_lu_without_pivoting_accepts_empty_matrices(shape: tuple[int, ...]) -> None:
    for factored in (torch.linalg.lu, torch.linalg.lu_factor, lu_factor):
        check(factored, rand(*shape), pivot=False)


@pytest.mark.parametrize(
    "run",
    [
        torch.linalg.inv,
        torch.linalg.det,
        torch.linalg.cholesky_ex,
        lambda x: torch.linalg.slogdet(x).logabsdet,
        lambda x: torch.linalg.solve(x, x.mT @ x),
        lambda x: torch.linalg.lu(x).U,
        lambda x: torch.logdet(x @ x.mH),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(dtype: torch.dtype, run: Callable[[Tensor], Any]) -> None:
    def gradient(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        out = run(leaf @ leaf.mH + 4 * torch.eye(3, dtype=x.dtype))
        out = out if isinstance(out, Tensor) else out[0]
        return torch.autograd.grad(out.abs().pow(2).sum(), leaf)[0]

    check(gradient, rand(2, 3, 3, dtype=dtype))


def test_second_derivatives() -> None:
    def run(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        near = leaf + 3 * torch.eye(2, dtype=x.dtype)
        first = torch.autograd.grad((torch.linalg.inv(near) ** 2).sum() + torch.linalg.slogdet(near)[1], leaf, create_graph=True)[0]
        return torch.autograd.grad((first**2).sum(), leaf)[0]

    check(run, rand(2, 2))


def test_kernel_calls() -> None:
    """A triangle of up to 12 rows: 4 a row. A larger one: 40 for the inverses of its blocks, 6 for each block. LU: 14 a column."""
    eight, nine, more = mild(8, 8), mild(9, 9), mild(64, 64)
    assert kernel_calls(lambda: solve_triangular(eight, eight, upper=True)) <= 40
    assert kernel_calls(lambda: solve_triangular(more, more, upper=True)) <= 60
    assert kernel_calls(lambda: lu_factor(nine)) - kernel_calls(lambda: lu_factor(eight)) <= 14


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


@pytest.mark.full
@pytest.mark.parametrize(
    ("size", "dtype"),
    [(1, torch.float32), (1, torch.complex64), (4, torch.float32), (5, torch.complex128), (12, torch.float64)],
)
def test_a_zero_pivot_leaves_infinities_and_nan_where_lapack_does(size: int, dtype: torch.dtype) -> None:
    def reported(op: Callable[..., Any]) -> Callable[..., Any]:
        """Whether a complex number divided by zero is infinite or NaN goes by the processor; that it is not finite does not."""

        def run(*args: Any, **kwargs: Any) -> Any:
            found = op(*args, **kwargs)
            leaves = (found,) if isinstance(found, Tensor) else tuple(found)
            return [torch.where(x.isfinite(), x, torch.nan) if x.is_complex() else x for x in leaves]

        return run

    other = rand(2, size, 3, dtype=dtype)
    for column in sorted({0, size // 2, size - 1}):
        system = mild(2, size, size, dtype=dtype)
        system[..., column] = 0
        for upper in (True, False):
            check(reported(solve_triangular), system, other, upper=upper)
            check(reported(solve_triangular), system, other.mT, upper=upper, left=False)
            for transpose in (False, True):
                check(reported(aten.triangular_solve.default), other, system, upper, transpose)
        check(reported(torch.linalg.inv_ex), system)
        check(reported(torch.linalg.solve_ex), system, other)
        check(reported(torch.linalg.solve_ex), system, other.mT, left=False)
        check(reported(torch.linalg.solve_ex), torch.zeros_like(system), other)
        check(reported(torch.linalg.inv_ex), torch.zeros_like(system))


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
