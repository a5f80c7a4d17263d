"""Linear systems: triangular ones by blocks, general ones by LU with partial pivoting, and what follows from its factors.

Pivots are chosen by `argmax` and rows exchanged by `gather` and `where`, so nothing reads data. A pivot depends on all the columns
before it: the loop over columns is inherent. It costs 17 calls a column, on panels of at most `PANEL` columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import (
    arange,
    batch_shape,
    check_floating,
    check_kernel,
    check_square,
    check_system,
    column_major,
    conjugate,
    cut,
    eye,
    first_set,
    folded,
    solve_triangular,
    transposed,
    triangle,
    unfolded,
)
from eagerdecomp.eager.checks.shapes import broadcast_shapes
from eagerdecomp.eager.messages import scalar_type_name
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: Columns factored one by one before the rest of the matrix is brought up to date by products.
PANEL = 32


# -- triangular systems -------------------------------------------------------------------------------------------


@rule("aten.linalg_solve_triangular.default", recorded=True)
def _linalg_solve_triangular(self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    name = "linalg.solve_triangular"
    check_square(name, self)
    check_system(name, self, B, left)
    check_kernel("triangular_solve_cpu", self)
    if B.dtype is not self.dtype:
        B = aten._to_copy.default(B, dtype=self.dtype)
    batch = broadcast_shapes(batch_shape(B), batch_shape(self))
    # For a matrix like that eager lays the result row by row, and transposes the equation.
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
    for given, letter in ((self, "b"), (A, "A")):
        if given.dim() < 2:
            raise RuntimeError(
                f"torch.triangular_solve: Expected {letter} to have at least 2 dimensions,"
                f" but it has {given.dim()} dimensions instead"
            )
    if self.dtype is not A.dtype:
        mine, others = scalar_type_name(self.dtype), scalar_type_name(A.dtype)
        raise RuntimeError(f"Expected b and A to have the same dtype, but found b of type {mine} and A of type {others} instead.")
    check_square("", A)
    if A.size(-1) != self.size(-2):
        raise RuntimeError(
            f"Incompatible matrix sizes for triangular_solve: each A matrix is {A.size(-1)} by {A.size(-1)}"
            f" but each b matrix is {self.size(-2)} by {self.size(-1)}"
        )
    check_kernel("triangular_solve_cpu", A)
    batch = broadcast_shapes(batch_shape(A), batch_shape(self))
    matrix = folded(A, batch)
    turned = transposed(matrix) if transpose else matrix
    found = solve_triangular(turned, folded(self, batch), upper=upper is not transpose, unit=unitriangular)
    return column_major(found, batch), _copied(matrix, batch)


def _copied(matrix: Tensor, batch: Sequence[int]) -> Tensor:
    """A copy that lies column by column, also where the original does."""
    turned = aten.clone.default(transposed(matrix), memory_format=torch.contiguous_format)
    return transposed(unfolded(turned, batch))


# -- LU -----------------------------------------------------------------------------------------------------------


def _size1(column: Tensor) -> Tensor:
    """The size by which LAPACK chooses a pivot: for complex numbers the sum of both parts' sizes."""
    if not column.is_complex():
        return aten.abs.default(column)  # type: ignore[no-any-return]
    return aten.sum.dim_IntList(aten.abs.default(aten.view_as_real.default(column)), [-1])  # type: ignore[no-any-return]


