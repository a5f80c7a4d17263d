"""Factorizations by the criteria of LAPACK's own tests: residuals and lost orthogonality in units of rounding.

The matrices are after its ``dlatb4``: of mild and of bad condition, with zero columns, near underflow and near overflow; the
ratios, and the threshold of 30, are those of ``dget01``, ``dqrt01``, ``dpot01``, ``dsyt21`` and ``dbdt01``. For exponentials, of
which LAPACK has no test, they are the like: changes of the matrix that would explain the result. `test_linalg_accuracy` compares
solutions, inverses and determinants with eager's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from on_core import on_core
from torch import Tensor

THRESHOLD = 30.0
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SIZE = 6


def conditioned(dtype: torch.dtype, condition: float, scale: float = 1.0) -> Tensor:
    """A batch of two with singular values that fall geometrically."""
    left, right = (torch.linalg.qr(torch.randn(2, SIZE, SIZE, dtype=dtype))[0] for _ in range(2))
    values = condition ** -(torch.arange(SIZE, dtype=torch.float64) / (SIZE - 1))
    return scale * ((left * values.to(dtype)) @ right)


def without_column(x: Tensor, at: int) -> Tensor:
    return torch.where(torch.arange(x.size(-1)) == at, 0, x)


def edge(dtype: torch.dtype, power: float) -> float:
    """A number of about the range's end, within which the products of a few entries stay."""
    return float(torch.finfo(dtype).max ** power)


REGULAR: dict[str, Callable[[torch.dtype], Tensor]] = {
    "mild": lambda dtype: conditioned(dtype, 2.0),
    "bad": lambda dtype: conditioned(dtype, 0.1 / torch.finfo(dtype).eps),
    "near underflow": lambda dtype: conditioned(dtype, 2.0, edge(dtype, -0.9)),
    "near overflow": lambda dtype: conditioned(dtype, 2.0, edge(dtype, 0.9)),
    "graded rows": lambda dtype: conditioned(dtype, 2.0) * (0.01 ** torch.arange(SIZE)).unsqueeze(-1).to(dtype),
}
SINGULAR: dict[str, Callable[[torch.dtype], Tensor]] = {
    "first column zero": lambda dtype: without_column(conditioned(dtype, 2.0), 0),
    "last column zero": lambda dtype: without_column(conditioned(dtype, 2.0), SIZE - 1),
    "zero": lambda dtype: torch.zeros(2, SIZE, SIZE, dtype=dtype),
    "of rank 2": lambda dtype: torch.randn(2, SIZE, 2, dtype=dtype) @ torch.randn(2, 2, SIZE, dtype=dtype),
}
ALL = {**REGULAR, **SINGULAR}


def shrunk(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """All divided by the first's largest entry, since sums of what is near overflow would not be numbers."""
    top = x.abs().amax((-2, -1), True)
    top = torch.where(top == 0, 1, top)
    return tuple(other / (top if other.dim() == x.dim() else top.squeeze(-1)) for other in (x, *others))


def norm(x: Tensor) -> Tensor:
    return x.abs().sum(-2).amax(-1)


def small(missed: Tensor, whole: Tensor) -> None:
    """LAPACK's ratio, ``|missed| / (|whole| n eps)``, is below its threshold; where all is zero, nothing may be missed."""
    eps = torch.finfo(missed.dtype).eps
    assert (norm(missed) <= THRESHOLD * eps * max(whole.shape[-2:]) * norm(whole)).all()


def unitary(x: Tensor) -> None:
    one = torch.eye(x.size(-1), dtype=x.dtype)
    small(x.mH @ x - one, one)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ALL)
def test_lu(kind: str, dtype: torch.dtype) -> None:
    matrix = ALL[kind](dtype)
    order, lower, upper = on_core(lambda: torch.linalg.lu(matrix))
    matrix, upper = shrunk(matrix, upper)
    small(order @ (lower @ upper) - matrix, matrix)
    assert lower.abs().amax() <= 1 + (1 if dtype.is_complex else 0), "pivots are the largest of their columns"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ALL)
def test_qr(kind: str, dtype: torch.dtype) -> None:
    for matrix in (ALL[kind](dtype), ALL[kind](dtype)[..., :3], ALL[kind](dtype)[..., :3, :]):
        basis, upper = on_core(lambda: torch.linalg.qr(matrix))  # noqa: B023 - called at once
        unitary(basis)
        scaled, factor = shrunk(matrix, upper)
        small(basis @ factor - scaled, scaled)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mild", "near underflow", "near overflow"])
def test_cholesky(kind: str, dtype: torch.dtype) -> None:
    base = REGULAR["mild"](dtype)
    matrix = (base @ base.mH) * {"mild": 1.0, "near underflow": edge(dtype, -0.9), "near overflow": edge(dtype, 0.9)}[kind]
    factor, info = on_core(lambda: torch.linalg.cholesky_ex(matrix))
    assert not info.any()
    (scaled,) = shrunk(matrix)
    root = matrix.abs().amax((-2, -1), True).sqrt()
    small((factor / root) @ (factor / root).mH - scaled, scaled)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ALL)
