"""``L D L^T`` of symmetric indefinite matrices by Bunch and Kaufman's pivoting, and the solutions of systems with it.

The algorithm is LAPACK's ``sytf2`` and ``hetf2`` on lower triangles. Masks make the data-dependent choices: at each column, a
matrix of the batch starts a pivot of one or two rows, or is at the second row of a two-row pivot. Columns are computed one after
the other, with some 110 kernel calls each. A solution takes 11 calls per row to apply the row exchanges, and two triangular solves.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import (
    adjoint,
    arange,
    batch_shape,
    column_major,
    conjugate,
    cut,
    first_set,
    folded,
    lifted,
    pivot_size,
    real_part,
    solve_triangular,
    transposed,
    triangle,
    unfolded,
)
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: The value that minimizes the bound on element growth.
_ALPHA = (1 + math.sqrt(17)) / 8


def _whole(matrix: Tensor, hermitian: bool) -> Tensor:
    """Return the full matrix with the given lower triangle. A Hermitian matrix has a real diagonal."""
    lower = triangle(matrix, upper=False, unit=False)
    index = arange(0, matrix.size(1), matrix)
    below = aten.gt.Tensor(aten.unsqueeze.default(index, 1), index)
    strict = aten.where.self(below, lower, number_like(lower, 0.0))
    diagonal = aten.sub.Tensor(lower, strict)
    if hermitian and matrix.is_complex():
        diagonal = lifted(real_part(diagonal), matrix)
    return aten.add.Tensor(aten.add.Tensor(strict, diagonal), adjoint(strict) if hermitian else transposed(strict))  # type: ignore[no-any-return]


def _at(x: Tensor, place: Tensor) -> Tensor:
    """Return one row of each matrix, ``[Q, 1, n]``; `place` is the index of the row in each, ``[Q, 1, 1]``."""
    return aten.gather.default(x, 1, aten.expand.default(place, [x.size(0), 1, x.size(2)]))  # type: ignore[no-any-return]


def _exchanged(x: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """Exchange the rows and the columns `here` and `there`."""
    size = x.size(1)
    index = aten.unsqueeze.default(aten.unsqueeze.default(arange(0, size, x), 1), 0)
    order = aten.where.self(aten.eq.Tensor(index, here), there, aten.where.self(aten.eq.Tensor(index, there), here, index))
    x = aten.gather.default(x, 1, aten.expand.default(order, x.shape))
    return aten.gather.default(x, 2, aten.expand.default(transposed(order), x.shape))  # type: ignore[no-any-return]


def _not_zero(x: Tensor, used: Tensor) -> Tensor:
    """Return `x` where it is used, else 1, so that entries that are masked later do not divide by zero."""
    return aten.where.self(used, x, number_like(x, 1.0))  # type: ignore[no-any-return]


def _choice(rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the pivot of the trailing submatrix `rest` as Bunch and Kaufman do.

    Return whether the pivot has two rows, the row to exchange, and whether the column is zero.
    """
    size = rest.size(1)
    sizes = pivot_size(rest)
    column = aten.slice.Tensor(sizes, 2, 0, 1)
    head, tail = aten.split_with_sizes.default(column, [1, size - 1], 1)
    most = aten.amax.default(tail, [1], True)
    row = aten.add.Scalar(aten.argmax.default(tail, 1, True), 1)
    empty = aten.eq.Scalar(aten.maximum.default(head, most), 0)
    others = _at(sizes, row)
    at_row = aten.eq.Tensor(arange(0, size, rest), row)
    nothing = number_like(sizes, 0.0)
    beside = aten.amax.default(aten.where.self(at_row, nothing, others), [2], True)
    own_size = aten.sum.dim_IntList(aten.where.self(at_row, others, nothing), [2], True)
    bound = aten.mul.Scalar(most, _ALPHA)
    keeps = aten.logical_or.default(
        aten.logical_or.default(aten.ge.Tensor(head, bound), empty),
        aten.ge.Tensor(head, aten.mul.Tensor(bound, aten.div.Tensor(most, _not_zero(beside, aten.ne.Scalar(beside, 0))))),
    )
    swaps = aten.ge.Tensor(own_size, aten.mul.Scalar(beside, _ALPHA))
    twice = aten.logical_not.default(aten.logical_or.default(keeps, swaps))
    stay = aten.full.default([], 0, dtype=torch.int64, device=rest.device)
    return twice, aten.where.self(keeps, stay, row), empty


