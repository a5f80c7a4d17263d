"""Batches of matrices: strides and masks, and triangular systems solved by blocks, used by every factorization.

Batches are folded to ``[Q, m, n]``. Everything is matrix products, elementwise calls and index arithmetic: no call reads data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import functional_trace_active
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.eager.layouts import in_format
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.rules.wide_dtype import wide_of

__all__ = [
    "LAPACK_DTYPES",
    "Joins",
    "adjoint",
    "arange",
    "batch_shape",
    "column_major",
    "conjugate",
    "cut",
    "divided",
    "eye",
    "first_set",
    "folded",
    "inverse_triangular",
    "inverted",
    "joined",
    "joins",
    "lifted",
    "minus_product",
    "pivot_size",
    "plus_product",
    "product",
    "real_part",
    "contiguous_batch",
    "reflection",
    "single",
    "solve_triangular",
    "transposed",
    "triangle",
    "unfolded",
    "unreadable",
    "unstacked",
    "whole_batch",
]

aten = torch.ops.aten

#: The dtypes for which eager factorizes matrices.
LAPACK_DTYPES = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})

#: Rows of a diagonal block that substitution inverts. The condition number of a triangular matrix can grow like ``2 ** rows``, and
#: one step of refinement corrects an inverse only while the condition number is below ``1 / eps``.
_LEAF = {torch.float32: 16, torch.complex64: 16, torch.float64: 32, torch.complex128: 32}

#: Rows of a diagonal block that `inverse_triangular` inverts with masks. Larger blocks are joined by products of their own size.
_MASKED = 64

#: From this size on, `_inverted_by_halves` inverts blocks by halves.
_HALVED = 32

#: Up to this size a system is solved row by row. Blocks would take as many calls, and only substitution by rows gives LAPACK's
#: infinities for a zero on the diagonal.
_FEW = 12


def transposed(x: Tensor) -> Tensor:
    """Return the matrices transposed, as a view."""
    dims = list(range(x.dim()))
    return aten.permute.default(x, [*dims[:-2], dims[-1], dims[-2]])  # type: ignore[no-any-return]


def conjugate(x: Tensor) -> Tensor:
    return aten._conj_physical.default(x) if x.is_complex() else x


def adjoint(x: Tensor) -> Tensor:
    return conjugate(transposed(x))


def folded(x: Tensor, batch: Sequence[int] | None = None) -> Tensor:
    """Reshape ``[*batch, m, n]`` to ``[Q, m, n]``; with `batch`, broadcast to it first."""
    rows, columns = x.shape[-2:]
    if batch is not None and list(x.shape[:-2]) != list(batch):
        x = aten.expand.default(x, [*batch, rows, columns])
    if x.dim() == 3:
        return x
    return aten.reshape.default(x, [math.prod(x.shape[:-2]), rows, columns])  # type: ignore[no-any-return]


def unfolded(x: Tensor, batch: Sequence[int]) -> Tensor:
    """Return the inverse of `folded`, for results of any rank."""
    return x if len(batch) == 1 else aten.reshape.default(x, [*batch, *x.shape[1:]])


def batch_shape(x: Tensor) -> list[int]:
    return list(x.shape[:-2])


def contiguous_batch(x: Tensor, batch: Sequence[int]) -> Tensor:
    """Return ``[Q, m, n]`` as contiguous ``[*batch, m, n]``."""
    if not x.numel():  # contiguous whatever its strides are
        return unfolded(aten.empty.memory_format(x.shape, dtype=x.dtype, device=x.device), batch)
    return unfolded(in_format(x, torch.contiguous_format), batch)


def pivot_size(x: Tensor) -> Tensor:
    """Return the magnitude by which LAPACK chooses a pivot: for complex numbers, the sum of the magnitudes of the parts."""
    if not x.is_complex():
        return aten.abs.default(x)  # type: ignore[no-any-return]
    return aten.sum.dim_IntList(aten.abs.default(aten.view_as_real.default(x)), [-1])  # type: ignore[no-any-return]


def unreadable(x: Tensor) -> bool:
    """Return whether the call is traced, or has a tensor without data."""
    return functional_trace_active() or isinstance(x, FakeTensor)


def no_end(steps: int) -> EagerDecompError:
    """Return the error of an iteration that did not end although its last step is far beyond what right kernels need."""
    return wrong_numbers(f"did not end after {steps} steps")


def wrong_numbers(what: str) -> EagerDecompError:
    """Return the error of an iteration that does something which it cannot do with right kernels."""
    return EagerDecompError(
        f"the iteration of this decomposition {what}. A kernel of the backend returns wrong numbers. "
        "Find it with: eagerdecomp conformance MODULE:NAME"
    )


def column_major(x: Tensor, batch: Sequence[int]) -> Tensor:
    """Return ``[Q, m, n]`` as ``[*batch, m, n]`` with column-major matrices, as in LAPACK's results."""
    return transposed(contiguous_batch(transposed(x), batch))