def _panel(panel: Tensor, steps: int) -> tuple[Tensor, list[Tensor], Tensor]:
    """The first `steps` columns of ``[Q, r, w]`` eliminated: the factors, a pivot's place for each step (counted from the first row
    left at that step), and where each row came from.

    Rows that are done leave the matrix, so each step works on fewer; a last column numbers the rows and travels with them.
    """
    batch, rows, width = panel.shape
    place = aten.unsqueeze.default(arange(0, rows, panel), 1)
    number = aten.expand.default(aten._to_copy.default(place, dtype=panel.dtype), [batch, rows, 1])
    work = aten.cat.default([panel, number], 2)
    one = number_like(panel, 1.0)
    done, pivots = [], []
    for step in range(steps):
        left = rows - step
        pivot = aten.argmax.default(_size1(aten.slice.Tensor(work, 2, step, step + 1)), 1, True)
        row = aten.gather.default(work, 1, aten.expand.default(pivot, [batch, 1, width + 1]))
        done.append(row)
        pivots.append(pivot)
        if left == 1:
            work = None
            break
        first, below = aten.split_with_sizes.default(work, [1, left - 1], 1)
        chosen = aten.eq.Tensor(aten.slice.Tensor(place, 0, 1, left), pivot)
        below = aten.where.self(chosen, first, below)
        widths = [step, 1, width - step - 1, 1]
        before, column, after, numbers = aten.split_with_sizes.default(below, widths, 2)
        _, top, across, _ = aten.split_with_sizes.default(row, widths, 2)
        # Below a pivot of zero stand zeros alone: they stay.
        factor = aten.div.Tensor(column, aten.where.self(aten.eq.Scalar(top, 0), one, top))
        after = aten.sub.Tensor(after, aten.mul.Tensor(factor, across))
        work = aten.cat.default([before, factor, after, numbers], 2)
    whole = aten.cat.default(done if work is None else [*done, work], 1)
    factors, numbers = aten.split_with_sizes.default(whole, [width, 1], 2)
    if numbers.is_complex():
        numbers = aten.select.int(aten.view_as_real.default(numbers), -1, 0)
    return factors, pivots, aten._to_copy.default(numbers, dtype=torch.int64)


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows of ``[Q, m, n]`` in the order ``[Q, m, 1]``."""
    return aten.gather.default(x, 1, aten.expand.default(order, x.shape))  # type: ignore[no-any-return]


def _factored(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both factors of ``[Q, m, n]`` in one, LAPACK's pivots, and where each row came from (``[Q, m, 1]``)."""
    batch, rows, columns = matrix.shape
    steps = min(rows, columns)
    if matrix.numel() == 0:
        order = aten.expand.default(aten.unsqueeze.default(arange(0, rows, matrix), 1), [batch, rows, 1])
        pivots = aten.expand.default(arange(1, steps + 1, matrix), [batch, steps])
        return aten.clone.default(matrix), aten._to_copy.default(pivots, dtype=torch.int32), order
    if steps <= PANEL:
        factors, pivots, order = _panel(matrix, steps)
    else:
        factors, pivots, order = _by_panels(matrix, steps)
    places = aten.squeeze.dim(aten.cat.default(pivots, 1), 2)
    return factors, aten._to_copy.default(aten.add.Tensor(places, arange(1, steps + 1, matrix)), dtype=torch.int32), order


def _by_panels(matrix: Tensor, steps: int) -> tuple[Tensor, list[Tensor], Tensor]:
    batch, rows, _ = matrix.shape
    rest, lower, pivots = matrix, None, []
    order = aten.expand.default(aten.unsqueeze.default(arange(0, rows, matrix), 1), [batch, rows, 1])
    done, came = [], []
    for start in range(0, steps, PANEL):
        width = min(PANEL, steps - start)
        panel, others = aten.split_with_sizes.default(rest, [width, rest.size(2) - width], 2)
        factors, chosen, moved = _panel(panel, width)
        pivots += chosen
        order, others = aten.gather.default(order, 1, moved), _rows(others, moved)
        heights = [width, rest.size(1) - width]
        top, bottom = aten.split_with_sizes.default(factors, heights, 1)
        right, below = aten.split_with_sizes.default(others, heights, 1)
        right = solve_triangular(top, right, upper=False, unit=True)
        rest = aten.sub.Tensor(below, aten.bmm.default(bottom, right))
        beside: list[Tensor] = []
        if lower is not None:
            before, lower = aten.split_with_sizes.default(_rows(lower, moved), heights, 1)
            beside = [before]
        done.append(aten.cat.default([*beside, top, right], 2))
        lower = bottom if lower is None else aten.cat.default([lower, bottom], 2)
        kept, order = aten.split_with_sizes.default(order, heights, 1)
        came.append(kept)
    if rows > steps:
        done.append(lower)
        came.append(order)
    return aten.cat.default(done, 1), pivots, aten.cat.default(came, 1)


