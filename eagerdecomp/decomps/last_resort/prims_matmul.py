"""Matrix products for sets of prims: elementwise products, summed in blocks. Other products call these."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.one_hot_indexing import in_blocks
from eagerdecomp.eager.promotion import FLOAT8, HALF, RARE
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply ``[*batch, m, k]`` by ``[*batch, k, n]``. float16 and bfloat16 are summed in float32 and rounded once."""
    dtype, rank = left.dtype, left.dim()
    if dtype in HALF:
        left, right = (aten._to_copy.default(side, dtype=torch.float32) for side in (left, right))
    rows, columns = left.size(rank - 2), right.size(rank - 1)
    turned = [*range(rank - 2), rank - 1, rank - 2]
    across = aten.unsqueeze.default(aten.permute.default(right, turned), rank - 2)
    summed_in = None if dtype.is_floating_point or dtype.is_complex else dtype

    def block(start: int, end: int) -> Tensor:
        part = aten.unsqueeze.default(aten.slice.Tensor(left, rank - 2, start, end), rank - 1)
        return aten.sum.dim_IntList(aten.mul.Tensor(part, across), [rank], dtype=summed_in)  # type: ignore[no-any-return]

    result = in_blocks(block, rows, rank - 2, columns * left.numel() // max(1, rows))
    return aten._to_copy.default(result, dtype=dtype) if dtype in HALF else result


def _is_summed(left: Tensor, right: Tensor) -> bool:
    """Return whether there is a sum of such products. Eager returns zeros for an empty sum of other dtypes."""
    dtype = left.dtype
    return dtype not in FLOAT8 and not ((dtype is torch.bool or dtype in RARE) and left.numel() and right.numel())


@rule("aten.mm.default", recorded=True, source="prims")
def _mm(self: Tensor, mat2: Tensor) -> Any:
    return _product(self, mat2) if self.size(1) == mat2.size(0) and _is_summed(self, mat2) else NotImplemented


@rule("aten.bmm.default", recorded=True, source="prims")
def _bmm(self: Tensor, mat2: Tensor) -> Any:
    fit = self.size(0) == mat2.size(0) and self.size(2) == mat2.size(1)
    return _product(self, mat2) if fit and _is_summed(self, mat2) else NotImplemented