def arange(start: int, end: int, like: Tensor) -> Tensor:
    return aten.arange.start_step(start, end, 1, device=like.device)  # type: ignore[no-any-return]


def cut(x: Tensor, dim: int, start: int, end: int) -> Tensor:
    """Return ``x[..., start:end, ...]``, or `x` itself if that is all of it."""
    if start == 0 and end == x.size(dim):
        return x
    return aten.slice.Tensor(x, dim, start, end)  # type: ignore[no-any-return]


def eye(size: int, like: Tensor) -> Tensor:
    index = arange(0, size, like)
    return aten._to_copy.default(aten.eq.Tensor(aten.unsqueeze.default(index, 1), index), dtype=like.dtype)  # type: ignore[no-any-return]


def triangle(x: Tensor, *, upper: bool, unit: bool, strict: bool = False) -> Tensor:
    """Return the triangle of ``[.., m, n]`` with zeros elsewhere. `unit` sets the diagonal to one, `strict` to zero."""
    column, row = arange(0, x.size(-1), x), aten.unsqueeze.default(arange(0, x.size(-2), x), 1)
    beyond = aten._to_copy.default(aten.eq.Tensor(row, column), dtype=x.dtype) if unit else number_like(x, 0.0)
    if unit or strict:
        kept = aten.lt.Tensor(row, column) if upper else aten.gt.Tensor(row, column)
    else:
        kept = aten.le.Tensor(row, column) if upper else aten.ge.Tensor(row, column)
    return aten.where.self(kept, x, beyond)  # type: ignore[no-any-return]


def single(x: Tensor) -> Tensor:
    """Return ``[1, m, n]`` as ``[m, n]``, for which `addmm` subtracts a product in one call. Return larger batches unchanged."""
    return aten.squeeze.dim(x, 0) if x.size(0) == 1 else x


def whole_batch(x: Tensor) -> Tensor:
    """Return the inverse of `single`."""
    return aten.unsqueeze.default(x, 0) if x.dim() == 2 else x


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate the parts; return a single part itself."""
    return parts[0] if len(parts) == 1 else aten.cat.default(list(parts), dim)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a b`` for matrices or batches."""
    return aten.mm.default(a, b) if a.dim() == 2 else aten.bmm.default(a, b)  # type: ignore[no-any-return]


