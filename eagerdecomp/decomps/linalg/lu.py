"""Linear systems: triangular systems by blocks, general systems by LU with partial pivoting, and ops that use the factors.

A pivot depends on all columns before it, so the loop over columns is inherent. There are two loops. `_panel` reads no data. It
keeps the order of LAPACK's exchanges, which decides between equal candidates, and takes 14 calls per column. `_quick_panel` takes
7, for columns with one largest entry each. Then it reads two counts, which show whether all columns were such.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import has_values
from eagerdecomp.decomps.math.matrices import (
    LAPACK_DTYPES,
    Joins,
    arange,
    batch_shape,
    column_major,
    conjugate,
    contiguous_batch,
    cut,
    eye,
    first_set,
    folded,
    inverted,
    joined,
    joins,
    minus_product,
    pivot_size,
    plus_product,
    product,
    single,
    solve_triangular,
    transposed,
    triangle,
    unfolded,
    unreadable,
    whole_batch,
)
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: The number of columns that are factored one by one before the rest of the matrix is updated by products.
PANEL = 32

#: The same for `_quick_panel`: what a panel costs besides its columns counts more.
_QUICK_PANEL = 64

#: Up to this number of rows, `_panel` is faster.
_FEW = 16


@rule("aten._linalg_check_errors.default")
def _linalg_check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """Return if there is no error. The next rule, which is torch's, raises the error."""
    odd = not has_values(info) or unreadable(info) or info.dtype is not torch.int32 or not info.is_contiguous()
    if odd or aten._local_scalar_dense.default(aten.any.default(info)):
        return NotImplemented  # type: ignore[no-any-return]
    return None


# -- triangular systems -------------------------------------------------------------------------------------------