def test_eigh(kind: str, dtype: torch.dtype) -> None:
    matrix = ALL[kind](dtype)
    matrix = matrix + matrix.mH
    values, vectors = on_core(lambda: torch.linalg.eigh(matrix))
    unitary(vectors)
    assert (values.diff() >= 0).all()
    scaled, lesser = shrunk(matrix, values)
    small((vectors * lesser.unsqueeze(-2)) @ vectors.mH - scaled, scaled)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ALL)
def test_svd(kind: str, dtype: torch.dtype) -> None:
    for matrix in (ALL[kind](dtype), ALL[kind](dtype)[..., :3]):
        left, values, right = on_core(lambda: torch.linalg.svd(matrix, full_matrices=False))  # noqa: B023
        unitary(left)
        unitary(right.mH)
        assert (values.diff() <= 0).all()
        assert (values >= 0).all()
        scaled, lesser = shrunk(matrix, values)
        small((left * lesser.unsqueeze(-2)) @ right - scaled, scaled)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mild", "first column zero", "last column zero", "of rank 2", "zero"])
def test_pseudoinverses(kind: str, dtype: torch.dtype) -> None:
    """Moore's and Penrose's first two equations."""
    matrix = ALL[kind](dtype)
    inverse = on_core(lambda: torch.linalg.pinv(matrix))
    eps, scale = torch.finfo(dtype).eps, norm(matrix) * norm(inverse)
    assert (norm(matrix @ inverse @ matrix - matrix) <= THRESHOLD * eps * SIZE * scale * norm(matrix)).all()
    assert (norm(inverse @ matrix @ inverse - inverse) <= THRESHOLD * eps * SIZE * scale * norm(inverse)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size_of", [1e-3, 0.3, 3.0, 30.0])
def test_exponentials_of_normal_matrices(size_of: float, dtype: torch.dtype) -> None:
    """Bound the error by the eigenvalues, which rounding moves in proportion to the matrix's norm, once more for each squaring."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    matrix = conditioned(wide, 2.0)
    matrix = (matrix + matrix.mH).to(dtype)
    matrix = matrix * (size_of / norm(matrix).amax().item())
    values, vectors = torch.linalg.eigh(matrix.to(wide))
    want = (vectors * values.exp().unsqueeze(-2)) @ vectors.mH
    missed = norm(on_core(lambda: torch.linalg.matrix_exp(matrix)).to(wide) - want)
    assert (missed <= THRESHOLD * torch.finfo(dtype).eps * SIZE * max(1.0, size_of) * norm(want)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("length", [1, 2, 16, 30, 97, 128, 251, 1009, 1024])
@pytest.mark.parametrize("norm_of", ["forward", "backward", "ortho"])
def test_fourier_errors_grow_as_the_logarithm(norm_of: str, length: int, dtype: torch.dtype) -> None:
    """Relative, in root mean square, and there and back; the truth is a transform in double precision."""
    signal = torch.randn(3, length, dtype=dtype)
    forward, back = (torch.fft.fft, torch.fft.ifft) if dtype.is_complex else (torch.fft.rfft, torch.fft.irfft)
    options = {} if dtype.is_complex else {"n": length}
    spectrum = on_core(lambda: forward(signal, norm=norm_of))
    want = forward(signal.to(torch.complex128 if dtype.is_complex else torch.float64), norm=norm_of)
    bound = 2 * torch.finfo(dtype).eps * max(1.0, torch.tensor(float(length)).log2().item())
    assert ((spectrum - want).norm(dim=-1) <= bound * want.norm(dim=-1)).all()
    again = on_core(lambda: back(spectrum, norm=norm_of, **options))
    assert ((again - signal).norm(dim=-1) <= 2 * bound * signal.norm(dim=-1)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize(("length", "hop"), [(16, 4), (60, 20), (97, 31), (512, 128)])
def test_errors_of_spectrograms_grow_as_the_logarithm_of_a_frame(length: int, hop: int, dtype: torch.dtype) -> None:
    """`stft` beside one in double precision, and the signal from it by `istft`; windows overlap enough to be divided by."""
    signal, window = torch.randn(2, 6 * length, dtype=dtype), torch.hann_window(length)
    options = {"n_fft": length, "hop_length": hop, "onesided": not dtype.is_complex}
    found = on_core(lambda: torch.stft(signal, window=window, return_complex=True, **options))
    double = signal.to(torch.complex128 if dtype.is_complex else torch.float64)
    want = torch.stft(double, window=window.double(), return_complex=True, **options)
    bound = 2 * torch.finfo(dtype).eps * torch.tensor(float(length)).log2().item()
    assert ((found - want).norm(dim=-2) <= bound * want.norm(dim=-2)).all()
    back = {"length": signal.size(-1), "return_complex": dtype.is_complex, **options}
    again = on_core(lambda: torch.istft(found, window=window, **back))
    # The squares of overlapping windows, which the sum is divided by, are nowhere below a quarter of their mean.
    assert ((again - signal).norm(dim=-1) <= 8 * bound * signal.norm(dim=-1)).all()
