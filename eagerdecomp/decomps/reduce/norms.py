"""Vector norms, and sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import HALF, in_type
from eagerdecomp.eager.scalars import cast_number
from eagerdecomp.eager.strides import wrapped_dim
from eagerdecomp.rules.compute import Constant, constant
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_ZERO = Constant(0)

#: The dtypes in which eager computes without widening.
_FULL = (torch.float32, torch.float64)


@rule("aten.logsumexp.default")
def _logsumexp(self: Tensor, dim: Sequence[int], keepdim: bool = False) -> Any:
    if not self.dtype.is_floating_point or not len(dim) or not self.numel():
        return NotImplemented
    highest = aten.amax.default(self, dim, True)
    highest = aten.where.self(aten.isinf.default(highest), _ZERO(self), highest)
    result = aten.log.default(aten.sum.dim_IntList(aten.exp.default(aten.sub.Tensor(self, highest)), dim, keepdim))
    return aten.add.Tensor(result, highest if keepdim else aten.squeeze.dims(highest, dim))


@rule("aten.linalg__powsum.default")
def _powsum(self: Tensor, ord: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Sum the powers of float16 and bfloat16 in float32. torch's composition rounds each power, and casts before the magnitude."""
    if self.is_complex() and dtype is not None and dtype.is_floating_point:
        wide = torch.promote_types(self.dtype, dtype)
    elif self.dtype in HALF and dtype in (None, self.dtype):
        wide = torch.float32
    else:
        return NotImplemented
    total = aten.linalg__powsum.default(self, ord, dim, keepdim, dtype=wide)
    return total if total is NotImplemented else aten._to_copy.default(total, dtype=dtype or self.dtype)


@rule("aten.linalg_vector_norm.default")
def _vector_norm(self: Tensor, ord: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Compute the norms of order 1, 2 and infinity, in at least float32 as eager does. Leave others to torch's entry.

    So are reductions of one element: the norm of one element is its magnitude, whose square may overflow or underflow. Arguments
    are changed for torch's entry: it takes a maximum before it casts to the wider `dtype`, and counts a negative `dim` of an empty
    tensor as an empty dimension.
    """
    rank, shape = self.dim(), self.shape
    if ord != ord and not self.numel():
        ord = 2  # eager sums nothing, whatever the power
    dims = [wrapped_dim(at, rank) for at in dim] if dim else list(range(rank))
    kinds = {(one.is_floating_point, one.is_complex) for one in (self.dtype, dtype or self.dtype)}
    if dtype is not None and len(kinds) == 1 and torch.promote_types(self.dtype, dtype) is dtype:
        self, dtype = in_type(self, dtype), None
    plain = self.dtype in (*_FULL, *HALF) and dtype in (None, self.dtype) and ord in (1, 2, math.inf)
    if plain and rank and self.numel() and any(shape[at] != 1 for at in dims):
        wide = in_type(self, torch.float32) if self.dtype in HALF else self
        if ord == 2:
            found = aten.sqrt.default(aten.sum.dim_IntList(aten.mul.Tensor(wide, wide), dims, keepdim))
        elif ord == 1:
            found = aten.sum.dim_IntList(aten.abs.default(wide), dims, keepdim)
        else:
            found = aten.amax.default(aten.abs.default(wide), dims, keepdim)
        return in_type(found, self.dtype)
    return aten.linalg_vector_norm.default(self, ord, dims if dim else dim, keepdim, dtype=dtype)


@rule("aten.renorm.default")
def _renorm(self: Tensor, p: float, dim: int, maxnorm: float) -> Any:
    rank = self.dim()
    if self.dtype not in _FULL or rank < 2 or not -rank <= dim < rank or not self.is_contiguous():
        return NotImplemented
    if isinstance(p, complex) or isinstance(maxnorm, complex) or not p > 0 or not maxnorm >= 0:
        return NotImplemented
    size = aten.linalg_vector_norm.default(self, p, [at for at in range(rank) if at != dim % rank], True)
    scaled = aten.div.Tensor(constant(self, cast_number(maxnorm, self.dtype)), aten.add.Scalar(size, 1e-7))
    return aten.mul.Tensor(self, aten.where.self(aten.gt.Scalar(size, maxnorm), scaled, constant(self, 1)))
