"""Cholesky and QR factorizations by panels of columns, as in LAPACK, and the ops that use their factors.

A column depends on all columns before it, so the loop over the columns of a panel is inherent: 5 calls per column for Cholesky, 16
for QR. Panels are applied by matrix products, Cholesky factors by triangular solves, and the reflections of QR as block
reflections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import (
    adjoint,
    arange,
    batch_shape,
    column_major,
    conjugate,
    cut,
    divided,
    first_set,
    folded,
    inverse_triangular,
    joined,
    lifted,
    minus_product,
    plus_product,
    product,
    real_part,
    single,
    solve_triangular,
    transposed,
    triangle,
    unfolded,
    unstacked,
    whole_batch,
)
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: The number of columns in a panel.
PANEL = 32


# -- Cholesky -----------------------------------------------------------------------------------------------------


def _eliminated(rest: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Eliminate the first `steps` rows of a Hermitian matrix: return each row as it is at its step, and the real pivots.

    Rows are ``[.., steps, m]``, arbitrary below the diagonal; pivots are ``[.., steps, 1]``. It takes 5 calls per row for a single
    matrix, 6 for a batch.

    The matrix is transposed, so a row here is a column of the factor. Only the upper triangle is read: the two triangles of the
    remaining matrix have different rounding errors, and an elimination that reads both is not stable.
    """
    length = rest.size(-1)
    rows, pivots = [], []
    for step in range(steps):
        left = steps - step
        row, rest = (rest, rest) if left == 1 else aten.split_with_sizes.default(rest, [1, left - 1], -2)
        _, pivot, within, _ = aten.split_with_sizes.default(row, [step, 1, left - 1, length - steps], -1)
        pivot = real_part(pivot)
        rows.append(row)
        pivots.append(pivot)
        if left > 1:
            rest = minus_product(rest, adjoint(within), aten.div.Tensor(row, lifted(pivot, row)))
    return joined(rows, -2), joined(pivots, -2)


def _lower_factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower Cholesky factor of ``[Q, n, n]`` and LAPACK's info. Only the lower triangle is read.

    The algorithm is right-looking, by panels (Golub and Van Loan, Matrix Computations, algorithm 4.2.10). `_eliminated` returns a
    panel's rows of the transposed factor, up to a scale. One product updates the rest. From a failed column on, the result has the
    columns of the matrix, as in LAPACK.
    """
    batch, size = matrix.shape[:2]
    if matrix.numel() == 0:
        info = aten.full.default([batch], 0, dtype=torch.int32, device=matrix.device)
        return aten.clone.default(matrix), info
    upper = transposed(matrix)
    rest = single(upper)
    panels, pivots = [], []
    for start in range(0, size, PANEL):
        left = size - start
        width = min(PANEL, left)
        panel = cut(rest, -2, 0, width)
        rows, here = _eliminated(panel, width)
        pivots.append(here)
        factor = divided(rows, aten.sqrt.default(here))
        panels.append(aten.constant_pad_nd.default(factor, [start, 0]) if start else factor)
        if left > width:
            beyond = cut(factor, -1, width, left)
            rest = minus_product(cut(cut(rest, -2, width, left), -1, width, left), adjoint(beyond), beyond)
    stood = whole_batch(joined(pivots, -2))
    info = first_set(aten.logical_not.default(aten.squeeze.dim(aten.gt.Scalar(stood, 0), 2)))
    factor = triangle(whole_batch(joined(panels, -2)), upper=True, unit=False)
    if factor.is_complex():  # a pivot is real, but what stands in its place is so only to rounding
        index = arange(0, size, matrix)
        on_diagonal = aten.eq.Tensor(aten.unsqueeze.default(index, 1), index)
        factor = aten.where.self(on_diagonal, lifted(aten.sqrt.default(stood), factor), factor)
    return transposed(_kept_where_failed(upper, factor, stood, info)), info


def _kept_where_failed(upper: Tensor, factor: Tensor, stood: Tensor, info: Tensor) -> Tensor:
    """Return the transposed factor. From the failed row (`info`) on, return the matrix's rows, with the failed pivot."""
    failed = aten.unsqueeze.default(aten.unsqueeze.default(info, 1), 2)
    column = arange(1, factor.size(2) + 1, factor)
    row = aten.unsqueeze.default(column, 1)
    untouched = aten.logical_and.default(aten.gt.Scalar(failed, 0), aten.ge.Tensor(row, failed))
    here = aten.logical_and.default(aten.eq.Tensor(row, failed), aten.eq.Tensor(column, row))
    before = aten.where.self(here, lifted(stood, factor), triangle(upper, upper=True, unit=False))
    return aten.where.self(untouched, before, factor)  # type: ignore[no-any-return]


