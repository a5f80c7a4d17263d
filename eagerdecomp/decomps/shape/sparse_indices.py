"""Conversion of row indices between the COO and CSR formats, as dense integer tensors.

Row indices must be sorted, row pointers ascending. Eager writes past its memory for a row index out of range (`eager.crashes`).
Eager reads strided row indices as if they were contiguous; these rules read them by their strides. Eager leaves memory
uninitialized if row pointers do not end at the number of elements; these rules write all of it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _counted_up(rows: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Return for each row of ``[B, n]`` and each ``i`` below `size` how many elements are at most ``i``."""
    rows = rows if rows.dtype is torch.int64 else aten._to_copy.default(rows, dtype=torch.int64)
    zeros = aten.full.default([rows.size(0), size], 0, dtype=torch.int64, device=rows.device)
    ones = aten.full.default(list(rows.shape), 1, dtype=torch.int64, device=rows.device)
    return aten.cumsum.default(aten.scatter_add.default(zeros, 1, rows, ones), 1, dtype=dtype)  # type: ignore[no-any-return]


@rule("aten._convert_indices_from_coo_to_csr.default", recorded=True)
def _coo_to_csr(self: Tensor, size: int, *, out_int32: bool = False) -> Any:
    dtype = torch.int32 if out_int32 else torch.int64
    if not self.numel():
        return aten.full.default([size + 1], 0, dtype=dtype, device=self.device)
    # An element of row i counts for all pointers from i + 1 on.
    after = aten.add.Scalar(aten._to_copy.default(aten.reshape.default(self, [1, self.numel()]), dtype=torch.int64), 1)
    return aten.view.default(_counted_up(after, size + 1, dtype), [size + 1])


@rule("aten._convert_indices_from_csr_to_coo.default", recorded=True)
def _csr_to_coo(crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False) -> Any:
    batch, (nonzero, total) = list(crow_indices.shape[:-1]), (col_indices.size(-1), col_indices.numel())
    batches = math.prod(batch)
    dtype = torch.int32 if out_int32 else torch.int64
    if not total:
        return aten.full.default([len(batch) + 2, 0], 0, dtype=dtype, device=col_indices.device)
    if batches * nonzero != total:
        return NotImplemented
    ends = aten.slice.Tensor(aten.reshape.default(crow_indices, [batches, crow_indices.size(-1)]), 1, 1)
    rows = aten.slice.Tensor(_counted_up(ends, nonzero + 1, dtype), 1, 0, nonzero)
    columns = col_indices if col_indices.dtype is dtype else aten._to_copy.default(col_indices, dtype=dtype)
    places = [*_batch_places(batch, nonzero, rows), *((columns, rows) if transpose else (rows, columns))]
    return aten.cat.default([aten.reshape.default(one, [1, total]) for one in places])


def _batch_places(batch: list[int], nonzero: int, like: Tensor) -> list[Tensor]:
    """Return the index of each element along each batch dimension."""
    found = []
    for dim, size in enumerate(batch):
        index = aten.arange.start_step(0, size, 1, dtype=like.dtype, device=like.device)
        shaped = aten.view.default(index, [size if at == dim else 1 for at in range(len(batch) + 1)])
        found.append(aten.expand.default(shaped, [*batch, nonzero]))
    return found
