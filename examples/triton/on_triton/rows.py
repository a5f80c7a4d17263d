"""Kernels of rows: reductions by a template, and softmax, norms, sums so far, sorting, products of matrices, random numbers.

The elements of a row are `n` steps apart by one stride; rows are in one or two dimensions. A tensor that is not so is copied first,
by the elementwise template.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from eagerdecomp.eager.strides import in_order, like_strides
from on_triton.elementwise import INTERPRETED, JIT_TYPES, empty, jit_of, launch, store
from on_triton.formulas import convert as as_dtype
from on_triton.formulas import divide, maximum, minimum, number, root  # noqa: F401  (the template's kernels call them)
from on_triton.pointwise import arange, clone, convert, copy_, full, not_zero

__all__ = ["KERNELS", "REDUCTIONS", "nonzero"]

aten = torch.ops.aten

#: Elements of a tile, and at most how many of one row.
TILE, LONGEST = (1 << 16, 1 << 12) if INTERPRETED else (4096, 4096)
#: What narrow dtypes are added and compared in. Triton's sums and maxima of narrow integers are int32, and loops keep one type.
_WIDER = dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)
_WIDER |= dict.fromkeys((torch.bool, torch.uint8, torch.int8, torch.int16), torch.int32)


class Rows(NamedTuple):
    """A tensor as rows: `count` of them in dimensions of ``count // inner`` and `inner`, of `length` elements."""

    tensor: Tensor
    count: int
    inner: int
    outer_step: int
    inner_step: int
    length: int
    step: int

    def numbers(self) -> tuple[int, ...]:
        return self[1:]

    def blocks(self) -> dict[str, int]:
        columns = min(triton.next_power_of_2(max(self.length, 1)), LONGEST)
        rows = min(triton.next_power_of_2(max(self.count, 1)), max(TILE // columns, 1))
        return {"ROWS": rows, "COLUMNS": columns}


def _joined(sizes: Sequence[int], steps: Sequence[int]) -> list[tuple[int, int]]:
    """Merge dimensions that are walked through with one stride."""
    found: list[tuple[int, int]] = []
    for size, step in zip(sizes, steps, strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == step * size:
            found[-1] = (found[-1][0] * size, step)
        else:
            found.append((size, step))
    return found


def rows_of(x: Tensor, dims: Sequence[int]) -> Rows:
    """Return `x` as rows along `dims`."""
    kept = [d for d in range(x.dim()) if d not in dims]
    moved = x.permute(*kept, *dims) if x.dim() else x.view(1)
    across = len(kept) if x.dim() else 0
    for tensor in (moved, None):
        if tensor is None:
            tensor = clone(moved, memory_format=torch.contiguous_format)
        outer, inner = (_joined(tensor.shape[part], tensor.stride()[part]) for part in (slice(across), slice(across, None)))
        if len(outer) <= 2 and len(inner) <= 1:
            break
    (size1, step1), (size2, step2) = ([(1, 0), (1, 0), *outer])[-2:]
    length, step = inner[0] if inner else (1, 0)
    return Rows(tensor, size1 * size2, size2, step1, step2, length, step)


# -- reductions --------------------------------------------------------------------------------------------------------

#: op -> (what a row of nothing has, a tile's part of the result, how two parts make one)
REDUCTIONS = {
    "sum": ("0", "tl.sum(tile, 1)", "total + part"),
    "amax": ("least(C)", "with_nan(tl.max(tile, 1), tile)", "maximum(total, part)"),
    "amin": ("most(C)", "with_nan(tl.min(tile, 1), tile)", "minimum(total, part)"),
    "any": ("0", "tl.max((tile != 0).to(tl.int32), 1)", "maximum(total, part.to(C))"),
}


TEMPLATE = """
def kernel(x, out, count, inner, outer_step, inner_step, n, step,
           C: tl.constexpr, TO: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = x + (row // inner) * outer_step + (row % inner) * inner_step
    total = tl.full([ROWS], {first}, C)
    for begin in range(0, n, COLUMNS):
        at = begin + tl.arange(0, COLUMNS)
        inside = (row < count)[:, None] & (at < n)[None, :]
        tile = as_dtype(tl.load(start[:, None] + at[None, :].to(tl.int64) * step, mask=inside, other=0), C)
        tile = tl.where(inside, tile, tl.full([1], {first}, C))
        part = {part}
        total = {both}
    tl.store(out + row, as_dtype(total, TO), mask=row < count)
"""


@triton.jit
def least(dtype: tl.constexpr):
    if dtype.is_floating():
        return float("-inf")
    else:
        return -(1 << (dtype.primitive_bitwidth - 1))


@triton.jit
def most(dtype: tl.constexpr):
    if dtype.is_floating():
        return float("inf")
    else:
        return (1 << (dtype.primitive_bitwidth - 1)) - 1


@triton.jit
def with_nan(found, tile):
    # The maximum of the language skips NaN.
    if tile.dtype.is_floating():
        return tl.where(tl.max((tile != tile).to(tl.int32), 1) != 0, float("nan"), found)
    else:
        return found


@functools.cache
def _reduction(name: str) -> Any:
    first, part, both = REDUCTIONS[name]
    source = TEMPLATE.format(first=first, part=part, both=both)
    return jit_of(source, f"<on_triton {name}>", globals())


def _dims(dims: Any, rank: int) -> list[int]:
    given = [dims] if isinstance(dims, int) else list(dims or range(rank))
    if any(not -max(rank, 1) <= d < max(rank, 1) for d in given):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(rank, 1)}, {max(rank, 1) - 1}])")
    found = [d % max(rank, 1) for d in given]
    if len(set(found)) < len(found):
        raise RuntimeError("a dimension appears multiple times in the list of dims")
    return found if rank else []


