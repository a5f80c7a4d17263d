"""Batches of matrices: layouts and masks, and triangular systems solved by blocks, which every factorization leans on.

Batches are folded to ``[Q, m, n]``. All is made of matrix products, elementwise calls and index arithmetic: no call reads data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from eagerdecomp.eager.messages import not_implemented, scalar_type_name
from eagerdecomp.eager.promotion import HALF, number_like

__all__ = [
    "LEAF",
    "adjoint",
    "arange",
    "batch_shape",
    "check_floating",
    "check_kernel",
    "check_square",
    "check_system",
    "column_major",
    "conjugate",
    "cut",
    "divided",
    "eye",
    "first_set",
    "folded",
    "lifted",
    "real_part",
    "reflection",
    "solve_triangular",
    "transposed",
    "triangle",
    "unfolded",
]

aten = torch.ops.aten

_REAL = (torch.float32, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)

#: Rows of a diagonal block. It is inverted, and inverses lose accuracy as their condition grows, at worst like ``2 ** LEAF``.
LEAF = 16

#: Rows up to which a system is solved row by row: about as many calls as by blocks, and what a zero on the diagonal makes of an
#: answer is then LAPACK's.
_FEW = 12


def transposed(x: Tensor) -> Tensor:
    """The matrices transposed, as a view."""
    dims = list(range(x.dim()))
    return aten.permute.default(x, [*dims[:-2], dims[-1], dims[-2]])  # type: ignore[no-any-return]


def conjugate(x: Tensor) -> Tensor:
    return aten._conj_physical.default(x) if x.is_complex() else x


def adjoint(x: Tensor) -> Tensor:
    return conjugate(transposed(x))


def folded(x: Tensor, batch: Sequence[int] | None = None) -> Tensor:
    """``[*batch, m, n]`` as ``[Q, m, n]``; with `batch`, broadcast to it first."""
    rows, columns = x.shape[-2:]
    if batch is not None and list(x.shape[:-2]) != list(batch):
        x = aten.expand.default(x, [*batch, rows, columns])
    if x.dim() == 3:
        return x
    return aten.reshape.default(x, [math.prod(x.shape[:-2]), rows, columns])  # type: ignore[no-any-return]


def unfolded(x: Tensor, batch: Sequence[int]) -> Tensor:
    """The inverse of `folded`, for results of any rank."""
    return x if len(batch) == 1 else aten.reshape.default(x, [*batch, *x.shape[1:]])


def batch_shape(x: Tensor) -> list[int]:
    return list(x.shape[:-2])


def column_major(x: Tensor, batch: Sequence[int]) -> Tensor:
    """``[Q, m, n]`` as ``[*batch, m, n]`` with each matrix lying column by column, as LAPACK leaves it."""
    turned = transposed(x)
    if not turned.is_contiguous():
        turned = aten.clone.default(turned, memory_format=torch.contiguous_format)
    return transposed(unfolded(turned, batch))


def arange(start: int, end: int, like: Tensor) -> Tensor:
    return aten.arange.start_step(start, end, 1, device=like.device)  # type: ignore[no-any-return]


def cut(x: Tensor, dim: int, start: int, end: int) -> Tensor:
    """``x[..., start:end, ...]``; all of it is itself."""
    if start == 0 and end == x.size(dim):
        return x
    return aten.slice.Tensor(x, dim, start, end)  # type: ignore[no-any-return]


def eye(size: int, like: Tensor) -> Tensor:
    index = arange(0, size, like)
    return aten._to_copy.default(aten.eq.Tensor(aten.unsqueeze.default(index, 1), index), dtype=like.dtype)  # type: ignore[no-any-return]


def triangle(x: Tensor, *, upper: bool, unit: bool) -> Tensor:
    """The triangle of ``[Q, m, n]`` with zeros beyond it; `unit` puts ones on its diagonal."""
    column, row = arange(0, x.size(2), x), aten.unsqueeze.default(arange(0, x.size(1), x), 1)
    if unit:
        beyond = aten._to_copy.default(aten.eq.Tensor(row, column), dtype=x.dtype)
        kept = aten.lt.Tensor(row, column) if upper else aten.gt.Tensor(row, column)
    else:
        beyond = number_like(x, 0.0)
        kept = aten.le.Tensor(row, column) if upper else aten.ge.Tensor(row, column)
    return aten.where.self(kept, x, beyond)  # type: ignore[no-any-return]


def _inverted(blocks: Tensor) -> Tensor:
    """The inverses of triangular ``[P, s, s]``, from the diagonal on by blocks of twice the size.

    With the inverse `X` of the blocks of one size, ``X + X (I - M X)`` is that of the next, `M` being the matrix cut to its blocks
    of that size: the bracket is nilpotent of order two. Every entry met is one of an inverse, so nothing grows that the result
    does not hold, as the powers of a nilpotent part would.
    """
    size = blocks.size(1)
    index = arange(0, size, blocks)
    apart = aten.bitwise_xor.Tensor(aten.unsqueeze.default(index, 1), index)  # its top bit: the size of block that joins the two
    zero = number_like(blocks, 0.0)
    diagonal = aten.eq.Scalar(apart, 0)
    ones = aten._to_copy.default(diagonal, dtype=blocks.dtype)
    inverse = aten.where.self(
        diagonal, aten.unsqueeze.default(aten.reciprocal.default(aten.diagonal.default(blocks, 0, 1, 2)), 1), zero
    )
    reach = 1
    while reach < size:
        reach *= 2
        joined = blocks if reach >= size else aten.where.self(aten.lt.Scalar(apart, reach), blocks, zero)
        error = aten.sub.Tensor(ones, aten.bmm.default(joined, inverse))
        inverse = aten.add.Tensor(inverse, aten.bmm.default(inverse, error))
    return inverse  # type: ignore[no-any-return]


def solve_triangular(matrix: Tensor, right: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """The ``[Q, n, k]`` that a triangular ``[Q, n, n]`` maps to `right`; the other triangle is not looked at.

    A few rows are solved one by one. More are substituted by blocks of `LEAF`: each is solved by its inverse and one step of
    refinement, which makes the result as good as substitution by rows wherever a block's condition is below ``1 / eps``: 30 calls,
    and 10 for every further block.
    """
    batch, size = matrix.size(0), matrix.size(1)
    if size == 0:
        return aten.clone.default(right)  # type: ignore[no-any-return]
    if size <= _FEW:
        return _by_rows(matrix, right, upper=upper, unit=unit)
    leaf = min(size, LEAF)
    starts = list(range(0, size, leaf))
    # The last block reaches back into the one before, for all to be of one size; the inverse's own corner is what it needs.
    corners = [min(start, size - leaf) for start in starts]
    blocks = [cut(cut(matrix, 1, at, at + leaf), 2, at, at + leaf) for at in corners]
    stack = triangle(blocks[0] if len(blocks) == 1 else aten.cat.default(blocks), upper=upper, unit=unit)
    stacks = (stack, _inverted(stack))
    pairs = list(zip(*(_per_block(x, batch, len(blocks)) for x in stacks), strict=True))
    found: dict[int, Tensor] = {}
    rest = right
    for number in reversed(range(len(starts))) if upper else range(len(starts)):
        start = starts[number]
        end = min(start + leaf, size)
        block, inverse = (cut(cut(x, 1, leaf - (end - start), leaf), 2, leaf - (end - start), leaf) for x in pairs[number])
        lengths = [start, end - start] if upper else [end - start, size - end]
        if 0 in lengths:
            here, rest = rest, rest
        else:
            parts = aten.split_with_sizes.default(rest, lengths, 1)
            here, rest = (parts[1], parts[0]) if upper else (parts[0], parts[1])
        guess = aten.bmm.default(inverse, here)
        missed = aten.sub.Tensor(here, aten.bmm.default(block, guess))
        found[number] = aten.add.Tensor(guess, aten.bmm.default(inverse, missed))
        if 0 not in lengths:
            beside = cut(cut(matrix, 1, *((0, start) if upper else (end, size))), 2, start, end)
            rest = aten.sub.Tensor(rest, aten.bmm.default(beside, found[number]))
    pieces = [found[number] for number in range(len(starts))]
    return pieces[0] if len(pieces) == 1 else aten.cat.default(pieces, 1)


def _by_rows(matrix: Tensor, right: Tensor, *, upper: bool, unit: bool) -> Tensor:
    """Substitution, 4 calls a row. Where the diagonal holds a zero, that row and those found after it are infinite or NaN."""
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
            # Rows that were found before are updated too, for nothing: they are not looked at again.
            rest = aten.sub.Tensor(rest, aten.mul.Tensor(columns[row], here))
    if size == 1:
        return found[0] if not unit else aten.clone.default(right)
    return aten.cat.default(found[::-1] if upper else found, 1)  # type: ignore[no-any-return]


def _per_block(stack: Tensor, batch: int, count: int) -> Sequence[Tensor]:
    return [stack] if count == 1 else aten.split_with_sizes.default(stack, [batch] * count)


def real_part(x: Tensor) -> Tensor:
    return aten.select.int(aten.view_as_real.default(x), -1, 0) if x.is_complex() else x


def lifted(real: Tensor, like: Tensor) -> Tensor:
    """Real numbers in the type of `like`."""
    return real if real.dtype is like.dtype else aten._to_copy.default(real, dtype=like.dtype)


def divided(x: Tensor, real: Tensor) -> Tensor:
    """`x` over real numbers, part by part: the quotient of complex numbers is NaN for a divisor below the normal ones."""
    if not x.is_complex():
        return aten.div.Tensor(x, real)  # type: ignore[no-any-return]
    parts = aten.div.Tensor(aten.view_as_real.default(x), aten.unsqueeze.default(real, -1))
    return aten.view_as_complex.default(parts)  # type: ignore[no-any-return]


def _squared_length(x: Tensor) -> Tensor:
    """The sum of the squares of the sizes of ``[Q, r, 1]``, real, ``[Q, 1, 1]``."""
    parts = aten.view_as_real.default(x) if x.is_complex() else x
    total = aten.sum.dim_IntList(aten.mul.Tensor(parts, parts), [1, 3] if x.is_complex() else [1], not x.is_complex())
    return aten.unsqueeze.default(total, 1) if x.is_complex() else total  # type: ignore[no-any-return]


def reflection(column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LAPACK's `larfg` of ``[Q, r, 1]``: what the reflection makes of it (a real number above zeros), the vector below its leading
    1, and the factor `tau`; a column that is already so has `tau` 0. The largest entry is divided out for the squares.
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
    """LAPACK's `info` of ``[Q, n]`` flags: the first that is set, counted from 1, or 0."""
    count = bad.size(1)
    if count == 0:
        return aten.full.default([bad.size(0)], 0, dtype=torch.int32, device=bad.device)  # type: ignore[no-any-return]
    places = arange(1, count + 1, bad)
    none = aten.full.default([], count + 1, dtype=torch.int64, device=bad.device)
    first = aten.amin.default(aten.where.self(bad, places, none), [1])
    return aten._to_copy.default(aten.remainder.Scalar(first, count + 1), dtype=torch.int32)  # type: ignore[no-any-return]


