"""Eigenvalues and eigenvectors of matrices without symmetry.

Matrices of `_MANY` rows or more take all eigenvalues at once, as the roots of the characteristic polynomial of a Hessenberg form
(`_at_once`). This takes some 12 iterations of 4 calls per row. If it does not converge to distinct roots with small residuals, as
for equal eigenvalues, and for small matrices, Francis's double-shift QR iteration does.

Its steps are those of EISPACK's ``hqr2`` and LAPACK's ``geev``: balance, reduce to Hessenberg form, chase bulges until every
diagonal block has one or two rows, make these blocks triangular, and substitute back for the vectors. Real matrices stay real up to
the last two steps, so their eigenvalues are real or exact conjugate pairs. A sweep chases one bulge in each matrix of a
batch, all at once.

The number of sweeps depends on the data, which is read after each sweep. Some 3 n sweeps are usual, of up to 50 n calls each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

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
    folded,
    lifted,
    minus_product,
    product,
    real_part,
    reflection,
    single,
    transposed,
    unfolded,
    whole_batch,
)
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_complex

aten = torch.ops.aten

#: The number of sweeps per row after which LAPACK fails, and the number without progress after which it uses an exceptional shift.
_SWEEPS = 30
_STUCK = 10

_BALANCING = 10

#: Rows from which all eigenvalues are iterated at once, and the number of iterations after which this gives up.
_MANY = 16
_ITERATIONS = 50

#: Rows between scalings of Hyman's recurrence, whose numbers grow like powers of the eigenvalue.
_SCALED = 16


def _complex(x: Tensor) -> Tensor:
    return x if x.is_complex() else aten._to_copy.default(x, dtype=x.dtype.to_complex())


def _joined(real: Tensor, imaginary: Tensor) -> Tensor:
    pair = [aten.unsqueeze.default(part, -1) for part in (real, imaginary)]
    return aten.view_as_complex.default(aten.cat.default(pair, -1))  # type: ignore[no-any-return]


def _imaginary(x: Tensor) -> Tensor:
    return aten.select.int(aten.view_as_real.default(x), -1, 1)  # type: ignore[no-any-return]


def _or_one(x: Tensor) -> Tensor:
    return aten.where.self(aten.eq.Scalar(x, 0), number_like(x, 1.0), x)  # type: ignore[no-any-return]


def _column(x: Tensor) -> Tensor:
    """View ``[Q, n]`` as ``[Q, n, 1]``."""
    return aten.unsqueeze.default(x, 2)  # type: ignore[no-any-return]


def _row(x: Tensor) -> Tensor:
    return aten.unsqueeze.default(x, 1)  # type: ignore[no-any-return]


class _Places(NamedTuple):
    """The index masks that all steps on matrices of one size share."""

    number: Tensor
    down: Tensor  #: row minus column
    upper: Tensor
    below: Tensor


def _places(size: int, like: Tensor) -> _Places:
    index = arange(0, size, like)
    down = aten.sub.Tensor(aten.unsqueeze.default(index, 1), index)
    return _Places(index, down, aten.le.Scalar(down, 0), aten.eq.Scalar(down, 1))


def _on_diagonal(places: _Places, values: Tensor, down: int) -> Tensor:
    """Return matrices with ``[Q, n - |down|]`` on one diagonal and zeros elsewhere."""
    if down:
        values = aten.constant_pad_nd.default(values, [0, 1] if down > 0 else [1, 0])
    return aten.where.self(aten.eq.Scalar(places.down, down), _row(values), number_like(values, 0.0))  # type: ignore[no-any-return]


def _balanced(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``D^-1 matrix D`` with rows and columns of similar length, and ``D [Q, n]``: powers of two, so nothing is rounded.

    Osborne's iteration in 2-norms, for all rows at once. Each row takes the square root of its own best scale, since two rows may
    correct the same entries.
    """
    index = arange(0, matrix.size(1), matrix)
    off = aten.ne.Tensor(aten.unsqueeze.default(index, 1), index)
    sizes = aten.abs.default(matrix)
    squares = aten.where.self(off, aten.mul.Tensor(sizes, sizes), number_like(sizes, 0.0))
    logarithm: Tensor | None = None
    for _ in range(_BALANCING):
        columns, rows = aten.sum.dim_IntList(squares, [1]), aten.sum.dim_IntList(squares, [2])
        alone = aten.logical_or.default(aten.eq.Scalar(columns, 0), aten.eq.Scalar(rows, 0))
        step = aten.div.Scalar(aten.sub.Tensor(aten.log2.default(rows), aten.log2.default(columns)), 8)
        step = aten.where.self(alone, number_like(step, 0.0), step)
        logarithm = step if logarithm is None else aten.add.Tensor(logarithm, step)
        apart = aten.sub.Tensor(_row(step), _column(step))
        squares = aten.mul.Tensor(squares, aten.pow.Scalar(4.0, apart))
    most = 30 if matrix.dtype.to_real() is torch.float32 else 250  # whatever is unbalanced beyond stays in range
    scale = aten.pow.Scalar(2.0, aten.clamp.default(aten.round.default(logarithm), -most, most))
    ratio = aten.div.Tensor(_row(scale), _column(scale))
    return aten.mul.Tensor(matrix, ratio), scale


