"""Functions of matrices that torch 2.14 added. The tests against eager run on a torch that has them."""

from __future__ import annotations

import pytest
import torch
from on_core import check
from torch import Tensor

from eagerdecomp.decomps.linalg import eigh_svd

_DTYPES_2_14 = [torch.float32, torch.float64, torch.complex64, torch.complex128]
_needs_2_14 = pytest.mark.skipif(not hasattr(torch.ops.aten, "linalg_polar"), reason="torch 2.14 added the ops")


def _tall(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def _positive(*shape: int, dtype: torch.dtype) -> Tensor:
    matrix = _tall(*shape, dtype=dtype)
    return matrix @ matrix.mH + torch.eye(shape[-1], dtype=dtype)


@pytest.mark.parametrize("dtype", _DTYPES_2_14)
def test_matrix_sqrth_rule_squares_to_the_matrix(dtype: torch.dtype) -> None:
    """Call the function itself, on any torch."""
    matrix = _positive(2, 4, 4, dtype=dtype)
    root = eigh_svd._linalg_matrix_sqrth(matrix)
    torch.testing.assert_close(root @ root, matrix)
    assert torch.equal(root, root.mH)


@pytest.mark.parametrize("dtype", _DTYPES_2_14)
def test_polar_rule_gives_orthonormal_columns_and_a_positive_factor(dtype: torch.dtype) -> None:
    matrix = _tall(2, 5, 3, dtype=dtype)
    unitary, positive = eigh_svd._linalg_polar(matrix)
    torch.testing.assert_close(unitary @ positive, matrix)
    torch.testing.assert_close(unitary.mH @ unitary, torch.eye(3, dtype=dtype).expand(2, 3, 3))
    assert torch.equal(positive, positive.mH)
    assert (torch.linalg.eigvalsh(positive) > 0).all()


@_needs_2_14
@pytest.mark.parametrize("dtype", _DTYPES_2_14)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3), (1, 2, 2, 2), (1, 1), (0, 4, 4), (2, 0, 0)])
def test_matrix_sqrth(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = _positive(*shape, dtype=dtype)
    check(torch.linalg.matrix_sqrth, matrix)
    check(torch.linalg.matrix_sqrth, matrix.mT.contiguous().mT)
    check(torch.ops.aten.linalg_matrix_sqrth.out, matrix, out=torch.empty(0, dtype=dtype))


@_needs_2_14
@pytest.mark.parametrize("dtype", _DTYPES_2_14)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 3), (1, 2, 4, 1), (0, 4, 3), (2, 4, 0), (2, 0, 0)])
def test_polar(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = _tall(*shape, dtype=dtype)
    check(torch.linalg.polar, matrix)
    check(torch.linalg.polar, matrix.mT.contiguous().mT)
    check(torch.linalg.polar, matrix, out=(torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype)))
