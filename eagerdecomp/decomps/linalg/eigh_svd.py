"""Eigenvalues of Hermitian matrices and singular values of any matrices, by simultaneous rotations of all pairs of columns.

The loop is `decomps.math.rotations.diagonalized`: some 28 calls per step. It reads the data to decide when to stop. Singular values
are eigenvalues of the Hermitian factor of a polar decomposition, which takes 50 to 330 calls.

Without reading data, one-sided rotations compute singular values (Hestenes, "Inversion of matrices by biorthogonalization and
related results", J. SIAM 6, 1958): they make the columns of ``matrix @ V`` orthogonal, with angles from ``matrix^H matrix``. A QR
factorization makes left vectors from these columns, and replaces columns whose length is lost in rounding errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import (
    LAPACK_DTYPES,
    adjoint,
    arange,
    batch_shape,
    column_major,
    conjugate,
    cut,
    divided,
    eye,
    first_set,
    folded,
    lifted,
    real_part,
    solve_triangular,
    triangle,
    unfolded,
    unreadable,
    wrong_numbers,
)
from eagerdecomp.decomps.math.polar import unitary_factor
from eagerdecomp.decomps.math.rotations import diagonalized, diagonalized_blindly, logarithm_of, rotated
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: Up to this number of columns, rotations take so few steps that it does not pay to check the spread of the values' magnitudes.
_FEW = 24

#: Larger angles belong to clustered values, whose vectors are decided by rounding errors.
_WIDEST = 0.1


def _scaled(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Divide each matrix by its largest entry, so that no square overflows. Return the divisors too; they are normal numbers."""
    top = aten.amax.default(aten.abs.default(matrix), [1, 2], True)
    top = aten.clamp.default(top, torch.finfo(top.dtype).tiny)
    return divided(matrix, top), aten.squeeze.dim(top, 2)


def _by_columns(order: Tensor, *matrices: Tensor) -> list[Tensor]:
    """Return the columns of ``[Q, m, n]`` in the order ``[Q, n]``."""
    order = aten.unsqueeze.default(order, 1)
    return [aten.gather.default(matrix, 2, aten.expand.default(order, matrix.shape)) for matrix in matrices]


def _nan_unless_finite(run: Callable[[Tensor], tuple[Tensor, ...] | None], matrix: Tensor) -> tuple[Tensor, ...]:
    """Return the results of `run`, and NaN for matrices with infinities or NaNs.

    If there is such a matrix, `run` returns None. Then it runs again, with zeros in place of these matrices.
    """
    found = run(matrix)
    if found is not None:
        return found
    finite = aten.lt.Scalar(aten.amax.default(aten.abs.default(matrix), [1, 2], True), math.inf)
    found = run(aten.where.self(finite, matrix, number_like(matrix, 0.0)))
    if found is None:
        raise wrong_numbers("led from finite numbers to NaN")
    places = (finite if one.dim() == 3 else aten.squeeze.dim(finite, 2) for one in found)
    return tuple(aten.where.self(place, one, number_like(one, math.nan)) for place, one in zip(places, found, strict=True))


# -- Hermitian matrices -------------------------------------------------------------------------------------------


def _hermitian(matrix: Tensor, lower: bool) -> Tensor:
    """Return the Hermitian matrix with the given triangle. Imaginary parts on the diagonal are ignored."""
    half = triangle(matrix, upper=not lower, unit=False)
    index = arange(0, matrix.size(1), matrix)
    on_diagonal = aten.eq.Tensor(aten.unsqueeze.default(index, 1), index)
    strict = aten.where.self(on_diagonal, number_like(matrix, 0.0), half)
    real = lifted(real_part(half), half) if half.is_complex() else half
    return aten.add.Tensor(aten.where.self(on_diagonal, real, half), adjoint(strict))  # type: ignore[no-any-return]


def _eigen(matrix: Tensor, vectors: bool, blind: bool) -> tuple[Tensor, Tensor]:
    """Return ascending eigenvalues and eigenvectors of Hermitian ``[Q, n, n]``. Without `vectors`, the vectors are not sorted."""
    if matrix.size(1) == 1:
        value = aten.squeeze.dim(real_part(matrix), 2)
        if matrix.is_complex():  # not a view of its parts
            value = aten.clone.default(value, memory_format=torch.contiguous_format)
        return value, aten.expand.default(eye(1, matrix), matrix.shape)
    basis, values, scale = _diagonal(matrix, blind)
    values, order = aten.sort.default(aten.mul.Tensor(values, scale), 1)
    return values, _by_columns(order, basis)[0] if vectors else basis


