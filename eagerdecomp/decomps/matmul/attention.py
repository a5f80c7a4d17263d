"""Fused attention as matrix products and a softmax: torch's flash attention for the CPU, forward and backward.

The products are batched over key/value heads. The query heads that share a key/value head (grouped-query attention) are stacked in
the rows of one product. So nothing is expanded, and the gradients of keys and values are already summed over their group. If the
scores need more than `LARGEST_SCORES` bytes, keys are processed in blocks, as by `blocked_attention`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.attention_heads import (
    as_rows,
    check_attention,
    heads_last,
    largest_block,
    scaling_of,
    visible,
    widened,
    with_strides_of,
)
from eagerdecomp.decomps.matmul.blocked_attention import Blocks, backward_in_blocks, forward_in_blocks
from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import wide_type
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _scores(rows: Tensor, key_rows: Tensor, query: Tensor, key: Tensor, is_causal: bool, attn_mask: Tensor | None) -> Tensor:
    """Return ``rows @ key_rows^T`` for each group, masked. `rows` are scaled queries."""
    scores: Tensor = aten.bmm.default(rows, aten.permute.default(key_rows, [0, 2, 1]))
    if attn_mask is None and not is_causal:
        return scores
    batch, heads, length, _ = query.shape
    groups, keys = key.shape[1], key.shape[2]
    # A 2-D mask, queries by keys, broadcasts to the scores of each head. Other masks need separate batch and head dimensions.
    apart = heads != groups or (attn_mask is not None and attn_mask.dim() != 2)
    if apart:
        scores = aten.view.default(scores, [batch, heads, length, keys])
    if attn_mask is not None:
        scores = aten.add.Tensor(scores, attn_mask)
    if is_causal:
        nothing = aten.full.default([], -math.inf, dtype=wide_type(query.dtype), device=query.device)
        scores = aten.where.self(visible(length, keys, query.device), scores, nothing)
    return aten.view.default(scores, [batch * groups, heads // groups * length, keys]) if apart else scores


@rule("aten._scaled_dot_product_flash_attention_for_cpu.default", recorded=True)
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
    check_attention(query, key, value, dropout_p, attn_mask)
    if size := largest_block(query, key, of_keys=True):
        return forward_in_blocks(Blocks(query, key, value, is_causal, attn_mask, scale, size))
    groups = key.shape[1]
    rows = aten.mul.Scalar(as_rows(query, groups), scaling_of(query, scale))
    # For a single query (decoding), use strided views: a slice of the key/value cache is not copied for each token.
    key_rows, value_rows = (as_rows(x, groups, by_strides=query.shape[2] == 1) for x in (key, value))
    scores = _scores(rows, key_rows, query, key, is_causal, attn_mask)
    if attn_mask is None:
        weights = aten._softmax.default(scores, -1, False)
        out = aten.bmm.default(weights, value_rows)
        # exp(top - lse) is the largest weight of its row, so the log-sum-exp follows from the softmax kernel's result.
        lse = aten.sub.Tensor(aten.amax.default(scores, [-1]), aten.log.default(aten.amax.default(weights, [-1])))
    else:
        # A fully masked row returns zeros, and 0 as its log-sum-exp.
        zero, one = (aten.full.default([], x, dtype=wide_type(query.dtype), device=query.device) for x in (0.0, 1.0))
        top = aten.amax.default(scores, [-1], True)
        top = aten.where.self(aten.eq.Scalar(top, -math.inf), zero, top)
        weights = aten.exp.default(aten.sub.Tensor(scores, top))
        total = aten.sum.dim_IntList(weights, [-1], True)
        total = aten.where.self(aten.eq.Scalar(total, 0), one, total)
        out = aten.div.Tensor(aten.bmm.default(weights, value_rows), total)
        lse = aten.add.Tensor(top, aten.log.default(total))
    batch, heads, length, width = query.shape
    out, lse = aten.view.default(out, [batch, heads, length, width]), aten.view.default(lse, [batch, heads, length])
    return with_strides_of(out, query), heads_last(lse, [batch, heads, length], wide_type(query.dtype))


@rule("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", recorded=True)
def _backward(
    grad_out: Tensor | None, *args: Any, attn_mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor, Tensor] | tuple[None, None, None]:
    query, key, value, out, logsumexp, _, is_causal = args
    if grad_out is None:  # autograd's undefined gradient
        return None, None, None
    if size := largest_block(query, key, of_keys=True):
        return backward_in_blocks(Blocks(query, key, value, is_causal, attn_mask, scale, size), grad_out, out, logsumexp)
    batch, heads, length, width = query.shape
    groups, keys = key.shape[1], key.shape[2]
    by_row = [batch * groups, heads // groups * length, 1]
    scaling = scaling_of(query, scale)
    rows = aten.mul.Scalar(as_rows(query, groups), scaling)
    key_rows, value_rows, grad_rows = (as_rows(x, groups) for x in (key, value, grad_out))
    logsumexp = as_contiguous(logsumexp)
    scores = _scores(rows, key_rows, query, key, is_causal, attn_mask)
    weights = aten.exp.default(aten.sub.Tensor(scores, aten.view.default(logsumexp, by_row)))
    # Gradient of the softmax: weights * (grad_weights - sum(grad_weights * weights)). The sum equals grad_out . out.
    inner = aten.sum.dim_IntList(aten.mul.Tensor(widened(grad_out), widened(out)), [-1], True)
    grad_weights = aten.bmm.default(grad_rows, aten.permute.default(value_rows, [0, 2, 1]))
    grad_scores = aten.mul.Tensor(weights, aten.sub.Tensor(grad_weights, aten.view.default(inner, by_row)))
    grad_query = aten.mul.Scalar(aten.bmm.default(grad_scores, key_rows), scaling)
    grad_key = aten.bmm.default(aten.permute.default(grad_scores, [0, 2, 1]), rows)
    grad_value = aten.bmm.default(aten.permute.default(weights, [0, 2, 1]), grad_rows)
    of_queries, of_keys = [batch, heads, length, width], [batch, groups, keys, width]
    return (
        heads_last(aten.view.default(grad_query, of_queries), of_queries, query.dtype),
        heads_last(aten.view.default(grad_key, of_keys), of_keys, key.dtype),
        heads_last(aten.view.default(grad_value, of_keys), of_keys, value.dtype),
    )