def _factor_call(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """LU, pivots and info as eager lays them out, and the order of the rows, folded."""
    batch = batch_shape(A)
    factors, pivots, order = _factored(folded(A))
    info = first_set(aten.eq.Scalar(aten.diagonal.default(factors, 0, 1, 2), 0))
    return column_major(factors, batch), unfolded(pivots, batch), unfolded(info, batch), order


def _check_pivot(pivot: bool, A: Tensor) -> None:
    if not pivot and A.numel():
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")


@rule("aten.linalg_lu_factor_ex.default", recorded=True)
def _linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    if A.dim() < 2:
        raise RuntimeError(f"torch.lu_factor: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead")
    check_kernel("lu_cpu", A, empty=False)
    _check_pivot(pivot, A)
    factors, pivots, info, _ = _factor_call(A)
    if check_errors:
        aten._linalg_check_errors.default(info, "torch.linalg.lu_factor_ex", is_matrix=A.dim() == 2)
    return factors, pivots, info


def _order_of(pivots: Tensor, rows: int) -> Tensor:
    """Where each row comes from, ``[Q, rows, 1]``, when the exchanges ``[Q, k]`` are done one after the other: 5 calls each."""
    batch, steps = pivots.shape
    rest = aten.expand.default(arange(0, rows, pivots), [batch, rows])
    if steps == 0 or rows == 0:
        return aten.unsqueeze.default(rest, 2)  # type: ignore[no-any-return]
    places = aten.sub.Tensor(aten._to_copy.default(pivots, dtype=torch.int64), arange(1, steps + 1, pivots))
    index = arange(0, rows, pivots)
    done = []
    for step, place in enumerate(aten.split_with_sizes.default(places, [1] * steps, 1)):
        left = rows - step
        done.append(aten.gather.default(rest, 1, place))
        if left == 1:
            return aten.unsqueeze.default(aten.cat.default(done, 1), 2)  # type: ignore[no-any-return]
        first, rest = aten.split_with_sizes.default(rest, [1, left - 1], 1)
        rest = aten.where.self(aten.eq.Tensor(aten.slice.Tensor(index, 0, 1, left), place), first, rest)
    return aten.unsqueeze.default(aten.cat.default([*done, rest], 1), 2)  # type: ignore[no-any-return]


def _triangles(factors: Tensor, batch: Sequence[int]) -> tuple[Tensor, Tensor]:
    steps = min(factors.shape[1:])
    lower = triangle(cut(factors, 2, 0, steps), upper=False, unit=True)
    upper = triangle(cut(factors, 1, 0, steps), upper=True, unit=False)
    return _row_major(lower, batch), _row_major(upper, batch)


def _row_major(x: Tensor, batch: Sequence[int]) -> Tensor:
    if not x.is_contiguous():
        x = aten.clone.default(x, memory_format=torch.contiguous_format)
    return unfolded(x, batch)


def _permutation(order: Tensor, like: Tensor, batch: Sequence[int]) -> Tensor:
    """The matrix that takes the rows back to where they came from."""
    rows = order.size(1)
    came = aten.permute.default(order, [0, 2, 1])
    hits = aten.eq.Tensor(came, aten.unsqueeze.default(arange(0, rows, like), 1))
    return unfolded(aten._to_copy.default(hits, dtype=like.dtype, memory_format=torch.contiguous_format), batch)


@rule("aten.linalg_lu.default", recorded=True)
def _linalg_lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    if A.dim() < 2:
        raise RuntimeError(f"linalg.lu: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead")
    check_kernel("lu_cpu", A, empty=False)
    _check_pivot(pivot, A)
    batch = batch_shape(A)
    factors, _, order = _factored(folded(A))
    none = None if pivot else aten.empty.memory_format([0], dtype=A.dtype, device=A.device)
    return (_permutation(order, A, batch) if none is None else none, *_triangles(factors, batch))


@rule("aten.lu_unpack.default", recorded=True)
def _lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    if LU_data.dim() < 2:
        raise RuntimeError(f"torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: {list(LU_data.shape)} instead")
    if unpack_pivots and LU_pivots.dtype is not torch.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n"
            "Note: this function is intended to be used with the output produced by torch.linalg.lu_factor"
        )
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


# -- what follows from the factors --------------------------------------------------------------------------------


def _solved(factors: Tensor, order: Tensor, right: Tensor, *, turned: bool) -> Tensor:
    """The solution of ``A X = right``, or with `turned` of ``A^T X = right``, from the factors of `A`."""
    if not turned:
        lower = solve_triangular(factors, _rows(right, order), upper=False, unit=True)
        return solve_triangular(factors, lower, upper=True)
    factors = transposed(factors)
    upper = solve_triangular(factors, right, upper=False)
    lower = solve_triangular(factors, upper, upper=True, unit=True)
    return _rows(lower, aten.sort.default(order, 1)[1])


