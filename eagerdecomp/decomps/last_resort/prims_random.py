"""Random numbers and Fourier transforms for sets of prims, by the corresponding prims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules.rule import rule

aten = torch.ops.aten
prims = torch.ops.prims


# -- Fourier transforms -------------------------------------------------------------------------------------------


def _scaled(x: Tensor, normalization: int, count: int) -> Tensor:
    if not normalization:
        return x
    return aten.mul.Scalar(x, 1 / math.sqrt(count) if normalization == 1 else 1 / count)  # type: ignore[no-any-return]


@rule("aten._fft_r2c.default", recorded=True, source="prims")
def _r2c(self: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if not dim:
        return NotImplemented
    count = math.prod(self.size(one) for one in dim)
    return _scaled(prims.fft_r2c.default(self, dim=list(dim), onesided=onesided), normalization, count)


@rule("aten._fft_c2r.default", recorded=True, source="prims")
def _c2r(self: Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    if not dim:
        return NotImplemented
    count = math.prod(self.size(one) for one in dim[:-1]) * last_dim_size
    return _scaled(prims.fft_c2r.default(self, dim=list(dim), last_dim_size=last_dim_size), normalization, count)
