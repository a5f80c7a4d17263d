"""Eigenvalues of Hermitian matrices and singular values of any, by Jacobi's rotations.

A round turns half of the columns against the other half, each against its partner, by one product with a sparse rotation; that
product also moves the columns on to their next partners. After ``n - 1`` rounds, a sweep, each has met each and all are back in
place. The number of sweeps is fixed, since whether one more is needed is data: ``log2 n + n / 8 + 6`` of them (``n / 4`` for
singular values, ``log2 n + 5`` in single precision) meet LAPACK's criteria in every matrix tried, equal eigenvalues and graded rows
included. A round is some 40 calls, hence ``40 n (log2 n + n / 8 + 6)`` in all, and the price of a sweep is ``O(n ** 4)``: this
serves small matrices.

What is far below the largest entry off the diagonal is left for a later sweep. Columns of about equal eigenvalues would otherwise
turn by any angle for what rounding left between them, and carry back what others have just lost: a sweep would then take away
no more than two thirds.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import (
    adjoint,
    arange,
    batch_shape,
    check_floating,
    check_kernel,
    check_square,
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
)
from eagerdecomp.eager.messages import scalar_type_name, shape_text
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


#: Of the square of the largest entry off the diagonal, what an entry has to exceed to be turned away in this sweep.
_LATER = 0.01


def _sweeps(size: int, dtype: torch.dtype, slow: int) -> int:
    """With one sweep more for each `slow` columns, as graded matrices want where there are many digits to gain."""
    return math.ceil(math.log2(size)) + (6 + size // slow if dtype in (torch.float64, torch.complex128) else 5)


class _Rounds:
    """The masks and the order that all rounds on `size` columns share; the partners are column ``i`` and ``i + size / 2``."""

    def __init__(self, size: int, like: Tensor) -> None:
        half = size // 2
        self.half = half
        self.stays = eye(size, like)
        index = arange(0, size, like)
        self.apart = aten.ne.Tensor(aten.unsqueeze.default(index, 1), index)
        self.crosses = aten.cat.default(list(reversed(aten.split_with_sizes.default(self.stays, [half, half], 1))), 1)
        # The circle method of round-robin tournaments: the first stays, the others move one place around.
        pieces = [(0, 1), (half, half + 1), (1, half - 1), (half + 1, size), (half - 1, half)]
        self.order = aten.cat.default([arange(*ends, like) for ends in pieces]) if half > 1 else None

    def least(self, sizes: Tensor) -> Tensor:
        """Threshold of a rotation in a sweep that begins with off-diagonal `sizes` ``[Q, n, n]``, of matrices of norm about 1."""
        most = aten.amax.default(aten.where.self(self.apart, sizes, number_like(sizes, 0.0)), [1])
        most = aten.amax.default(most, [1], True)
        return aten.clamp.default(aten.mul.Scalar(aten.mul.Tensor(most, most), _LATER), torch.finfo(sizes.dtype).eps)  # type: ignore[no-any-return]

    def rotation(self, first: Tensor, second: Tensor, across: Tensor, least: Tensor) -> Tensor:
        """The rotation that makes ``[[first, across], [conj(across), second]]`` diagonal for each pair, ``[Q, n, n]``; none for
        what is below `least`."""
        gap = aten.sub.Tensor(second, first)
        size = aten.abs.default(across)
        root = aten.sqrt.default(aten.add.Tensor(aten.mul.Tensor(gap, gap), aten.mul.Tensor(size, size), alpha=4))
        reach = aten.add.Tensor(aten.abs.default(gap), root)
        reach = aten.where.self(aten.gt.Tensor(size, least), reach, number_like(reach, math.inf))
        reach = aten.where.self(aten.ge.Scalar(gap, 0), reach, aten.neg.default(reach))
        double = aten.mul.Scalar(size, 2)
        slope = aten.div.Tensor(double, reach)
        cosine = aten.rsqrt.default(aten.add.Scalar(aten.mul.Tensor(slope, slope), 1))
        scale = aten.div.Tensor(aten.mul.Scalar(cosine, 2), reach)
        sine = aten.mul.Tensor(across, scale)
        cosine = lifted(cosine, across)
        along = aten.unsqueeze.default(aten.cat.default([cosine, cosine], 1), 1)
        beside = aten.unsqueeze.default(aten.cat.default([aten.neg.default(conjugate(sine)), sine], 1), 1)
        turn = aten.add.Tensor(aten.mul.Tensor(self.stays, along), aten.mul.Tensor(self.crosses, beside))
        return turn if self.order is None else aten.index_select.default(turn, 2, self.order)  # type: ignore[no-any-return]


def _scaled(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices with a largest entry of about 1, so that no square leaves the range, and what they were divided by."""
    top = aten.amax.default(aten.abs.default(matrix), [1, 2], True)
    top = aten.where.self(aten.eq.Scalar(top, 0), number_like(top, 1.0), top)
    return divided(matrix, top), aten.squeeze.dim(top, 2)


