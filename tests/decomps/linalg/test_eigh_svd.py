"""Eigenvalues and singular values on Core ATen: values are eager's; vectors, unique up to signs, by what defines them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import check, kernel_calls, on_core
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import eagerdecomp as ed
from eagerdecomp.decomps.linalg import eigh_svd
from eagerdecomp.eager.observe import significant_strides

aten = torch.ops.aten
eigh = aten._linalg_eigh.default
svd = aten._linalg_svd.default

DTYPES = [torch.float32, torch.float64, torch.complex128]


def rand(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def laid_as(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    for one, other in zip(got, want, strict=True):
        assert one.dtype is other.dtype
        assert one.shape == other.shape
        assert not one.numel() or significant_strides(one) == significant_strides(other)


def near(got: Tensor, want: Tensor, scale: Tensor | float = 1.0) -> None:
    """Within LAPACK's tests' 30 n eps of the scale."""
    size = max(1, *want.shape[-2:]) if want.dim() > 1 else max(1, want.size(-1))
    assert not want.numel() or (got - want).abs().amax() <= 30 * size * torch.finfo(want.dtype).eps * (scale + 1e-30)


def unit(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype).expand(*like.shape[:-2], size, size)


HERMITIAN: dict[str, Callable[[torch.dtype], Tensor]] = {
    "one": lambda dtype: rand(1, 1, dtype=dtype),
    "two": lambda dtype: rand(2, 2, dtype=dtype),
    "odd": lambda dtype: rand(5, 5, dtype=dtype),
    "even, batched": lambda dtype: rand(2, 6, 6, dtype=dtype),
    "equal eigenvalues": lambda dtype: torch.ones(4, 4, dtype=dtype),
    "zero": lambda dtype: torch.zeros(3, 3, dtype=dtype),
    "graded": lambda dtype: torch.diag(torch.tensor([1e-8, 1.0, 1e8])).to(dtype),
    "huge": lambda dtype: 1e30 * rand(3, 3, dtype=dtype),
    "empty": lambda dtype: rand(0, 0, dtype=dtype),
    "no batch": lambda dtype: rand(0, 3, 3, dtype=dtype),
}


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", HERMITIAN)
def test_eigh(kind: str, dtype: torch.dtype) -> None:
    matrix = HERMITIAN[kind](dtype)
    for triangle in ("L", "U"):
        values, vectors = on_core(lambda: eigh(matrix, triangle))  # noqa: B023 - called at once
        want = eigh(matrix, triangle)
        laid_as((values, vectors), want)
        half = matrix.tril(-1) if triangle == "L" else matrix.triu(1)
        whole = half + half.mH + torch.diag_embed(matrix.diagonal(0, -2, -1).real.to(dtype))
        scale = matrix.abs().amax().real if matrix.numel() else 1.0
        near(values, want[0], scale)
        near(vectors.mH @ vectors, unit(matrix.size(-1), vectors))
        near(whole @ vectors, vectors * values.unsqueeze(-2), scale)


def graded(size: int, power: float) -> Tensor:
    """A matrix whose rows fall to ``10 ** power``."""
    return torch.diag(torch.logspace(0, power, size, dtype=torch.float64)) @ rand(size, size)


def arrow(size: int) -> Tensor:
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix[0] = 1
    return matrix + matrix.mT


def of_two_eigenvalues(size: int) -> Tensor:
    basis = torch.linalg.qr(rand(size, size))[0]
    return basis[:, ::2] @ basis[:, ::2].mT


SLOW: dict[str, Callable[[], Tensor]] = {
    "arrow": lambda: arrow(12),
    "rows that fall": lambda: graded(20, -15),
    "rows that fall out of range": lambda: graded(12, -100),
    "falls from a corner": lambda: 10.0 ** (-3 * torch.minimum(torch.arange(12).unsqueeze(1), torch.arange(12)).double()),
    "two eigenvalues": lambda: of_two_eigenvalues(20),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", SLOW)
def test_matrices_on_which_rotations_converge_slowly(kind: str) -> None:
    matrix = SLOW[kind]()
    symmetric = matrix + matrix.mT
    values, vectors = on_core(lambda: eigh(symmetric))
    near(symmetric @ vectors, vectors * values, symmetric.abs().amax())
    near(vectors.mT @ vectors, unit(matrix.size(0), vectors))
    left, lengths, right = on_core(lambda: svd(matrix))
    near((left * lengths) @ right, matrix, matrix.abs().amax())


@pytest.mark.full
def test_eigenvalues_alone() -> None:
    check(torch.linalg.eigvalsh, rand(2, 3, 3))
    check(eigh, rand(3, 3), "U", False)


RECTANGLES: dict[str, Callable[[torch.dtype], Tensor]] = {
    "one": lambda dtype: rand(1, 1, dtype=dtype),
    "tall": lambda dtype: rand(2, 6, 3, dtype=dtype),
    "wide": lambda dtype: rand(3, 5, dtype=dtype),
    "square": lambda dtype: rand(4, 4, dtype=dtype),
    "of rank 2": lambda dtype: rand(5, 2, dtype=dtype) @ rand(2, 4, dtype=dtype),
    "zero": lambda dtype: torch.zeros(4, 3, dtype=dtype),
    "huge": lambda dtype: 1e30 * rand(4, 2, dtype=dtype),
    "no columns": lambda dtype: rand(3, 0, dtype=dtype),
    "no rows": lambda dtype: rand(2, 0, 3, dtype=dtype),
    "no batch": lambda dtype: rand(0, 2, 3, dtype=dtype),
}


@pytest.mark.full
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", RECTANGLES)
def test_svd(kind: str, dtype: torch.dtype, full: bool) -> None:
    matrix = RECTANGLES[kind](dtype)
    left, values, right = found = on_core(lambda: svd(matrix, full))
    want = svd(matrix, full)
    laid_as(found, want)
    scale = matrix.abs().amax().real if matrix.numel() else 1.0
    small = values.size(-1)
    near(values, want[1], scale)
    near(left.mH @ left, unit(left.size(-1), left))
    near(right @ right.mH, unit(right.size(-2), right))
    near((left[..., :small] * values.unsqueeze(-2)) @ right[..., :small, :], matrix, scale)


@pytest.mark.parametrize("given", [{}, {"tol": 0.1}, {"tol": torch.tensor(0.1)}, {"atol": 0.1, "rtol": 0.1}, {"hermitian": True}])
def test_rank_is_written_to_out_if_the_composite_is_kept(given: dict[str, Any]) -> None:
    """Elsewhere torch's composition leaves it unwritten under any dispatch mode."""
    matrix, out = torch.diag(torch.tensor([1.0, 0.5, 0.0])), torch.tensor(-7)
    with ed.EagerDecompMode(ed.core_aten(), keep=["aten.linalg_matrix_rank"]):
        torch.linalg.matrix_rank(matrix, out=out, **given)
    assert out == 2


