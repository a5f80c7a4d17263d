"""Write ``docs/numbers/linalg_accuracy.md``: errors of linear algebra on Core ATen and of eager's own kernels.

    python tools/linalg_accuracy.py [--match REGEX] [--markdown FILE]

Each call gets matrices of many kinds and sizes. Its errors are residuals, lost orthogonality, errors of values and errors of
gradients. They are computed in a type of twice the width: float64 for float32, NumPy's `longdouble` for float64. A whole run takes
half an hour. With ``--match`` only calls whose name matches run, and the table is printed. Exit code 1 where ours is more than four
times as large as eager's.
"""

from __future__ import annotations

import argparse
import functools
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import eagerdecomp as ed

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "numbers" / "linalg_accuracy.md"

Array = np.ndarray[Any, Any]
Errors = dict[str, float]

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128

#: The sizes for each type. NumPy's wide arithmetic is slow.
SIZES = {F32: (1, 3, 24, 65, 256, 512), F64: (3, 24, 65, 256), C64: (3, 24, 65), C128: (3, 24)}

#: The sizes of gradients, in types that have one of twice the width.
GRADIENT_SIZES = {F32: (3, 24, 65), C64: (3, 24, 65)}

#: The number of matrices of a kind up to 65 rows: by chance, one may be rounded well by ours or by eager's. Errors of gradients of
#: graded matrices differ by a factor of 1,000 between matrices of a kind, so their largest is chance too.
DRAWS, GRADIENT_DRAWS = 3, 20

#: Errors up to this number of roundings pass: eager's own may be less than one by chance, as for matrices of zeros.
FLOOR = 4.0

HEAD = """# Accuracy of linear algebra

The largest errors of each call on Core ATen (*ours*), and of eager's own kernels. The matrices are of many kinds: random, well
and ill conditioned, graded by rows and by columns, with clustered values, of low rank, ones, Hilbert matrices, second
differences, permutations, zeros.

Errors are in roundings: multiples of the dtype's `eps`. Norms are Frobenius norms. Each measure is relative:

- **residual**: divided by the norms of its terms;
- **orthogonality**, how far columns are from orthonormal: divided by the norm of the identity;
- **values**: divided by the largest value;
- **value** of a determinant: divided by the determinant and the condition of the matrix;
- **gradient**: divided by the norm of the gradient.

The exact results are computed with about twice the dtype's precision.
Sizes are {sizes}; for `eig` at most 65.
Up to 65 rows, an error is the largest of {draws} matrices of each kind.
The error of a gradient is the upper quartile of {gradient_draws} matrices.

The last column compares ours with eager for one kind and size: the largest ratio of the errors, if ours is over {floor} roundings.
"none" means that ours is nowhere over {floor}. `python tools/linalg_accuracy.py` writes this page, and fails for a ratio over 4.

| call | measure | float32 | eager's | float64 | eager's | complex64 | eager's | complex128 | eager's | largest ratio |
|---|---|---|---|---|---|---|---|---|---|---|
"""


# -- wide arithmetic ----------------------------------------------------------------------------------------------


def wide(x: Tensor) -> Array:
    """Return the numbers in a type of about twice the width."""
    if x.dtype in (F64, C128):
        return x.numpy(force=True).astype(np.clongdouble if x.is_complex() else np.longdouble)
    return x.to(C128 if x.is_complex() else F64).numpy(force=True)


def narrow(x: Array) -> Any:
    return np.complex128 if np.iscomplexobj(x) else np.float64


def norm(x: Array) -> float:
    """Return Frobenius' norm, in range where squares are not."""
    top = np.abs(x).max(initial=0)
    return float(top * np.sqrt((np.abs(x / top) ** 2).sum())) if top else 0.0


def relative(error: Array, whole: Array | float) -> float:
    """Return the norm of an error by that of the whole. If the whole is 0, any error is infinite."""
    size = norm(whole) if isinstance(whole, np.ndarray) else whole
    found = norm(error)
    return found / size if size else (np.inf if found else 0.0)


def lost_orthogonality(basis: Array) -> float:
    gram = basis.conj().T @ basis
    return norm(gram - np.eye(len(gram), dtype=basis.dtype)) / max(1.0, len(gram) ** 0.5)


def orthonormal(basis: Array) -> Array:
    """Return the nearest orthonormal columns, by two steps of Newton and Schulz."""
    for _ in range(2):
        basis = basis + basis @ (np.eye(basis.shape[1], dtype=basis.dtype) - basis.conj().T @ basis) / 2
    return basis