def _by_columns(matrix: Tensor, order: Tensor) -> Tensor:
    return aten.gather.default(matrix, 2, aten.expand.default(aten.unsqueeze.default(order, 1), matrix.shape))  # type: ignore[no-any-return]


# -- Hermitian matrices -------------------------------------------------------------------------------------------


def _hermitian(matrix: Tensor, lower: bool) -> Tensor:
    """The Hermitian matrix of which one triangle is given; imaginary parts on the diagonal are not looked at."""
    half = triangle(matrix, upper=not lower, unit=False)
    index = arange(0, matrix.size(1), matrix)
    on_diagonal = aten.eq.Tensor(aten.unsqueeze.default(index, 1), index)
    strict = aten.where.self(on_diagonal, number_like(matrix, 0.0), half)
    real = lifted(real_part(half), half) if half.is_complex() else half
    return aten.add.Tensor(aten.where.self(on_diagonal, real, half), adjoint(strict))  # type: ignore[no-any-return]


def _eigen(matrix: Tensor, vectors: bool) -> tuple[Tensor, Tensor | None]:
    """Eigenvalues, ascending, and eigenvectors of Hermitian ``[Q, n, n]``."""
    size = matrix.size(1)
    work, scale = _scaled(matrix)
    even = size + size % 2
    if even > size:
        work = aten.constant_pad_nd.default(work, [0, 1, 0, 1])
    basis = aten.expand.default(eye(even, work), work.shape) if vectors else None
    if size > 1:
        rounds = _Rounds(even, work)
        halves = [rounds.half, rounds.half]
        for step in range(_sweeps(even, work.dtype, 8) * (even - 1)):
            if step % (even - 1) == 0:
                least = rounds.least(aten.abs.default(work))
            diagonal = real_part(aten.diagonal.default(work, 0, 1, 2))
            first, second = aten.split_with_sizes.default(diagonal, halves, 1)
            turn = rounds.rotation(first, second, aten.diagonal.default(work, rounds.half, 1, 2), least)
            work = aten.bmm.default(adjoint(turn), aten.bmm.default(work, turn))
            basis = None if basis is None else aten.bmm.default(basis, turn)
    found = cut(real_part(aten.diagonal.default(work, 0, 1, 2)), 1, 0, size)
    values, order = aten.sort.default(aten.mul.Tensor(found, scale), 1)
    return values, None if basis is None else _by_columns(cut(cut(basis, 1, 0, size), 2, 0, size), order)


@rule("aten._linalg_eigh.default", recorded=True)
def _linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    check_square("linalg.eigh", A)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    check_kernel("linalg_eigh_cpu", A, empty=False)
    batch = batch_shape(A)
    matrix = folded(A)
    values: Tensor
    vectors: Tensor | None
    if matrix.numel() == 0:
        values = aten.empty.memory_format(A.shape[:-1], dtype=A.dtype.to_real(), device=A.device)
        empty = aten.clone.default(matrix)
        return values, column_major(empty, batch) if compute_v else _nothing(A)
    values, vectors = _eigen(_hermitian(matrix, UPLO.upper() == "L"), compute_v)
    return unfolded(values, batch), _nothing(A) if vectors is None else column_major(vectors, batch)


