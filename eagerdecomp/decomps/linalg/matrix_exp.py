"""The matrix exponential by scaling and squaring, each matrix of a batch by its own norm, without reading data.

It takes some 120 kernel calls: the number of squarings that a matrix needs is data, so all squarings for the largest supported norm
are computed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import batch_shape, eye, folded, unfolded
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: The degree of the Taylor polynomial, a multiple of 4, and the norm up to which its error is below rounding.
_TAYLOR = {
    torch.float32: (16, 2.5),
    torch.complex64: (16, 2.5),
    torch.float64: (20, 1.5),
    torch.complex128: (20, 1.5),
}

#: The number of squarings: norms up to ``2 ** SQUARINGS`` are supported, and each matrix uses the result of the squaring it needs.
#: After the first `_SINGLE`, where all accuracy is lost anyway, only every fourth result is used, so a matrix may get more
#: squarings than it needs.
SQUARINGS = 40
_SINGLE = 16
_STEPS = (*range(_SINGLE), *range(_SINGLE, SQUARINGS, 4))


def _taylor(x: Tensor, degree: int) -> Tensor:
    """Evaluate the Taylor polynomial by Paterson and Stockmeyer: three powers, then Horner's rule in the fourth."""
    second = aten.bmm.default(x, x)
    third = aten.bmm.default(second, x)
    fourth = aten.bmm.default(second, second)
    unit = eye(x.size(1), x)
    found = aten.mul.Scalar(fourth, 1 / math.factorial(degree))
    for low in range(degree - 4, -1, -4):
        for offset, power in ((3, third), (2, second), (1, x), (0, unit)):
            found = aten.add.Tensor(found, power, alpha=1 / math.factorial(low + offset))
        if low:
            found = aten.bmm.default(found, fourth)
    return found  # type: ignore[no-any-return]


def _exponential(x: Tensor) -> Tensor:
    """Return the matrix exponential of ``[Q, n, n]``: 84 calls for the squarings, and up to 45 for the polynomial.

    It is NaN for matrices that are not finite, and for norms above the supported range.
    """
    degree, bound = _TAYLOR[x.dtype]
    norm = aten.amax.default(aten.sum.dim_IntList(aten.abs.default(x), [1], True), [2], True)
    needed = aten.ceil.default(aten.log2.default(aten.mul.Scalar(norm, 1 / bound)))
    by_fours = aten.mul.Scalar(aten.ceil.default(aten.mul.Scalar(needed, 0.25)), 4)
    needed = aten.where.self(aten.gt.Scalar(needed, _SINGLE), by_fours, needed)
    needed = aten.where.self(aten.le.Scalar(needed, SQUARINGS), aten.clamp.default(needed, 0), number_like(needed, math.nan))
    found = _taylor(aten.mul.Tensor(x, aten.pow.Scalar(2.0, aten.neg.default(needed))), degree)
    for done in _STEPS:
        power = found
        for _ in range(1 if done < _SINGLE else 4):
            power = aten.bmm.default(power, power)
        found = aten.where.self(aten.gt.Scalar(needed, done), power, found)
    return found


@rule("aten.linalg_matrix_exp.default", recorded=True)
def _linalg_matrix_exp(self: Tensor) -> Tensor:
    if self.numel() == 0:
        return aten.empty.memory_format(self.shape, dtype=self.dtype, device=self.device)  # type: ignore[no-any-return]
    if self.size(-1) == 1:
        return aten.exp.default(self)  # type: ignore[no-any-return]
    x = folded(self)
    if x.dtype not in _TAYLOR:
        wide = _exponential(aten._to_copy.default(x, dtype=torch.float32))
        return unfolded(aten._to_copy.default(wide, dtype=self.dtype), batch_shape(self))
    return unfolded(_exponential(x), batch_shape(self))