def eigenvalues(matrix: Tensor) -> Array:
    """Return the ascending eigenvalues of a Hermitian matrix, right in the wider type."""
    if matrix.dtype in (F32, C64):
        return torch.linalg.eigvalsh(matrix.to(C128 if matrix.is_complex() else F64)).numpy()
    basis = orthonormal(wide(torch.linalg.eigh(matrix).eigenvectors))
    return np.sort(by_clusters(basis.conj().T @ (wide(matrix) @ basis)))


def singular_values(matrix: Tensor) -> Array:
    """Return the descending singular values, right in the wider type."""
    if matrix.dtype in (F32, C64):
        return torch.linalg.svdvals(matrix.to(C128 if matrix.is_complex() else F64)).numpy()
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = orthonormal(wide(left)).conj().T @ (wide(matrix) @ orthonormal(wide(right.mH)))
    small = np.abs(np.diagonal(inner)) < 1e-6 * np.abs(inner).max(initial=0)
    values = np.zeros(len(inner), np.longdouble)
    if small.any():
        rest = inner[np.ix_(small, small)]
        top = np.abs(rest).max()
        values[small] = top * np.linalg.svd((rest / (top or 1)).astype(narrow(rest)), compute_uv=False)
    whole = inner[np.ix_(~small, ~small)]
    values[~small] = by_clusters((whole + whole.conj().T) / 2)
    return np.sort(values)[::-1]


def by_clusters(nearly: Array) -> Array:
    """Return eigenvalues of a matrix that is diagonal up to rounding errors.

    Where some lie close together, they are those of the difference from one of them.
    """
    values = np.diagonal(nearly).real.copy()
    order = np.argsort(values)
    gaps = np.diff(values[order]) > 1e-6 * np.abs(values).max(initial=0)
    for group in np.split(order, np.nonzero(gaps)[0] + 1):
        if len(group) > 1:
            middle = values[group[0]]
            rest = nearly[np.ix_(group, group)] - middle * np.eye(len(group))
            values[group] = middle + np.linalg.eigvalsh(rest.astype(narrow(rest)))
    return values


def determinant(matrix: Tensor) -> Any:
    """Return the determinant, by LU in the wider type."""
    rest, result = wide(matrix).copy(), wide(matrix).dtype.type(1)
    for at in range(len(rest)):
        pivot = at + int(np.abs(rest[at:, at]).argmax())
        if rest[pivot, at] == 0:
            return rest.dtype.type(0)
        if pivot != at:
            rest[[at, pivot]] = rest[[pivot, at]]
            result = -result
        result = result * rest[at, at]
        rest[at + 1 :, at:] -= np.outer(rest[at + 1 :, at] / rest[at, at], rest[at, at:])
    return result


# -- matrices -----------------------------------------------------------------------------------------------------


def _random(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, dtype=F64)


def _with_values(values: Tensor) -> Tensor:
    """Return a matrix with given singular values."""
    left, right = (torch.linalg.qr(_random(len(values), len(values))).Q for _ in range(2))
    return (left * values.double()) @ right.mT