def minus_product(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return ``x - a b`` for matrices or batches."""
    if x.dim() == 2:
        return aten.addmm.default(x, a, b, alpha=-1)  # type: ignore[no-any-return]
    outer = a.size(-1) == 1
    return aten.sub.Tensor(x, aten.mul.Tensor(a, b) if outer else aten.bmm.default(a, b))  # type: ignore[no-any-return]


def plus_product(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return ``x + a b`` for matrices or batches."""
    if x.dim() == 2:
        return aten.addmm.default(x, a, b)  # type: ignore[no-any-return]
    outer = a.size(-1) == 1
    return aten.add.Tensor(x, aten.mul.Tensor(a, b) if outer else aten.bmm.default(a, b))  # type: ignore[no-any-return]


class Joins(NamedTuple):
    """Constants for the inverses of triangular ``[.., s, s]``, by blocks of doubling size."""

    within: Tensor  #: ``[s, s]``: the entries of the triangle, without its diagonal
    levels: Tensor  #: ``[L, s, s]``: of these, the entries that join two blocks of ``2**level`` rows
    diagonal: Tensor  #: ``[s, s]``
    identity: Tensor  #: ``[s, s]``, numbers
    zero: Tensor


def joins(size: int, like: Tensor, *, upper: bool) -> Joins:
    """Return the constants for a size; they depend on no data."""
    column = arange(0, size, like)
    row = aten.unsqueeze.default(column, 1)
    apart = aten.bitwise_xor.Tensor(row, column)
    within = aten.gt.Tensor(column, row) if upper else aten.lt.Tensor(column, row)
    # The highest bit of `apart` is the size of the blocks that an entry joins.
    highest = aten.floor.default(aten.log2.default(aten._to_copy.default(apart, dtype=torch.float32)))
    level = aten.unsqueeze.default(aten.unsqueeze.default(arange(0, (size - 1).bit_length(), like), 1), 1)
    levels = aten.logical_and.default(aten.eq.Tensor(highest, level), within)
    diagonal = aten.eq.Scalar(apart, 0)
    return Joins(within, levels, diagonal, aten._to_copy.default(diagonal, dtype=like.dtype), number_like(like, 0.0))


def inverted(blocks: Tensor, known: Joins, *, unit: bool) -> Tensor:
    """Return the inverses of triangular ``[.., s, s]``, by blocks of doubling size, starting from the diagonal.

    The inverse of ``[[L1, 0], [M, L2]]`` is ``[[X1, 0], [-X2 M X1, X2]]`` with inverses ``X1`` and ``X2`` (Higham, Accuracy and
    Stability of Numerical Algorithms, section 14.2). With all blocks of one size on the diagonal of `X`, and all their `M` in one
    matrix, this is ``X - X M X``. Each computed entry is an entry of an inverse, so no intermediate is larger than the result.
    The other triangle is not read, nor is the diagonal with `unit`.
    """
    size = blocks.size(-1)
    inverse = known.identity
    if not unit:
        turn = aten.reciprocal.default(aten.diagonal.default(blocks, 0, -2, -1))
        inverse = aten.where.self(known.diagonal, aten.unsqueeze.default(turn, -2), known.zero)
    if size == 1:
        return aten.expand.default(inverse, blocks.shape)  # type: ignore[no-any-return]
    count = known.levels.size(0)
    masks = known.levels if blocks.dim() == 2 else aten.unsqueeze.default(known.levels, 1)
    joining = aten.where.self(masks, blocks, known.zero)
    joining = aten.reshape.default(joining, [-1, *joining.shape[-(blocks.dim() - 1) :]])
    for level, beside in enumerate(aten.split_with_sizes.default(joining, [joining.size(0) // count] * count)):
        if level == 0:
            if not unit:
                beside = aten.mul.Tensor(
                    aten.mul.Tensor(beside, aten.unsqueeze.default(turn, -1)), aten.unsqueeze.default(turn, -2)
                )
            inverse = aten.sub.Tensor(inverse, beside)
        else:
            inverse = minus_product(inverse, inverse, product(beside, inverse))
    return inverse


def _diagonal_blocks(x: Tensor, size: int) -> Tensor:
    """Return the ``[count, s, s]`` blocks on the diagonal of ``[n, n]``; for a batch, ``[Q, count, s, s]``."""
    count = x.size(-1) // size
    if count == 1:
        return aten.unsqueeze.default(x, -3)  # type: ignore[no-any-return]
    tiles = aten.reshape.default(x, [*x.shape[:-2], count, size, count, size])
    found = aten.diagonal.default(tiles, 0, -4, -2)
    dims = list(range(found.dim()))
    return aten.permute.default(found, [*dims[:-3], dims[-1], dims[-3], dims[-2]])  # type: ignore[no-any-return]


def _extended(matrix: Tensor, size: int) -> Tensor:
    """Return ``[.., n, n]`` extended to ``[.., size, size]``, with an identity beyond the matrix."""
    before = matrix.size(-1)
    if size == before:
        return matrix
    spare = size - before
    padded = aten.constant_pad_nd.default(matrix, [0, spare, 0, spare])
    index = arange(0, size, matrix)
    diagonal = aten.where.self(aten.ge.Scalar(index, before), index, number_like(index, -1))
    ones = aten.eq.Tensor(aten.unsqueeze.default(diagonal, 1), index)
    return aten.where.self(ones, number_like(padded, 1.0), padded)  # type: ignore[no-any-return]


def inverse_triangular(matrix: Tensor, *, upper: bool, unit: bool = False, refine: bool = True) -> Tensor:
    """Return the inverse of triangular ``[Q, n, n]``. The other triangle is not read.

    The diagonal blocks of at most `_MASKED` rows are inverted first, all at once, then joined in pairs (see `inverted`). With
    `refine`, a step of Newton's iteration (Higham, section 14.5) makes the result as accurate as substitution.
    """
    size, batch = matrix.size(-1), matrix.size(0)
    if matrix.numel() == 0:
        return aten.clone.default(matrix)  # type: ignore[no-any-return]
    levels = max(0, math.ceil(math.log2(size / _MASKED)))
    width = -(-size // 2**levels)
    whole = width * 2**levels
    padded = _extended(matrix, whole)
    blocks = aten.reshape.default(_diagonal_blocks(padded, width), [-1, width, width])
    inverse = inverted(blocks, joins(width, matrix, upper=upper), unit=unit)
    negative = aten.neg.default(padded) if levels else padded
    while width < whole:
        count = whole // (2 * width)
        pairs = aten.reshape.default(inverse, [batch * count, 2, width, width])
        first, second = (aten.select.int(pairs, 1, at) for at in (0, 1))
        rows, columns = ((0, width), (width, 2 * width)) if upper else ((width, 2 * width), (0, width))
        joined = cut(cut(_diagonal_blocks(negative, 2 * width), -2, *rows), -1, *columns)
        joined = aten.reshape.default(joined, [batch * count, width, width])
        before, after = (first, second) if upper else (second, first)
        beside = aten.bmm.default(aten.bmm.default(before, joined), after)
        if upper:
            above = aten.cat.default([first, beside], 2)
            below = aten.constant_pad_nd.default(second, [width, 0])
        else:
            above = aten.constant_pad_nd.default(first, [0, width])
            below = aten.cat.default([beside, second], 2)
        inverse = aten.cat.default([above, below], 1)
        width *= 2
    inverse = cut(cut(inverse, 1, 0, size), 2, 0, size)
    if refine:
        mapped = aten.bmm.default(triangle(matrix, upper=upper, unit=unit), inverse)
        inverse = aten.add.Tensor(inverse, aten.bmm.default(inverse, aten.sub.Tensor(eye(size, matrix), mapped)))
    return inverse


def solve_triangular(matrix: Tensor, right: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """Solve a triangular system ``[Q, n, n]`` for ``[Q, n, k]``. The other triangle is not read.

    Few rows are solved one by one. More rows are solved by blocks (Higham, section 8.4): each block is solved by its inverse and,
    unless float32 is solved in float64, one step of refinement. This is as accurate as substitution by rows if the block's
    condition number is below ``1 / eps``. A single matrix takes 3 kernel calls per block of 32 rows, 5 with refinement, and 25
    calls for the inverses.
    """
    size, given = matrix.size(1), right.dtype
    if not (matrix.numel() and right.numel()):
        return aten.clone.default(right)  # type: ignore[no-any-return]
    if size <= _FEW:
        return _by_rows(matrix, right, upper=upper, unit=unit)
    wide = wide_of(matrix.dtype)
    refine = wide is matrix.dtype
    if not refine:
        matrix, right = (aten._to_copy.default(x, dtype=wide) for x in (matrix, right))
    found = whole_batch(_by_blocks(single(matrix), single(right), upper=upper, unit=unit, refine=refine))
    return found if refine else aten._to_copy.default(found, dtype=given)


def _by_blocks(matrix: Tensor, right: Tensor, *, upper: bool, unit: bool, refine: bool) -> Tensor:
    size = matrix.size(-1)
    leaf = min(size, _LEAF[matrix.dtype])
    starts = list(range(0, size, leaf))
    blocks = _diagonal_blocks(_extended(matrix, leaf * len(starts)), leaf)
    if matrix.dim() == 3:
        blocks = aten.permute.default(blocks, [1, 0, 2, 3])
    blocks = aten.reshape.default(blocks, [-1, leaf, leaf])
    inverses = unstacked(_inverted_by_halves(blocks, upper=upper, unit=unit), matrix)
    triangles = unstacked(triangle(blocks, upper=upper, unit=unit), matrix) if refine else ()
    columns = aten.split_with_sizes.default(matrix, [min(leaf, size - start) for start in starts], -1)
    found: dict[int, Tensor] = {}
    rest = right
    order = list(reversed(range(len(starts)))) if upper else list(range(len(starts)))
    for number in order:
        start = starts[number]
        rows = min(leaf, size - start)
        here = rest if rows == size else aten.split_with_sizes.default(rest, [start, rows, size - start - rows], -2)[1]
        inverse = cut(cut(inverses[number], -2, 0, rows), -1, 0, rows)
        found[number] = product(inverse, here)
        if refine:
            missed = minus_product(here, cut(cut(triangles[number], -2, 0, rows), -1, 0, rows), found[number])
            found[number] = plus_product(found[number], inverse, missed)
        if number != order[-1]:
            # Rows solved before are updated too, without effect: they are not used again.
            rest = minus_product(rest, columns[number], found[number])
    return joined([found[number] for number in range(len(starts))], -2)


def _inverted_by_halves(blocks: Tensor, *, upper: bool, unit: bool) -> Tensor:
    """Return the inverses of triangular ``[P, s, s]``: of both halves of a diagonal at once, then of what is beside them.

    For 32 rows this takes two thirds of the time of `inverted`, whose products have the size of a block at each level.
    """
    count, size = blocks.shape[:2]
    if size < _HALVED or size % 2:
        return inverted(blocks, joins(size, blocks, upper=upper), unit=unit)
    half = size // 2
    (first, above), (below, second) = (
        aten.split_with_sizes.default(row, [half, half], 2) for row in aten.split_with_sizes.default(blocks, [half, half], 1)
    )
    both = _inverted_by_halves(aten.cat.default([first, second]), upper=upper, unit=unit)
    first, second = aten.split_with_sizes.default(both, [count, count])
    if upper:
        beside = aten.bmm.default(first, aten.bmm.default(above, aten.neg.default(second)))
        rows = aten.cat.default([first, beside], 2), aten.constant_pad_nd.default(second, [half, 0])
    else:
        beside = aten.bmm.default(second, aten.bmm.default(below, aten.neg.default(first)))
        rows = aten.constant_pad_nd.default(first, [0, half]), aten.cat.default([beside, second], 2)
    return aten.cat.default(rows, 1)  # type: ignore[no-any-return]


def unstacked(stack: Tensor, matrix: Tensor) -> Sequence[Tensor]:
    """Return the blocks of `stack`, with the rank of `matrix`. The blocks of a batch are contiguous."""
    if matrix.dim() == 2:
        rows = stack.size(-2)
        flat = aten.reshape.default(stack, [-1, stack.size(-1)])
        return aten.split_with_sizes.default(flat, [rows] * stack.size(0), 0)  # type: ignore[no-any-return]
    batch = matrix.size(0)
    return aten.split_with_sizes.default(stack, [batch] * (stack.size(0) // batch))  # type: ignore[no-any-return]


def _by_rows(matrix: Tensor, right: Tensor, *, upper: bool, unit: bool) -> Tensor:
    """Solve by substitution, 4 calls per row. A zero on the diagonal makes its row and all later rows infinite or NaN."""
    size = matrix.size(1)
    columns = aten.split_with_sizes.default(matrix, [1] * size, 2)
    turns: Sequence[Tensor] = ()
    if not unit:
        turn = aten.unsqueeze.default(aten.diagonal.default(matrix, 0, 1, 2), 2)
        if turn.is_complex():  # LAPACK divides by its inverse, and that of zero is NaN in both parts
            turn = aten.reciprocal.default(aten.where.self(aten.eq.Scalar(turn, 0), number_like(turn, math.nan), turn))
        turns = aten.split_with_sizes.default(turn, [1] * size, 1)
    found: list[Tensor] = []
    rest = right
    order = list(reversed(range(size))) if upper else list(range(size))
    for row in order:
        here = cut(rest, 1, row, row + 1)
        if not unit:
            here = aten.mul.Tensor(here, turns[row]) if here.is_complex() else aten.div.Tensor(here, turns[row])
        found.append(here)
        if row != order[-1]:
            # Rows solved before are updated too, without effect: they are not used again.
            rest = aten.sub.Tensor(rest, aten.mul.Tensor(columns[row], here))
    if size == 1:
        return found[0] if not unit else aten.clone.default(right)
    return aten.cat.default(found[::-1] if upper else found, 1)  # type: ignore[no-any-return]


def real_part(x: Tensor) -> Tensor:
    return aten.select.int(aten.view_as_real.default(x), -1, 0) if x.is_complex() else x


def lifted(real: Tensor, like: Tensor) -> Tensor:
    """Return real numbers in the dtype of `like`."""
    return real if real.dtype is like.dtype else aten._to_copy.default(real, dtype=like.dtype)


def divided(x: Tensor, real: Tensor) -> Tensor:
    """Divide `x` by real numbers, part by part: complex division gives NaN for subnormal divisors."""
    if not x.is_complex():
        return aten.div.Tensor(x, real)  # type: ignore[no-any-return]
    parts = aten.div.Tensor(aten.view_as_real.default(x), aten.unsqueeze.default(real, -1))
    return aten.view_as_complex.default(parts)  # type: ignore[no-any-return]


def _squared_length(x: Tensor) -> Tensor:
    """Return the sum of the squared magnitudes of ``[Q, r, 1]``, as a real ``[Q, 1, 1]``."""
    parts = aten.view_as_real.default(x) if x.is_complex() else x
    total = aten.sum.dim_IntList(aten.mul.Tensor(parts, parts), [1, 3] if x.is_complex() else [1], not x.is_complex())
    return aten.unsqueeze.default(total, 1) if x.is_complex() else total  # type: ignore[no-any-return]


def reflection(column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute LAPACK's ``larfg`` for ``[Q, r, 1]``: return the reflected value, the vector below its leading 1, and `tau`.

    The reflection maps the column to a real number above zeros. If the column has this form already, `tau` is 0. The largest entry
    is divided out before squaring.
    """
    rows = column.size(1)
    zero, one = number_like(column, 0.0), number_like(column, 1.0)
    top = aten.amax.default(aten.abs.default(column), [1], True)
    top = aten.where.self(aten.eq.Scalar(top, 0), number_like(top, 1.0), top)
    given = aten.slice.Tensor(column, 1, 0, 1)
    head, tail = aten.split_with_sizes.default(divided(column, top), [1, rows - 1], 1)
    real = real_part(head)
    rest = _squared_length(tail)
    length = aten.sqrt.default(aten.add.Tensor(rest, _squared_length(head)))
    still = aten.eq.Scalar(rest, 0)
    if column.is_complex():
        imaginary = aten.select.int(aten.view_as_real.default(head), -1, 1)
        still = aten.logical_and.default(still, aten.eq.Scalar(imaginary, 0))
    beta = lifted(aten.where.self(aten.ge.Scalar(real, 0), aten.neg.default(length), length), column)
    gap = aten.sub.Tensor(head, beta)
    vector = aten.div.Tensor(tail, aten.where.self(still, one, gap))
    tau = aten.where.self(still, zero, aten.neg.default(aten.div.Tensor(gap, aten.where.self(still, one, beta))))
    return aten.where.self(still, given, aten.mul.Tensor(beta, lifted(top, beta))), vector, tau


def first_set(bad: Tensor) -> Tensor:
    """Return LAPACK's `info` for ``[Q, n]`` flags: the position of the first set flag, counted from 1, or 0."""
    count = bad.size(1)
    if count == 0:
        return aten.full.default([bad.size(0)], 0, dtype=torch.int32, device=bad.device)  # type: ignore[no-any-return]
    places = arange(1, count + 1, bad)
    none = aten.full.default([], count + 1, dtype=torch.int64, device=bad.device)
    first = aten.amin.default(aten.where.self(bad, places, none), [1])
    return aten._to_copy.default(aten.remainder.Scalar(first, count + 1), dtype=torch.int32)  # type: ignore[no-any-return]
