"""Attention operands as a matrix per key/value head, and which calls of the fused op rules cover.

The query heads that share a key/value head (grouped-query attention) are stacked in the rows of one matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import HALF, wide_type
from eagerdecomp.eager.verdict import Declined

__all__ = ["as_rows", "check_attention", "heads_last", "largest_block", "with_strides_of", "scaling_of", "visible", "widened"]

aten = torch.ops.aten

#: Bytes of the scores of all heads above which attention runs in blocks. Forward holds about three tensors of this size, and
#: backward five: a small GPU has that much memory, and blocks of this size keep a large one busy.
LARGEST_SCORES = 1 << 30


def largest_block(query: Tensor, key: Tensor, *, of_keys: bool = False) -> int:
    """Return the largest number of queries, or of keys, whose scores fit `LARGEST_SCORES`; 0 if all fit."""
    most = LARGEST_SCORES // wide_type(query.dtype).itemsize
    batch, heads, length, keys = *query.shape[:3], key.shape[2]
    if batch * heads * length * keys <= most:
        return 0
    return max(1, most // int(batch * heads * (length if of_keys else keys)))


def check_attention(query: Tensor, key: Tensor, value: Tensor, dropout_p: float, attn_mask: Tensor | None) -> None:
    """Decline calls that eager refuses. Eager is not asked after a rule of the user, such as `blocked_attention`, declined."""
    dtype = query.dtype
    fits = dtype is key.dtype is value.dtype and dtype in (*HALF, torch.float32, torch.float64) and dropout_p == 0.0
    fits = fits and query.dim() == key.dim() == value.dim() == 4 and query.size(3) == key.size(3) == value.size(3)
    if not fits or (attn_mask is not None and (attn_mask.dtype not in (torch.float32, dtype) or attn_mask.dim() not in (2, 4))):
        raise Declined


def as_rows(x: Tensor, groups: int, *, by_strides: bool = False) -> Tensor:
    """Widen ``[B, groups * g, L, D]`` and view it as a matrix per group, ``[B * groups, g * L, D]``. Copy it if necessary.

    With `by_strides`, a non-contiguous tensor is viewed without a copy if its strides allow that. Strides differ from length to
    length, so each length then needs its own program.
    """
    batch, heads, length, width = x.shape
    if x.dtype in HALF:
        x = widened(x)
    elif not x.is_contiguous() and not (heads == groups and batch == 1) and not (by_strides and _heads_merge(x, groups)):
        x = aten.clone.default(x, memory_format=torch.contiguous_format)
    matrices: Tensor = aten.view.default(x, [batch * groups, heads // groups * length, width])
    return matrices


def _heads_merge(x: Tensor, groups: int) -> bool:
    batch, heads, length, _ = x.shape
    shared = heads // groups
    batches_merge = batch == 1 or groups == 1 or x.stride(0) == groups * shared * x.stride(1)
    return batches_merge and (shared == 1 or length == 1 or x.stride(1) == length * x.stride(2))


def widened(x: Tensor) -> Tensor:
    """Widen float16 and bfloat16 to float32, in which the op's kernel accumulates. Their products are exact in float32."""
    if x.dtype in HALF:
        x = aten._to_copy.default(x, dtype=torch.float32, memory_format=torch.contiguous_format)
    return x


def scaling_of(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.size(3)) if scale is None else scale


def heads_last(x: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return `x`, ``[B, H, L, *]``, in `dtype` and with the memory order ``[B, L, H, *]``."""
    narrow = {"dtype": dtype} if dtype in HALF else None
    if shape[1] == 1 or shape[2] == 1:  # no order to change
        return x if narrow is None else aten._to_copy.default(x, **narrow)
    order = [0, 2, 1, 3][: len(shape)]
    turned = aten.permute.default(x, order)
    if narrow is None:
        moved = aten.clone.default(turned, memory_format=torch.contiguous_format)
    else:
        moved = aten._to_copy.default(turned, memory_format=torch.contiguous_format, **narrow)
    return aten.permute.default(moved, order)  # type: ignore[no-any-return]


def with_strides_of(x: Tensor, like: Tensor) -> Tensor:
    """Return the contiguous `x` in the dtype of `like`, with the strides of ``empty_like(like)``."""
    if not like.is_contiguous():
        return aten.copy_.default(aten.full_like.default(like, 0), x)  # type: ignore[no-any-return]
    return aten._to_copy.default(x, dtype=like.dtype) if like.dtype in HALF else x


def visible(length: int, keys: int, device: torch.device) -> Tensor:
    """Return which keys each query sees in causal attention, aligned at the top left, even if the lengths differ."""
    row = aten.arange.start_step(0, length, device=device)
    column = aten.unsqueeze.default(row, 1)
    return aten.ge.Tensor(column, row if keys == length else aten.arange.start_step(0, keys, device=device))  # type: ignore[no-any-return]