@pytest.mark.full
def test_singular_values_alone() -> None:
    check(torch.linalg.svdvals, rand(2, 3, 4))
    check(lambda x: torch.linalg.matrix_norm(x, 2), rand(4, 3))
    check(torch.linalg.matrix_rank, rand(4, 2) @ rand(2, 4))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 2, 3), (0, 3), (2, 0, 3)])
@pytest.mark.parametrize("tolerance", [{}, {"rtol": 0.5}, {"atol": 0.7}, {"atol": 0.1, "rtol": 0.3}])
def test_pseudoinverse(tolerance: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = rand(*shape, dtype=dtype)
    check(torch.linalg.pinv, matrix, **tolerance)
    if shape[-1] == shape[-2]:
        check(torch.linalg.pinv, matrix + matrix.mH, hermitian=True, **tolerance)


@pytest.mark.full
def test_pseudoinverse_with_a_tolerance_for_each() -> None:
    check(torch.linalg.pinv, rand(2, 3, 3), rtol=torch.tensor([0.1, 0.6]))
    check(torch.linalg.pinv, rand(2, 3, 3), atol=torch.tensor([0.0, 0.9]))


@pytest.mark.full
@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3), (2, 4, 2), (0, 3), (2, 0, 3, 3)])
def test_least_squares(shape: tuple[int, ...], dtype: torch.dtype, driver: str | None) -> None:
    matrix, right = rand(*shape, dtype=dtype), rand(*shape[:-1], 2, dtype=dtype)
    check(aten.linalg_lstsq.default, matrix, right, driver=driver)
    check(aten.linalg_lstsq.default, matrix, right[..., 0], driver=driver)