def _diagonal(matrix: Tensor, blind: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Run `diagonalized` on the matrices divided by their largest entries. Return these entries too.

    A matrix that is not finite gives NaN.
    """
    work, scale = _scaled(matrix)
    if blind:
        basis, _, values = diagonalized_blindly(work, gram=False)
        return basis, values, scale
    basis, values = _nan_unless_finite(lambda x: diagonalized(x, _first_basis(x)), work)
    return basis, values, scale


def _first_basis(matrix: Tensor) -> Tensor | None:
    """Return the basis of eigenvectors of ``sign(A) log|A|``, or None if it is not needed.

    The square of the matrix shows, up to its rounding errors, whether eigenvalues have many magnitudes. The polar factors of `A`
    are ``sign(A)`` and ``|A|``.
    """
    if matrix.size(1) <= _FEW or logarithm_of(aten.bmm.default(matrix, matrix), (7, 9), 0.03) is None:
        return None
    signs = unitary_factor(matrix)
    if signs is None:
        return None
    half = aten.bmm.default(adjoint(signs), matrix)
    logarithm = logarithm_of(aten.add.Tensor(half, adjoint(half)))
    if logarithm is None:
        return None
    half = aten.bmm.default(signs, logarithm)
    found = diagonalized(aten.add.Tensor(half, adjoint(half)))
    return None if found is None else found[0]


@rule("aten._linalg_eigh.default")
def _linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    known = UPLO.upper() in ("L", "U") and A.size(-1) == A.size(-2) and A.dtype in LAPACK_DTYPES
    if not known or unreadable(A):
        return NotImplemented  # type: ignore[no-any-return]
    return _eigh(A, UPLO, compute_v, blind=False)


@rule("aten._linalg_eigh.default", recorded=True)
def _linalg_eigh_blindly(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """Use a fixed number of steps: for traced calls, which may not read data, and for sets without an op that reads data."""
    return _eigh(A, UPLO, compute_v, blind=True)


def _eigh(A: Tensor, UPLO: str, compute_v: bool, blind: bool) -> tuple[Tensor, Tensor]:
    batch = batch_shape(A)
    matrix = folded(A)
    if matrix.numel() == 0:
        values = aten.empty.memory_format(A.shape[:-1], dtype=A.dtype.to_real(), device=A.device)
        empty = aten.clone.default(matrix)
        return values, column_major(empty, batch) if compute_v else _nothing(A)
    values, vectors = _eigen(_hermitian(matrix, UPLO.upper() == "L"), compute_v, blind)
    return unfolded(values, batch), column_major(vectors, batch) if compute_v else _nothing(A)


def _nothing(like: Tensor) -> Tensor:
    return aten.empty.memory_format([0], dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]


# -- singular values and least squares ----------------------------------------------------------------------------


def _by_reflections(columns: Tensor, lengths: Tensor, complete: bool) -> Tensor:
    """Divide orthogonal columns by their descending lengths; a QR factorization replaces columns whose length is lost.

    Columns far below rounding errors are set to zero, since kernels might divide by subnormal numbers.
    """
    lost = aten.mul.Scalar(aten.amax.default(lengths, [1], True), torch.finfo(columns.dtype).eps ** 2)
    lost = aten.unsqueeze.default(aten.lt.Tensor(lengths, lost), 1)
    columns = aten.where.self(lost, number_like(columns, 0.0), columns)
    unitary, upper = aten.linalg_qr.default(columns, "complete" if complete else "reduced")
    flipped = aten.lt.Scalar(real_part(aten.diagonal.default(upper, 0, 1, 2)), 0)
    if complete:
        flipped = aten.constant_pad_nd.default(flipped, [0, unitary.size(2) - columns.size(2)])
    return aten.where.self(aten.unsqueeze.default(flipped, 1), aten.neg.default(unitary), unitary)  # type: ignore[no-any-return]


def _squares(x: Tensor) -> Tensor:
    size = aten.abs.default(x) if x.is_complex() else x
    return aten.mul.Tensor(size, size)  # type: ignore[no-any-return]


def _by_polar_factor(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``U [Q, m, n]``, descending singular values and ``V [Q, n, n]`` of ``[Q, m, n]``, ``m >= n``.

    With a polar factor `W`, the product ``W^H matrix`` is Hermitian with the eigenvectors `V`, and ``U = W V`` (Higham and
    Papadimitriou, "A parallel algorithm for computing the polar decomposition", Parallel Computing 20, 1994). So `U` is unitary
    even if singular values are at rounding level.
    """
    work, scale = _scaled(matrix)
    unitary, values, basis = _nan_unless_finite(_unscaled_by_polar_factor, work)
    values, order = aten.sort.default(aten.mul.Tensor(aten.clamp.default(values, 0), scale), 1, True)
    unitary, basis = _by_columns(order, unitary, basis)
    return unitary, values, basis


def _unscaled_by_polar_factor(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    polar = unitary_factor(matrix)
    if polar is None:
        return None
    half = aten.bmm.default(adjoint(polar), matrix)
    half = aten.add.Tensor(half, adjoint(half))
    logarithm = logarithm_of(half) if half.size(2) > _FEW else None
    first = None if logarithm is None else diagonalized(logarithm)
    found = diagonalized(half, None if first is None else first[0])
    if found is None:
        raise wrong_numbers("led from finite numbers to NaN")
    return _corrected(aten.bmm.default(polar, found[0]), matrix, found[0])


def _corrected(left: Tensor, matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the bases and values of ``m = left^H matrix right``, corrected for rounding errors.

    For skew-Hermitian X and Y with ``y_ij = (m_ij - conj(m_ji)) / (s_i + s_j)`` and ``x_ij = (m_ij - s_j y_ij) / (s_j - s_i)``, the
    bases ``left (I + X + Y + (I - left^H left) / 2)`` and ``right (I + X)`` make the matrix diagonal to first order. If rows or
    columns are graded, vectors of small values are off by angles whose squares matter. Then the bases are first rotated by
    ``exp(X + Y)`` and ``exp(X)``. Values are sums, which round less than matrix products, divided by the mean of the squared
    lengths of both vectors.
    """
    size, most, last = right.size(2), torch.finfo(left.dtype).eps ** 0.5 / 8, math.inf
    while True:
        angles, values, gram = _misalignment(left, matrix, right)
        angles = _below(angles, _WIDEST)
        largest = aten._local_scalar_dense.default(aten.amax.default(aten.abs.default(angles)))
        turns = most < largest < last / 8
        if largest > most and not turns:
            angles = _below(angles, most)
        own, shared = cut(angles, 1, 0, size), cut(angles, 1, size, 2 * size)
        if not turns:
            break
        left, right, last = rotated(left, aten.add.Tensor(own, shared)), rotated(right, shared), largest
    turn = aten.add.Tensor(aten.add.Tensor(shared, own), gram)
    return (
        aten.add.Tensor(aten.bmm.default(left, turn), left, alpha=1.5),
        values,
        aten.add.Tensor(right, aten.bmm.default(right, shared)),
    )


def _misalignment(left: Tensor, matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Y and X of `_corrected` in one ``[Q, 2n, n]``, the values ``[Q, n]``, and ``-left^H left / 2``."""
    across, image = adjoint(left), aten.bmm.default(matrix, right)
    mixed, gram = aten.bmm.default(across, image), aten.mul.Scalar(aten.bmm.default(across, left), -0.5)
    values = real_part(aten.sum.dim_IntList(aten.mul.Tensor(conjugate(left), image), [1]))
    lengths = aten.sum.dim_IntList(_squares(aten.cat.default([left, right], 1)), [1])
    values = aten.mul.Scalar(aten.div.Tensor(values, lengths), 2)
    row, column = (lifted(aten.unsqueeze.default(values, dim), mixed) for dim in (1, 2))
    own = aten.div.Tensor(aten.sub.Tensor(mixed, adjoint(mixed)), aten.add.Tensor(row, column))
    shared = aten.div.Tensor(aten.sub.Tensor(mixed, aten.mul.Tensor(row, own)), aten.sub.Tensor(row, column))
    return aten.cat.default([own, shared], 1), values, gram


def _below(angles: Tensor, limit: float) -> Tensor:
    """Return the angles, with 0 in place of those that are NaN or not below `limit`."""
    return aten.where.self(aten.lt.Scalar(aten.abs.default(angles), limit), angles, number_like(angles, 0.0))  # type: ignore[no-any-return]


def _completed(unitary: Tensor) -> Tensor:
    """Append columns orthogonal to the columns of ``[Q, m, n]``: return ``[Q, m, m]``. Matrices with NaN get columns of NaN."""
    rows, columns = unitary.shape[1:]
    (found,) = _nan_unless_finite(
        lambda x: None if (factor := unitary_factor(x)) is None else (factor,),
        aten.constant_pad_nd.default(unitary, [0, rows - columns]),
    )
    return aten.cat.default([unitary, cut(found, 2, columns, rows)], 2)  # type: ignore[no-any-return]


@rule("aten._linalg_svd.default")
def _linalg_svd(
    A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    if driver is not None or A.dtype not in LAPACK_DTYPES or unreadable(A):
        return NotImplemented  # type: ignore[no-any-return]
    return _svd(A, full_matrices, compute_uv, blind=False)


@rule("aten._linalg_svd.default", recorded=True)
def _linalg_svd_blindly(
    A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Use a fixed number of steps: for traced calls, which may not read data, and for sets without an op that reads data."""
    return _svd(A, full_matrices, compute_uv, blind=True)


def _svd(A: Tensor, full_matrices: bool, compute_uv: bool, blind: bool) -> tuple[Tensor, Tensor, Tensor]:
    batch = batch_shape(A)
    rows, columns = A.shape[-2:]
    matrix = folded(A)
    if matrix.numel() == 0:
        return _empty_svd(A, matrix, full_matrices, compute_uv)
    wide = rows < columns
    if not blind:
        left, values, right = _by_polar_factor(adjoint(matrix) if wide else matrix)
        if not compute_uv:
            return _nothing(A), unfolded(values, batch), _nothing(A)
        if full_matrices and rows != columns:
            left = _completed(left)
        left, right = (right, left) if wide else (left, right)
        return column_major(left, batch), unfolded(values, batch), column_major(adjoint(right), batch)
    work, scale = _scaled(adjoint(matrix) if wide else matrix)
    basis, image, squares = diagonalized_blindly(work, gram=True)
    lengths, order = aten.sort.default(aten.sqrt.default(squares), 1, True)
    values = unfolded(aten.mul.Tensor(lengths, scale), batch)
    if not compute_uv:
        return _nothing(A), values, _nothing(A)
    image, basis = _by_columns(order, image, basis)
    unitary = _by_reflections(image, lengths, full_matrices and rows != columns)
    left, right = (basis, unitary) if wide else (unitary, basis)
    return column_major(left, batch), values, column_major(adjoint(right), batch)


def _empty_svd(A: Tensor, matrix: Tensor, full_matrices: bool, compute_uv: bool) -> tuple[Tensor, Tensor, Tensor]:
    batch, count = batch_shape(A), matrix.size(0)
    rows, columns = matrix.shape[1:]
    small = min(rows, columns)
    values = aten.empty.memory_format([*batch, small], dtype=A.dtype.to_real(), device=A.device)
    if not compute_uv:
        return _nothing(A), values, _nothing(A)
    left, right = (rows, columns) if full_matrices else (small, small)

    def units(height: int, width: int) -> Tensor:
        ones = cut(cut(eye(max(height, width), matrix), 0, 0, height), 1, 0, width)
        return column_major(aten.expand.default(ones, [count, height, width]), batch)

    return units(rows, left), values, units(right, columns)


@rule("aten.linalg_pinv.atol_rtol_tensor", recorded=True)
def _linalg_pinv(self: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor:
    rows, columns = self.shape[-2:]
    if self.numel() == 0:
        shape = [*batch_shape(self), columns, rows]
        return aten.empty.memory_format(shape, dtype=self.dtype, device=self.device)  # type: ignore[no-any-return]
    if hermitian:
        values, vectors = aten._linalg_eigh.default(self)
        left, right = vectors, vectors
        sizes = aten.abs.default(values)
    else:
        left, values, adjoint_right = aten._linalg_svd.default(self)
        right, sizes = adjoint(adjoint_right), values
    # Use the default relative tolerance unless the absolute tolerance is above 0.
    bound = aten.amax.default(sizes, [-1], True)
    default = torch.finfo(self.dtype).eps * max(rows, columns)
    if rtol is not None:
        bound = aten.mul.Tensor(bound, _beside(rtol))
    elif atol is None:
        bound = aten.mul.Scalar(bound, default)
    else:
        given = aten.gt.Scalar(_beside(atol), 0)
        bound = aten.where.self(given, number_like(bound, 0.0), aten.mul.Scalar(bound, default))
    if atol is not None:
        bound = aten.maximum.default(bound, lifted(_beside(atol), bound))
    inverted = aten.where.self(aten.gt.Tensor(sizes, bound), aten.reciprocal.default(values), number_like(values, 0.0))
    scaled = aten.mul.Tensor(right, aten.unsqueeze.default(lifted(inverted, right), -2))
    return aten.matmul.default(scaled, adjoint(left))  # type: ignore[no-any-return]


def _beside(tolerance: Tensor) -> Tensor:
    return aten.unsqueeze.default(tolerance, -1)  # type: ignore[no-any-return]


@rule("aten.linalg_lstsq.default", recorded=True)
def _linalg_lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Solve by singular values (`gelsy`, the default, `gelsd` and `gelss`) or by QR (`gels`).

    All solutions have the least norm. LAPACK's `gelsy` truncates a pivoted QR factorization instead, so near `rcond` its rank and
    solution may differ. `gelsd` and `gelss` read the rank, which decides whether they return residuals.
    """
    vector = b.dim() == self.dim() - 1 and list(b.shape) == list(self.shape[:-1])
    right = aten.unsqueeze.default(b, -1) if vector else b
    batch = broadcast_shapes(batch_shape(self), batch_shape(right))
    if right.dim() < self.dim():  # like eager, which takes the rows of a right side without a batch for a batch too
        batch = broadcast_shapes(batch, list(right.shape[:-1]))
    rows, columns = self.shape[-2:]
    matrix, given = folded(self, batch), folded(right, batch)
    real = self.dtype.to_real()
    # Separate tensors: autograd would treat one tensor returned twice as one result.
    residuals, singular = (aten.empty.memory_format([0], dtype=real, device=self.device) for _ in range(2))
    rank = aten.empty.memory_format([0], dtype=torch.int64, device=self.device)
    if self.numel() == 0 or right.numel() == 0:
        shape = [matrix.size(0), columns, given.size(2)]
        found = aten.full.default(shape, 0, dtype=self.dtype, device=self.device)
        rank = rank if driver == "gels" else aten.full.default(batch_shape(self), 0, dtype=torch.int64, device=self.device)
        if driver in ("gelsd", "gelss"):
            singular = aten.full.default([*batch_shape(self), min(rows, columns)], 0, dtype=real, device=self.device)
        if rows > columns and driver == "gels":
            residuals = aten.full.default([*batch, given.size(2)], 0, dtype=real, device=self.device)
        elif rows > columns and driver in ("gelsd", "gelss") and (not columns or 0 in batch_shape(self)):  # all of full rank
            residuals = unfolded(aten.sum.dim_IntList(_squares(given), [1]), batch)
        return _as_solution(found, vector, rows, batch), residuals, rank, singular
    sums = (aten.sum.dim_IntList(aten.abs.default(x), [1, 2]) for x in (matrix, given))
    _refuse(aten.isnan.default(aten.add.Tensor(*sums)), batch)
    if driver == "gels":
        nothing = aten.eq.Scalar(aten.amax.default(aten.abs.default(matrix), [1, 2], True), 0)
        # For a zero matrix LAPACK returns zeros and no residuals. It refuses other matrices that do not have full rank.
        solved, info = _by_qr(matrix, given)
        _refuse(aten.where.self(aten.squeeze.dims(nothing, [1, 2]), number_like(info, 0), info), batch)
        found = aten.where.self(nothing, number_like(given, 0.0), solved)
        if rows > columns:
            missed = _missed(matrix, found, given)
            residuals = unfolded(aten.where.self(aten.squeeze.dim(nothing, 2), number_like(missed, 0.0), missed), batch)
    else:
        # A matrix that is broadcast to several right sides has one rank and one row of singular values.
        own = batch_shape(self)
        left, values, right_adjoint = aten._linalg_svd.default(folded(self))
        tolerance = torch.finfo(self.dtype).eps * max(rows, columns) if rcond is None else rcond
        if (driver == "gelss" and tolerance < 0) or (driver == "gelsd" and not 0 < tolerance < 1):
            tolerance = torch.finfo(self.dtype).eps / 2  # LAPACK's
        kept = aten.gt.Tensor(values, aten.mul.Scalar(aten.amax.default(values, [-1], True), tolerance))
        inverted = aten.where.self(kept, aten.reciprocal.default(values), number_like(values, 0.0))
        inverted = aten.unsqueeze.default(lifted(inverted, left), -1)
        left, inverted, right_adjoint = (folded(unfolded(x, own), batch) for x in (left, inverted, right_adjoint))
        scaled = aten.mul.Tensor(aten.bmm.default(adjoint(left), given), inverted)
        found = aten.bmm.default(adjoint(right_adjoint), scaled)
        count = aten.sum.dim_IntList(kept, [-1], dtype=torch.int64)
        rank = unfolded(count, own)
        if driver in ("gelsd", "gelss"):
            singular = unfolded(values, own)
            if rows > columns and aten._local_scalar_dense.default(aten.amin.default(count)) == columns:
                residuals = unfolded(_missed(matrix, found, given), batch)
    return _as_solution(found, vector, rows, batch), residuals, rank, singular


def _as_solution(found: Tensor, vector: bool, rows: int, batch: Sequence[int]) -> Tensor:
    """Return the solution with LAPACK's strides: its memory has as many rows as the longer of solution and right side."""
    columns = found.size(1)
    longer = aten.constant_pad_nd.default(found, [0, 0, 0, rows - columns]) if rows > columns else found
    solution = cut(column_major(longer, batch), -2, 0, columns)
    return aten.squeeze.dim(solution, -1) if vector else solution


def _refuse(wrong: Tensor, batch: Sequence[int]) -> None:
    """Raise an error if a number of `wrong` is not 0. Traced calls keep the op that raises it."""
    info = aten._to_copy.default(unfolded(wrong, batch), dtype=torch.int32)
    aten._linalg_check_errors.default(info, "torch.linalg.lstsq", is_matrix=not batch)


def _missed(matrix: Tensor, found: Tensor, given: Tensor) -> Tensor:
    """Return the squared length of the residual of each solution."""
    return aten.sum.dim_IntList(_squares(aten.sub.Tensor(given, aten.bmm.default(matrix, found))), [1])  # type: ignore[no-any-return]


def _by_qr(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least squares or least norm solution for a matrix of full rank, and LAPACK's info on whether the rank is full."""
    tall = matrix.size(1) >= matrix.size(2)
    unitary, upper = aten.linalg_qr.default(matrix if tall else adjoint(matrix), "reduced")
    info = first_set(aten.eq.Scalar(aten.diagonal.default(upper, 0, 1, 2), 0))
    if tall:
        return solve_triangular(upper, aten.bmm.default(adjoint(unitary), right), upper=True), info
    return aten.bmm.default(unitary, solve_triangular(adjoint(upper), right, upper=False)), info


# -- functions of matrices that torch 2.14 added ---------------------------------------------------------------------


def _averaged(matrix: Tensor) -> Tensor:
    """Return the mean of each matrix and its adjoint, which is exactly Hermitian; contiguous."""
    summed = aten.add.Tensor(aten.clone.default(matrix, memory_format=torch.contiguous_format), adjoint(matrix))
    return aten.mul.Scalar(summed, 0.5)  # type: ignore[no-any-return]


@rule("aten.linalg_matrix_sqrth.default", recorded=True)
def _linalg_matrix_sqrth(self: Tensor) -> Tensor:
    """Compute the square root of a Hermitian matrix by its eigenvalues. As in eager, negative eigenvalues count as zero."""
    if not self.numel():
        return aten.clone.default(self)  # type: ignore[no-any-return]
    batch = batch_shape(self)
    values, vectors = aten._linalg_eigh.default(folded(self))
    roots = aten.unsqueeze.default(aten.sqrt.default(aten.clamp.default(values, 0)), 1)
    root = aten.bmm.default(aten.mul.Tensor(vectors, lifted(roots, vectors)), adjoint(vectors))
    return unfolded(_averaged(root), batch)


@rule("aten.linalg_polar.default", recorded=True)
def _linalg_polar(A: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the polar decomposition by singular values: ``A = (U Vh) (Vh^H S Vh)``."""
    batch = batch_shape(A)
    rows, columns = A.shape[-2:]
    if rows < columns:
        return NotImplemented  # type: ignore[no-any-return]
    if not A.numel():
        shapes = ([*batch, rows, columns], [*batch, columns, columns])
        unitary, positive = (aten.full.default(shape, 0, dtype=A.dtype, device=A.device) for shape in shapes)
        return unitary, positive
    left, values, right = aten._linalg_svd.default(folded(A))
    scaled = aten.mul.Tensor(right, lifted(aten.unsqueeze.default(values, 2), right))
    unitary, positive = aten.bmm.default(left, right), _averaged(aten.bmm.default(adjoint(right), scaled))
    return unfolded(unitary, batch), unfolded(positive, batch)
