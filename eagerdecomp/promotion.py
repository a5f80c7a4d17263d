"""The type that operands are computed in: ATen's promotion, which as an operator would reach the backend."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["floating", "number_like", "promoted"]


def promoted(operands: Sequence[Tensor]) -> torch.dtype:
    """The type that operands promote to: of those with dimensions, unless a kind above theirs has none."""
    highest = max(_kind(x.dtype) for x in operands)
    with_dims = [x.dtype for x in operands if x.dim()]
    deciding = with_dims if any(_kind(dtype) == highest for dtype in with_dims) else [x.dtype for x in operands]
    return functools.reduce(_promote, deciding)


def floating(dtype: torch.dtype) -> torch.dtype:
    """The type that functions of real numbers give: the default one for integers."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def _kind(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1 if dtype is not torch.bool else 0


@functools.cache
def _promote(left: torch.dtype, right: torch.dtype) -> torch.dtype:
    """`torch.promote_types`, which is itself an operator."""
    if _kind(left) < _kind(right):
        left, right = right, left
    if left is right or _kind(right) == 0:
        return left
    if _kind(left) == 3:
        if torch.float64 in (left, right) or torch.complex128 in (left, right):
            return torch.complex128
        single = torch.complex64 in (left, right) or right in (torch.float32, torch.bfloat16)
        return torch.complex64 if single else torch.complex32
    if _kind(left) > _kind(right):
        return left
    if left.itemsize == right.itemsize:  # float16 and bfloat16; uint8 and int8
        return torch.float32 if _kind(left) == 2 else torch.int16
    return left if left.itemsize > right.itemsize else right


def number_like(like: Tensor, value: float) -> Tensor:
    """A number as a tensor without dimensions, of the type and on the device of `like`, which promotes nothing."""
    return torch.ops.aten.full.default([], value, dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]