# -- checks -------------------------------------------------------------------------------------------------------


def check_square(name: str, matrix: Tensor, letter: str = "A") -> None:
    prefix = f"{name}: " if name else ""
    if matrix.dim() < 2:
        raise RuntimeError(f"{prefix}The input tensor {letter} must have at least 2 dimensions.")
    rows, columns = matrix.shape[-2:]
    if rows != columns:
        raise RuntimeError(f"{prefix}{letter} must be batches of square matrices, but they are {rows} by {columns} matrices")


def check_floating(name: str, matrix: Tensor, *, half: bool) -> None:
    if not (matrix.is_floating_point() or matrix.is_complex()):
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {scalar_type_name(matrix.dtype)}")
    if half and (matrix.dtype in HALF or matrix.dtype is torch.complex32):
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {scalar_type_name(matrix.dtype)}")


def check_kernel(kernel: str, matrix: Tensor, *, empty: bool = True) -> None:
    """ATen's refusal of a dtype in a kernel; without `empty` a kernel that tensors without elements do not reach."""
    if matrix.dtype not in _REAL + _COMPLEX and (empty or matrix.numel()):
        raise not_implemented(kernel, matrix.dtype)


def check_system(name: str, matrix: Tensor, right: Tensor, left: bool) -> None:
    if right.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor B must have at least 2 dimensions.")
    if matrix.size(-1) != right.size(-2 if left else -1):
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'}"
            f" ({matrix.size(-2)}x{matrix.size(-1)} and {right.size(-2)}x{right.size(-1)})"
        )