def _turned(work: Tensor, basis: Tensor | None, vector: Tensor, tau: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return ``H^H work H`` and ``basis H`` for the reflection ``H = I - tau v v^H``."""
    across = adjoint(vector)
    back = aten.mul.Tensor(tau, across)
    work = aten.sub.Tensor(work, aten.mul.Tensor(aten.mul.Tensor(conjugate(tau), vector), aten.bmm.default(across, work)))
    work = aten.sub.Tensor(work, aten.mul.Tensor(aten.bmm.default(work, vector), back))
    if basis is not None:
        basis = aten.sub.Tensor(basis, aten.mul.Tensor(aten.bmm.default(basis, vector), back))
    return work, basis


def _placed(tail: Tensor, one: Tensor, start: int, size: int) -> Tensor:
    """Return the vector with its leading 1 in row `start`."""
    whole = aten.cat.default([one, tail], 1)
    return aten.constant_pad_nd.default(whole, [0, 0, start, size - start - whole.size(1)])  # type: ignore[no-any-return]


def _hessenberg(matrix: Tensor, vectors: bool) -> tuple[Tensor, Tensor | None]:
    batch, size = matrix.shape[:2]
    basis = aten.expand.default(eye(size, matrix), matrix.shape) if vectors else None
    one = aten.full.default([batch, 1, 1], 1, dtype=matrix.dtype, device=matrix.device)
    for step in range(size - 2):
        _, tail, tau = reflection(cut(aten.slice.Tensor(matrix, 2, step, step + 1), 1, step + 1, size))
        matrix, basis = _turned(matrix, basis, _placed(tail, one, step + 1, size), tau)
    return matrix, basis


# -- all eigenvalues at once --------------------------------------------------------------------------------------


def _reduced(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return a Hessenberg form of ``[Q, n, n]`` and its basis in some 20 calls a row; NaN if a column is zero already.

    A reflection ``I - v v^H / (|c|^2 + |c| |a|)`` is that of LAPACK, for a column ``c`` with the head ``a`` (see `cholesky_qr`).
    The basis is below the form, so that both are multiplied by it at once.
    """
    size = matrix.size(1)
    both = single(aten.cat.default([matrix, aten.expand.default(eye(size, matrix), matrix.shape)], 1))
    for step in range(size - 2):
        column = aten.slice.Tensor(aten.slice.Tensor(both, -1, step, step + 1), -2, step + 1, size)
        head, tail = aten.split_with_sizes.default(column, [1, size - step - 2], -2)
        sizes = aten.abs.default(column) if column.is_complex() else column
        length = aten.sqrt.default(aten.sum.dim_IntList(aten.mul.Tensor(sizes, sizes), [-2], True))
        if column.is_complex():
            top = aten.abs.default(head)
            turn = aten.where.self(
                aten.eq.Scalar(top, 0), number_like(head, 1.0), aten.div.Tensor(head, lifted(_or_one(top), head))
            )
            away = aten.mul.Tensor(turn, lifted(length, head))
        else:
            away = aten.where.self(aten.ge.Scalar(head, 0), length, aten.neg.default(length))
        lead = aten.add.Tensor(head, away)
        vector = aten.constant_pad_nd.default(aten.cat.default([lead, tail], -2), [0, 0, step + 1, size])
        factor = aten.div.Tensor(vector, aten.mul.Tensor(conjugate(away), lead))
        both = minus_product(both, factor, product(adjoint(vector), both))
        vector, factor = (aten.slice.Tensor(x, -2, 0, size) for x in (vector, factor))
        both = minus_product(both, product(both, vector), adjoint(factor))
    form, basis = aten.split_with_sizes.default(whole_batch(both), [size, size], 1)
    return form, basis


def _recurred(rows: Sequence[Tensor], z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the characteristic polynomial at the points ``z [.., 1, K]``, vectors ``[.., n, K]``, and the log of their scales.

    This is Hyman's method (Wilkinson, The Algebraic Eigenvalue Problem, section 7.11): the vectors, with a last entry of 1 before
    scaling, solve all rows of ``(H - z) x = 0`` but the first, whose residual is the polynomial. `rows` are those of `H` from the
    diagonal on, and the entries below the diagonal are 1.
    """
    here = vectors = aten.full_like.default(z, 1)
    scale = aten.full_like.default(real_part(z), 0)
    for at in reversed(range(1, len(rows))):
        here = aten.sub.Tensor(aten.mul.Tensor(here, z), product(rows[at], vectors))
        vectors = aten.cat.default([here, vectors], -2)
        if at % _SCALED == 0:
            top = aten.amax.default(aten.abs.default(vectors), [-2], True)
            scale = aten.add.Tensor(scale, aten.log.default(top))
            here, vectors = (aten.div.Tensor(x, lifted(top, z)) for x in (here, vectors))
    return aten.sub.Tensor(aten.mul.Tensor(here, z), product(rows[0], vectors)), vectors, scale


def _starts(form: Tensor) -> Tensor:
    """Return points in an ellipse, ``[.., 1, n]``, for a form of mean eigenvalue 0, scaled by the mean subdiagonal entry.

    That mean is the capacity of a normal matrix's spectrum, roughly. The mean square of the eigenvalues gives the direction and
    the axes; if it is too large for an ellipse of this capacity, a few eigenvalues are far away, and it gives nothing.
    """
    size = form.size(-1)
    index = arange(0, size, form)
    number = aten._to_copy.default(index, dtype=form.dtype.to_real())
    length = aten.sqrt.default(aten.div.Scalar(aten.add.Scalar(number, 0.5), size))
    angle = aten.add.Scalar(aten.mul.Scalar(number, math.pi * (3 - math.sqrt(5))), 0.3)  # a sunflower's
    x, y = (aten.mul.Tensor(length, part) for part in (aten.cos.default(angle), aten.sin.default(angle)))
    square = aten.sum.dim_IntList(aten.mul.Tensor(form, transposed(form)), [-2, -1], True)
    square = aten.div.Scalar(square, size)
    much = aten.abs.default(square)
    axis = aten.where.self(aten.gt.Scalar(much, 2), number_like(much, 0.0), aten.clamp.default(much, None, 0.9))
    x = aten.mul.Tensor(x, aten.add.Scalar(axis, 1))
    y = aten.mul.Tensor(y, aten.add.Scalar(aten.neg.default(axis), 1))
    turn = aten.pow.Tensor_Scalar(aten.div.Tensor(square, lifted(_or_one(much), square)), 0.5)
    turn = aten.where.self(aten.eq.Scalar(much, 0), number_like(turn, 1.0), turn)
    return aten.mul.Tensor(_joined(x, y), turn)  # type: ignore[no-any-return]


def _step(rows: Sequence[Tensor], z: Tensor, on_diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Return the correction of all roots and the least distance of two.

    Weierstrass's corrections ``w`` are the polynomial over the product of the distances from the other points. Börsch-Supan's
    iteration is ``z_i - w_i / (1 + sum_j w_j / (z_i - z_j))``, which is cubic (Numerische Mathematik 5, 1963).
    """
    value, _, scale = _recurred(rows, z)
    apart = aten.sub.Tensor(z, transposed(z))
    apart = aten.where.self(on_diagonal, number_like(apart, 1.0), apart)
    sizes = aten.abs.default(apart)
    factor = aten.exp.default(aten.sub.Tensor(scale, aten.sum.dim_IntList(aten.log.default(sizes), [-2], True)))
    turn = aten.prod.dim_int(aten.div.Tensor(apart, lifted(sizes, apart)), -2, True)
    weight = aten.mul.Tensor(aten.div.Tensor(value, turn), lifted(factor, value))
    shares = aten.div.Tensor(transposed(weight), apart)
    shares = aten.sum.dim_IntList(aten.where.self(on_diagonal, number_like(shares, 0.0), shares), [-2], True)
    sizes = aten.where.self(on_diagonal, number_like(sizes, math.inf), sizes)
    return aten.div.Tensor(weight, aten.add.Scalar(shares, 1)), aten.amin.default(sizes)


def _paired(z: Tensor) -> Tensor:
    """Return the roots ``[Q, 1, n]`` of real polynomials: real or exact conjugate pairs side by side, that above the axis first."""
    index = arange(0, z.size(2), z)
    gaps = aten.abs.default(aten.sub.Tensor(z, conjugate(transposed(z))))
    partner = aten.argmin.default(gaps, -2, True)
    z = aten.mul.Scalar(aten.add.Tensor(z, aten.gather.default(conjugate(z), -1, partner)), 0.5)
    below = aten._to_copy.default(aten.lt.Scalar(_imaginary(z), 0), dtype=torch.int64)
    rank = aten.add.Tensor(aten.mul.Scalar(aten.minimum.default(partner, index), 2), below)
    return aten.gather.default(z, -1, aten.sort.default(rank, -1)[1])  # type: ignore[no-any-return]


def _at_once(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the eigenvalues ``[Q, n]`` and eigenvectors ``[Q, n, n]``, complex; None if this does not lead to distinct ones.

    The largest entry of the matrix is 1. The roots are computed in float64 if the backend has it.
    """
    size, real = matrix.size(1), not matrix.is_complex()
    wide = wide_complex()
    form, basis = _reduced(aten._to_copy.default(matrix, dtype=wide.to_real() if real else wide))
    form, basis, given = (aten._to_copy.default(x, dtype=wide) for x in (form, basis, matrix))
    eps = torch.finfo(wide).eps
    enough = torch.finfo(matrix.dtype).eps ** 0.45  # the next correction is about its cube
    below = _row(aten.diagonal.default(form, -1, 1, 2))
    sizes = aten.abs.default(below)
    if not aten._local_scalar_dense.default(aten.amin.default(sizes)) > eps:
        return None
    center = aten.mean.dim(_row(aten.diagonal.default(form, 0, 1, 2)), [2], True)
    radius = lifted(aten.mul.Scalar(aten.exp.default(aten.mean.dim(aten.log.default(sizes), [2], True)), 1.8), form)
    form = aten.sub.Tensor(form, aten.mul.Tensor(eye(size, form), center))
    form = aten.div.Tensor(form, radius)
    z = _starts(form)
    scales = aten.cumprod.default(aten.div.Tensor(below, radius), 2)
    scales = aten.cat.default([aten.full_like.default(center, 1), scales], 2)
    form = single(aten.mul.Tensor(form, aten.div.Tensor(scales, transposed(scales))))
    rows = [cut(aten.slice.Tensor(form, -2, at, at + 1), -1, at, size) for at in range(size)]
    z = single(z)
    index = arange(0, size, z)
    on_diagonal = aten.eq.Tensor(aten.unsqueeze.default(index, 1), index)
    for _ in range(_ITERATIONS):
        step, least = _step(rows, z, on_diagonal)
        z = aten.sub.Tensor(z, step)
        change = aten._local_scalar_dense.default(aten.amax.default(aten.abs.default(step)))
        # Then disjoint discs around the points have one root each (Braess and Hadeler, Numerische Mathematik 21, 1973).
        if change < enough and 4 * size * change < aten._local_scalar_dense.default(least):
            break
        if not math.isfinite(change):
            return None
    else:
        return None
    z = whole_batch(z)
    z = _paired(z) if real else z
    vectors = whole_batch(_recurred(rows, single(z))[1])
    vectors = aten.mul.Tensor(vectors, transposed(scales))
    vectors = aten.bmm.default(
        basis, aten.div.Tensor(vectors, lifted(aten.amax.default(aten.abs.default(vectors), [1], True), vectors))
    )
    values = aten.add.Tensor(aten.mul.Tensor(z, radius), center)
    missed = aten.sub.Tensor(aten.bmm.default(given, vectors), aten.mul.Tensor(vectors, values))
    lengths = [aten.sum.dim_IntList(aten.abs.default(x), [1], True) for x in (missed, vectors, given)]
    bound = aten.mul.Tensor(lengths[1], aten.amax.default(lengths[2], [2], True))
    worst = aten._local_scalar_dense.default(aten.amax.default(aten.div.Tensor(lengths[0], bound)))
    if not worst < 4 * torch.finfo(matrix.dtype).eps:
        return None
    values, vectors = (aten._to_copy.default(x, dtype=matrix.dtype.to_complex()) for x in (values, vectors))
    return aten.squeeze.dim(values, 1), vectors


# -- sweeps -------------------------------------------------------------------------------------------------------


def _coupled(work: Tensor, places: _Places) -> tuple[Tensor, Tensor]:
    """Return the Hessenberg form with negligible subdiagonal entries set to zero, and the mask of the others (``[Q, n - 1]``).

    The criterion is that of LAPACK's ``lahqr``: a subdiagonal entry is negligible if it is small compared with both neighbors on
    the diagonal, and its product with the opposite superdiagonal entry is small compared with the smaller neighbor (Ahues and
    Tisseur, "A new deflation criterion for the QR algorithm", LAPACK Working Note 122, 1997). This keeps the small eigenvalues of
    graded matrices.
    """
    size = work.size(1)
    info = torch.finfo(work.dtype)
    diagonal, sizes = aten.diagonal.default(work, 0, 1, 2), aten.abs.default(work)
    here = cut(aten.diagonal.default(sizes, 0, 1, 2), 1, 1, size)
    before = cut(aten.diagonal.default(sizes, 0, 1, 2), 1, 0, size - 1)
    below, facing = aten.diagonal.default(sizes, -1, 1, 2), aten.diagonal.default(sizes, 1, 1, 2)
    beside = aten.add.Tensor(here, before)
    if size > 2:  # beside zeros on the diagonal the next entries below it count
        around = aten.add.Tensor(
            aten.constant_pad_nd.default(cut(below, 1, 1, size - 1), [0, 1]),
            aten.constant_pad_nd.default(cut(below, 1, 0, size - 2), [1, 0]),
        )
        beside = aten.where.self(aten.eq.Scalar(beside, 0), around, beside)
    apart = aten.abs.default(aten.sub.Tensor(cut(diagonal, 1, 0, size - 1), cut(diagonal, 1, 1, size)))
    most, least = aten.maximum.default(below, facing), aten.minimum.default(below, facing)
    wide, close = aten.maximum.default(here, apart), aten.minimum.default(here, apart)
    total = _or_one(aten.add.Tensor(wide, most))
    change = aten.mul.Tensor(least, aten.div.Tensor(most, total))
    smallest = info.tiny * size / info.eps
    bound = aten.clamp.default(aten.mul.Scalar(aten.mul.Tensor(close, aten.div.Tensor(wide, total)), info.eps), smallest)
    coupled = aten.logical_or.default(aten.gt.Tensor(below, aten.mul.Scalar(beside, info.eps)), aten.gt.Tensor(change, bound))
    coupled = aten.logical_and.default(coupled, aten.gt.Scalar(below, smallest))
    padded = _column(aten.constant_pad_nd.default(coupled, [1, 0]))
    kept = aten.logical_or.default(places.upper, aten.logical_and.default(places.below, padded))
    return aten.where.self(kept, work, number_like(work, 0.0)), coupled


def _window(coupled: Tensor, places: _Places) -> tuple[Tensor, Tensor]:
    """Return the first and last row (``[Q, 1]``) of each matrix's last block of three rows or more; ``n`` and 0 without one."""
    size = coupled.size(1) + 1
    trios = aten.logical_and.default(cut(coupled, 1, 0, size - 2), cut(coupled, 1, 1, size - 1))
    none = aten.full.default([], 0, dtype=torch.int64, device=coupled.device)
    last = aten.amax.default(aten.where.self(trios, cut(places.number, 0, 2, size), none), [1], True)
    cuts = aten.logical_and.default(
        aten.logical_not.default(coupled), aten.lt.Tensor(cut(places.number, 0, 0, size - 1), aten.sub.Scalar(last, 1))
    )
    first = aten.amax.default(aten.where.self(cuts, cut(places.number, 0, 1, size), none), [1], True)
    beyond = aten.full.default([], size, dtype=torch.int64, device=coupled.device)
    return aten.where.self(aten.eq.Scalar(last, 0), beyond, first), last


def _shifts(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `x`, `y` and `w` of a 2 x 2 matrix whose eigenvalues are LAPACK's shifts.

    `x` is the last diagonal entry, `y` the other one, and `w` the product of the other two entries. Both shifts are the eigenvalue
    of the given matrix that is nearer to `x`. If a real matrix has a conjugate pair, the shifts are the pair. The computed
    eigenvalues then have LAPACK's order, up to rounding.
    """
    half = aten.mul.Scalar(aten.sub.Tensor(y, x), 0.5)
    square = aten.add.Tensor(aten.mul.Tensor(half, half), w)
    zero = number_like(w, 0.0)
    if w.is_complex():
        root = aten.pow.Tensor_Scalar(square, 0.5)
        away = aten.lt.Scalar(real_part(aten.mul.Tensor(conjugate(half), root)), 0)
    else:
        pair = aten.lt.Scalar(square, 0)
        root = aten.sqrt.default(aten.where.self(pair, zero, square))
        away = aten.lt.Scalar(half, 0)
    # Compute the nearer eigenvalue from the distance of the other one, which does not cancel.
    distance = aten.add.Tensor(half, aten.where.self(away, aten.neg.default(root), root))
    nearer = aten.sub.Tensor(x, aten.div.Tensor(w, _or_one(distance)))
    if w.is_complex():
        return nearer, nearer, zero
    return aten.where.self(pair, x, nearer), aten.where.self(pair, y, nearer), aten.where.self(pair, w, zero)


def _start(work: Tensor, first: Tensor, last: Tensor, exceptional: bool) -> Tensor:
    """Return three rows (``[Q, 3, 1]``) of the first column of ``(H - s1) (H - s2)``, by EISPACK's formula, up to a scale."""
    batch, size = work.shape[:2]
    first = aten.clamp.default(first, None, size - 3)
    last = aten.clamp.default(last, 2)
    top, end = aten.mul.Scalar(first, size + 1), aten.mul.Scalar(last, size + 1)
    wanted = [aten.add.Scalar(top, offset) for offset in (0, 1, size, size + 1, 2 * size + 1)]
    wanted += [aten.sub.Scalar(end, offset) for offset in (0, size + 1, 1, size)]
    found = aten.gather.default(aten.reshape.default(work, [batch, size * size]), 1, aten.cat.default(wanted, 1))
    h00, h01, h10, h11, h21, x, y, below, above = aten.split_with_sizes.default(found, [1] * 9, 1)
    if exceptional:
        size_of = aten.abs.default(below)
        x = y = aten.add.Tensor(x, lifted(size_of, x), alpha=0.75)
        w = aten.mul.Scalar(lifted(aten.mul.Tensor(size_of, size_of), x), -0.4375)
    else:
        x, y, w = _shifts(x, y, aten.mul.Tensor(below, above))
    r, s = aten.sub.Tensor(x, h00), aten.sub.Tensor(y, h00)
    scale = aten.add.Tensor(aten.add.Tensor(aten.abs.default(r), aten.abs.default(s)), aten.abs.default(h10))
    scale = lifted(_or_one(scale), r)
    ratio = aten.div.Tensor(h10, scale)
    p = aten.sub.Tensor(aten.mul.Tensor(aten.div.Tensor(r, scale), s), aten.div.Tensor(w, scale))
    p = aten.add.Tensor(p, aten.mul.Tensor(ratio, h01))
    q = aten.mul.Tensor(ratio, aten.sub.Tensor(aten.sub.Tensor(aten.sub.Tensor(h11, h00), r), s))
    return aten.unsqueeze.default(aten.cat.default([p, q, aten.mul.Tensor(ratio, h21)], 1), 2)  # type: ignore[no-any-return]


def _swept(
    work: Tensor, basis: Tensor | None, first: Tensor, last: Tensor, rows: tuple[int, int], exceptional: bool
) -> tuple[Tensor, Tensor | None]:
    """Chase one bulge through each matrix's window. `rows` are the first and the last row of all windows."""
    batch, size = work.shape[:2]
    start = _start(work, first, last, exceptional)
    first, last = _column(first), _column(last)
    zero = number_like(work, 0.0)
    one = aten.full.default([batch, 1, 1], 1, dtype=work.dtype, device=work.device)
    single = batch == 1  # then every step is within the window, and what follows masks nothing
    for step in range(rows[0], rows[1]):
        end = min(step + 3, rows[1] + 1)
        if step == rows[0]:
            column = start
        else:
            column = cut(aten.slice.Tensor(work, 2, step - 1, step), 1, step, end)
            if not single:
                here = cut(start, 1, 0, end - step)
                column = aten.where.self(aten.eq.Scalar(first, step), here, column)
        if not single and end == step + 3:
            within = aten.le.Tensor(arange(step, end, work), aten.squeeze.dim(last, 2))
            column = aten.where.self(_column(within), column, zero)
        _, tail, tau = reflection(column)
        if not single:
            active = aten.logical_and.default(aten.le.Scalar(first, step), aten.gt.Scalar(last, step))
            tau = aten.where.self(active, tau, zero)
        work, basis = _turned(work, basis, _placed(tail, one, step, size), tau)
    return work, basis


def _by_blocks(matrix: Tensor, vectors: bool, places: _Places) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return a similar matrix with diagonal blocks of one or two rows, its basis, and the mask of remaining subdiagonal entries."""
    size = matrix.size(1)
    work, basis = _hessenberg(matrix, vectors)
    for sweep in range(_SWEEPS * max(size, _STUCK)):
        work, coupled = _coupled(work, places)
        if size < 3:
            return work, basis, coupled
        first, last = _window(coupled, places)
        final = int(aten._local_scalar_dense.default(aten.amax.default(last)))
        if not final:
            return work, basis, coupled
        least = int(aten._local_scalar_dense.default(aten.amin.default(first)))
        work, basis = _swept(work, basis, first, last, (least, final), sweep % (_STUCK + 1) == _STUCK)
    raise Declined


# -- blocks of two rows -------------------------------------------------------------------------------------------


def _roots(half: Tensor, product: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the larger root ``z`` of ``z^2 = 2 half z + product``, as a complex number.

    For real numbers, return also where the roots are a conjugate pair.
    """
    square = aten.add.Tensor(aten.mul.Tensor(half, half), product)
    if square.is_complex():
        root = aten.pow.Tensor_Scalar(square, 0.5)
        towards = real_part(aten.mul.Tensor(conjugate(half), root))
        return aten.add.Tensor(half, aten.where.self(aten.lt.Scalar(towards, 0), aten.neg.default(root), root)), None
    root = aten.sqrt.default(aten.abs.default(square))
    pair = aten.lt.Scalar(square, 0)
    real = aten.where.self(aten.lt.Scalar(half, 0), aten.neg.default(root), root)
    zero = number_like(root, 0.0)
    real, imaginary = aten.where.self(pair, zero, real), aten.where.self(pair, root, zero)
    return _joined(aten.add.Tensor(half, real), imaginary), pair


def _triangular(
    work: Tensor, basis: Tensor | None, coupled: Tensor, places: _Places
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the eigenvalues ``[Q, n]``; with a basis, also the triangular form and its basis, complex."""
    size = work.size(1)
    diagonal = aten.diagonal.default(work, 0, 1, 2)
    if size == 1:
        return _complex(diagonal), None if basis is None else _complex(work), None if basis is None else _complex(basis)
    a, d = cut(diagonal, 1, 0, size - 1), cut(diagonal, 1, 1, size)
    b, c = aten.diagonal.default(work, 1, 1, 2), aten.diagonal.default(work, -1, 1, 2)
    product = aten.mul.Tensor(b, c)
    z, pair = _roots(aten.mul.Scalar(aten.sub.Tensor(a, d), 0.5), product)
    a, c, d, product = _complex(a), _complex(c), _complex(d), _complex(product)
    one, other = aten.add.Tensor(d, z), aten.sub.Tensor(d, aten.div.Tensor(product, _or_one(z)))
    if pair is not None:
        other = aten.where.self(pair, conjugate(one), other)
    # The first and the second row of a block of two.
    leads, follows = aten.constant_pad_nd.default(coupled, [0, 1]), aten.constant_pad_nd.default(coupled, [1, 0])
    values = aten.where.self(leads, aten.constant_pad_nd.default(one, [0, 1]), _complex(diagonal))
    values = aten.where.self(follows, aten.constant_pad_nd.default(other, [1, 0]), values)
    if basis is None:
        return values, None, None
    # (z, c) is an eigenvector of the block.
    size_z, size_c = aten.abs.default(z), aten.abs.default(c)
    most = _or_one(aten.maximum.default(size_z, size_c))
    size_z, size_c = aten.div.Tensor(size_z, most), aten.div.Tensor(size_c, most)
    length = aten.sqrt.default(aten.add.Tensor(aten.mul.Tensor(size_z, size_z), aten.mul.Tensor(size_c, size_c)))
    length = lifted(aten.mul.Tensor(_or_one(length), most), z)
    zero, unit = number_like(z, 0.0), number_like(z, 1.0)
    cosine = aten.where.self(coupled, aten.div.Tensor(z, length), zero)
    sine = aten.where.self(coupled, aten.div.Tensor(c, length), zero)
    along = aten.where.self(leads, aten.constant_pad_nd.default(cosine, [0, 1]), unit)
    along = aten.where.self(follows, aten.constant_pad_nd.default(conjugate(cosine), [1, 0]), along)
    turn = aten.add.Tensor(_on_diagonal(places, along, 0), _on_diagonal(places, sine, 1))
    turn = aten.sub.Tensor(turn, _on_diagonal(places, conjugate(sine), -1))
    work = aten.bmm.default(adjoint(turn), aten.bmm.default(_complex(work), turn))
    return values, work, aten.bmm.default(_complex(basis), turn)


# -- eigenvectors -------------------------------------------------------------------------------------------------


def _substituted(work: Tensor, values: Tensor, places: _Places) -> Tensor:
    """Compute the eigenvectors of triangular matrices by substitution for all columns at once; 14 calls per row.

    Columns are scaled to magnitudes of at most 1. Otherwise quotients would overflow if a matrix lacks eigenvectors, since the
    divisors are then at rounding level.
    """
    size = work.size(1)
    info = torch.finfo(work.dtype)
    least = aten.clamp.default(aten.mul.Scalar(aten.abs.default(values), info.eps), info.tiny * size / info.eps)
    zero, one = number_like(work, 0.0), number_like(work, 1.0)
    found: Tensor | None = None
    for at in reversed(range(size)):
        own_column = aten.eq.Scalar(places.number, at)
        if found is None:
            found = _row(aten.expand.default(aten._to_copy.default(own_column, dtype=work.dtype), [work.size(0), size]))
            continue
        beside = cut(aten.slice.Tensor(work, 1, at, at + 1), 2, at + 1, size)
        gap = aten.sub.Tensor(values, aten.slice.Tensor(values, 1, at, at + 1))
        gap = aten.where.self(aten.lt.Tensor(aten.abs.default(gap), least), lifted(least, gap), gap)
        row = aten.div.Tensor(aten.bmm.default(beside, found), _row(gap))
        after = aten.gt.Scalar(places.number, at)
        row = aten.where.self(after, row, aten.where.self(own_column, one, zero))
        bound = lifted(aten.clamp.default(aten.abs.default(row), 1), row)
        found = aten.div.Tensor(aten.cat.default([row, found], 1), bound)
    assert found is not None
    return found


def _normalized(vectors: Tensor, values: Tensor, real: bool) -> Tensor:
    """Normalize eigenvectors as LAPACK does: length 1, largest entry real; conjugate pairs for real matrices."""
    vectors = aten.div.Tensor(vectors, lifted(_or_one(aten.amax.default(aten.abs.default(vectors), [1], True)), vectors))
    place = aten.argmax.default(aten.abs.default(vectors), 1, True)
    head = aten.gather.default(vectors, 1, place)
    turn = aten.div.Tensor(conjugate(head), lifted(_or_one(aten.abs.default(head)), head))
    vectors = aten.mul.Tensor(vectors, turn)
    parts, imaginary = real_part(vectors), _imaginary(vectors)
    index = aten.unsqueeze.default(arange(0, vectors.size(1), vectors), 1)
    still = aten.eq.Tensor(index, place)
    if real:
        still = aten.logical_or.default(still, _row(aten.eq.Scalar(_imaginary(values), 0)))
    imaginary = aten.where.self(still, number_like(imaginary, 0.0), imaginary)
    # Compute the length after clearing imaginary parts: they can be large if two eigenvalues are equal up to rounding.
    squares = aten.add.Tensor(aten.mul.Tensor(parts, parts), aten.mul.Tensor(imaginary, imaginary))
    length = _or_one(aten.sqrt.default(aten.sum.dim_IntList(squares, [1], True)))
    vectors = _joined(aten.div.Tensor(parts, length), aten.div.Tensor(imaginary, length))
    size = vectors.size(2)
    if real and size > 1:
        before = aten.cat.default([cut(vectors, 2, 0, 1), cut(vectors, 2, 0, size - 1)], 2)
        second = _row(aten.lt.Scalar(_imaginary(values), 0))
        vectors = aten.where.self(second, conjugate(before), vectors)
    return vectors


def _eigen(matrix: Tensor, vectors: bool) -> tuple[Tensor, Tensor | None]:
    """Return the eigenvalues and eigenvectors of ``[Q, n, n]``, complex, in the order of the diagonal."""
    size = matrix.size(1)
    top = _or_one(aten.amax.default(aten.abs.default(matrix), [1, 2], True))
    work, scale = _balanced(divided(matrix, top))
    # Balancing changes magnitudes, so divide by the largest entry again.
    again = _or_one(aten.amax.default(aten.abs.default(work), [1, 2], True))
    work = aten.div.Tensor(work, again)
    factor = aten.squeeze.dim(aten.mul.Tensor(top, again), 2)
    found = _at_once(work) if size >= _MANY else None
    if found is None:
        places = _places(size, work)
        work, basis, coupled = _by_blocks(work, vectors, places)
        values, upper, basis = _triangular(work, basis, coupled, places)
        if basis is None or upper is None:
            return aten.mul.Tensor(values, factor), None
        found = values, aten.bmm.default(basis, _substituted(upper, values, places))
    result = aten.mul.Tensor(found[0], factor)
    return result, _normalized(aten.mul.Tensor(found[1], _column(scale)), result, not matrix.is_complex())


# -- the ops ------------------------------------------------------------------------------------------------------


def _is_covered(self: Tensor) -> bool:
    """Return whether eager accepts a matrix, or batch, of this shape and dtype."""
    return self.dim() >= 2 and self.size(-1) == self.size(-2) and self.dtype in LAPACK_DTYPES


def _found(self: Tensor, vectors: bool) -> tuple[Tensor, Tensor | None]:
    if not math.isfinite(aten._local_scalar_dense.default(aten.amax.default(aten.abs.default(self)))):
        raise Declined
    return _eigen(folded(self), vectors)


@rule("aten.linalg_eig.default")
def _linalg_eig(self: Tensor) -> tuple[Tensor, Tensor]:
    if not _is_covered(self):
        return NotImplemented  # type: ignore[no-any-return]
    batch, dtype = batch_shape(self), self.dtype.to_complex()
    if not self.numel():
        values = aten.empty.memory_format(self.shape[:-1], dtype=dtype, device=self.device)
        return values, column_major(aten.empty.memory_format(folded(self).shape, dtype=dtype, device=self.device), batch)
    values, vectors = _found(self, True)
    assert vectors is not None
    return unfolded(values, batch), column_major(vectors, batch)


@rule("aten._linalg_eigvals.default")
def _linalg_eigvals(self: Tensor) -> Tensor:
    if not _is_covered(self):
        return NotImplemented  # type: ignore[no-any-return]
    if not self.numel():
        return aten.empty.memory_format(self.shape[:-1], dtype=self.dtype.to_complex(), device=self.device)  # type: ignore[no-any-return]
    return unfolded(_found(self, False)[0], batch_shape(self))