def _nothing(like: Tensor) -> Tensor:
    return aten.empty.memory_format([0], dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]


# -- any matrices -------------------------------------------------------------------------------------------------


def _singular(matrix: Tensor, vectors: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """For ``[Q, m, n]``: ``matrix @ V``, whose columns are orthogonal and grow no longer, their lengths, and `V`.

    One-sided rotations: those that would make ``matrix^H matrix`` diagonal, which itself is never formed.
    """
    size = matrix.size(2)
    work, scale = _scaled(matrix)
    even = size + size % 2
    if even > size:
        work = aten.constant_pad_nd.default(work, [0, 1])
    basis = aten.expand.default(eye(even, work), [work.size(0), even, even]) if vectors else None
    if size > 1:
        rounds = _Rounds(even, work)
        halves = [rounds.half, rounds.half]
        for step in range(_sweeps(even, work.dtype, 4) * (even - 1)):
            squares = aten.sum.dim_IntList(_squares(work), [1])
            if step % (even - 1) == 0:
                least = rounds.least(_leanings(work, squares))
            first, second = aten.split_with_sizes.default(squares, halves, 1)
            left, right = aten.split_with_sizes.default(work, halves, 2)
            across = aten.sum.dim_IntList(aten.mul.Tensor(conjugate(left), right), [1])
            longer = aten.sqrt.default(aten.maximum.default(first, second))
            turn = rounds.rotation(first, second, across, aten.mul.Tensor(longer, least))
            work = aten.bmm.default(work, turn)
            basis = None if basis is None else aten.bmm.default(basis, turn)
    lengths = aten.sqrt.default(aten.sum.dim_IntList(_squares(cut(work, 2, 0, size)), [1]))
    ordered, order = aten.sort.default(lengths, 1, True)
    values = aten.mul.Tensor(ordered, scale)
    if basis is None:
        return work, values, None
    return _by_columns(cut(work, 2, 0, size), order), values, _by_columns(cut(cut(basis, 1, 0, size), 2, 0, size), order)


def _leanings(work: Tensor, squares: Tensor) -> Tensor:
    """How far each column leans on each other that is as long or longer, ``[Q, n, n]``."""
    longer = aten.maximum.default(aten.unsqueeze.default(squares, 1), aten.unsqueeze.default(squares, 2))
    longer = aten.where.self(aten.eq.Scalar(longer, 0), number_like(longer, 1.0), longer)
    return aten.div.Tensor(aten.abs.default(aten.bmm.default(adjoint(work), work)), aten.sqrt.default(longer))  # type: ignore[no-any-return]


def _squares(x: Tensor) -> Tensor:
    size = aten.abs.default(x) if x.is_complex() else x
    return aten.mul.Tensor(size, size)  # type: ignore[no-any-return]


@rule("aten._linalg_svd.default", recorded=True)
def _linalg_svd(
    A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    name = "linalg.svd"
    if A.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    check_floating(name, A, half=False)
    if driver is not None:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.")
    check_kernel("linalg_svd_cpu", A, empty=False)
    batch = batch_shape(A)
    rows, columns = A.shape[-2:]
    small = min(rows, columns)
    matrix = folded(A)
    if matrix.numel() == 0:
        return _empty_svd(A, matrix, full_matrices, compute_uv)
    wide = rows < columns
    turned, values, basis = _singular(adjoint(matrix) if wide else matrix, compute_uv)
    values = unfolded(values, batch)
    if basis is None:
        return _nothing(A), values, _nothing(A)
    # The columns are orthogonal, so their QR factorization only scales them, and fills up what has no length of its own.
    unitary, upper = aten.linalg_qr.default(turned, "complete" if full_matrices else "reduced")
    signs = lifted(real_part(aten.diagonal.default(upper, 0, 1, 2)), unitary)
    flipped = aten.lt.Scalar(real_part(signs), 0)
    if full_matrices and max(rows, columns) > small:
        flipped = aten.constant_pad_nd.default(flipped, [0, max(rows, columns) - small])
    flipped = aten.unsqueeze.default(flipped, 1)
    unitary = aten.where.self(flipped, aten.neg.default(unitary), unitary)
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
    if self.dim() < 2 or self.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        given = f"{scalar_type_name(self.dtype)}{{{shape_text(self.shape)}}}"
        raise RuntimeError(
            f"linalg.pinv({given}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types"
        )
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
    # Of the two tolerances the relative one is in force by itself, unless the absolute one was given above 0.
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
    """`gelsy`, the default, `gelsd` and `gelss` by singular values; `gels` by QR.

    All are of least norm. Where singular values lie near `rcond`, `gelsy` cuts a pivoted QR factorization instead, and
    may count and return otherwise. Whether `gelsd` and `gelss` return residuals depends on the rank, which they read.
    """
    vector = b.dim() == self.dim() - 1 and list(b.shape) == list(self.shape[:-1])
    right = aten.unsqueeze.default(b, -1) if vector else b
    known = driver in (None, "gels", "gelsy", "gelsd", "gelss") and self.dtype is b.dtype and self.dim() == right.dim() >= 2
    if not known or list(self.shape[:-1]) != list(right.shape[:-1]):
        return NotImplemented  # type: ignore[no-any-return]
    if self.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        raise RuntimeError("This function doesn't handle types other than float and double")
    batch = batch_shape(self)
    rows, columns = self.shape[-2:]
    matrix, given = folded(self), folded(right)
    real = self.dtype.to_real()
    # Each a tensor of its own: autograd would take one given twice for one result.
    residuals, singular = (aten.empty.memory_format([0], dtype=real, device=self.device) for _ in range(2))
    rank = aten.empty.memory_format([0], dtype=torch.int64, device=self.device)
    if self.numel() == 0 or right.numel() == 0:
        shape = [matrix.size(0), columns, given.size(2)]
        found = aten.full.default(shape, 0, dtype=self.dtype, device=self.device)
        rank = rank if driver == "gels" else aten.full.default(batch, 0, dtype=torch.int64, device=self.device)
        if driver in ("gelsd", "gelss"):
            singular = aten.full.default([*batch, min(rows, columns)], 0, dtype=real, device=self.device)
        if rows > columns and driver == "gels":
            residuals = aten.full.default([*batch, given.size(2)], 0, dtype=real, device=self.device)
        elif rows > columns and driver in ("gelsd", "gelss") and (not columns or 0 in batch):  # all of full rank
            residuals = unfolded(aten.sum.dim_IntList(_squares(given), [1]), batch)
    elif driver == "gels":
        nothing = aten.eq.Scalar(aten.amax.default(aten.abs.default(matrix), [1, 2], True), 0)
        # For a matrix of zeros LAPACK returns zeros, and leaves none as residuals; what else is not of full rank it refuses.
        solved, info = _by_qr(matrix, given)
        info = aten.where.self(aten.squeeze.dims(nothing, [1, 2]), number_like(info, 0), info)
        aten._linalg_check_errors.default(unfolded(info, batch), "torch.linalg.lstsq", is_matrix=self.dim() == 2)
        found = aten.where.self(nothing, number_like(given, 0.0), solved)
        if rows > columns:
            missed = _missed(matrix, found, given)
            residuals = unfolded(aten.where.self(aten.squeeze.dim(nothing, 2), number_like(missed, 0.0), missed), batch)
    else:
        left, values, right_adjoint = aten._linalg_svd.default(matrix)
        tolerance = torch.finfo(self.dtype).eps * max(rows, columns) if rcond is None else rcond
        kept = aten.gt.Tensor(values, aten.mul.Scalar(aten.amax.default(values, [-1], True), tolerance))
        inverted = aten.where.self(kept, aten.reciprocal.default(values), number_like(values, 0.0))
        parts = aten.bmm.default(adjoint(left), given)
        scaled = aten.mul.Tensor(parts, aten.unsqueeze.default(lifted(inverted, parts), -1))
        found = aten.bmm.default(adjoint(right_adjoint), scaled)
        count = aten.sum.dim_IntList(kept, [-1], dtype=torch.int64)
        rank = unfolded(count, batch)
        if driver in ("gelsd", "gelss"):
            singular = unfolded(values, batch)
            if rows > columns and aten._local_scalar_dense.default(aten.amin.default(count)) == columns:
                residuals = unfolded(_missed(matrix, found, given), batch)
    # LAPACK returns in the place of the right side, made as long as the longer of the two.
    longer = aten.constant_pad_nd.default(found, [0, 0, 0, max(rows, columns) - columns]) if rows > columns else found
    solution = cut(column_major(longer, batch), -2, 0, columns)
    return aten.squeeze.dim(solution, -1) if vector else solution, residuals, rank, singular


def _missed(matrix: Tensor, found: Tensor, given: Tensor) -> Tensor:
    """The squared length of what each solution misses."""
    return aten.sum.dim_IntList(_squares(aten.sub.Tensor(given, aten.bmm.default(matrix, found))), [1])  # type: ignore[no-any-return]


def _by_qr(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The least squares solution, or the one of least norm, of a matrix of full rank, and LAPACK's info on whether it is."""
    tall = matrix.size(1) >= matrix.size(2)
    unitary, upper = aten.linalg_qr.default(matrix if tall else adjoint(matrix), "reduced")
    info = first_set(aten.eq.Scalar(aten.diagonal.default(upper, 0, 1, 2), 0))
    if tall:
        return solve_triangular(upper, aten.bmm.default(adjoint(unitary), right), upper=True), info
    return aten.bmm.default(unitary, solve_triangular(adjoint(upper), right, upper=False)), info


# -- functions of matrices that torch 2.14 added ---------------------------------------------------------------------


def _averaged(matrix: Tensor) -> Tensor:
    """The average of each matrix and its adjoint, which makes it exactly Hermitian, contiguous."""
    summed = aten.add.Tensor(aten.clone.default(matrix, memory_format=torch.contiguous_format), adjoint(matrix))
    return aten.mul.Scalar(summed, 0.5)  # type: ignore[no-any-return]


@rule("aten.linalg_matrix_sqrth.default", recorded=True)
def _linalg_matrix_sqrth(self: Tensor) -> Tensor:
    """Square root of a Hermitian matrix by its eigenvalues; like eager, negative eigenvalues count as zero."""
    name = "linalg.matrix_sqrth"
    check_square(name, self)
    check_floating(name, self, half=True)
    if not self.numel():
        return aten.clone.default(self)  # type: ignore[no-any-return]
    batch = batch_shape(self)
    values, vectors = aten._linalg_eigh.default(folded(self))
    roots = aten.unsqueeze.default(aten.sqrt.default(aten.clamp.default(values, 0)), 1)
    root = aten.bmm.default(aten.mul.Tensor(vectors, lifted(roots, vectors)), adjoint(vectors))
    return unfolded(_averaged(root), batch)


@rule("aten.linalg_polar.default", recorded=True)
def _linalg_polar(A: Tensor) -> tuple[Tensor, Tensor]:
    """Polar decomposition by singular values: ``A = (U Vh) (Vh^H S Vh)``."""
    name = "linalg.polar"
    if A.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    check_floating(name, A, half=False)
    batch = batch_shape(A)
    rows, columns = A.shape[-2:]
    if rows < columns:
        raise RuntimeError(f"{name}: input must have at least as many rows as columns, but got {rows} by {columns} matrices")
    if not A.numel():
        shapes = ([*batch, rows, columns], [*batch, columns, columns])
        unitary, positive = (aten.full.default(shape, 0, dtype=A.dtype, device=A.device) for shape in shapes)
        return unitary, positive
    left, values, right = aten._linalg_svd.default(folded(A))
    scaled = aten.mul.Tensor(right, lifted(aten.unsqueeze.default(values, 2), right))
    unitary, positive = aten.bmm.default(left, right), _averaged(aten.bmm.default(adjoint(right), scaled))
    return unfolded(unitary, batch), unfolded(positive, batch)
