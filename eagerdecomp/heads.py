"""Heads: attention's operands as matrices, one for each key/value head, and the checks that the fused operator makes of them.

The query heads that share a key/value head (grouped-query attention) lie side by side in the rows of one matrix.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eagerdecomp.precision import HALF
from eagerdecomp.strides import inverse

__all__ = ["as_rows", "check_attention", "reordered", "scaling_of", "widened"]

aten = torch.ops.aten

_NAME = "scaled_dot_product_attention_flash_attention"
_TYPE_NAMES = {torch.float32: "Float", torch.float64: "Double", torch.bfloat16: "BFloat16", torch.float16: "Half"}


def check_attention(query: Tensor, key: Tensor, value: Tensor, dropout_p: float, attn_mask: Tensor | None) -> None:
    """The operator's own checks, in its order, and its messages."""
    if query.dtype not in _TYPE_NAMES:
        shown = str(query.dtype).removeprefix("torch.").removesuffix("32").removesuffix("64").capitalize()
        raise RuntimeError(f"{_NAME}: Expected data type in FP32, FP64, BF16, FP16, but got {shown} instead.")
    if not query.dim() == key.dim() == value.dim() == 4:
        raise RuntimeError(f"{_NAME}: Accept only 4 dims inputs shape of {{B, H, T, K}}")
    if dropout_p != 0.0:
        raise RuntimeError(f"{_NAME}: Currently do not support dropout > 0")
    if not query.size(3) == key.size(3) == value.size(3):
        raise RuntimeError(f"{_NAME}: Q/K/V should have the same head size")
    for other in (key, value):
        if other.dtype is not query.dtype:
            found = _TYPE_NAMES.get(other.dtype, str(other.dtype).removeprefix("torch."))
            raise RuntimeError(f"expected scalar type {_TYPE_NAMES[query.dtype]} but found {found}")
    if attn_mask is not None:
        if attn_mask.dtype not in (torch.float32, query.dtype):
            raise RuntimeError(f"{_NAME}: Attention mask is the same data type as query")
        if attn_mask.dim() not in (2, 4):
            raise RuntimeError(f"{_NAME}: Attention mask dim in {{2, 4}}")


def as_rows(x: Tensor, groups: int) -> Tensor:
    """``[B, groups * g, L, D]`` as a matrix per group, ``[B * groups, g * L, D]``: a view where strides allow, else of a copy."""
    batch, heads, length, width = x.shape
    shared = heads // groups
    batches_merge = batch == 1 or groups == 1 or x.stride(0) == groups * shared * x.stride(1)
    heads_merge = shared == 1 or length == 1 or x.stride(1) == length * x.stride(2)
    if not (batches_merge and heads_merge):
        x = aten.clone.default(x, memory_format=torch.contiguous_format)
    matrices: Tensor = aten.view.default(x, [batch * groups, shared * length, width])
    return matrices


def widened(x: Tensor) -> Tensor:
    """Half types multiply exactly in float32, as the operator's kernel accumulates."""
    if x.dtype in HALF:
        x = aten._to_copy.default(x, dtype=torch.float32, memory_format=torch.contiguous_format)
    return x


def scaling_of(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.size(3)) if scale is None else scale


def reordered(x: Tensor, order: list[int], dtype: torch.dtype) -> Tensor:
    """`x`, contiguous, in the given dtype, its dimensions in the given order in memory."""
    kept = order == sorted(order)
    if not kept:
        x = aten.permute.default(x, order)
    if x.dtype is not dtype:
        x = aten._to_copy.default(x, dtype=dtype, memory_format=torch.contiguous_format)
    elif not kept:
        x = aten.clone.default(x, memory_format=torch.contiguous_format)
    return x if kept else aten.permute.default(x, inverse(order))
