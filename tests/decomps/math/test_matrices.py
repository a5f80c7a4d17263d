"""Triangular matrices on Core ATen: inverses and solutions by blocks, of every size, half and batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.decomps.math.matrices import inverse_triangular, solve_triangular

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
#: One row, one block, blocks that halve evenly and unevenly, and no matrix.
SHAPES = [(1, 1, 1), (2, 5, 5), (3, 32, 32), (1, 33, 33), (2, 67, 67), (1, 130, 130), (0, 3, 3), (2, 0, 0)]


def triangles(*shape: int, dtype: torch.dtype, upper: bool, unit: bool) -> tuple[Tensor, Tensor]:
    """Matrices with NaN in the triangle that must not be read, and the triangles themselves."""
    matrix = torch.randn(shape, dtype=dtype) / shape[-1] ** 0.5
    one = torch.eye(shape[-1], dtype=dtype)
    strict = matrix.triu(1) if upper else matrix.tril(-1)
    clean = strict + (one if unit else 2 * one)
    unread = torch.ones(shape[1:]).tril(-1) if upper else torch.ones(shape[1:]).triu(1)
    unread = unread.bool() | one.bool() if unit else unread.bool()
    return torch.where(unread, torch.nan, clean), clean


def calls(run: Callable[[], Tensor]) -> int:
    with ed.BackendRecorder() as seen:
        run()
    return seen.ops.total()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_inverses_and_solutions(unit: bool, upper: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    given, clean = triangles(*shape, dtype=dtype, upper=upper, unit=unit)
    one = torch.eye(shape[-1], dtype=dtype)
    bound = 40 * torch.finfo(dtype).eps
    for refine in (False, True):
        inverse = inverse_triangular(given, upper=upper, unit=unit, refine=refine)
        assert inverse.shape == clean.shape
        assert torch.equal(inverse, inverse.triu() if upper else inverse.tril())
        if clean.numel():
            assert (clean @ inverse - one).abs().max() <= bound
    right = torch.randn(*shape[:-1], 3, dtype=dtype)
    found = solve_triangular(given, right, upper=upper, unit=unit)
    if clean.numel():
        assert (clean @ found - right).abs().max() <= bound * found.abs().max()


def test_the_number_of_calls_grows_with_blocks_and_levels() -> None:
    matrix = torch.randn(1, 256, 256).triu() + 16 * torch.eye(256)
    assert calls(lambda: inverse_triangular(matrix, upper=True, refine=False)) <= 80
    assert calls(lambda: inverse_triangular(matrix.expand(5, 256, 256), upper=True)) <= 100
    assert calls(lambda: solve_triangular(matrix, matrix[..., :2], upper=True)) <= 170
    double = matrix.double()
    assert calls(lambda: solve_triangular(double, double[..., :2], upper=True)) <= 110