#: Matrices of a size, in float64, for a type of so many decimal digits, to which they are rounded.
KINDS: dict[str, Callable[[int, float], Tensor]] = {
    "random": lambda n, digits: _random(n, n),
    "well conditioned": lambda n, digits: _with_values(torch.linspace(1, 2, n)),
    "ill conditioned": lambda n, digits: _with_values(torch.logspace(0, -0.75 * digits, n)),
    "graded rows": lambda n, digits: torch.logspace(0, -0.6 * digits, n).double().unsqueeze(1) * _random(n, n),
    "graded columns": lambda n, digits: torch.logspace(0, -0.6 * digits, n).double() * _random(n, n),
    "clustered": lambda n, digits: _with_values(1 + torch.arange(n) % 2 + 10 ** (-0.6 * digits) * torch.randn(n)),
    "low rank": lambda n, digits: _random(n, max(1, n // 4)) @ _random(max(1, n // 4), n),
    "ones": lambda n, digits: torch.ones(n, n).double(),
    "Hilbert's": lambda n, digits: 1 / (torch.arange(n).unsqueeze(1) + torch.arange(n) + 1.0).double(),
    "second differences": lambda n, digits: (
        2 * torch.eye(n).double() - torch.ones(n, n).double().triu(1).tril(1) - torch.ones(n, n).double().tril(-1).triu(-1)
    ),
    "permutation": lambda n, digits: torch.eye(n).double().flip(0),
    "zero": lambda n, digits: torch.zeros(n, n).double(),
}

REGULAR = tuple(kind for kind in KINDS if kind not in ("zero", "ones", "low rank"))
CONDITIONED = ("random", "well conditioned", "ill conditioned", "clustered", "second differences", "permutation")

#: Kinds of certain rank: of the others, `lstsq` drops values near its tolerance, which other algorithms see on the other side.
CERTAIN = ("random", "well conditioned", "clustered", "permutation")

#: Gradients of the other kinds have no right digit in eager either, or are infinite.
DIFFERENTIABLE = ("random", "well conditioned", "graded rows", "graded columns")


def matrix_of(kind: str, size: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Return a matrix of a kind. For a complex type its rows and columns are turned by phases."""
    with torch.random.fork_rng():
        torch.manual_seed(1000 * seed + size)
        found = KINDS[kind](size, -math.log10(torch.finfo(dtype).eps))
    if dtype.is_complex:
        phases = torch.exp(1j * torch.arange(size).double())
        found = phases.unsqueeze(1) * found * phases.roll(1).conj()
    return found.to(dtype)


def hermitian(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mH) / 2


def definite(matrix: Tensor) -> Tensor:
    """Return a positive definite matrix, with about the square of the condition."""
    size, product = matrix.size(-1), matrix @ matrix.mH
    least = 8 * size * torch.finfo(matrix.dtype).eps * max(1e-30, float(product.abs().amax()))
    return hermitian(product) + torch.eye(size, dtype=matrix.dtype) * least


def upper(matrix: Tensor) -> Tensor:
    return torch.linalg.qr(matrix).R


def of_determinant_one(matrix: Tensor) -> Tensor:
    """Return the matrix divided by a number, so that its determinant is in range."""
    logarithm = torch.linalg.slogdet(matrix.to(C128)).logabsdet
    return matrix * torch.exp(-logarithm / len(matrix)).to(matrix.dtype)


def sides(matrix: Tensor) -> Tensor:
    """Return four right sides."""
    return torch.sin(torch.arange(4.0 * len(matrix)).double()).reshape(len(matrix), 4).to(matrix.dtype)


# -- measures -----------------------------------------------------------------------------------------------------


def of_eigh(matrix: Tensor, found: Any) -> Errors:
    values, basis = map(wide, found)
    whole, want = wide(matrix), eigenvalues(matrix)
    return {
        "values": float(np.abs(values - want).max(initial=0) / (np.abs(want).max(initial=0) or 1)),
        "residual": relative(whole @ basis - basis * values, whole),
        "orthogonality": lost_orthogonality(basis),
    }


def of_eig(matrix: Tensor, found: Any) -> Errors:
    values, basis = map(wide, found)
    whole = wide(matrix)
    return {"residual": relative(whole @ basis - basis * values, norm(whole) * norm(basis) / max(1.0, len(whole) ** 0.5))}


def of_svd(matrix: Tensor, found: Any) -> Errors:
    left, values, right = map(wide, found)
    whole, want = wide(matrix), singular_values(matrix)
    return {
        "values": float(np.abs(values - want).max(initial=0) / (want.max(initial=0) or 1)),
        "residual": relative((left * values) @ right - whole, whole),
        "orthogonality": max(lost_orthogonality(left), lost_orthogonality(right.conj().T)),
    }


def of_qr(matrix: Tensor, found: Any) -> Errors:
    basis, factor = map(wide, found)
    whole = wide(matrix)
    return {"residual": relative(basis @ factor - whole, whole), "orthogonality": lost_orthogonality(basis)}


def of_lu(matrix: Tensor, found: Any) -> Errors:
    order, lower, factor = map(wide, found)
    whole = wide(matrix)
    return {"residual": relative(order @ (lower @ factor) - whole, norm(lower) * norm(factor) / len(whole) ** 0.5)}


def of_cholesky(matrix: Tensor, found: Any) -> Errors:
    factor, whole = wide(found), wide(matrix)
    return {"residual": relative(factor @ factor.conj().T - whole, whole)}


def of_solution(matrix: Tensor, right: Tensor, found: Tensor) -> Errors:
    solution, whole = wide(found), wide(matrix)
    return {"residual": relative(whole @ solution - wide(right), norm(whole) * norm(solution))}


def of_pinv(matrix: Tensor, found: Tensor) -> Errors:
    """Measure Penrose's first equation, ``A X A = A``."""
    inverse, whole = wide(found), wide(matrix)
    return {"residual": relative(whole @ inverse @ whole - whole, norm(whole) ** 2 * norm(inverse))}


def of_det(matrix: Tensor, found: Tensor) -> Errors:
    """Divide by the change of the determinant if the matrix changes by a rounding: the condition, at most ``1 / eps``."""
    want, values = determinant(matrix), singular_values(matrix)
    condition = float(values[0] / values[-1]) if values[-1] else np.inf
    bound = float(np.abs(want)) * min(condition, 1 / torch.finfo(matrix.dtype).eps)
    error = float(np.abs(wide(found) - want))
    return {"value": error / bound if bound else (np.inf if error else 0.0)}


def _by_weights(left: Tensor, right: Tensor) -> Tensor:
    return (left * torch.linspace(1, 2, left.size(-1)).to(left.dtype)) @ right


@dataclass(frozen=True)
class Op:
    """A call of linear algebra.

    Attributes:
        given: makes the argument of a square matrix.
        run: the call.
        errors: the errors of a result, by measure.
        kinds: the kinds of matrices.
        parts: what of the result is differentiated: it must not depend on signs and phases. None: no gradients.
        largest: the largest size.
    """

    given: Callable[[Tensor], Tensor]
    run: Callable[[Tensor], Any]
    errors: Callable[[Tensor, Any], Errors]
    kinds: tuple[str, ...] = tuple(KINDS)
    parts: Callable[[Any], tuple[Tensor, ...]] | None = lambda found: (found,)
    largest: int = 512


def _as_is(matrix: Tensor) -> Tensor:
    return matrix


OPS: dict[str, Op] = {
    "cholesky": Op(definite, torch.linalg.cholesky, of_cholesky, CONDITIONED),
    "lu": Op(_as_is, torch.linalg.lu, of_lu, parts=lambda found: found[1:]),
    "qr": Op(_as_is, torch.linalg.qr, of_qr, parts=tuple),
    "eigh": Op(hermitian, torch.linalg.eigh, of_eigh, parts=lambda found: (found[0], _by_weights(found[1], found[1].mH))),
    "eig": Op(_as_is, torch.linalg.eig, of_eig, CONDITIONED, parts=None, largest=65),  # minutes for a matrix of 256 rows
    "svd": Op(
        _as_is,
        lambda x: torch.linalg.svd(x, full_matrices=False),
        of_svd,
        parts=lambda found: (found[1], _by_weights(found[0], found[2])),
    ),
    "solve": Op(_as_is, lambda x: torch.linalg.solve(x, sides(x)), lambda x, found: of_solution(x, sides(x), found), REGULAR),
    "inv": Op(_as_is, torch.linalg.inv, lambda x, found: of_solution(x, torch.eye(len(x), dtype=x.dtype), found), REGULAR),
    "solve_triangular": Op(
        upper,
        lambda x: torch.linalg.solve_triangular(x, sides(x), upper=True),
        lambda x, found: of_solution(x, sides(x), found),
        CONDITIONED,
    ),
    "lstsq": Op(
        _as_is,
        lambda x: torch.linalg.lstsq(x, sides(x)).solution,
        lambda x, found: of_solution(x, sides(x), found),
        CERTAIN,
        parts=None,
    ),
    "ldl_solve": Op(
        hermitian,
        lambda x: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(x, hermitian=True), sides(x), hermitian=True),
        lambda x, found: of_solution(x, sides(x), found),
        CONDITIONED,
        parts=None,
    ),
    "pinv": Op(_as_is, torch.linalg.pinv, of_pinv, CONDITIONED),
    "det": Op(of_determinant_one, torch.linalg.det, of_det, CONDITIONED),
    "det of a definite matrix": Op(lambda x: of_determinant_one(definite(x)), torch.linalg.det, of_det, CONDITIONED),
}


# -- comparison ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """One measure of a call, of matrices of one kind, size and dtype: the errors of ours and of eager's, in roundings."""

    op: str
    measure: str
    kind: str
    size: int
    dtype: torch.dtype
    ours: float
    eagers: float

    @property
    def holds(self) -> bool:
        """Whether ours is at most four times eager's, or at most `FLOOR`."""
        return self.ours <= max(4 * self.eagers, FLOOR)

    @property
    def ratio(self) -> float:
        """Ours by eager's, of which less than a rounding counts as one."""
        return self.ours / max(self.eagers, 1.0)


def on_core(run: Callable[[], Any]) -> Any:
    with ed.EagerDecompMode(ed.core_aten()):
        return run()


def _draws(size: int, draws: int) -> int:
    return draws if size <= 65 else 1


def compared(name: str, kind: str, size: int, dtype: torch.dtype) -> Iterable[Compared]:
    """Return the largest errors of a call on matrices of a kind."""
    op, eps = OPS[name], torch.finfo(dtype).eps
    largest: dict[str, tuple[float, float]] = {}
    for seed in range(_draws(size, DRAWS)):
        given = op.given(matrix_of(kind, size, dtype, seed))
        try:
            theirs = op.errors(given, op.run(given))
        except torch.linalg.LinAlgError:  # singular in this type
            continue
        ours = op.errors(given, on_core(functools.partial(op.run, given)))
        for measure, error in ours.items():
            if math.isfinite(theirs[measure]):  # else eager's overflows
                before = largest.get(measure, (0.0, 0.0))
                largest[measure] = (max(before[0], error / eps), max(before[1], theirs[measure] / eps))
    for measure, (one, other) in largest.items():
        yield Compared(name, measure, kind, size, dtype, one, other)


def _gradient(op: Op, given: Tensor) -> Tensor:
    assert op.parts is not None
    leaf = given.clone().requires_grad_()
    loss: Any = 0.0
    for part in op.parts(op.run(leaf)):
        weights = torch.cos(torch.arange(part.numel()).double() * 7).reshape(part.shape).to(part.dtype)
        loss = loss + ((part * weights).real if part.is_complex() else part * weights).sum()
    return torch.autograd.grad(loss, leaf)[0]


def compared_gradients(name: str, kind: str, size: int, dtype: torch.dtype) -> Compared:
    """Compare a gradient with that of the same numbers in a type of twice the width: the upper quartile of some matrices."""
    op, eps = OPS[name], torch.finfo(dtype).eps
    errors = []
    for seed in range(_draws(size, GRADIENT_DRAWS)):
        given = op.given(matrix_of(kind, size, dtype, seed))
        want = wide(_gradient(op, given.to(C128 if dtype.is_complex else F64)))
        found = on_core(functools.partial(_gradient, op, given)), _gradient(op, given)
        errors.append([relative(wide(x) - want, want) / eps for x in found])
    ours, theirs = np.quantile(errors, 0.75, axis=0)
    return Compared(name, "gradient", kind, size, dtype, float(ours), float(theirs))


def compared_all(name: str) -> list[Compared]:
    """Return all errors of a call, and those of its gradient."""
    op = OPS[name]
    found = [
        one
        for dtype, sizes in SIZES.items()
        for size in sizes
        if size <= op.largest
        for kind in op.kinds
        for one in compared(name, kind, size, dtype)
    ]
    if op.parts is not None:
        kinds = [kind for kind in DIFFERENTIABLE if kind in op.kinds]
        found += [
            compared_gradients(name, kind, size, dtype)
            for dtype, sizes in GRADIENT_SIZES.items()
            for size in sizes
            for kind in kinds
        ]
    return found


def rows(name: str, found: Sequence[Compared]) -> list[str]:
    """Return the lines of the table for a call: one for each of its measures."""
    lines = []
    for measure in dict.fromkeys(one.measure for one in found):
        own = [one for one in found if one.measure == measure]
        cells = []
        for dtype in SIZES:
            of_type = [one for one in own if one.dtype is dtype]
            cells += [f"{max(getattr(one, side) for one in of_type):.2g}" if of_type else "" for side in ("ours", "eagers")]
        most = max((one for one in own if one.ours > FLOOR), key=lambda one: one.ratio, default=None)
        where = f"{most.ratio:.2g}: {most.kind}, {most.size}" if most else "none"
        lines.append(f"| {name} | {measure} | {' | '.join(cells)} | {where} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help="run only calls whose name matches this expression, and print the table")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines, failed = [], []
    for name in OPS:
        if re.search(options.match, name):
            print(name, file=sys.stderr, flush=True)
            found = compared_all(name)
            lines += rows(name, found)
            failed += [one for one in found if not one.holds]
    sizes = "; ".join(f"{', '.join(map(str, of))} in {str(dtype).removeprefix('torch.')}" for dtype, of in SIZES.items())
    page = HEAD.format(sizes=sizes, draws=DRAWS, gradient_draws=GRADIENT_DRAWS, floor=f"{FLOOR:g}") + "\n".join(lines) + "\n"
    target = options.markdown or (None if options.match else PAGE)
    if target is None:
        print(page)
    else:
        target.write_text(page, encoding="utf-8")
    for one in failed:
        print(f"over 4 times eager's: {one}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