@pytest.mark.full
def test_least_squares_of_a_matrix_without_full_rank() -> None:
    check(torch.linalg.lstsq, rand(5, 2) @ rand(2, 3), rand(5, 2))


@pytest.mark.full
@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (2, 3, 2), (2, 2, 2)])
def test_gels_refuses_a_matrix_without_full_rank(shape: tuple[int, ...]) -> None:
    """A row or column of zeros leaves an exact zero on the diagonal of R. Equal ones leave a zero or a rounding error."""
    right = torch.ones(*shape[:-1], 1)
    singular = torch.ones(shape)
    (singular[..., -1] if shape[-2] >= shape[-1] else singular[..., -1, :]).zero_()
    check(torch.linalg.lstsq, singular, right, driver="gels")
    if len(shape) == 3:
        regular = torch.eye(*shape[1:]).unsqueeze(0)
        check(torch.linalg.lstsq, torch.cat([regular, singular]), torch.cat([right, right[:1]]), driver="gels")


def whitened(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(x @ x.mH + torch.eye(3, dtype=x.dtype))
    return (vectors * values.rsqrt().unsqueeze(-2)) @ vectors.mH


def polar(x: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(x, full_matrices=False)
    return left @ right


@pytest.mark.full
@pytest.mark.parametrize("run", [whitened, polar, torch.linalg.eigvalsh, torch.linalg.svdvals, torch.linalg.pinv])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients(dtype: torch.dtype, run: Callable[[Tensor], Tensor]) -> None:
    def gradient(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        out = run(leaf)
        weights = torch.arange(1.0, out.numel() + 1, dtype=torch.float64).view(out.shape)
        return torch.autograd.grad((out.abs() ** 2 * weights).sum(), leaf)[0]

    matrix = rand(3, 3, dtype=dtype)
    check(gradient, matrix + matrix.mH if run is torch.linalg.eigvalsh else matrix)


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
@pytest.mark.parametrize("driver", ["gels", "gelsy"])
def test_least_squares_is_differentiated_by_its_solution_alone(driver: str) -> None:
    def differentiable(a: torch.Tensor, b: torch.Tensor) -> list[bool]:
        return [result.requires_grad for result in torch.linalg.lstsq(a.requires_grad_(), b, driver=driver)]

    check(differentiable, torch.randn(5, 3), torch.randn(5, 2))


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


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_of_zeros_and_of_nothing(driver: str, dtype: torch.dtype) -> None:
    for rows, columns in ((3, 3), (4, 2), (2, 4), (3, 0), (0, 3)):
        right = rand(rows, 2, dtype=dtype)
        check(aten.linalg_lstsq.default, torch.zeros(rows, columns, dtype=dtype), right, driver=driver)
        both = torch.stack([torch.zeros(rows, columns, dtype=dtype), rand(rows, columns, dtype=dtype)])
        check(aten.linalg_lstsq.default, both, torch.stack([right, right]), driver=driver)
        check(aten.linalg_lstsq.default, both[:0], torch.stack([right, right])[:0], driver=driver)


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
