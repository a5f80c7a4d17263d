"""Eigenvalues of matrices without symmetry, held to what defines them by LAPACK's test criteria, in whatever order they come."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from on_core import on, on_core, rand
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.eager.observe import significant_strides

aten = torch.ops.aten

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]

#: LAPACK's tests take a ratio of 20 as a failure; the sums here are over columns, not taken as norms.
THRESHOLD = 20.0


def jordan(size: int, dtype: torch.dtype) -> Tensor:
    return 0.5 * torch.eye(size, dtype=dtype) + torch.diag(torch.ones(size - 1, dtype=dtype), 1)


def turned(x: Tensor) -> Tensor:
    basis, _ = torch.linalg.qr(rand(*x.shape, dtype=x.dtype))
    return basis @ x @ basis.mH


#: After the matrices of LAPACK's ``dchkev``: zero, identity, a Jordan block, random, symmetric, near over- and underflow, graded.
MATRICES: dict[str, Callable[[torch.dtype], Tensor]] = {
    "one": lambda dtype: rand(3, 1, 1, dtype=dtype),
    "two": lambda dtype: rand(4, 2, 2, dtype=dtype),
    "three": lambda dtype: rand(2, 3, 3, dtype=dtype),
    "batched": lambda dtype: rand(2, 3, 6, 6, dtype=dtype),
    "larger": lambda dtype: rand(13, 13, dtype=dtype),
    "at once": lambda dtype: rand(2, 18, 18, dtype=dtype),
    "at once, with columns of one entry": lambda dtype: (
        torch.diag(torch.ones(19, dtype=dtype), -1) + torch.diag(rand(20, dtype=dtype))
    ),
    "not at once, with equal eigenvalues": lambda dtype: turned(jordan(18, dtype)),
    "zero": lambda dtype: torch.zeros(4, 4, dtype=dtype),
    "identity": lambda dtype: torch.eye(4, dtype=dtype),
    "triangular": lambda dtype: rand(5, 5, dtype=dtype).triu(),
    "of rank 1": lambda dtype: torch.ones(5, 5, dtype=dtype),
    "symmetric": lambda dtype: (lambda x: x + x.mH)(rand(6, 6, dtype=dtype)),
    "skew": lambda dtype: (lambda x: x - x.mH)(rand(5, 5, dtype=dtype)),
    "cyclic, which shifts of its own leave as it is": lambda dtype: torch.roll(torch.eye(6, dtype=dtype), 1, 0),
    "Jordan block": lambda dtype: jordan(6, dtype),
    "Jordan block, turned": lambda dtype: turned(jordan(6, dtype)),
    "nilpotent": lambda dtype: torch.diag(torch.ones(25, dtype=dtype), 1),
    "huge": lambda dtype: 0.1 * torch.finfo(dtype).max ** 0.9 * rand(4, 4, dtype=dtype),
    "tiny": lambda dtype: torch.finfo(dtype).tiny ** 0.9 * rand(4, 4, dtype=dtype),
    "equal in part": lambda dtype: turned(torch.diag(torch.tensor([1.0, 1, 1, -2, -2])).to(dtype)),
    "nearly without rank": lambda dtype: torch.tensor(
        [[0, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0, 0, 1, 0, 1], [0, 1, 0, 1, 0]]
    ).to(dtype),
    "batch of which some are done": lambda dtype: torch.stack([torch.eye(5).to(dtype), jordan(5, dtype), rand(5, 5, dtype=dtype)]),
}


def of_columns(x: Tensor) -> Tensor:
    """The 1-norm, taken so that it does not leave the range."""
    return x.abs().sum(-2).amax(-1)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MATRICES)
def test_residuals_and_lengths(kind: str, dtype: torch.dtype) -> None:
    matrix = MATRICES[kind](dtype)
    values, vectors = on_core(lambda: torch.linalg.eig(matrix))
    want = torch.linalg.eig(matrix)
    for got, theirs in zip((values, vectors), want, strict=True):
        assert (got.dtype, got.shape) == (theirs.dtype, theirs.shape)
        assert significant_strides(got) == significant_strides(theirs)
    size, eps = matrix.size(-1), torch.finfo(dtype).eps
    top = matrix.abs().amax((-2, -1), True).clamp_min(torch.finfo(dtype).tiny)
    scaled, lesser = (matrix / top).to(values.dtype), values / top.squeeze(-1)
    missed = of_columns(scaled @ vectors - vectors * lesser.unsqueeze(-2))
    assert (missed <= THRESHOLD * eps * size * of_columns(scaled)).all()
    assert ((vectors.abs().square().sum(-2).sqrt() - 1).abs() <= THRESHOLD * eps).all()
    sizes = vectors.abs()
    largest = sizes >= sizes.amax(-2, True) * (1 - 100 * eps)
    assert (largest & (vectors.imag == 0)).any(-2).all(), "the largest entry is real"
    # The eigenvalues alone are those, and their sum is the trace. Under a mode `torch.linalg.eigvals` asks for vectors too.
    alone = on_core(lambda: aten._linalg_eigvals.default(matrix))
    assert significant_strides(alone) == significant_strides(want[0])
    torch.testing.assert_close(alone, values, rtol=0, atol=0)
    trace = scaled.diagonal(0, -2, -1).sum(-1)
    assert ((lesser.sum(-1) - trace).abs() <= THRESHOLD * eps * size * of_columns(scaled)).all()


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_real_matrices_have_real_eigenvalues_or_exact_pairs(size: int, dtype: torch.dtype) -> None:
    values, vectors = on_core(lambda: torch.linalg.eig(rand(6, size, size, dtype=dtype)))
    real = values.imag == 0
    assert real.any()
    assert not real.all()
    assert not vectors.imag[real.unsqueeze(-2).expand_as(vectors)].any()
    first = (values.imag > 0).nonzero(as_tuple=True)
    second = (first[0], first[1] + 1)
    assert torch.equal(values[first].conj(), values[second])
    assert torch.equal(vectors.mT[first].conj(), vectors.mT[second])
    assert 2 * len(first[0]) == (~real).sum()


def test_all_eigenvalues_at_once_take_few_calls() -> None:
    matrix = rand(40, 40, dtype=torch.float32)
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.core_aten()):
        values, _ = torch.linalg.eig(matrix)
    assert seen.ops.total() < 40 * 140  # QR steps take 2,000 per row
    gaps = (values.unsqueeze(1) - torch.linalg.eigvals(matrix)).abs()
    assert gaps.amin(1).amax() < 1e-4
    assert gaps.amin(0).amax() < 1e-4


@settings(max_examples=12, deadline=None)
@given(
    entries=st.tuples(*[st.integers(1, 9)] * 4),
    power=st.integers(0, 80),
    columns=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.complex64]),
)
@example(entries=(1, 2, 3, 4), power=66, columns=True, dtype=torch.float32)
@example(entries=(1, 2, 3, 4), power=66, columns=False, dtype=torch.complex64)
@example(entries=(1, 2, 3, 4), power=30, columns=True, dtype=torch.float32)
def test_graded_matrices_keep_their_small_eigenvalues(
    entries: tuple[int, int, int, int], power: int, columns: bool, dtype: torch.dtype
) -> None:
    """The smaller eigenvalue of ``[[a, b s], [c, d s]]`` is the determinant over the larger; both are exact in float64."""
    a, b, c, d = entries
    assume(a * d != b * c)
    small = 2.0**-power
    matrix = torch.tensor([[a, b * small], [c, d * small]], dtype=torch.float64)
    matrix = matrix if columns else matrix.T.contiguous()
    half = (a + d * small) / 2
    large = half + ((a - d * small) ** 2 / 4 + b * c * small) ** 0.5
    want = torch.tensor([(a * d - b * c) * small / large, large], dtype=torch.complex128)
    values, vectors = on_core(lambda: torch.linalg.eig(matrix.to(dtype)))
    values, vectors = values.to(torch.complex128), vectors.to(torch.complex128)
    values, order = values.real.sort()[0], values.real.argsort()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(values, want.real.sort()[0], rtol=500 * eps, atol=500 * eps * large * (power == 0))
    missed = matrix.to(vectors.dtype) @ vectors[:, order] - vectors[:, order] * values
    assert of_columns(missed) <= THRESHOLD * eps * of_columns(matrix)


@pytest.mark.full
def test_calls_that_read_data_are_not_cached() -> None:
    with on(ed.core_aten()) as (mode, _):
        for _ in range(2):
            aten._linalg_eigvals.default(rand(3, 3, dtype=torch.float64))
        assert mode.stats()["aten._linalg_eigvals.default"].bypassed == 2
