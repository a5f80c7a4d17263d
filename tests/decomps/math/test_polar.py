"""Unitary polar factors: what they leave is Hermitian and positive, and they are unitary for matrices without full rank, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from on_core import rand
from torch import Tensor

from eagerdecomp.decomps.math.polar import unitary_factor

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]

KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "random": lambda x: x,
    "graded rows": lambda x: x * torch.logspace(0, -14, x.size(-2)).unsqueeze(1),
    "graded columns": lambda x: x * torch.logspace(0, -14, x.size(-1)),
    "of rank 1": lambda x: x[..., :1] @ x[..., :1, :],
    "ones": torch.ones_like,
    "zeros": torch.zeros_like,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 24, 24), (2, 9, 7), (3, 5, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_factor_is_unitary_and_leaves_a_positive_matrix(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = KINDS[kind](rand(*shape, dtype=dtype)).to(dtype)
    unitary = unitary_factor(matrix)
    assert unitary is not None
    near = 20 * torch.finfo(dtype).eps
    size = shape[-1]
    torch.testing.assert_close(unitary.mH @ unitary, torch.eye(size, dtype=dtype).expand(shape[0], size, size), atol=near, rtol=0)
    positive, top = unitary.mH @ matrix, matrix.norm()
    torch.testing.assert_close(positive, positive.mH, atol=near * top.item(), rtol=0)
    assert torch.linalg.eigvalsh(positive).min() >= -near * top
    torch.testing.assert_close(unitary @ positive, matrix, atol=near * top.item(), rtol=0)
