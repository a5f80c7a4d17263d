"""Fused attention as matrix products and a softmax: torch's flash attention for the CPU, forward and backward.

The products are batched over key/value heads. The query heads that share one (grouped-query attention) lie side by side in the
rows of one product, so nothing is expanded, and the gradients of keys and values come out summed over their group.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eagerdecomp.heads import as_rows, check_attention, reordered, scaling_of, widened
from eagerdecomp.rules import Rule, own
from eagerdecomp.strides import memory_order

__all__ = ["RULES"]

aten = torch.ops.aten


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
    batch, heads, length, _ = query.shape
    groups, keys = key.size(1), key.size(2)
    rows = as_rows(aten.mul.Scalar(widened(query), scaling_of(query, scale)), groups)
    matrices = as_rows(widened(value), groups)
    scores = _scores(rows, as_rows(widened(key), groups), [batch, heads, length, keys], is_causal, attn_mask)
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
    return reordered(out, memory_order(query), query.dtype), reordered(lse, [0, 2, 1], lse.dtype)


def _backward(
    grad_out: Tensor | None,
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
) -> tuple[Tensor, Tensor, Tensor] | tuple[None, None, None]:
    if grad_out is None:  # autograd's undefined gradient
        return None, None, None
    batch, heads, length, _ = query.shape
    groups, keys = key.size(1), key.size(2)
    shape = [batch * groups, heads // groups * length, keys]
    scaling = scaling_of(query, scale)
    wide_grad = widened(grad_out)
    rows = as_rows(aten.mul.Scalar(widened(query), scaling), groups)
    key_rows, value_rows, grad_rows = as_rows(widened(key), groups), as_rows(widened(value), groups), as_rows(wide_grad, groups)
    scores = _scores(rows, key_rows, [batch, heads, length, keys], is_causal, attn_mask)
    weights = aten.exp.default(aten.sub.Tensor(scores, aten.unsqueeze.default(logsumexp, -1)))
    # The softmax's own gradient: weights * (grad_weights - sum(grad_weights * weights)), the sum being grad_out . out.
    inner = aten.sum.dim_IntList(aten.mul.Tensor(wide_grad, widened(out)), [-1], True)
    grad_weights = aten.bmm.default(grad_rows, aten.permute.default(value_rows, [0, 2, 1]))
    centred = aten.sub.Tensor(aten.view.default(grad_weights, scores.shape), inner)
    grad_scores = aten.view.default(aten.mul.Tensor(weights, centred), shape)
    by_key = aten.permute.default(aten.view.default(weights, shape), [0, 2, 1])
    grad_query = aten.mul.Scalar(aten.bmm.default(grad_scores, key_rows), scaling)
    grad_key = aten.bmm.default(aten.permute.default(grad_scores, [0, 2, 1]), rows)
    grad_value = aten.bmm.default(by_key, grad_rows)
    return (
        reordered(aten.view.default(grad_query, query.shape), [0, 2, 1, 3], query.dtype),
        reordered(aten.view.default(grad_key, key.shape), [0, 2, 1, 3], key.dtype),
        reordered(aten.view.default(grad_value, value.shape), [0, 2, 1, 3], value.dtype),
    )


RULES: tuple[Rule, ...] = (
    own(aten._scaled_dot_product_flash_attention_for_cpu.default, _forward),
    own(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, _backward),
)
