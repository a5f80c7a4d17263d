"""Resampling along a dimension: sums of taps, their transposes, and uint8 with 16-bit weights.

An output element is a weighted sum of a few input elements, its *taps*: `index` and `weights` are both [taps, count].
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

__all__ = ["contract", "in_bytes", "ratio_of", "rounded", "spread_to_taps", "sum_of_taps"]

aten = torch.ops.aten

#: The integers with the bits of a dtype, and the bits of its mantissa.
_BITS = {torch.float64: (torch.int64, 52), torch.float32: (torch.int32, 23)}


def rounded(value: float, dtype: torch.dtype) -> float:
    """Return a number rounded to float32 if `dtype` is float32, as its kernel stores it."""
    if dtype is torch.float32:
        (value,) = struct.unpack("f", struct.pack("f", value))
    return value


def ratio_of(size: int, count: int, align_corners: bool, scale: float | None) -> float:
    """Return the number of input elements per step of the output."""
    if align_corners:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return 1 / scale if scale is not None and scale > 0 else size / count


def sum_of_taps(x: Tensor, dim: int, index: Tensor, weights: Tensor) -> Tensor:
    """Return ``sum_t weights[t, o] * x[..., index[t, o], ...]`` over `dim`. An infinity affects only the windows with it."""
    gathered = aten.index.Tensor(x, [*[None] * dim, index])
    return aten.sum.dim_IntList(aten.mul.Tensor(gathered, _along(weights, x.dim() - 1 - dim)), [dim])  # type: ignore[no-any-return]


def spread_to_taps(grad: Tensor, dim: int, size: int, index: Tensor, weights: Tensor | None) -> Tensor:
    """Compute the transpose of `sum_of_taps`: add each element, times its weights, to its taps among `size` elements.

    `weights` is None for a single tap of weight 1.
    """
    shape, inner = list(grad.shape), grad.dim() - 1 - dim
    zeros = aten.full.default([*shape[:dim], size, *shape[dim + 1 :]], 0, dtype=grad.dtype, device=grad.device)
    if weights is not None:
        grad = aten.mul.Tensor(aten.unsqueeze.default(grad, dim), _along(weights, inner))
    if inner:  # whole rows are added: half the time of `scatter_add`, which for single numbers takes a third of this
        return aten.index_put.default(zeros, [*[None] * dim, index], grad, True)  # type: ignore[no-any-return]
    if weights is not None:
        shape[dim] = index.numel()
        grad, index = aten.reshape.default(grad, shape), aten.view.default(index, [-1])
    return aten.scatter_add.default(zeros, dim, aten.expand.default(index, shape), grad)  # type: ignore[no-any-return]


def _along(weights: Tensor, inner: int) -> Tensor:
    return aten.view.default(weights, [*weights.shape, *[1] * inner]) if inner else weights


def contract(x: Tensor, dim: int, matrix: Tensor) -> Tensor:
    """Return ``sum_o matrix[i, o] * x[..., o, ...]`` over dimension `dim`."""
    shape, outer, inner = x.shape, 1, 1
    for size in shape[:dim]:
        outer *= size
    for size in shape[dim + 1 :]:
        inner *= size
    result = [*shape[:dim], matrix.size(0), *shape[dim + 1 :]]
    if inner == 1:
        rows = aten.reshape.default(x, [outer, shape[dim]])
        return aten.view.default(aten.mm.default(rows, aten.permute.default(matrix, [1, 0])), result)  # type: ignore[no-any-return]
    planes = aten.reshape.default(x, [outer, shape[dim], inner])
    spread = aten.expand.default(matrix, [outer, *matrix.shape])
    return aten.view.default(aten.bmm.default(spread, planes), result)  # type: ignore[no-any-return]


def in_bytes(x: Tensor, dim: int, matrix: Tensor) -> Tensor:
    """Contract uint8 with 16-bit weights and round to uint8 values. float64 computes all of this exactly."""
    # Use as many bits as possible with the largest weight below 2^15. Without its mantissa, the quotient is a power of 2, also on
    # sets whose logarithm and powers are rounded.
    room = aten.mul.Scalar(aten.reciprocal.default(aten.amax.default(matrix)), 32767.5)
    integers, mantissa = _BITS[matrix.dtype]
    bits = aten.view.dtype(aten.clamp.default(room, None, 2.0**22), integers)
    unit = aten.view.dtype(aten.bitwise_and.Scalar(bits, -(2**mantissa)), matrix.dtype)
    scaled = aten.mul.Tensor(matrix, unit)
    scaled = aten.trunc.default(aten.add.Tensor(scaled, aten.sign.default(scaled), alpha=0.5))
    x = aten.div.Tensor(contract(x, dim, scaled), unit)
    return aten.clamp.default(aten.floor.default(aten.add.Scalar(x, 0.5)), 0, 255)  # type: ignore[no-any-return]
