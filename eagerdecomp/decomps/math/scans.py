"""Inclusive scans along a dimension, in time and memory proportional to the length.

A short scan uses Hillis and Steele (Data parallel algorithms, 1986): each of ``log2(n)`` steps combines all entries with the
entries `step` before them. A long scan is reduced first and then scanned (Merrill and Grimshaw, Parallel scan for stream
architectures, 2009): blocks of up to `BLOCK` entries are reduced, their totals are scanned, and each block is scanned from the
total before it, one entry of all blocks per call. Each entry is combined twice, in some ``2 * BLOCK * log(n) / log(BLOCK)`` kernel
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import in_type

__all__ = ["BLOCK", "FEW", "before", "by_doubling", "entries_of_blocks", "joined", "scan", "totals_before"]

aten = torch.ops.aten

Combine = Callable[[Tensor, Tensor], Tensor]

#: The largest number of entries in a block. They are combined one after the other, in all blocks at once.
BLOCK = 32

#: For fewer elements than this, the cost of kernels is their call overhead, and doubling needs the fewest calls.
FEW = 4096


def scan(x: Tensor, dim: int, combine: Combine, wide: torch.dtype, identity: complex | None) -> Tensor:
    """Return the inclusive scan of a contiguous tensor with at least one element; the result is contiguous.

    Args:
        x: the tensor to scan.
        dim: the dimension, non-negative.
        combine: an associative function of two tensors.
        wide: the dtype in which it is computed.
        identity: the identity element of `combine`; None if combining equal entries returns the entry.
    """
    if x.numel() < FEW:
        return in_type(by_doubling(in_type(x, wide), dim, combine), x.dtype)
    entries = entries_of_blocks(x, dim)
    state = totals_before(entries, combine, wide, identity)
    results = []
    for entry in entries:
        state = in_type(entry, wide) if state is None else combine(state, in_type(entry, wide))
        results.append(in_type(state, x.dtype))
    del entries, entry
    return joined(results, x.shape, dim)


def totals_before(entries: Sequence[Tensor], combine: Combine, wide: torch.dtype, identity: complex | None) -> Tensor | None:
    """Return for each block the combination of all entries before it, ``[outer, blocks, inner]``; None for a single block."""
    if entries[0].size(1) == 1:
        return None
    total = in_type(entries[0], wide)
    for entry in entries[1:]:
        total = combine(total, in_type(entry, wide))
    return before(scan(total, 1, combine, wide, identity), entries[0] if identity is None else identity)


def by_doubling(x: Tensor, dim: int, combine: Combine) -> Tensor:
    """Return the inclusive scan in ``log2(n)`` steps, each of three slices, one `combine` and one `cat`."""
    step, length = 1, x.size(dim)
    while step < length:
        head = aten.slice.Tensor(x, dim, 0, step)
        combined = combine(aten.slice.Tensor(x, dim, 0, length - step), aten.slice.Tensor(x, dim, step, length))
        x = aten.cat.default([head, combined], dim)
        step *= 2
    return x


def entries_of_blocks(x: Tensor, dim: int, most: int = BLOCK) -> list[Tensor]:
    """Return the first entries of all blocks, the second entries, and so on, each ``[outer, blocks, inner]``.

    The last block is padded with zeros. The entries are views of a copy in which entries with the same position in their block are
    contiguous: a kernel on a strided column takes some ten times as long.
    """
    outer, length, inner = _flat(x.shape, dim)
    blocks = -(-length // most)
    size = -(-length // blocks)
    if blocks * size > length:
        x = aten.constant_pad_nd.default(aten.view.default(x, [outer, length, inner]), [0, 0, 0, blocks * size - length])
    if inner == 1:  # eager has a fast copy of a transposed matrix
        rows = aten.permute.default(aten.view.default(x, [outer * blocks, size]), [1, 0])
    else:
        rows = aten.permute.default(aten.view.default(x, [outer * blocks, size, inner]), [1, 0, 2])
    rows = aten.clone.default(rows, memory_format=torch.contiguous_format)
    rows = aten.view.default(rows, [size, outer, blocks, inner])
    return [aten.select.int(rows, 0, at) for at in range(size)]


def joined(entries: Sequence[Tensor], shape: Sequence[int], dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Join the entries that `entries_of_blocks` split. If `entries` is a list, it is emptied to save memory."""
    outer, length, inner = _flat(shape, dim)
    blocks, size = entries[0].size(1), len(entries)
    rows = aten.cat.default([aten.unsqueeze.default(entry, 0) for entry in entries])
    if isinstance(entries, list):
        entries.clear()
    x = aten.permute.default(rows, [1, 2, 0, 3])
    x = aten._to_copy.default(x, dtype=dtype or rows.dtype, memory_format=torch.contiguous_format)
    x = aten.view.default(x, [outer, blocks * size, inner])
    if blocks * size > length:
        x = aten.clone.default(aten.slice.Tensor(x, 1, 0, length), memory_format=torch.contiguous_format)
    return aten.view.default(x, list(shape))  # type: ignore[no-any-return]


def before(x: Tensor, first: Tensor | complex) -> Tensor:
    """Shift ``[outer, n, inner]`` by one entry. The new first entry is `first`, or the first entry of the tensor `first`."""
    outer, length, inner = x.shape
    if isinstance(first, Tensor):
        head = in_type(aten.slice.Tensor(first, 1, 0, 1), x.dtype)
    else:
        head = aten.full.default([outer, 1, inner], first, dtype=x.dtype, device=x.device)
    return aten.cat.default([head, aten.slice.Tensor(x, 1, 0, length - 1)], 1)  # type: ignore[no-any-return]


def _flat(shape: Sequence[int], dim: int) -> tuple[int, int, int]:
    outer, inner = 1, 1
    for size in shape[:dim]:
        outer *= size
    for size in shape[dim + 1 :]:
        inner *= size
    return outer, shape[dim], inner