def _pivot(entry: Tensor, hermitian: bool) -> Tensor:
    """Return a diagonal entry; for a Hermitian matrix, its real part: errors of imaginary parts would grow with each step."""
    return lifted(real_part(entry), entry) if hermitian and entry.is_complex() else entry


def _by_one(rest: Tensor, hermitian: bool, used: Tensor) -> tuple[Tensor, Tensor]:
    """Return the column of `L` below a pivot of one row, and the updated rest of the matrix.

    `used` marks the matrices of the batch that have this pivot; the results for the others are discarded.
    """
    size = rest.size(1)
    pivot = _not_zero(_pivot(cut(cut(rest, 1, 0, 1), 2, 0, 1), hermitian), used)
    column = cut(cut(rest, 1, 1, size), 2, 0, 1)
    # Multiply by the reciprocal, as LAPACK does, so that the column of L equals the one in the update.
    scaled = aten.mul.Tensor(column, aten.reciprocal.default(pivot))
    across = adjoint(column) if hermitian else transposed(column)
    return scaled, aten.sub.Tensor(cut(cut(rest, 1, 1, size), 2, 1, size), aten.mul.Tensor(scaled, across))


def _by_two(rest: Tensor, hermitian: bool, used: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return both columns of `L` below a pivot of two rows, and the updated rest of the matrix."""
    size = rest.size(1)
    corner = cut(cut(rest, 1, 0, 2), 2, 0, 2)
    beside = _not_zero(cut(cut(corner, 1, 1, 2), 2, 0, 1), used)
    first, second = (_pivot(cut(cut(corner, 1, at, at + 1), 2, at, at + 1), hermitian) for at in (0, 1))
    facing = conjugate(beside) if hermitian else beside
    # Divide by the off-diagonal entry, which is the largest.
    d11, d22 = aten.div.Tensor(second, beside), aten.div.Tensor(first, facing)
    one = number_like(rest, 1.0)
    scale = aten.reciprocal.default(_not_zero(aten.sub.Tensor(aten.mul.Tensor(d11, d22), one), used))
    left = cut(cut(rest, 1, 2, size), 2, 0, 1)
    right = cut(cut(rest, 1, 2, size), 2, 1, 2)
    low = aten.mul.Tensor(aten.div.Tensor(aten.sub.Tensor(aten.mul.Tensor(d11, left), right), facing), scale)
    high = aten.mul.Tensor(aten.div.Tensor(aten.sub.Tensor(aten.mul.Tensor(d22, right), left), beside), scale)
    both = aten.cat.default([low, high], 2)
    given = cut(cut(rest, 1, 2, size), 2, 0, 2)
    across = adjoint(given) if hermitian else transposed(given)
    return low, high, aten.sub.Tensor(cut(cut(rest, 1, 2, size), 2, 2, size), aten.bmm.default(both, across))


def _factored(matrix: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return `L` and `D` in one matrix with zeros above, and LAPACK's pivots and info."""
    batch, size = matrix.shape[:2]
    rest = _whole(matrix, hermitian)
    never = aten.full.default([batch, 1, 1], False, dtype=torch.bool, device=matrix.device)
    second, before = never, None  # whether this column is the second of a pivot of two rows, and that pivot's number
    columns, pivots, empties = [], [], []
    for step in range(size):
        left = size - step
        alone = aten.logical_not.default(second)
        if left == 1:
            twice, forward = never, aten.full.default([], 0, dtype=torch.int64, device=matrix.device)
            empty = aten.logical_not.default(aten.gt.Scalar(pivot_size(rest), 0))  # or NaN, which LAPACK's kernels find here alone
        else:
            twice, forward, empty = _choice(rest)
            twice = aten.logical_and.default(twice, alone)
            forward = aten.where.self(second, aten.full.default([], 0, dtype=torch.int64, device=matrix.device), forward)
            rest = _exchanged(rest, aten._to_copy.default(twice, dtype=torch.int64), forward)
        empty = aten.logical_and.default(empty, alone)
        number = aten.add.Scalar(forward, step + 1)
        number = aten.where.self(twice, aten.neg.default(number), number)
        if before is not None:
            number = aten.where.self(second, before, number)
        pivots.append(aten.expand.default(number, [batch, 1, 1]))
        empties.append(empty)
        column = cut(rest, 2, 0, 1)
        if left > 1:
            used = aten.logical_not.default(aten.logical_or.default(aten.logical_or.default(twice, second), empty))
            scaled, after = _by_one(rest, hermitian, used)
            untouched = cut(cut(rest, 1, 1, left), 2, 1, left)
            below = aten.where.self(used, scaled, cut(column, 1, 1, left))
            after = aten.where.self(used, after, untouched)
            if left > 2:
                low, high, beyond = _by_two(rest, hermitian, twice)
                corner = cut(cut(rest, 1, 1, 2), 2, 0, 2)
                under = aten.cat.default([corner, aten.cat.default([low, high], 2)], 1)
                mine, next_ = aten.split_with_sizes.default(under, [1, 1], 2)
                below = aten.where.self(twice, mine, below)
                # A two-row pivot also finishes the next column. The rest of that row is not read again.
                top = cut(untouched, 1, 0, 1)
                inner = aten.cat.default([cut(top, 2, 1, left - 1), beyond], 1)
                after = aten.where.self(twice, aten.cat.default([next_, inner], 2), after)
            column = aten.cat.default([_pivot(cut(column, 1, 0, 1), hermitian), below], 1)
            rest = after
        else:
            column = _pivot(column, hermitian)
        columns.append(aten.constant_pad_nd.default(column, [0, 0, step, 0]) if step else column)
        second, before = twice, number
    info = first_set(aten.squeeze.dim(aten.cat.default(empties, 2), 1))
    places = aten._to_copy.default(aten.squeeze.dim(aten.cat.default(pivots, 2), 1), dtype=torch.int32)
    return aten.cat.default(columns, 2), places, info


@rule("aten.linalg_ldl_factor_ex.default", recorded=True)
def _linalg_ldl_factor_ex(self: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    batch = batch_shape(self)
    matrix = folded(self)
    if matrix.numel():
        factor, pivots, info = _factored(matrix, hermitian)
    else:
        factor = aten.clone.default(matrix)
        pivots = aten.full.default(matrix.shape[:2], 0, dtype=torch.int32, device=matrix.device)
        info = aten.full.default([matrix.size(0)], 0, dtype=torch.int32, device=matrix.device)
    found = unfolded(info, batch)
    if check_errors:
        aten._linalg_check_errors.default(found, "torch.linalg.ldl_factor_ex", is_matrix=self.dim() == 2)
    return column_major(factor, batch), unfolded(pivots, batch), found


# -- solving ------------------------------------------------------------------------------------------------------


def _in_order(factor: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `L` and `D` in one matrix with all row exchanges applied, the old index of each row, and a mask of first pivot rows.

    The mask marks the first rows of two-row pivots. LAPACK does not apply an exchange to the columns before it.
    """
    size = factor.size(1)
    negative = aten.lt.Scalar(pivots, 0)
    odd = aten.fmod.Scalar(aten.cumsum.default(aten._to_copy.default(negative, dtype=torch.int64), 1), 2)
    leads = aten.logical_and.default(negative, aten.ne.Scalar(odd, 0))
    index = arange(0, size, factor)
    ends = aten.logical_and.default(negative, aten.logical_not.default(leads))
    towards = aten.sub.Scalar(aten.abs.default(aten._to_copy.default(pivots, dtype=torch.int64)), 1)
    towards = aten.where.self(leads, index, towards)
    order = aten.expand.default(aten.unsqueeze.default(index, 1), [factor.size(0), size, 1])
    rows = aten.unsqueeze.default(index, 1)
    for step in range(size):
        there = aten.unsqueeze.default(aten.slice.Tensor(towards, 1, step, step + 1), 2)
        moved = aten.where.self(
            aten.eq.Scalar(rows, step), there, aten.where.self(aten.eq.Tensor(rows, there), number_like(there, step), rows)
        )
        order = aten.gather.default(order, 1, moved)
        if step:
            exchanged = aten.gather.default(factor, 1, aten.expand.default(moved, factor.shape))
            # Skip the first column of a two-row pivot: LAPACK has already exchanged its rows.
            second = aten.unsqueeze.default(aten.slice.Tensor(ends, 1, step, step + 1), 2)
            limit = aten.where.self(second, number_like(index, step - 1), number_like(index, step))
            factor = aten.where.self(aten.lt.Tensor(index, limit), exchanged, factor)
    return factor, order, leads


@rule("aten.linalg_ldl_solve.default", recorded=True)
def _linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    batch = broadcast_shapes(batch_shape(B), batch_shape(LD))
    right = folded(B, batch)
    if not right.numel() or not LD.numel():
        shape = [right.size(0), *right.shape[1:]]
        return column_major(aten.full.default(shape, 0, dtype=B.dtype, device=B.device), batch)
    own_batch = batch_shape(LD)
    mixed, order, leads = _in_order(folded(LD), aten.reshape.default(pivots, [math.prod(own_batch), pivots.size(-1)]))
    mixed, order = folded(unfolded(mixed, own_batch), batch), folded(unfolded(order, own_batch), batch)
    leads = aten.reshape.default(aten.expand.default(unfolded(leads, own_batch), [*batch, LD.size(-1)]), [-1, LD.size(-1)])
    found = _solved(mixed, order, leads, right, hermitian and LD.is_complex())
    return column_major(found, batch)


def _solved(mixed: Tensor, order: Tensor, leads: Tensor, right: Tensor, hermitian: bool) -> Tensor:
    size = mixed.size(1)
    index = arange(0, size, mixed)
    down = aten.sub.Tensor(aten.unsqueeze.default(index, 1), index)
    beside = aten.logical_and.default(aten.eq.Scalar(down, 1), aten.unsqueeze.default(leads, 1))  # of D, not of L
    lower = aten.where.self(beside, number_like(mixed, 0.0), mixed)
    upper = adjoint(lower) if hermitian else transposed(lower)
    found = aten.gather.default(right, 1, aten.expand.default(order, right.shape))
    found = solve_triangular(lower, found, upper=False, unit=True)
    found = _by_blocks(mixed, leads, found, hermitian)
    found = solve_triangular(upper, found, upper=True, unit=True)
    back = aten.sort.default(order, 1)[1]
    return aten.gather.default(found, 1, aten.expand.default(back, right.shape))  # type: ignore[no-any-return]


def _by_blocks(mixed: Tensor, leads: Tensor, right: Tensor, hermitian: bool) -> Tensor:
    """Return ``D^-1 right`` for `D` with blocks of one and two rows."""
    size = mixed.size(1)
    diagonal = aten.unsqueeze.default(aten.diagonal.default(mixed, 0, 1, 2), 2)
    if hermitian:
        diagonal = lifted(real_part(diagonal), mixed)
    alone = aten.div.Tensor(right, diagonal)
    if size == 1:
        return alone  # type: ignore[no-any-return]
    first = aten.unsqueeze.default(cut(leads, 1, 0, size - 1), 2)
    beside = _not_zero(aten.unsqueeze.default(aten.diagonal.default(mixed, -1, 1, 2), 2), first)
    facing = conjugate(beside) if hermitian else beside
    above, below = cut(diagonal, 1, 0, size - 1), cut(diagonal, 1, 1, size)
    here, after = cut(right, 1, 0, size - 1), cut(right, 1, 1, size)
    # As in sytrs: everything is divided by the off-diagonal entry, the largest of the block.
    d11, d22 = aten.div.Tensor(above, facing), aten.div.Tensor(below, beside)
    scale = _not_zero(aten.sub.Tensor(aten.mul.Tensor(d11, d22), number_like(d11, 1.0)), first)
    here, after = aten.div.Tensor(here, facing), aten.div.Tensor(after, beside)
    one = aten.div.Tensor(aten.sub.Tensor(aten.mul.Tensor(d22, here), after), scale)
    other = aten.div.Tensor(aten.sub.Tensor(aten.mul.Tensor(d11, after), here), scale)
    tops = aten.unsqueeze.default(leads, 2)
    bottoms = aten.constant_pad_nd.default(first, [0, 0, 1, 0])
    alone = aten.where.self(tops, aten.constant_pad_nd.default(one, [0, 0, 0, 1]), alone)
    return aten.where.self(bottoms, aten.constant_pad_nd.default(other, [0, 0, 1, 0]), alone)  # type: ignore[no-any-return]
