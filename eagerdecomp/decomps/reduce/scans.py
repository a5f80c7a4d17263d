"""Cumulative sums, products, extremes and log-sum-exps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp.decomps.math.scans import BLOCK, FEW, before, by_doubling, entries_of_blocks, joined, scan, totals_before
from eagerdecomp.decomps.pointwise.log_add_exp import parts_of_complex
from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import HALF, RARE, WIDE_UNSIGNED, in_type, number_like
from eagerdecomp.eager.strides import wrapped_dim
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_float, wide_of

aten = torch.ops.aten


def _accumulated(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which eager's kernels accumulate; on a backend without float64, that of the input."""
    if dtype in HALF:
        return torch.float32
    return wide_of(dtype) if dtype.is_floating_point or dtype.is_complex else dtype


def _is_alone(self: Tensor, dim: int) -> bool:
    """Return whether each element is its own cumulative sum or product."""
    return not self.dim() or not self.numel() or self.size(dim) == 1


def _accumulated_in(self: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """Return the input, contiguous, in the dtype of a cumulative sum or product: int64 for integers. A copy if it is the result."""
    if dtype is None:
        dtype = self.dtype if self.dtype.is_floating_point or self.dtype.is_complex else torch.int64
    if self.numel() and (dtype is torch.bool or dtype in RARE):
        raise Declined
    if dtype is self.dtype and not _is_alone(self, dim):
        return as_contiguous(self)
    return aten._to_copy.default(self, dtype=dtype, memory_format=torch.contiguous_format)  # type: ignore[no-any-return]


# -- sums -----------------------------------------------------------------------------------------------------------------


def _is_refused(self: Tensor, dtype: torch.dtype | None) -> bool:
    """Return whether eager refuses the dtype in which a call accumulates."""
    return bool(self.numel()) and (dtype in WIDE_UNSIGNED | {torch.bool} or (dtype or self.dtype) is torch.complex32)


def _cumsum(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Compute cumsum by a scan, for op sets without it. torch's decomposition sums a table of ``n^2`` elements."""
    if _is_refused(self, dtype):
        return NotImplemented
    dim = wrapped_dim(dim, self.dim())
    x = _accumulated_in(self, dim, dtype)
    if _is_alone(self, dim):
        return x
    return scan(x, dim, aten.add.Tensor, _accumulated(x.dtype), 0)


# -- products -------------------------------------------------------------------------------------------------------------


def _cumprod(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Compute cumprod: integers wrap around, so a scan may multiply them in any order; for floats see `_running_product`."""
    if _is_refused(self, dtype):
        return NotImplemented
    dim = wrapped_dim(dim, self.dim())
    x = _accumulated_in(self, dim, dtype)
    if _is_alone(self, dim):
        return x
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        return scan(x, dim, aten.mul.Tensor, x.dtype, 1)
    return _running_product(x, dim)


class _Bits(NamedTuple):
    """Bit format of a float: the integer dtype of its size, the number of stored significand bits, and the stored exponent of 1."""

    integers: torch.dtype
    digits: int
    one: int


_BITS = {torch.float32: _Bits(torch.int32, 23, 127), torch.float64: _Bits(torch.int64, 52, 1023)}

#: The number of mantissas whose product stays within the range of the dtype.
_IN_RANGE = {torch.float32: 64, torch.float64: 512, torch.complex64: 64, torch.complex128: 512}


def _running_product(x: Tensor, dim: int) -> Tensor:
    """Multiply the elements in order, as eager does: a product that overflowed or underflowed stays infinite or 0.

    In another order, a partial product may overflow where the products from the beginning do not, or the reverse. So the totals of
    blocks are multiplied as mantissas and exponents (`_mantissas`), which cannot overflow. Within a block, elements are multiplied
    in order, starting from the total before the block. The first block that ends outside the range decides the results of all later
    blocks.
    """
    wide = _accumulated(x.dtype)
    # In a short tensor each element is a block, which saves some 60 kernel calls.
    entries = entries_of_blocks(x, dim, BLOCK if x.size(dim) <= 16 or x.numel() >= FEW else 1)
    state = None
    if entries[0].size(1) > 1:
        # If the dtype has half the size of the accumulation dtype, the product of four elements is within the range.
        together = 4 if wide is not x.dtype and x.dtype is not torch.bfloat16 else 1
        totals, stored = [], []
        for at in range(0, len(entries), together):
            product = in_type(entries[at], wide)
            for entry in entries[at + 1 : at + together]:
                product = aten.mul.Tensor(product, in_type(entry, wide))
            product, exponent = _mantissa(product)
            totals.append(product)
            stored.append(exponent)
        exponents = _exponent(functools.reduce(aten.add.Tensor, stored), wide, len(stored))
        products, exponents = _mantissas(functools.reduce(aten.mul.Tensor, totals), exponents)
        del totals, stored
        state = _starts(before(products, 1), before(exponents, 0), entries, wide)
    results = []
    for entry in entries:
        state = in_type(entry, wide) if state is None else aten.mul.Tensor(state, in_type(entry, wide))
        results.append(in_type(state, x.dtype))
    del entries, entry
    return joined(results, x.shape, dim)


def _starts(mantissas: Tensor, exponents: Tensor, entries: list[Tensor], wide: torch.dtype) -> Tensor:
    """Return the product before each block."""
    starts = _scaled(mantissas, exponents)
    ends = starts
    for entry in entries:
        ends = aten.mul.Tensor(ends, in_type(entry, wide))
    size = _size(ends)
    beyond = aten.logical_not.default(aten.logical_and.default(aten.gt.Scalar(size, 0), aten.lt.Scalar(size, math.inf)))
    blocks = ends.size(1)
    places = aten.view.default(aten.arange.start_step(0, blocks, 1, device=ends.device), [1, blocks, 1])
    first = aten.amin.default(aten.where.self(beyond, places, number_like(places, blocks)), [1], True)
    # The end of block `first` is 0, infinite or NaN. The mantissas give the sign of later products, and NaN for 0 times infinity.
    end = aten.amax.default(aten.where.self(aten.eq.Tensor(places, first), size, number_like(size, 0.0)), [1], True)
    return aten.where.self(aten.gt.Tensor(places, first), aten.mul.Tensor(mantissas, end), starts)  # type: ignore[no-any-return]


def _mantissas(x: Tensor, exponents: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the cumulative products of ``x 2^exponents`` along dim 1 of three, as pairs of mantissa and exponent.

    The magnitude of a mantissa is in [1, 2), or 0, infinity or NaN.
    """
    x, stored = _mantissa(x)
    more = _exponent(stored, x.dtype)
    exponents = aten.cumsum.default(more if exponents is None else aten.add.Tensor(exponents, more), 1)
    if x.size(1) <= _IN_RANGE[x.dtype]:
        x, stored = _mantissa(by_doubling(x, 1, aten.mul.Tensor))
        return x, aten.add.Tensor(exponents, _exponent(stored, x.dtype))
    entries = entries_of_blocks(x, 1)
    total = entries[0]
    for entry in entries[1:]:
        total = aten.mul.Tensor(total, entry)
    state, more = _mantissas(total)
    state, more = before(state, 1), before(more, 0)
    results = []
    for entry in entries:
        state = aten.mul.Tensor(state, entry)
        results.append(state)
    more = joined([more] * len(results), x.shape, 1)
    x, stored = _mantissa(joined(results, x.shape, 1))
    return x, aten.add.Tensor(aten.add.Tensor(exponents, more), _exponent(stored, x.dtype))


def _size(x: Tensor) -> Tensor:
    """Return the magnitude of real numbers, or the larger magnitude of the two parts of complex numbers."""
    if not x.dtype.is_complex:
        return aten.abs.default(x)  # type: ignore[no-any-return]
    real, imaginary = parts_of_complex(x)
    return aten.maximum.default(aten.abs.default(real), aten.abs.default(imaginary))  # type: ignore[no-any-return]


def _mantissa(x: Tensor) -> tuple[Tensor, Tensor]:
    """Split ``x = m 2^e``: return `m`, of magnitude in [1, 2), and the stored exponent of `e` (see `_exponent`).

    0, infinity and NaN are returned unchanged, with any `e`.
    """
    size = _size(x) if x.dtype.is_complex else x  # whose sign is left out below
    integers, digits, one = _BITS[size.dtype]
    stored = aten.bitwise_and.Scalar(aten.view.dtype(size, integers), (2 * one + 1) << digits)
    stored = aten.clamp.default(stored, 1 << digits, 2 * one << digits)
    power = aten.view.dtype(stored, size.dtype)
    return _by_parts(aten.div.Tensor, x, power), aten._to_copy.default(stored, dtype=wide_float())


def _exponent(stored: Tensor, dtype: torch.dtype, count: int = 1) -> Tensor:
    """Return the exponent for a stored exponent, or for a sum of `count` stored exponents."""
    _, digits, one = _BITS[dtype.to_real() if dtype.is_complex else dtype]
    return aten.sub.Scalar(aten.mul.Scalar(stored, 2.0**-digits), float(one * count))  # type: ignore[no-any-return]


def _scaled(x: Tensor, exponent: Tensor) -> Tensor:
    """Return ``x 2^exponent``, rounded once.

    The power is applied as two factors, because 2^exponent itself may be out of range.
    """
    dtype = x.dtype.to_real() if x.dtype.is_complex else x.dtype
    integers, digits, one = _BITS[dtype]
    exponent = aten.clamp.default(exponent, -1.5 * one, 1.5 * one)
    half = aten.floor.default(aten.mul.Scalar(exponent, 0.5))
    for part in (half, aten.sub.Tensor(exponent, half)):
        stored = aten._to_copy.default(aten.mul.Scalar(aten.add.Scalar(part, float(one)), 2.0**digits), dtype=integers)
        x = _by_parts(aten.mul.Tensor, x, aten.view.dtype(stored, dtype))
    return x


def _by_parts(op: Callable[..., Any], x: Tensor, real: Tensor) -> Any:
    """Apply a product or quotient with real numbers to the real and imaginary parts separately."""
    if not x.dtype.is_complex:
        return op(x, real)
    return aten.view_as_complex.default(op(aten.view_as_real.default(x), aten.unsqueeze.default(real, -1)))


# -- extremes -------------------------------------------------------------------------------------------------------------


def _running(combine: Callable[..., Any]) -> Callable[[Tensor, int], Any]:
    def run(self: Tensor, dim: int) -> Any:
        if self.dim() == 0 or self.numel():  # eager asks no dimension of an empty tensor
            dim = wrapped_dim(dim, self.dim())
        if self.dim() == 0 or not self.numel():
            kept = aten.clone.default(self, memory_format=torch.contiguous_format)
            return kept, aten.full.default(list(self.shape), 0, dtype=torch.int64, device=self.device)
        if self.dtype.is_complex or self.dtype in WIDE_UNSIGNED:  # which eager's kernel refuses where there is something to compare
            return NotImplemented
        return _running_extreme(as_contiguous(self), dim, combine)

    return run


def _running_extreme(x: Tensor, dim: int, combine: Callable[..., Any]) -> tuple[Tensor, Tensor]:
    """Return the cumulative extremes, by a scan, and their indices.

    The index is the last position so far that equals the extreme: a cumulative maximum of positions.
    """
    length = x.size(dim)
    if x.numel() < FEW:
        values = by_doubling(aten.clone.default(x), dim, combine)
        places = aten.arange.start_step(0, length, 1, device=x.device)
        places = aten.view.default(places, [-1 if at == dim else 1 for at in range(x.dim())])
        marks = aten.where.self(_holds(x, values), places, number_like(places, 0))
        return values, by_doubling(as_contiguous(marks), dim, aten.maximum.default)
    entries = entries_of_blocks(x, dim)
    state = totals_before(entries, combine, x.dtype, None)
    size, blocks = len(entries), entries[0].size(1)
    narrow = torch.int32 if length < 2**31 else torch.int64  # for memory
    begin = aten.arange.start_step(0, blocks * size, size, dtype=narrow, device=x.device)
    begin = aten.view.default(begin, [1, blocks, 1])
    zero = number_like(begin, 0)
    kept: list[Tensor] = []
    indices: list[Tensor] = []
    for at, entry in enumerate(entries):
        state = entry if state is None else combine(state, entry)
        kept.append(state)
        indices.append(aten.where.self(_holds(entry, state), aten.add.Scalar(begin, at), indices[-1] if at else zero))
    del entries, entry  # memory for what follows
    values = joined(kept, x.shape, dim)
    del begin, state
    if blocks > 1:
        start = before(scan(indices[-1], 1, aten.maximum.default, narrow, None), 0)
        indices = [aten.maximum.default(start, indices.pop(0)) for _ in range(size)]
        del start
    return values, joined(indices, x.shape, dim, torch.int64)


def _holds(x: Tensor, extreme: Tensor) -> Any:
    """Return whether each element equals the extreme. NaN counts as equal."""
    holds = aten.eq.Tensor(x, extreme)
    return aten.logical_or.default(holds, aten.isnan.default(x)) if x.dtype.is_floating_point else holds


# -- log-sum-exps ---------------------------------------------------------------------------------------------------------


@rule("aten.logcumsumexp.default")
def _logcumsumexp_checked(self: Tensor, dim: int) -> Any:
    return aten._logcumsumexp.default(self, dim)


@rule("aten._logcumsumexp.default")
def _logcumsumexp(self: Tensor, dim: int) -> Any:
    """Compute logcumsumexp by a scan with `logaddexp`.

    The shorter formula, with one maximum for the whole row, would lose elements far below the maximum.
    """
    dim = wrapped_dim(dim, self.dim())
    if not (self.dtype.is_floating_point or self.dtype.is_complex) or self.dtype is torch.complex32:
        return NotImplemented
    alone = not self.dim() or (self.shape[dim] == 1 and not self.dtype.is_complex)
    if alone or not self.numel():
        return aten.clone.default(self, memory_format=torch.contiguous_format)
    x = as_contiguous(self)
    wide = _accumulated(x.dtype)
    if not x.dtype.is_complex:
        return scan(x, dim, aten.logaddexp.default, wide, -math.inf)
    # log(0) has no angle: use -inf. A NaN in one part makes both parts NaN.
    size, angle = parts_of_complex(x)
    nothing = aten.logical_and.default(aten.eq.Scalar(size, -math.inf), aten.eq.Tensor(angle, angle))
    x = aten.where.self(nothing, number_like(x, -math.inf), x)
    x = aten.where.self(aten.eq.Tensor(x, x), x, number_like(x, complex(math.nan, math.nan)))
    return _turned(scan(x, dim, _later_first, wide, -math.inf), x, dim)


def _later_first(earlier: Tensor, later: Tensor) -> Any:
    """Pass the later operand first: for equal real parts eager's kernel takes the later angle."""
    return aten.logaddexp.default(later, earlier)


def _turned(sums: Tensor, given: Tensor, dim: int) -> Tensor:
    """Move the sums to the branch of the complex logarithm that adding one by one gives.

    Each angle is within a quarter turn of the previous sum's angle. Where the summand is at least as large as the previous sum, the
    angle is within a quarter turn of the summand's angle instead.
    """
    length = given.size(dim)
    size, angle = parts_of_complex(given)
    # The first element is its own predecessor.
    size_before, angle_before = (
        aten.cat.default([aten.slice.Tensor(one, dim, 0, 1), aten.slice.Tensor(one, dim, 0, length - 1)], dim)
        for one in parts_of_complex(sums)
    )
    larger = aten.ge.Tensor(size, size_before)
    del size, size_before
    again, on = (_turns(one, parts_of_complex(sums)[1]) for one in (angle, angle_before))
    on = aten.cumsum.default(aten.where.self(larger, number_like(on, 0.0), on), dim)
    places = aten.arange.start_step(0, length, 1, device=given.device)
    places = aten.view.default(places, [length if at == dim else 1 for at in range(given.dim())])
    last = aten.where.self(larger, places, number_like(places, 0))
    last = scan(as_contiguous(last), dim, aten.maximum.default, torch.int64, None)  # up to each, the last that started again
    on = aten.add.Tensor(on, aten.gather.default(aten.sub.Tensor(again, on), dim, last))
    return aten.add.Tensor(sums, aten._to_copy.default(on, dtype=sums.dtype), alpha=2j * math.pi)  # type: ignore[no-any-return]


def _turns(theirs: Tensor, ours: Tensor) -> Any:
    """Return the difference of two angles in turns, rounded to the nearest integer; 0 if it is not finite."""
    turns = aten.round.default(aten.mul.Scalar(aten.sub.Tensor(theirs, ours), 0.5 / math.pi))
    return aten.where.self(aten.lt.Scalar(aten.abs.default(turns), math.inf), turns, number_like(turns, 0.0))


rule("aten.cumsum.default")(_cumsum)
rule("aten.cumprod.default")(_cumprod)
rule("aten.cummax.default")(_running(op_called("aten.maximum.default")))
rule("aten.cummin.default")(_running(op_called("aten.minimum.default")))