def reduced(name: str, x: Tensor, dims: Any, keepdim: bool, dtype: torch.dtype, computed: torch.dtype) -> Tensor:
    along = _dims(dims, x.dim())
    shape = [1 if d in along else size for d, size in enumerate(x.shape) if keepdim or d not in along]
    if name in ("amax", "amin") and any(not x.shape[d] for d in along) and math.prod(shape):
        raise IndexError(f"{name}(): Expected reduction dim to have non-zero size.")
    out = empty(x, shape, dtype)
    if out.numel():
        rows = rows_of(x, along) if x.numel() else Rows(x, out.numel(), 1, 0, 0, 0, 0)
        blocks = rows.blocks()
        grid = (triton.cdiv(rows.count, blocks["ROWS"]),)
        launch(_reduction(name), grid, rows.tensor, out, *rows.numbers(), C=JIT_TYPES[computed], TO=JIT_TYPES[dtype], **blocks)
    return out


def sum_dims(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    dtype = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    if dtype is torch.bool or (x.dtype.is_floating_point and not dtype.is_floating_point):
        x = convert(x, dtype)
    return reduced("sum", x, dim, keepdim, dtype, torch.int64 if dtype is torch.bool else _WIDER.get(dtype, dtype))


def _extreme(name: str) -> Callable[..., Tensor]:
    def kernel(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
        return reduced(name, x, dim, keepdim, x.dtype, _WIDER.get(x.dtype, x.dtype))

    return kernel


def any_dims(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    if dim is not None and not isinstance(dim, int) and not dim:  # unlike in other reductions, no dimensions are none
        return convert(not_zero(x, 0), dtype, torch.contiguous_format)
    return reduced("any", x, dim, keepdim, dtype, _WIDER.get(x.dtype, x.dtype))


# -- softmax, norms, sums so far ---------------------------------------------------------------------------------------


@triton.jit
def _softmax(
    x,
    out,
    count,
    inner,
    outer_step,
    inner_step,
    n,
    step,
    LOG: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = x + (row // inner) * outer_step + (row % inner) * inner_step
    high = tl.full([ROWS], float("-inf"), C)
    total = tl.full([ROWS], 0, C)
    for begin in range(0, n, COLUMNS):
        at = begin + tl.arange(0, COLUMNS)
        inside = (row < count)[:, None] & (at < n)[None, :]
        tile = as_dtype(tl.load(start[:, None] + at[None, :].to(tl.int64) * step, mask=inside, other=float("-inf")), C)
        higher = maximum(high, with_nan(tl.max(tile, 1), tile))
        # Where all is minus infinity so far, the difference would be NaN.
        base = tl.where(higher == float("-inf"), tl.full([1], 0, C), higher)
        total = total * tl.exp(high - base) + tl.sum(tl.exp(tile - base[:, None]), 1)
        high = higher
    for begin in range(0, n, COLUMNS):
        at = begin + tl.arange(0, COLUMNS)
        inside = (row < count)[:, None] & (at < n)[None, :]
        shifted = as_dtype(tl.load(start[:, None] + at[None, :].to(tl.int64) * step, mask=inside, other=0), C) - high[:, None]
        value = shifted - tl.log(total)[:, None] if LOG else tl.exp(shifted) / total[:, None]
        tl.store(out + row[:, None] * n + at[None, :], as_dtype(value, out.dtype.element_ty), mask=inside)


def _softmaxes(log: bool) -> Callable[..., Tensor]:
    def kernel(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        if half_to_float:
            raise RuntimeError("softmax with half to float conversion is not supported on CPU")
        (along,) = _dims(dim, x.dim()) or [0]
        if not x.numel():
            return empty(x, x.shape, x.dtype)
        if not x.dtype.is_floating_point:
            raise NotImplementedError(f"softmax is not implemented for {x.dtype}")
        rows = rows_of(x, [along])
        blocks = rows.blocks()
        kept = [size for d, size in enumerate(x.shape) if d != along]
        out = empty(x, [*kept, rows.length], x.dtype)
        grid = (triton.cdiv(rows.count, blocks["ROWS"]),)
        launch(_softmax, grid, rows.tensor, out, *rows.numbers(), LOG=log, C=JIT_TYPES[_WIDER.get(x.dtype, x.dtype)], **blocks)
        return _moved_back(out, x, along)

    return kernel


def _moved_back(out: Tensor, x: Tensor, along: int) -> Tensor:
    """Return a result, whose last dimension is that of the rows, in the shape of `x`, contiguous."""
    if not x.dim():
        return out.view([])
    return clone(out.movedim(-1, along), memory_format=torch.contiguous_format) if along != x.dim() - 1 else out


@triton.jit
def _cumsum(x, out, count, inner, outer_step, inner_step, n, step, C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = x + (row // inner) * outer_step + (row % inner) * inner_step
    before = tl.full([ROWS], 0, C)
    for begin in range(0, n, COLUMNS):
        at = begin + tl.arange(0, COLUMNS)
        inside = (row < count)[:, None] & (at < n)[None, :]
        tile = as_dtype(tl.load(start[:, None] + at[None, :].to(tl.int64) * step, mask=inside, other=0), C)
        tl.store(
            out + row[:, None] * n + at[None, :], as_dtype(before[:, None] + tl.cumsum(tile, 1), out.dtype.element_ty), mask=inside
        )
        before += tl.sum(tile, 1)


def cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    dtype = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    if dtype is torch.bool:
        raise RuntimeError("cumsum is not implemented for bool")
    (along,) = _dims(dim, x.dim()) or [0]
    if x.dtype.is_floating_point and not dtype.is_floating_point:
        x = convert(x, dtype)
    if not x.numel():
        return empty(x, x.shape, dtype)
    rows = rows_of(x, [along])
    blocks = rows.blocks()
    out = empty(x, [*(size for d, size in enumerate(x.shape) if d != along), rows.length], dtype)
    grid = (triton.cdiv(rows.count, blocks["ROWS"]),)
    launch(_cumsum, grid, rows.tensor, out, *rows.numbers(), C=JIT_TYPES[_WIDER.get(dtype, dtype)], **blocks)
    return _moved_back(out, x, along)


# -- products of matrices ----------------------------------------------------------------------------------------------


@triton.jit
def _bmm(
    a,
    b,
    out,
    M,
    N,
    K,
    a0,
    a1,
    a2,
    b0,
    b1,
    b2,
    C: tl.constexpr,
    DOT: tl.constexpr,
    WIDE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    batch = tl.program_id(1).to(tl.int64)
    across = tl.cdiv(N, BN)
    m = (tl.program_id(0) // across) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % across) * BN + tl.arange(0, BN)
    total = tl.full([BM, BN], 0, C)
    for begin in range(0, K, BK):
        k = begin + tl.arange(0, BK)
        left = a + batch * a0 + m[:, None].to(tl.int64) * a1 + k[None, :].to(tl.int64) * a2
        right = b + batch * b0 + k[:, None].to(tl.int64) * b1 + n[None, :].to(tl.int64) * b2
        x = tl.load(left, mask=(m < M)[:, None] & (k < K)[None, :], other=0)
        y = tl.load(right, mask=(k < K)[:, None] & (n < N)[None, :], other=0)
        if WIDE:  # the interpreter multiplies no bfloat16
            x, y = as_dtype(x, C), as_dtype(y, C)
        if DOT:
            total = tl.dot(x, y, total, input_precision="ieee", out_dtype=C)
        else:  # tensor cores take no wide integers
            total += tl.sum(as_dtype(x, C)[:, :, None] * as_dtype(y, C)[None, :, :], 1)
    place = out + batch * M * N + m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(place, as_dtype(total, out.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def bmm(x: Tensor, y: Tensor) -> Tensor:
    if x.dim() != 3 or y.dim() != 3:
        raise RuntimeError("batch1 and batch2 must be 3D tensors")
    if x.dtype is not y.dtype or (x.dtype is torch.bool and x.numel() and y.numel()):
        raise RuntimeError(f"bmm: cannot multiply {x.dtype} and {y.dtype}")
    if x.shape[0] != y.shape[0] or x.shape[2] != y.shape[1]:
        raise RuntimeError(f"bmm: cannot multiply {[*x.shape]} and {[*y.shape]}")
    batch, m, k, n = *x.shape, y.shape[2]
    out = empty(x, [batch, m, n], x.dtype)
    if out.numel():
        dot = x.dtype.is_floating_point
        most = (128, 128, 128) if INTERPRETED and dot else (64, 64, 32) if dot else (16, 16, 16)
        bm, bn, bk = (min(max(triton.next_power_of_2(size), 16), limit) for size, limit in zip((m, n, k), most, strict=True))
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn), batch)
        computed = JIT_TYPES[_WIDER.get(x.dtype, x.dtype)]
        launch(_bmm, grid, x, y, out, m, n, k, *x.stride(), *y.stride(), C=computed, DOT=dot, WIDE=INTERPRETED, BM=bm, BN=bn, BK=bk)
    return out


def mm(x: Tensor, y: Tensor) -> Tensor:
    if x.dim() != 2 or y.dim() != 2:
        raise RuntimeError("mm: both must be matrices")
    return bmm(x.unsqueeze(0), y.unsqueeze(0)).squeeze(0)


# -- sorting -----------------------------------------------------------------------------------------------------------


@triton.jit
def _exchange(values, places, total, n, padded, far, width, DOWN: tl.constexpr, BLOCK: tl.constexpr):
    # One stage of a bitonic network: each pair, `far` apart, is put in the order of its run of `width`.
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = pair < total
    low = (pair // far) * 2 * far + pair % far
    a, b = tl.load(values + low, mask=mask, other=0), tl.load(values + low + far, mask=mask, other=0)
    i, j = tl.load(places + low, mask=mask, other=0), tl.load(places + low + far, mask=mask, other=0)
    if DOWN:
        after = (a < b) | ((b != b) & (a == a))
        before = (a > b) | ((a != a) & (b == b))
    else:
        after = (a > b) | ((a != a) & (b == b))
        before = (a < b) | ((b != b) & (a == a))
    after = (after | (~before & (i > j))) & (j < n)  # equal ones keep their order, and what pads a row comes last
    after = after | (i >= n)
    swap = (after == ((low % padded) // width % 2 == 0)) & mask
    tl.store(values + low, b, mask=swap)
    tl.store(values + low + far, a, mask=swap)
    tl.store(places + low, j, mask=swap)
    tl.store(places + low + far, i, mask=swap)


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    (along,) = _dims(dim, x.dim()) or [0]
    flat = x.movedim(along, -1) if x.dim() else x.view(1)
    n = flat.shape[-1]
    padded = triton.next_power_of_2(max(n, 1))
    held = torch.uint8 if x.dtype is torch.bool else torch.float32 if x.dtype is torch.bfloat16 else x.dtype
    values = full([*flat.shape[:-1], padded], 0, dtype=held, device=x.device)
    copy_(values[..., :n], flat)
    places = empty(x, values.shape, torch.int64)
    copy_(places, arange(0, padded, device=x.device))
    total = values.numel() // 2
    for width in (1 << k for k in range(1, padded.bit_length())):
        for far in (width >> k for k in range(1, width.bit_length())):
            block = min(triton.next_power_of_2(max(total, 1)), 1 << 16 if INTERPRETED else 1024)
            numbers = total, n, padded, far, width
            launch(_exchange, (triton.cdiv(total, block),), values, places, *numbers, DOWN=descending, BLOCK=block)
    return tuple(_ordered(one[..., :n], x, along, dtype) for one, dtype in ((values, x.dtype), (places, torch.int64)))  # type: ignore[return-value]


def _ordered(part: Tensor, x: Tensor, along: int, dtype: torch.dtype) -> Tensor:
    out = empty(x, x.shape, dtype, like_strides(x))
    return copy_(out, part.movedim(-1, along) if x.dim() else part.view([]))


# -- what is true, random numbers --------------------------------------------------------------------------------------


@triton.jit
def _places(flags, upto, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(flags + i, mask=i < n, other=0) != 0
    tl.store(out + tl.load(upto + i, mask=i < n, other=1) - 1, i, mask=found)


def nonzero(x: Tensor) -> Tensor:
    flags = not_zero(x, 0)
    flat = clone(flags, memory_format=torch.contiguous_format).view(-1)
    upto = cumsum(flat, 0)
    count = int(upto[-1].item()) if x.numel() else 0  # the size of the result depends on data: eager on a GPU reads it too
    places = torch.empty(count, dtype=torch.int64, device=x.device)
    block = min(triton.next_power_of_2(max(x.numel(), 1)), 1 << 16 if INTERPRETED else 1024)
    if count:
        launch(_places, (triton.cdiv(x.numel(), block),), flat, upto, places, x.numel(), BLOCK=block)
    out = torch.empty((x.dim(), count), dtype=torch.int64, device=x.device).t()
    for d, step in enumerate(in_order(x.shape, range(x.dim()))):
        store("a // b % c", out[:, d], [places, step, x.shape[d]], torch.int64)
    return out


@triton.jit
def _random(out, seed, first, n, NORMAL: tl.constexpr, TO: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.randn(seed, first + i) if NORMAL else tl.rand(seed, first + i)
    if tl.float64 == TO and not NORMAL:  # 24 digits of one number, and then those of another
        value = tl.floor(value.to(tl.float64) * 16777216) / 16777216 + tl.rand(seed + 1, first + i).to(tl.float64) / 16777216
    value = as_dtype(value, TO)
    if not NORMAL:
        value = tl.where(value.to(tl.float32) >= 1, as_dtype(tl.full([1], 0, tl.float32), TO), value)  # rounded up to 1
    tl.store(out + i, value, mask=i < n)


def _drawn(normal: bool) -> Callable[..., Tensor]:
    def kernel(size: Sequence[int], *, dtype: Any = None, device: Any = None, generator: Any = None, **_: Any) -> Tensor:
        dtype = dtype or torch.get_default_dtype()
        if not dtype.is_floating_point:
            raise NotImplementedError(f"random numbers are not implemented for {dtype}")
        out = torch.empty(size, dtype=dtype, device=device)
        n = out.numel()
        if not n:
            return out
        seed, first = _philox(out, n, generator)
        block = min(triton.next_power_of_2(n), 1 << 16 if INTERPRETED else 1024)
        launch(_random, (triton.cdiv(n, block),), out, seed, first, n, NORMAL=normal, TO=JIT_TYPES[dtype], BLOCK=block)
        return out

    return kernel


def _philox(out: Tensor, count: int, generator: torch.Generator | None) -> tuple[int, int]:
    """Return a seed and the number of the first draw, from torch's generator of the device, without waiting for the device."""
    if out.device.type == "cpu":  # a Mersenne Twister: it draws a seed
        return int(torch.empty((), dtype=torch.int32).random_(generator=generator)), 0
    generator = generator or torch.cuda.default_generators[out.device.index]
    first = generator.get_offset()
    generator.set_offset(first + -(-count // 4) * 4)
    return generator.initial_seed() & 0x7FFFFFFF, first & 0x7FFFFFFF


KERNELS: dict[str, Callable[..., Any]] = {
    "sum.dim_IntList": sum_dims,
    "amax": _extreme("amax"),
    "amin": _extreme("amin"),
    "any": any_dims,
    "any.dim": any_dims,
    "any.dims": any_dims,
    "_softmax": _softmaxes(False),
    "_log_softmax": _softmaxes(True),
    "cumsum": cumsum,
    "bmm": bmm,
    "mm": mm,
    "sort": sort,
    "nonzero": nonzero,
    "rand": _drawn(False),
    "randn": _drawn(True),
}
