"""Eigenvalues and singular values on Core ATen: errors beside LAPACK's, steps, reads, and matrices that are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import kernel_calls, on_core, rand
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import eagerdecomp as ed
from eagerdecomp.decomps.linalg import eigh_svd

aten = torch.ops.aten
eigh = aten._linalg_eigh.default
svd = aten._linalg_svd.default


def near(got: Tensor, want: Tensor, scale: Tensor | float = 1.0) -> None:
    """Within LAPACK's tests' 30 n eps of the scale."""
    size = max(1, *want.shape[-2:]) if want.dim() > 1 else max(1, want.size(-1))
    assert not want.numel() or (got - want).abs().amax() <= 30 * size * torch.finfo(want.dtype).eps * (scale + 1e-30)


def unit(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype).expand(*like.shape[:-2], size, size)


@pytest.mark.full
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_gradients_of_graded_matrices_are_as_exact_as_eagers(dtype: torch.dtype, rows: bool) -> None:
    # Eigenvectors of the Hermitian factor are off by 1e-3 where values are 1e-4 of the largest, which made errors of 1e-3.
    def gradient(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        left, values, right = torch.linalg.svd(leaf)
        product = (left * torch.linspace(1, 2, 24)) @ right
        weights = torch.cos(7 * torch.arange(576.0)).view(24, 24)
        return torch.autograd.grad((values.cos() * values).sum() + (product * weights).real.sum(), leaf)[0]

    scale = torch.logspace(0, -4.2, 24)
    matrix = (rand(24, 24, dtype=torch.complex128) * (scale.unsqueeze(1) if rows else scale)).to(dtype)
    want = gradient(matrix.to(torch.complex128 if dtype.is_complex else torch.float64))
    ours, eagers = ((one - want).norm() / want.norm() for one in (on_core(lambda: gradient(matrix)), gradient(matrix)))
    assert ours <= 4 * eagers


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("size", "limit"), [(4, 350), (16, 400), (256, 1500)])
def test_kernel_calls(size: int, limit: int, dtype: torch.dtype) -> None:
    """Some 30 calls a step, and the steps grow like the logarithm of the size."""
    matrix = rand(size, size, dtype=dtype)
    assert kernel_calls(lambda: eigh(matrix)) <= limit
    assert kernel_calls(lambda: svd(matrix)) <= 1.1 * limit


def of_values(values: Tensor) -> Tensor:
    basis = torch.linalg.qr(rand(values.numel(), values.numel()))[0]
    return (basis * values.double()) @ basis.mT


SPECTRA: dict[str, Callable[[int], Tensor]] = {
    "random": lambda n: rand(n, n) + rand(n, n).mT,
    "positive": lambda n: of_values(torch.rand(n) + 0.1),
    "ill-conditioned": lambda n: of_values(torch.logspace(0, -15, n)),
    "two clusters": lambda n: of_values(torch.arange(n) % 2 + 1e-7 * torch.randn(n)),
    "repeated": lambda n: of_values(torch.arange(n) % 3),
    "of low rank": lambda n: of_values(torch.arange(n) // (n - 2)),
    "graded": lambda n: 0.1 ** torch.arange(n).double().mul(15 / n).unsqueeze(1) * rand(n, n),
    "ones": lambda n: torch.ones(n, n).double(),
    "permutation": lambda n: torch.eye(n).double().flip(0),
    "diagonal": lambda n: torch.diag(rand(n)),
    "second differences": lambda n: torch.diag(torch.ones(n - 1).double(), 1) - torch.eye(n).double(),
    "arrow": lambda n: (torch.arange(n) == 0).double() + (torch.arange(n).unsqueeze(1) == 0).double(),
    "falls from a corner": lambda n: 10.0 ** (-36 * torch.minimum(torch.arange(n).unsqueeze(1), torch.arange(n)).double() / n),
    "Hilbert's": lambda n: 1 / (torch.arange(n).unsqueeze(1) + torch.arange(n) + 1.0).double(),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["ill-conditioned", "graded", "of low rank", "Hilbert's"])
def test_kernel_calls_where_values_are_of_many_sizes(kind: str) -> None:
    matrix = SPECTRA[kind](128).float()
    assert kernel_calls(lambda: svd(matrix)) <= 1500
    symmetric = matrix + matrix.mT
    assert kernel_calls(lambda: eigh(symmetric)) <= 1500


def errors(matrix: Tensor, values: Tensor, *factors: Tensor) -> tuple[float, float, float]:
    """Errors of values against float64, of the product of the factors, and of their orthogonality, in units of the last place."""
    wide = torch.complex128 if matrix.is_complex() else torch.float64
    exact, eps = matrix.to(wide), torch.finfo(matrix.dtype).eps
    left, right = (x.to(wide) for x in (factors if len(factors) == 2 else (*factors, factors[0].mH)))
    want = torch.linalg.svdvals(exact) if len(factors) == 2 else torch.linalg.eigvalsh(exact)
    scale = want.abs().amax() * eps + 1e-300
    missed = torch.linalg.norm((left * values.to(wide)) @ right - exact) / scale
    apart = max(torch.linalg.norm(x @ x.mH - torch.eye(len(x))).item() for x in (left.mH, right))
    return (values - want).abs().amax().item() / scale.item(), missed.item(), apart / eps


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("size", [3, 24, 65])
@pytest.mark.parametrize("kind", SPECTRA)
def test_errors_are_within_four_times_lapacks(kind: str, size: int, dtype: torch.dtype) -> None:
    matrix = SPECTRA[kind](size).to(dtype)
    if dtype.is_complex:
        phases = torch.exp(1j * torch.arange(size)).to(dtype)
        matrix = phases.unsqueeze(1) * matrix * phases.conj()
    floor = 2 * size**0.5
    symmetric = (matrix + matrix.mH) / 2
    ours, theirs = (errors(symmetric, *found) for found in (on_core(lambda: eigh(symmetric)), eigh(symmetric)))
    assert all(one <= max(4 * other, floor) for one, other in zip(ours, theirs, strict=True)), (ours, theirs)

    def parts(found: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return found[1], found[0], found[2]

    ours, theirs = (errors(matrix, *parts(found)) for found in (on_core(lambda: svd(matrix)), svd(matrix)))
    assert all(one <= max(4 * other, floor) for one, other in zip(ours, theirs, strict=True)), (ours, theirs)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("kind", SPECTRA)
def test_graphs_have_enough_steps(kind: str, dtype: torch.dtype) -> None:
    """Nothing can be read where a graph is captured. QR is the rule's: LAPACK's of complex64 returns NaN for some tiny columns."""
    matrix = SPECTRA[kind](20).to(dtype)
    symmetric = (matrix + matrix.mH) / 2
    with ed.EagerDecompMode(ed.core_aten()):
        values, vectors = eigh_svd._linalg_eigh_blindly(symmetric)
    near((vectors * values) @ vectors.mH, symmetric, values.abs().amax())
    near(vectors.mH @ vectors, unit(20, vectors))
    with ed.EagerDecompMode(ed.core_aten()):
        left, lengths, right = eigh_svd._linalg_svd_blindly(matrix)
    near((left * lengths) @ right, matrix, lengths.amax())
    near(left.mH @ left, unit(20, left))


@pytest.mark.full
def test_eigenvalues_are_captured_without_a_read() -> None:
    matrix = rand(4, 4)
    table = ed.decompositions(ed.core_aten())
    graph = make_fx(torch.linalg.eigvalsh, decomposition_table=table, tracing_mode="fake")(matrix)
    graph.graph.eliminate_dead_code()
    reached = {node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    assert all(op in ed.core_aten() for op in reached)
    assert aten._local_scalar_dense.default not in reached
    other = rand(4, 4)
    torch.testing.assert_close(graph(other), torch.linalg.eigvalsh(other))


@pytest.mark.full
@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
@pytest.mark.parametrize("call", [lambda x: eigh(x + x.mT)[0], lambda x: svd(x)[1]])
def test_what_is_traced_in_the_mode_holds_for_other_matrices(call: Callable[[Tensor], Tensor], tracing_mode: str) -> None:
    with ed.EagerDecompMode(ed.core_aten()):
        graph = make_fx(call, tracing_mode=tracing_mode)(rand(3, 3))
    assert "_local_scalar_dense" not in graph.code
    other = rand(3, 3)
    torch.testing.assert_close(graph(other), call(other))


@pytest.mark.full
@pytest.mark.parametrize("call", [eigh, svd])
def test_tensors_without_data_have_shapes_of_results(call: Callable[[Tensor], Any]) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, 3)
        want = call(x)
        with ed.EagerDecompMode(ed.core_aten()):
            found = call(x)
    assert [(y.shape, y.dtype, y.stride()) for y in found] == [(y.shape, y.dtype, y.stride()) for y in want]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["second differences", "random"])
def test_errors_of_eigenvectors_of_a_large_matrix_whose_values_lie_close(kind: str) -> None:
    """The loop ends by noise there, and couplings far over a rounding are left unless the last step takes them all."""
    matrix = SPECTRA[kind](512).float()
    symmetric = (matrix + matrix.mT) / 2
    ours, theirs = (errors(symmetric, *found) for found in (on_core(lambda: eigh(symmetric)), eigh(symmetric)))
    assert ours[1] <= 2 * theirs[1]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["random", "Hilbert's", "second differences"])
def test_singular_values_are_as_exact_as_lapacks(kind: str) -> None:
    matrix = SPECTRA[kind](256).float()
    want = torch.linalg.svdvals(matrix.double())
    ours, theirs = (
        (found - want).abs().amax() for found in (on_core(lambda: torch.linalg.svdvals(matrix)), torch.linalg.svdvals(matrix))
    )
    assert ours <= 1.5 * theirs


@pytest.mark.parametrize("size", [1, 2, 5])
def test_matrices_that_are_not_finite_spoil_no_other_of_the_batch(size: int) -> None:
    batch = torch.stack([rand(size, size), torch.full((size, size), torch.nan), rand(size, size)]).float()
    values, vectors = on_core(lambda: eigh(batch))
    torch.testing.assert_close(values[::2], eigh(batch[::2])[0])
    assert values[1].isnan().all()
    assert not vectors[::2].isnan().any()
    assert size == 1 or vectors[1].isnan().all()
    left, lengths, right = on_core(lambda: svd(batch))
    torch.testing.assert_close((left[::2] * lengths[::2].unsqueeze(1)) @ right[::2], batch[::2])
    assert lengths[1].isnan().all()


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("size", [2, 5, 8])
def test_matrices_of_rank_one_leave_no_nan(size: int, dtype: torch.dtype) -> None:
    """Columns of rounding errors alone may be shorter than any normal number, and the inverse of their length infinite."""
    ones = torch.ones(size, size, dtype=dtype)
    near = 1e-5 * size
    values = on_core(lambda: torch.linalg.svdvals(ones))
    torch.testing.assert_close(values, torch.linalg.svdvals(ones), rtol=near, atol=near)
    values, vectors = on_core(lambda: torch.linalg.eigh(ones))
    torch.testing.assert_close((vectors * values) @ vectors.mH, ones, rtol=near, atol=near)
    torch.testing.assert_close(values, torch.linalg.eigvalsh(ones), rtol=near, atol=near)


@pytest.mark.parametrize("shape", [(3, 5, 2), (3, 2, 5)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_full_bases_of_a_batch_with_a_matrix_that_is_not_finite(shape: tuple[int, ...], bad: float) -> None:
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0] = bad
    found = on_core(lambda: torch.linalg.svd(x))
    for one, other in zip(found, on_core(lambda: torch.linalg.svd(x[1:])), strict=True):
        assert bool(one[0].isnan().all())
        assert torch.allclose(one[1:], other, atol=1e-12)
        assert one[1:].isfinite().all()
