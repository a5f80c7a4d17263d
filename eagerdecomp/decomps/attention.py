"""Fused attention as matrix products and a softmax: torch's flash attention for the CPU, forward and backward.

The products are batched over key/value heads. The query heads that share one (grouped-query attention) lie side by side in the
rows of one product, so nothing is expanded, and the gradients of keys and values come out summed over their group.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eagerdecomp.rules import Rule, own
from eagerdecomp.strides import inverse, memory_order

__all__ = ["RULES"]

aten = torch.ops.aten

_NAME = "scaled_dot_product_attention_flash_attention"
_TYPE_NAMES = {torch.float32: "Float", torch.float64: "Double", torch.bfloat16: "BFloat16", torch.float16: "Half"}


def _check(query: Tensor, key: Tensor, value: Tensor, dropout_p: float, attn_mask: Tensor | None) -> None:
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


def _rows(x: Tensor, groups: int) -> Tensor:
    """``[B, groups * g, L, D]`` as a matrix per group, ``[B * groups, g * L, D]``: a view where strides allow, else of a copy."""
    batch, heads, length, width = x.shape
    shared = heads // groups
    batches_merge = batch == 1 or groups == 1 or x.stride(0) == groups * shared * x.stride(1)
    heads_merge = shared == 1 or length == 1 or x.stride(1) == length * x.stride(2)
    if not (batches_merge and heads_merge):
        x = aten.clone.default(x, memory_format=torch.contiguous_format)
    rows: Tensor = aten.view.default(x, [batch * groups, shared * length, width])
    return rows


def _wide(x: Tensor) -> Tensor:
    """Half types multiply exactly in float32, as the operator's kernel accumulates."""
    if x.dtype in (torch.bfloat16, torch.float16):
        x = aten._to_copy.default(x, dtype=torch.float32, memory_format=torch.contiguous_format)
    return x


def _scaling(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.size(3)) if scale is None else scale


def _scores(rows: Tensor, key: Tensor, shape: list[int], is_causal: bool, attn_mask: Tensor | None) -> Tensor:
    """``rows @ key^T`` as ``[B, H, L, S]``, masked; `rows` are scaled queries."""
    scores: Tensor = aten.view.default(aten.bmm.default(rows, aten.permute.default(key, [0, 2, 1])), shape)
    if attn_mask is not None:
        scores = aten.add.Tensor(scores, attn_mask)
    if is_causal:
        # Counted from the top left, also where L differs from S.
        device = scores.device
        row = aten.unsqueeze.default(aten.arange.start_step(0, shape[2], 1, device=device), 1)
        seen = aten.ge.Tensor(row, aten.arange.start_step(0, shape[3], 1, device=device))
        scores = aten.where.self(seen, scores, aten.full.default([], -math.inf, dtype=scores.dtype, device=device))
    return scores


def _reordered(x: Tensor, order: list[int], dtype: torch.dtype) -> Tensor:
    """`x`, contiguous, in the given dtype, its dimensions in the given order in memory."""
    kept = order == sorted(order)
    if not kept:
        x = aten.permute.default(x, order)
    if x.dtype is not dtype:
        x = aten._to_copy.default(x, dtype=dtype, memory_format=torch.contiguous_format)
    elif not kept:
        x = aten.clone.default(x, memory_format=torch.contiguous_format)
    return x if kept else aten.permute.default(x, inverse(order))


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    _check(query, key, value, dropout_p, attn_mask)
    batch, heads, length, _ = query.shape
    groups, keys = key.size(1), key.size(2)
    rows = _rows(aten.mul.Scalar(_wide(query), _scaling(query, scale)), groups)
    matrices = _rows(_wide(value), groups)
    scores = _scores(rows, _rows(_wide(key), groups), [batch, heads, length, keys], is_causal, attn_mask)
    shape = [batch * groups, heads // groups * length, keys]
    if attn_mask is None:
        # exp(top - lse) is the largest weight of its row, so the softmax kernel's answer holds the log-sum-exp.
        weights = aten._softmax.default(scores, -1, False)
        lse = aten.sub.Tensor(aten.amax.default(scores, [-1]), aten.log.default(aten.amax.default(weights, [-1])))
        out = aten.view.default(aten.bmm.default(aten.view.default(weights, shape), matrices), query.shape)
    else:
        # A row that the mask empties answers zeros, and 0 for its log-sum-exp.
        top = aten.amax.default(scores, [-1], True)
        zero = aten.full.default([], 0.0, dtype=top.dtype, device=top.device)
        one = aten.full.default([], 1.0, dtype=top.dtype, device=top.device)
        top = aten.where.self(aten.eq.Scalar(top, -math.inf), zero, top)
        weights = aten.exp.default(aten.sub.Tensor(scores, top))
        total = aten.sum.dim_IntList(weights, [-1], True)
        total = aten.where.self(aten.eq.Scalar(total, 0), one, total)
        lse = aten.squeeze.dim(aten.add.Tensor(top, aten.log.default(total)), -1)
        product = aten.bmm.default(aten.view.default(weights, shape), matrices)
        out = aten.div.Tensor(aten.view.default(product, query.shape), total)
    return _reordered(out, memory_order(query), query.dtype), _reordered(lse, [0, 2, 1], lse.dtype)


def _backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, length, _ = query.shape
    groups, keys = key.size(1), key.size(2)
    shape = [batch * groups, heads // groups * length, keys]
    scaling = _scaling(query, scale)
    wide_grad = _wide(grad_out)
    rows = _rows(aten.mul.Scalar(_wide(query), scaling), groups)
    key_rows, value_rows, grad_rows = _rows(_wide(key), groups), _rows(_wide(value), groups), _rows(wide_grad, groups)
    scores = _scores(rows, key_rows, [batch, heads, length, keys], is_causal, attn_mask)
    weights = aten.exp.default(aten.sub.Tensor(scores, aten.unsqueeze.default(logsumexp, -1)))
    # The softmax's own gradient: weights * (grad_weights - sum(grad_weights * weights)), the sum being grad_out . out.
    inner = aten.sum.dim_IntList(aten.mul.Tensor(wide_grad, _wide(out)), [-1], True)
    grad_weights = aten.bmm.default(grad_rows, aten.permute.default(value_rows, [0, 2, 1]))
    centred = aten.sub.Tensor(aten.view.default(grad_weights, scores.shape), inner)
    grad_scores = aten.view.default(aten.mul.Tensor(weights, centred), shape)
    by_key = aten.permute.default(aten.view.default(weights, shape), [0, 2, 1])
    grad_query = aten.mul.Scalar(aten.bmm.default(grad_scores, key_rows), scaling)
    grad_key = aten.bmm.default(aten.permute.default(grad_scores, [0, 2, 1]), rows)
    grad_value = aten.bmm.default(by_key, grad_rows)
    return (
        _reordered(aten.view.default(grad_query, query.shape), [0, 2, 1, 3], query.dtype),
        _reordered(aten.view.default(grad_key, key.shape), [0, 2, 1, 3], key.dtype),
        _reordered(aten.view.default(grad_value, value.shape), [0, 2, 1, 3], value.dtype),
    )


RULES: tuple[Rule, ...] = (
    own(aten._scaled_dot_product_flash_attention_for_cpu.default, _forward),
    own(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, _backward),
)