@rule("aten.linalg_lu_solve.default", recorded=True)
def _linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    name = "linalg.lu_solve"
    check_floating(name, LU, half=False)
    if pivots.dtype is not torch.int32:
        raise RuntimeError(f"{name}: pivots should be a Tensor of scalar type torch.int32")
    check_square(name, LU, "LU")
    check_system(name, LU, B, left)
    if LU.size(-1) != pivots.size(-1):
        raise RuntimeError(f"{name}: Number of pivots per batch should be same as the dimension of the matrix")
    if B.numel():
        check_kernel("lu_solve_cpu", LU)
    batch = broadcast_shapes(batch_shape(B), batch_shape(LU))
    rows = LU.size(-1)
    own = batch_shape(LU)
    order = _order_of(aten.reshape.default(pivots, [math.prod(own), rows]), rows)
    return _answer(LU, unfolded(order, own), B, batch, left=left, adjoint=adjoint)


def _answer(
    factors: Tensor, order: Tensor, right: Tensor, batch: Sequence[int], *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Give the result eager's strides: column-major, or row by row for an unknown on the left."""
    factors, order, right = folded(factors, batch), folded(order, batch), folded(right, batch)
    if adjoint:
        factors = conjugate(factors)
    if left:
        return column_major(_solved(factors, order, right, turned=adjoint), batch)
    return _row_major(transposed(_solved(factors, order, transposed(right), turned=not adjoint)), batch)


@rule("aten._linalg_solve_ex.default", recorded=True)
def _linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    name = "linalg.solve"
    check_floating(name, A, half=False)
    if A.dtype is not B.dtype:
        first, second = scalar_type_name(A.dtype), scalar_type_name(B.dtype)
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {first} and B of type {second} instead"
        )
    check_square(name, A)
    vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and list(B.shape) == list(A.shape[:-1]))
    right = aten.unsqueeze.default(B, -1) if vector else B
    check_system(name, A, right, left)
    check_kernel("lu_cpu", A, empty=False)
    factors, pivots, info, order = _factor_call(A)
    if check_errors:
        aten._linalg_check_errors.default(info, "torch.linalg.solve_ex", is_matrix=A.dim() == 2)
    batch = broadcast_shapes(batch_shape(right), batch_shape(A))
    result = _answer(factors, unfolded(order, batch_shape(A)), right, batch, left=left)
    if vector:
        result = aten.squeeze.dim(result, -1)
        if result.dim() > 1:  # strides as if the batch of vectors were a matrix
            result = column_major(folded(result), batch_shape(result))
    return result, factors, pivots, info


@rule("aten.linalg_inv_ex.default", recorded=True)
def _linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    name = "linalg.inv"
    check_square(name, A)
    check_floating(name, A, half=True)
    batch = batch_shape(A)
    factors, _, info, order = _factor_call(A)
    if check_errors:
        aten._linalg_check_errors.default(info, "linalg.inv_ex", is_matrix=A.dim() == 2)
    return _answer(factors, unfolded(order, batch), eye(A.size(-1), A), batch), info


def _factors_of_determinant(A: Tensor) -> tuple[Tensor, Tensor]:
    """The factors that eager keeps for the gradient: of the transposed matrix where that is the one that lies column by column."""
    factors, pivots, _, _ = _factor_call(transposed(A) if A.is_contiguous() and not A.is_complex() else A)
    return factors, pivots


def _parity(pivots: Tensor) -> Tensor:
    """1 for an even permutation, -1 for an odd one."""
    moved = aten.ne.Tensor(pivots, arange(1, pivots.size(-1) + 1, pivots))
    odd = aten.fmod.Scalar(aten.sum.dim_IntList(moved, [-1], dtype=torch.int64), 2)
    return aten.add.Scalar(aten.mul.Scalar(odd, -2), 1)  # type: ignore[no-any-return]


@rule("aten._linalg_det.default", recorded=True)
def _linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    name = "linalg.det"
    check_floating(name, A, half=False)
    check_square(name, A)
    check_kernel("lu_cpu", A, empty=False)
    factors, pivots = _factors_of_determinant(A)
    product = aten.prod.dim_int(aten.diagonal.default(factors, 0, -2, -1), -1)
    return aten.mul.Tensor(product, _parity(pivots)), factors, pivots


@rule("aten._linalg_slogdet.default", recorded=True)
def _linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    name = "linalg.slogdet"
    check_square(name, A)
    check_floating(name, A, half=True)
    factors, pivots = _factors_of_determinant(A)
    diagonal = aten.diagonal.default(factors, 0, -2, -1)
    sign = aten.mul.Tensor(aten.prod.dim_int(aten.sgn.default(diagonal), -1), _parity(pivots))
    size = aten.sum.dim_IntList(aten.log.default(aten.abs.default(diagonal)), [-1])
    return sign, size, factors, pivots