def _cholesky_factor(self: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
    batch = batch_shape(self)
    factor, info = _lower_factor(folded(adjoint(self) if upper else self))
    return column_major(adjoint(factor) if upper else factor, batch), unfolded(info, batch)


@rule("aten.linalg_cholesky_ex.default", recorded=True)
def _linalg_cholesky_ex(self: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    factor, info = _cholesky_factor(self, upper)
    if check_errors:
        aten._linalg_check_errors.default(info, "linalg.cholesky_ex", is_matrix=self.dim() == 2)
    return factor, info


@rule("aten.cholesky.default", recorded=True)
def _cholesky(self: Tensor, upper: bool = False) -> Tensor:
    if self.numel() == 0:  # whatever its shape, which eager asks for later
        return aten.empty.memory_format(self.shape, dtype=self.dtype, device=self.device)  # type: ignore[no-any-return]
    factor, info = _cholesky_factor(self, upper)
    aten._linalg_check_errors.default(info, "cholesky", is_matrix=self.dim() == 2)
    return factor


@rule("aten.cholesky_inverse.default", recorded=True)
def _cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    batch = batch_shape(self)
    factor = folded(adjoint(self) if upper else self)
    if self.numel():
        info = first_set(aten.eq.Scalar(aten.diagonal.default(factor, 0, 1, 2), 0))
        aten._linalg_check_errors.default(unfolded(info, batch), "cholesky_inverse", is_matrix=self.dim() == 2)
    root = inverse_triangular(factor, upper=False)
    return column_major(aten.bmm.default(adjoint(root), root), batch)


@rule("aten._cholesky_solve_helper.default", recorded=True)
def _cholesky_solve_helper(self: Tensor, A: Tensor, upper: bool) -> Tensor:
    batch = batch_shape(self)
    factor = folded(A, batch)
    other = adjoint(factor)
    lower, turned = (other, factor) if upper else (factor, other)
    halfway = solve_triangular(lower, folded(self), upper=False)
    return column_major(solve_triangular(turned, halfway, upper=True), batch)


# -- QR -----------------------------------------------------------------------------------------------------------


class _Reflections(NamedTuple):
    """The result of `geqrf` for a panel, transposed like the panel."""

    upper: Tensor  #: ``[.., w, steps]``: the rows of R; below its diagonal without meaning
    vectors: Tensor  #: ``[.., steps, m]``: zeros up to the leading 1, which is left out
    tau: Tensor  #: ``[.., steps, 1]``


def _panel(rest: Tensor, steps: int) -> _Reflections:
    """Reflect the first `steps` rows of ``[.., w, m]``, the columns of a matrix: 16 calls each for a single real matrix.

    For a column ``c`` with the head ``a`` and ``s = sign(a) |c|``, the reflection is ``I - v v^H / (|c|^2 + s a)`` with ``v = c + s
    e_1``. This is LAPACK's reflection (Golub and Van Loan, Matrix Computations, section 5.1.3). The products of ``c`` with all
    columns also give its length. A column that equals ``c`` leaves only rounding errors below its head, since its weight is 1.

    Columns of the matrix have a largest entry of about 1. A column whose square underflows is far below rounding errors, and is not
    reflected.
    """
    length = rest.size(-1)
    least = torch.finfo(rest.dtype).tiny / torch.finfo(rest.dtype).eps
    made = []
    for step in range(steps):
        column = aten.slice.Tensor(rest, -2, step, step + 1)
        shared = product(rest, adjoint(column))
        own = real_part(aten.slice.Tensor(shared, -2, step, step + 1))
        size = lifted(aten.sqrt.default(own), rest)
        head, tail = aten.split_with_sizes.default(column, [1, length - step - 1], -1)
        opposite = aten.where.self(aten.ge.Scalar(real_part(head), 0), size, aten.neg.default(size))
        top, below = aten.split_with_sizes.default(rest, [1, length - step - 1], -1)
        mapped = plus_product(shared, top, opposite)
        weight = aten.div.Tensor(mapped, aten.slice.Tensor(mapped, -2, step, step + 1))
        weight = aten.where.self(aten.le.Scalar(own, least), number_like(weight, 0.0), weight)
        made.append((column, head, own, opposite, top, weight))
        if step < steps - 1:
            rest = minus_product(below, weight, tail)
    columns, heads, owns, opposites, tops, weights = zip(*made, strict=True)
    # All columns are joined in one row. Column k lacks its first k entries; its entry j is at k (2 length - k - 1) / 2 + j.
    number = arange(0, steps, rest)
    start = aten.mul.Tensor(number, aten.add.Scalar(aten.neg.default(number), 2 * length - 1))
    start = aten.unsqueeze.default(aten.div.Tensor_mode(start, 2, rounding_mode="floor"), 1)
    at = aten.reshape.default(aten.add.Tensor(start, arange(0, length, rest)), [steps * length])
    below = aten.reshape.default(aten.index_select.default(joined(columns, -1), -1, at), [*rest.shape[:-2], steps, length])
    below = triangle(below, upper=True, unit=False, strict=True)
    opposite, lead = joined(opposites, -1), aten.add.Tensor(joined(heads, -1), joined(opposites, -1))
    idle = aten.logical_not.default(aten.any.dim(below, -1, True))
    if below.is_complex():
        imaginary = aten.select.int(aten.view_as_real.default(joined(heads, -2)), -1, 1)
        idle = aten.logical_and.default(idle, aten.eq.Scalar(imaginary, 0))
    idle = aten.logical_or.default(idle, aten.le.Scalar(joined(owns, -2), least))
    zero, upper = number_like(below, 0.0), joined(tops, -1)
    vectors = aten.where.self(idle, zero, aten.div.Tensor(below, transposed(lead)))
    tau = aten.where.self(idle, zero, transposed(aten.div.Tensor(lead, opposite)))
    on_diagonal = aten.eq.Tensor(aten.unsqueeze.default(arange(0, upper.size(-2), rest), 1), number)
    reflected = aten.sub.Tensor(upper, aten.mul.Tensor(joined(weights, -1), lead))
    reflected = aten.where.self(on_diagonal, aten.neg.default(opposite), reflected)
    return _Reflections(aten.where.self(transposed(idle), upper, reflected), vectors, tau)


def _block_reflected(found: _Reflections, rest: Tensor) -> Tensor:
    """Return ``H^H C`` for the product `H` of a panel's reflections. The columns of `C` are rows, ``[.., k, m]``.

    ``H = I - V T V^H`` (Schreiber and Van Loan, A Storage-Efficient WY Representation, 1989), where ``T = (I + D S)^-1 D`` for the
    strict upper triangle `S` of ``V^H V`` and the diagonal `D` of `tau` (Joffrain et al., Accumulating Householder Transformations,
    Revisited, 2006, without a division by `tau`).
    """
    vectors = triangle(found.vectors, upper=True, unit=True)
    across, tau = adjoint(vectors), conjugate(found.tau)
    system = aten.mul.Tensor(tau, product(vectors, across))
    inverse = inverse_triangular(whole_batch(system), upper=True, unit=True, refine=False)
    inverse = aten.squeeze.dim(inverse, 0) if system.dim() == 2 else inverse
    weights = aten.mul.Tensor(product(product(rest, across), inverse), transposed(tau))
    return minus_product(rest, weights, vectors)


def _reflected(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `geqrf` of ``[Q, m, n]``: R (arbitrary below its diagonal), the vectors below the diagonal, and ``tau [Q, k]``.

    The algorithm works by panels (Golub and Van Loan, Matrix Computations, section 5.2.3): products reflect the columns to the
    right of a panel. Each column is divided by its largest entry first, since a reflection depends only on the direction. The
    columns of R are multiplied by it.
    """
    rows, columns = matrix.shape[1:]
    steps = min(rows, columns)
    top = aten.amax.default(aten.abs.default(matrix), [1], True)
    top = aten.where.self(aten.eq.Scalar(top, 0), number_like(top, 1.0), top)
    rest = single(transposed(divided(matrix, top)))
    upper, lower, taus = [], [], []
    for start in range(0, steps, PANEL):
        width = min(PANEL, steps - start)
        others = None
        if start + width < steps:  # the last panel takes along what is to its right
            rest, others = aten.split_with_sizes.default(rest, [width, columns - start - width], -2)
        found = _panel(rest, width)
        parts = [found.upper]
        if others is not None:
            right, rest = aten.split_with_sizes.default(_block_reflected(found, others), [width, rows - start - width], -1)
            parts.append(right)
        block = joined(parts, -2)
        upper.append(aten.constant_pad_nd.default(block, [0, 0, start, 0]) if start else block)
        lower.append(aten.constant_pad_nd.default(found.vectors, [start, 0]) if start else found.vectors)
        taus.append(found.tau)
    factor = transposed(whole_batch(joined(upper, -1)))
    factor = triangle(aten.mul.Tensor(factor, lifted(top, factor)), upper=True, unit=False)  # zeros also beside NaN
    return factor, transposed(whole_batch(joined(lower, -2))), aten.squeeze.dim(whole_batch(joined(taus, -2)), 2)


def _empty_reflected(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    steps = min(matrix.shape[1:])
    upper, lower = ([matrix.size(0), *rest] for rest in ((steps, matrix.size(2)), (matrix.size(1), steps)))

    def zeros(shape: Sequence[int]) -> Tensor:
        return aten.full.default(shape, 0, dtype=matrix.dtype, device=matrix.device)  # type: ignore[no-any-return]

    return zeros(upper), zeros(lower), zeros([matrix.size(0), steps])


def _factors(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _empty_reflected(matrix) if matrix.numel() == 0 else _reflected(matrix)


def _applied(lower: Tensor, tau: Tensor, right: Tensor, *, turned: bool = False) -> Tensor:
    """Return ``H1 .. Hk right``, or with `turned` ``(H1 .. Hk)^H right``.

    The reflections have vectors ``[Q, m, k]``, below the diagonal, and ``tau [Q, k]``. `PANEL` reflections together are
    ``I - V T V^H``, or ``I - V T^H V^H`` (see `_block_reflected`). The `T` of all blocks are computed together. A reflection with
    `tau` 0 is the identity: its vector is set to zero.
    """
    count, rows, steps = lower.shape
    if steps == 0 or right.numel() == 0:
        return aten.clone.default(right)  # type: ignore[no-any-return]
    width = min(steps, PANEL)
    blocks = -(-steps // width)
    spare = blocks * width - steps
    still = aten.unsqueeze.default(aten.eq.Scalar(tau, 0), 1)
    vectors = aten.where.self(still, number_like(lower, 0.0), triangle(lower, upper=False, unit=True))
    if spare:
        vectors, tau = aten.constant_pad_nd.default(vectors, [0, spare]), aten.constant_pad_nd.default(tau, [0, spare])
    tiles = aten.permute.default(aten.reshape.default(vectors, [count, rows, blocks, width]), [2, 0, 1, 3])
    vectors = aten.reshape.default(tiles, [blocks * count, rows, width])
    across = adjoint(vectors)
    scale = aten.permute.default(aten.reshape.default(tau, [count, blocks, 1, width]), [1, 0, 2, 3])
    scale = aten.reshape.default(scale, [blocks * count, 1, width])
    scale = conjugate(scale) if turned else scale
    system = aten.mul.Tensor(transposed(scale), aten.bmm.default(across, vectors))
    inverse = inverse_triangular(system, upper=not turned, unit=True, refine=False)
    found = single(right)
    weighted = unstacked(aten.bmm.default(vectors, aten.mul.Tensor(inverse, scale)), found)
    pairs = list(zip(weighted, unstacked(across, found), strict=True))
    for mine, theirs in pairs if turned else reversed(pairs):
        found = minus_product(found, mine, product(theirs, found))
    return whole_batch(found)


def _columns_of_identity(matrix: Tensor, columns: int) -> Tensor:
    rows = matrix.size(1)
    index = aten.unsqueeze.default(arange(0, rows, matrix), 1)
    unit = aten._to_copy.default(aten.eq.Tensor(index, arange(0, columns, matrix)), dtype=matrix.dtype)
    return aten.expand.default(unit, [matrix.size(0), rows, columns])  # type: ignore[no-any-return]


@rule("aten.geqrf.default", recorded=True)
def _geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    batch = batch_shape(self)
    matrix = folded(self)
    upper, lower, tau = _factors(matrix)
    rows, columns = matrix.shape[1:]
    steps = min(rows, columns)
    if rows > steps:
        upper = aten.constant_pad_nd.default(upper, [0, 0, 0, rows - steps])
    if columns > steps:
        lower = aten.constant_pad_nd.default(lower, [0, columns - steps])
    return column_major(aten.add.Tensor(upper, lower), batch), unfolded(tau, batch)


@rule("aten.linalg_qr.default", recorded=True)
def _linalg_qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    batch = batch_shape(A)
    matrix = folded(A)
    upper, lower, tau = _factors(matrix)
    rows, steps = matrix.size(1), tau.size(1)
    if mode == "r":
        return aten.empty.memory_format([0], dtype=A.dtype, device=A.device), column_major(upper, batch)
    complete = mode == "complete"
    if complete and rows > steps:
        upper = aten.constant_pad_nd.default(upper, [0, 0, 0, rows - steps])
    unitary = _applied(lower, tau, _columns_of_identity(matrix, rows if complete else steps))
    if steps > PANEL:
        upper = _refined(matrix, unitary, upper)
    return column_major(unitary, batch), column_major(upper, batch)


def _refined(matrix: Tensor, unitary: Tensor, upper: Tensor) -> Tensor:
    """Add ``Q^H (matrix - Q R)`` to R above the diagonal.

    This corrects rounding errors of the panels' products, which accumulate if entries are similar. The diagonal is not changed: its
    zeros show which columns depend linearly on the columns before.
    """
    missed = aten.sub.Tensor(matrix, aten.bmm.default(unitary, upper))
    more = aten.bmm.default(adjoint(unitary), missed)
    return aten.add.Tensor(upper, triangle(more, upper=True, unit=False, strict=True))  # type: ignore[no-any-return]


@rule("aten.linalg_householder_product.default", recorded=True)
def _linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor:
    if not input.size(-2) >= input.size(-1) >= tau.size(-1):
        return NotImplemented  # type: ignore[no-any-return]
    batch = batch_shape(input)
    matrix = folded(input)
    lower, factors = _vectors(matrix, tau)
    return column_major(_applied(lower, factors, _columns_of_identity(matrix, matrix.size(2))), batch)


def _vectors(matrix: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors that have factors in `tau`, and the factors as ``[Q, k]``."""
    factors = aten.reshape.default(tau, [matrix.size(0), tau.size(-1)])
    return cut(matrix, 2, 0, tau.size(-1)), factors


@rule("aten.ormqr.default", recorded=True)
def _ormqr(self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    if min(self.shape[-2:]) != input2.size(-1):
        return NotImplemented  # type: ignore[no-any-return]
    batch = batch_shape(self)
    lower, factors = _vectors(folded(self), input2)
    other = folded(input3)
    if left:
        return column_major(_applied(lower, factors, other, turned=transpose), batch)
    # A product from the right is the adjoint of one from the left.
    found = _applied(lower, factors, adjoint(other), turned=not transpose)
    return column_major(adjoint(found), batch)