@rule("aten.linalg_solve_triangular.default", recorded=True)
def _linalg_solve_triangular(self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    if B.dtype is not self.dtype:
        B = aten._to_copy.default(B, dtype=self.dtype)
    batch = broadcast_shapes(batch_shape(B), batch_shape(self))
    # For a column-major conj view, eager solves the transposed equation, so its result is row-contiguous.
    by_rows = self.is_conj() and transposed(aten.expand.default(self, [*batch, *self.shape[-2:]])).is_contiguous()
    matrix, right = folded(self, batch), folded(B, batch)
    if left:
        found = solve_triangular(matrix, right, upper=upper, unit=unitriangular)
    else:
        found = transposed(solve_triangular(transposed(matrix), transposed(right), upper=not upper, unit=unitriangular))
    if by_rows:
        return aten.clone.default(unfolded(found, batch), memory_format=torch.contiguous_format)  # type: ignore[no-any-return]
    return column_major(found, batch)


@rule("aten.triangular_solve.default", recorded=True)
def _triangular_solve(
    self: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    batch = broadcast_shapes(batch_shape(A), batch_shape(self))
    matrix = folded(A, batch)
    turned = transposed(matrix) if transpose else matrix
    found = solve_triangular(turned, folded(self, batch), upper=upper is not transpose, unit=unitriangular)
    return column_major(found, batch), _copied(matrix, batch)


def _copied(matrix: Tensor, batch: Sequence[int]) -> Tensor:
    """Return a column-major copy, even if the original is column-major."""
    turned = aten.clone.default(transposed(matrix), memory_format=torch.contiguous_format)
    return transposed(unfolded(turned, batch))


# -- LU -----------------------------------------------------------------------------------------------------------


class _Panel(NamedTuple):
    """The result of eliminating the first columns of a matrix. The matrix is transposed: ``[.., w, m]``, a row per column."""

    upper: Tensor  #: ``[.., w, steps]``: the rows of the pivots, of which what is left of a pivot has no meaning
    lower: Tensor  #: ``[.., steps, m]``: the multipliers, of which what is not beyond a pivot has no meaning
    order: Tensor  #: ``[m]`` or ``[Q, 1, m]``: where each row came from; the rows of the pivots are first
    pivots: Tensor | None = None  #: ``[steps]`` or ``[Q, 1, steps]``: their places, counted from the first row left at each step


def _panel(rest: Tensor, steps: int, pivoting: bool) -> _Panel:
    """Eliminate the first `steps` rows of ``[.., w, m]``, the columns of a matrix, with partial pivoting or without.

    This is the textbook loop (Golub and Van Loan, Matrix Computations, algorithm 3.4.1): 14 calls per column for a single matrix,
    16 for a batch. Rows are not moved. `there` lists the remaining rows in the order of LAPACK's exchanges: the first remaining row
    takes the position of the pivot row. The order matters, since the first of equal candidates becomes the pivot.
    """
    batched = rest.dim() == 3
    length = rest.size(-1)
    there = arange(0, length, rest)
    there = aten.expand.default(there, [rest.size(0), 1, length]) if batched else there
    topmost = (
        None if pivoting else aten.full.default([rest.size(0), 1, 1] if batched else [1], 0, dtype=there.dtype, device=rest.device)
    )
    rows, multipliers, pivots, order = [], [], [], []
    for step in range(steps):
        column = aten.slice.Tensor(rest, -2, step, step + 1)
        pivot = aten.argmax.default(pivot_size(_columns(column, there)), -1, batched) if topmost is None else topmost
        chosen = aten.gather.default(there, -1, pivot)
        row = _columns(rest, chosen)
        top = aten.slice.Tensor(row, -2, step, step + 1)
        # With pivoting, all entries below a zero pivot are zero, and stay so.
        multiplier = aten.div.Tensor(column, aten.add.Tensor(top, aten.logical_not.default(top)) if pivoting else top)
        rows.append(row)
        multipliers.append(multiplier)
        pivots.append(pivot)
        order.append(chosen)
        if step < steps - 1:
            rest = minus_product(rest, row, multiplier)
        if step < length - 1:
            first, there = aten.split_with_sizes.default(there, [1, length - step - 1], -1)
            there = aten.where.self(aten.eq.Tensor(there, chosen), first, there)
    came = joined([*order, there] if steps < length else order, -1)
    lower = _columns(joined(multipliers, -2), came)
    return _Panel(joined(rows, -1), lower, came, joined(pivots, -1))


def _quick_panel(rest: Tensor, steps: int, ragged: Tensor) -> _Panel | None:
    """Do what `_panel` does with pivoting, for a single real matrix: in 7 calls per column.

    Rows stay in place. The multiplier of a pivot's row is 1, so the row becomes zero and is not chosen again. Return None unless
    each column had one largest entry and each row was chosen once. The rows left keep their order, which is not LAPACK's.

    Args:
        rest: ``[w, m]``, as for `_panel`.
        steps: the number of columns to eliminate.
        ragged: `_ragged` of the width and the steps.
    """
    width, length = rest.shape
    # Local names: a function call or an attribute takes a tenth of the time of a kernel call.
    split, magnitude, argmax, div = aten.split_with_sizes.default, aten.abs.default, aten.argmax.default, aten.div.Tensor
    select, addmm = aten.index_select.default, aten.addmm.default
    multipliers, chosen, rows = [], [], []
    for left in range(width, width - steps, -1):
        column, rest = split(rest, [1, left - 1], 0) if left > 1 else (rest, rest)
        pivot = argmax(magnitude(column), 1)
        top = select(column, 1, pivot)
        multiplier = div(column, top)
        chosen.append(pivot)
        multipliers.append(multiplier)
        rows.append(top)
        if left > 1:
            row = select(rest, 1, pivot)
            rows.append(row)
            rest = addmm(rest, row, multiplier, alpha=-1)
    lower = joined(multipliers, 0)
    first, index = split(arange(-steps, length, rest), [steps, length])
    places, order = aten.sort.default(aten.scatter.src(index, 0, joined(chosen, 0), first))
    # A multiplier of magnitude 1 is the pivot's or that of an equal candidate. All are NaN if the column is zero.
    if _count(aten.lt.Scalar(magnitude(lower), 1)) < (length - 1) * steps or _count(aten.lt.Scalar(places, 0)) < steps:
        return None
    flat = select(aten.reshape.default(joined(rows, 0), [-1]), 0, ragged)
    return _Panel(aten.reshape.default(flat, [width, steps]), select(lower, 1, order), order)


def _count(flags: Tensor) -> int:
    """Read the number of flags that are set."""
    return int(aten._local_scalar_dense.default(aten.sum.dim_IntList(flags, list(range(flags.dim())))))


def _ragged(width: int, steps: int, like: Tensor) -> Tensor:
    """Return the places of the entries of ``[width, steps]`` among those from the diagonal down, column after column."""
    step = arange(0, steps, like)
    before = aten.mul.Tensor(step, aten.arange.start_step(2 * width - 1, 2 * width - 1 - steps, -1, device=like.device))
    before = aten.div.Scalar_mode(before, 2, rounding_mode="floor")
    return aten.reshape.default(aten.add.Tensor(aten.unsqueeze.default(arange(0, width, like), 1), before), [-1])  # type: ignore[no-any-return]


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """Return the rows of ``[Q, m, n]`` in the order ``[Q, m, 1]``."""
    return aten.gather.default(x, 1, aten.expand.default(order, x.shape))  # type: ignore[no-any-return]


def _columns(x: Tensor, order: Tensor) -> Tensor:
    """Return the columns of ``[m, n]`` in the order ``[k]``, or of a batch in the order ``[Q, 1, k]``."""
    if x.dim() == 2:
        return aten.index_select.default(x, 1, order)  # type: ignore[no-any-return]
    return aten.gather.default(x, 2, aten.expand.default(order, [*x.shape[:2], order.size(-1)]))  # type: ignore[no-any-return]


def _exchanges(places: Tensor, length: int) -> Tensor:
    """Return orders ``[Q, steps, length]`` that exchange `k` and ``places[k]``, for each step `k` of ``places [Q, 1, steps]``."""
    index = arange(0, length, places)
    number = aten.unsqueeze.default(arange(0, places.size(-1), places), 1)
    there = transposed(places)
    order = aten.where.self(aten.eq.Tensor(index, there), number, index)
    return aten.where.self(aten.eq.Tensor(index, number), there, order)  # type: ignore[no-any-return]


def _moved(order: Tensor, by: Tensor) -> Tensor:
    return aten.index_select.default(order, 0, by) if order.dim() == 1 else aten.gather.default(order, -1, by)  # type: ignore[no-any-return]


def _pivots_of(order: Tensor, steps: int) -> Tensor:
    """Return LAPACK's pivots ``[Q, steps]``, counted from 0, that lead to the row order ``[Q, m]``.

    The row that is exchanged for `k` has moved from its place to that of the pivot chosen there, and so on: its place at step `k`
    is the first of ``order[k], order[order[k]], ...`` that is at least `k`. It is found by jumps over powers of two.
    """
    jumps = [(order, order)]  # where a jump leads, and the highest place on its way
    for _ in range(1, (steps - 1).bit_length()):
        there, highest = jumps[-1]
        onwards = aten.gather.default(highest, 1, there)
        jumps.append((aten.gather.default(there, 1, there), aten.maximum.default(highest, onwards)))
    number = arange(0, steps, order)
    place = aten.expand.default(number, [order.size(0), steps])
    for there, highest in reversed(jumps):
        low = aten.lt.Tensor(aten.gather.default(highest, 1, place), number)
        place = aten.where.self(low, aten.gather.default(there, 1, place), place)
    return aten.gather.default(order, 1, place)  # type: ignore[no-any-return]


class _Factors(NamedTuple):
    """The LU factors of ``[Q, m, n]``, transposed."""

    packed: Tensor  #: ``[Q, n, m]``: both factors in one
    pivots: Tensor  #: ``[Q, steps]``: LAPACK's, counted from 1; int64
    order: Tensor  #: ``[Q, m, 1]``: where each row came from
    right: Tensor | None  #: ``[Q, k, m]``: what the elimination made of the right side


def _factored(matrix: Tensor, right: Tensor | None = None, *, pivoting: bool = True, quick: bool = False) -> _Factors:
    """Return the factors of ``[Q, m, n]`` and, with `right` ``[Q, m, k]`` for a square matrix, ``L^-1 P right``.

    The algorithm is right-looking, by panels of columns (Golub and Van Loan, Matrix Computations, section 3.4.7). It
    eliminates a panel column by column, solves for the rows to the right of the panel's triangle, and updates the rest by one
    product. `quick` tries `_quick_panel` first; it needs ``m <= n``.
    """
    batch, rows, columns = matrix.shape
    steps = min(rows, columns)
    size = _QUICK_PANEL if quick else PANEL
    if matrix.numel() == 0:
        order = aten.expand.default(aten.unsqueeze.default(arange(0, rows, matrix), 1), [batch, rows, 1])
        pivots = aten.empty.memory_format([batch, steps], dtype=torch.int64, device=matrix.device)
        turned = None if right is None else aten.clone.default(transposed(right))
        return _Factors(aten.clone.default(transposed(matrix)), pivots, order, turned)
    rest = single(transposed(matrix if right is None else aten.cat.default([matrix, right], 2)))
    width = rest.size(-2)
    known = joins(size, matrix, upper=True) if steps > size else None
    ragged = _ragged(size, size, matrix) if quick and steps > size else None
    done, came, pivots = [], [], []
    before: list[Tensor] = []  # the multipliers of all panels before, in the rows that are left
    order = None
    for start in range(0, steps, size):
        step, left = min(size, steps - start), rows - start
        others = None
        if start + step < steps:  # the last panel takes along what is to its right
            rest, others = aten.split_with_sizes.default(rest, [step, width - start - step], -2)
        elif quick:
            ragged = _ragged(width - start, step, matrix)
        panel = _panel(rest, step, pivoting) if ragged is None else _quick_panel(rest, step, ragged)
        if panel is None:
            return _factored(matrix, right)
        upper, lower, moved, places = panel
        pivots.append(places)
        order = moved if order is None else _moved(order, moved)
        before = [_columns(x, moved) for x in before]
        square, beside = cut(upper, -2, 0, step), cut(upper, -2, step, upper.size(-2))
        if left > step:
            heights = [step, left - step]
            lower, bottom = aten.split_with_sizes.default(lower, heights, -1)
            order_here, order = aten.split_with_sizes.default(order, heights, -1)
            tops, before = _split_each(before, heights)
            if known is not None and others is not None:
                beside, below = aten.split_with_sizes.default(_columns(others, moved), heights, -1)
                beside = _solved_beside(lower, beside, known)
                rest = minus_product(below, beside, bottom)
            before = [joined([*before, bottom], -2)]
        else:
            order_here, tops = order, before
        within = known.within if known is not None and step == size else _above_diagonal(square)
        packed = aten.where.self(within, lower, square)
        done.append(joined([x for x in (*tops, packed, beside) if x.size(-2)], -2))
        came.append(order_here)
    if rows > steps:
        done += before
        came.append(order)
    found = whole_batch(joined(done, -1))
    order = aten.reshape.default(joined(came, -1), [batch, rows])
    if quick:
        places = aten.add.Scalar(_pivots_of(order, steps), 1)
    else:
        places = aten.add.Tensor(aten.reshape.default(joined(pivots, -1), [batch, steps]), arange(1, steps + 1, matrix))
    order = aten.unsqueeze.default(order, 2)
    if right is None:
        return _Factors(found, places, order, None)
    packed, turned = aten.split_with_sizes.default(found, [columns, right.size(2)], 1)
    return _Factors(packed, places, order, turned)


def _split_each(parts: Sequence[Tensor], heights: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
    pairs = [aten.split_with_sizes.default(part, heights, -1) for part in parts]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _above_diagonal(x: Tensor) -> Tensor:
    column, row = arange(0, x.size(-1), x), aten.unsqueeze.default(arange(0, x.size(-2), x), 1)
    return aten.gt.Tensor(column, row)  # type: ignore[no-any-return]


def _solved_beside(lower: Tensor, right: Tensor, known: Joins) -> Tensor:
    """Return ``right M^-1`` for the unit upper triangle `M` of `lower`, by its inverse and a step of refinement."""
    factor = aten.where.self(known.within, lower, known.identity)
    inverse = inverted(lower, known, unit=True)
    guess = product(right, inverse)
    return plus_product(guess, minus_product(right, guess, factor), inverse)


def _is_quick(A: Tensor) -> bool:
    """Return whether to use `_quick_panel`, which reads data.

    The data must be in the host's memory, where a read waits for nothing. Few rows and batches take longer than by a program, which
    makes no masks. With more rows than columns, LAPACK's order of the rows left is needed.
    """
    known = A.is_cpu and A.dim() >= 2 and _FEW < A.size(-2) <= A.size(-1) and A.numel() == A.size(-2) * A.size(-1)
    return known and A.dtype in (torch.float32, torch.float64) and not unreadable(A)


def _factor_call(A: Tensor, *, pivoting: bool = True, quick: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return LU, pivots and info with eager's strides."""
    return _packed_results(_factored(folded(A), pivoting=pivoting, quick=quick), batch_shape(A))


def _packed_results(found: _Factors, batch: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    info = first_set(aten.eq.Scalar(aten.diagonal.default(found.packed, 0, 1, 2), 0))
    pivots = aten._to_copy.default(found.pivots, dtype=torch.int32)
    return column_major(transposed(found.packed), batch), unfolded(pivots, batch), unfolded(info, batch)


def _is_covered(A: Tensor, pivot: bool) -> bool:
    """Return whether eager accepts a call. On the CPU, LAPACK always exchanges rows; other devices need not."""
    return not A.numel() or (A.dtype in LAPACK_DTYPES and (pivot or not A.is_cpu))


@rule("aten.linalg_lu_factor_ex.default")
def _linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    if not (pivot and _is_quick(A)):
        return NotImplemented  # type: ignore[no-any-return]
    return _lu_factor_ex(A, pivot, check_errors, quick=True)


@rule("aten.linalg_lu_factor_ex.default", recorded=True)
def _linalg_lu_factor_ex_blindly(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Read no data, as all rules of this module that are called so."""
    if not _is_covered(A, pivot):
        return NotImplemented  # type: ignore[no-any-return]
    return _lu_factor_ex(A, pivot, check_errors, quick=False)


def _lu_factor_ex(A: Tensor, pivot: bool, check_errors: bool, quick: bool) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots, info = _factor_call(A, pivoting=pivot, quick=quick)
    if check_errors:
        aten._linalg_check_errors.default(info, "torch.linalg.lu_factor_ex", is_matrix=A.dim() == 2)
    return factors, pivots, info


def _order_of(pivots: Tensor, rows: int) -> Tensor:
    """Return the row order ``[Q, rows, 1]`` after successive exchanges ``[Q, k]``, combined in pairs in log2(k) rounds."""
    batch, steps = pivots.shape
    if steps == 0 or rows == 0:
        return aten.expand.default(aten.unsqueeze.default(arange(0, rows, pivots), 1), [batch, rows, 1])  # type: ignore[no-any-return]
    places = aten.sub.Scalar(aten._to_copy.default(pivots, dtype=torch.int64), 1)
    count = 1 << (steps - 1).bit_length()
    if count > steps:  # exchanges of nothing
        places = aten.cat.default([places, aten.expand.default(arange(steps, count, pivots), [batch, count - steps])], 1)
    orders = _exchanges(aten.unsqueeze.default(places, 1), rows)
    while count > 1:
        count //= 2
        pairs = aten.reshape.default(orders, [batch, count, 2, rows])
        orders = aten.gather.default(aten.select.int(pairs, 2, 0), -1, aten.select.int(pairs, 2, 1))
    return transposed(orders)


def _triangles(factors: Tensor, batch: Sequence[int]) -> tuple[Tensor, Tensor]:
    steps = min(factors.shape[1:])
    lower = triangle(cut(factors, 2, 0, steps), upper=False, unit=True)
    upper = triangle(cut(factors, 1, 0, steps), upper=True, unit=False)
    return contiguous_batch(lower, batch), contiguous_batch(upper, batch)


def _permutation(order: Tensor, like: Tensor, batch: Sequence[int]) -> Tensor:
    """Return the permutation matrix that moves the rows back to their original positions."""
    rows = order.size(1)
    came = aten.permute.default(order, [0, 2, 1])
    hits = aten.eq.Tensor(came, aten.unsqueeze.default(arange(0, rows, like), 1))
    return unfolded(aten._to_copy.default(hits, dtype=like.dtype, memory_format=torch.contiguous_format), batch)


@rule("aten.linalg_lu.default")
def _linalg_lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    if not (pivot and _is_quick(A)):
        return NotImplemented  # type: ignore[no-any-return]
    return _lu(A, pivot, quick=True)


@rule("aten.linalg_lu.default", recorded=True)
def _linalg_lu_blindly(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    if not _is_covered(A, pivot):
        return NotImplemented  # type: ignore[no-any-return]
    return _lu(A, pivot, quick=False)


def _lu(A: Tensor, pivot: bool, quick: bool) -> tuple[Tensor, Tensor, Tensor]:
    batch = batch_shape(A)
    found = _factored(folded(A), pivoting=pivot, quick=quick)
    none = None if pivot else aten.empty.memory_format([0], dtype=A.dtype, device=A.device)
    permutation = _permutation(found.order, A, batch) if none is None else none
    return (permutation, *_triangles(transposed(found.packed), batch))


@rule("aten.lu_unpack.default")
def _lu_unpack_of_pivots(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Read the pivots and refuse those that no matrix has. The next rule reads no data."""
    if unpack_pivots and LU_pivots.numel() and LU_data.numel():
        _refuse_beyond(LU_pivots, LU_data.size(-2))
    return aten.lu_unpack.default(LU_data, LU_pivots, unpack_data, unpack_pivots)  # type: ignore[no-any-return]


@rule("aten.lu_unpack.default", recorded=True)
def _lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    batch = batch_shape(LU_data)

    def empty() -> Tensor:
        return aten.empty.memory_format([0], dtype=LU_data.dtype, device=LU_data.device)  # type: ignore[no-any-return]

    permutation = empty()
    if unpack_pivots:
        pivots = aten.reshape.default(LU_pivots, [math.prod(batch), LU_pivots.size(-1)])
        if pivots.size(1) > (swaps := min(LU_data.shape[-2:])):
            pivots = aten.slice.Tensor(pivots, 1, 0, swaps)  # eager makes no more
        permutation = _permutation(_order_of(pivots, LU_data.size(-2)), LU_data, batch)
    if not unpack_data:
        return permutation, empty(), empty()
    return (permutation, *_triangles(folded(LU_data), batch))


# -- ops that use the factors -------------------------------------------------------------------------------------


def _solved(factors: Tensor, order: Tensor, right: Tensor, *, turned: bool) -> Tensor:
    """Solve ``A X = right``, or with `turned` ``A^T X = right``, with the factors of `A`."""
    if not turned:
        lower = solve_triangular(factors, _rows(right, order), upper=False, unit=True)
        return solve_triangular(factors, lower, upper=True)
    factors = transposed(factors)
    upper = solve_triangular(factors, right, upper=False)
    lower = solve_triangular(factors, upper, upper=True, unit=True)
    return _rows(lower, aten.sort.default(order, 1)[1])


def _taken_along(found: _Factors, batch: Sequence[int]) -> Tensor:
    """Return the solution for the right side that was part of the elimination."""
    assert found.right is not None
    return column_major(solve_triangular(transposed(found.packed), transposed(found.right), upper=True), batch)


@rule("aten.linalg_lu_solve.default")
def _linalg_lu_solve_of_pivots(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Read the pivots and refuse those that no matrix has. The next rule reads no data."""
    if B.numel():
        _refuse_beyond(pivots, LU.size(-1))
    return aten.linalg_lu_solve.default(LU, pivots, B, left=left, adjoint=adjoint)  # type: ignore[no-any-return]


def _refuse_beyond(pivots: Tensor, rows: int) -> None:
    """Raise an error for pivots that no matrix has. It is no `Declined`: the next rule would accept them."""
    least, most = (int(aten._local_scalar_dense.default(end(pivots))) for end in (aten.amin.default, aten.amax.default))
    if not 1 <= least <= most <= rows:
        raise ValueError(f"pivots are {least} to {most}, of {rows} rows")


@rule("aten.linalg_lu_solve.default", recorded=True)
def _linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    batch = broadcast_shapes(batch_shape(B), batch_shape(LU))
    rows = LU.size(-1)
    own = batch_shape(LU)
    if not B.numel():
        nothing = folded(B, batch)
        return column_major(nothing, batch) if left else contiguous_batch(nothing, batch)
    order = _order_of(aten.reshape.default(pivots, [math.prod(pivots.shape[:-1]), rows]), rows)
    return _result(LU, unfolded(order, own), B, batch, left=left, adjoint=adjoint)


def _result(
    factors: Tensor, order: Tensor, right: Tensor, batch: Sequence[int], *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Return the result with eager's strides: column-major, or for ``left=False`` row-contiguous with the conj bit set."""
    factors, order, right = folded(factors, batch), folded(order, batch), folded(right, batch)
    if adjoint:
        factors = conjugate(factors)
    if left:
        return column_major(_solved(factors, order, right, turned=adjoint), batch)
    found = contiguous_batch(transposed(_solved(factors, order, transposed(right), turned=not adjoint)), batch)
    return aten._conj.default(conjugate(found)) if found.is_complex() and found.numel() else found


@rule("aten._linalg_solve_ex.default")
def _linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _solve_ex(A, B, left, check_errors, quick=True) if _is_quick(A) else NotImplemented


@rule("aten._linalg_solve_ex.default", recorded=True)
def _linalg_solve_ex_blindly(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _solve_ex(A, B, left, check_errors, quick=False)


def _solve_ex(A: Tensor, B: Tensor, left: bool, check_errors: bool, quick: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and list(B.shape) == list(A.shape[:-1]))
    right = aten.unsqueeze.default(B, -1) if vector else B
    own = batch_shape(A)
    batch = broadcast_shapes(batch_shape(right), own)
    along = left and batch == own == batch_shape(right)  # the elimination takes the right side along
    found = _factored(folded(A), folded(right) if along else None, quick=quick)
    factors, pivots, info = _packed_results(found, own)
    if check_errors:
        aten._linalg_check_errors.default(info, "torch.linalg.solve_ex", is_matrix=A.dim() == 2)
    result = _taken_along(found, own) if along else _result(factors, unfolded(found.order, own), right, batch, left=left)
    if vector:
        result = aten.squeeze.dim(result, -1)
        if result.dim() > 1:  # strides as if the batch of vectors were a matrix
            result = column_major(folded(result), batch_shape(result))
    return result, factors, pivots, info


@rule("aten.linalg_inv_ex.default")
def _linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    return _inv_ex(A, check_errors, quick=True) if _is_quick(A) else NotImplemented


@rule("aten.linalg_inv_ex.default", recorded=True)
def _linalg_inv_ex_blindly(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    return _inv_ex(A, check_errors, quick=False)


def _inv_ex(A: Tensor, check_errors: bool, quick: bool) -> tuple[Tensor, Tensor]:
    batch = batch_shape(A)
    matrix = folded(A)
    found = _factored(matrix, aten.expand.default(eye(A.size(-1), A), matrix.shape), quick=quick)
    info = _packed_results(found, batch)[2]
    if check_errors:
        aten._linalg_check_errors.default(info, "linalg.inv_ex", is_matrix=A.dim() == 2)
    return _taken_along(found, batch), info


def _factors_of_determinant(A: Tensor, quick: bool) -> tuple[Tensor, Tensor]:
    """Return the factors that eager saves for the gradient: those of the transposed matrix if `A` is contiguous and real."""
    return _factor_call(transposed(A) if A.is_contiguous() and not A.is_complex() else A, quick=quick)[:2]


def _parity(pivots: Tensor) -> Tensor:
    """Return 1 for an even permutation and -1 for an odd one."""
    moved = aten.ne.Tensor(pivots, arange(1, pivots.size(-1) + 1, pivots))
    odd = aten.fmod.Scalar(aten.sum.dim_IntList(moved, [-1], dtype=torch.int64), 2)
    return aten.add.Scalar(aten.mul.Scalar(odd, -2), 1)  # type: ignore[no-any-return]


@rule("aten._linalg_det.default")
def _linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _det(A, quick=True) if _is_quick(A) else NotImplemented


@rule("aten._linalg_det.default", recorded=True)
def _linalg_det_blindly(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _det(A, quick=False)


def _det(A: Tensor, quick: bool) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots = _factors_of_determinant(A, quick)
    product = aten.prod.dim_int(aten.diagonal.default(factors, 0, -2, -1), -1)
    return aten.mul.Tensor(product, _parity(pivots)), factors, pivots


@rule("aten._linalg_slogdet.default")
def _linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _slogdet(A, quick=True) if _is_quick(A) else NotImplemented


@rule("aten._linalg_slogdet.default", recorded=True)
def _linalg_slogdet_blindly(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _slogdet(A, quick=False)


def _slogdet(A: Tensor, quick: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, pivots = _factors_of_determinant(A, quick)
    diagonal = aten.diagonal.default(factors, 0, -2, -1)
    sign = aten.mul.Tensor(aten.prod.dim_int(aten.sgn.default(diagonal), -1), _parity(pivots))
    size = aten.sum.dim_IntList(aten.log.default(aten.abs.default(diagonal)), [-1])
    return sign, size, factors, pivots
