"""The transformer encoder's fused inference path: multi-head attention and a whole layer, as linear maps, a softmax and norms.

Formulas follow ATen's `native/transformers/attention.cpp` and `transformer.cpp`. Calls with nested tensors are declined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules import Rule, own

__all__ = ["RULES"]

aten = torch.ops.aten

# The meanings of `mask_type`.
_OF_ATTENTION, _OF_PADDING, _OF_BOTH = 0, 1, 2


def masked_softmax(self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
    """Softmax over the entries of ``[B, H, L, S]`` that the mask leaves (true masks out); a row without any is NaN."""
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"Mask should be a boolean tensor, not {mask.dtype}")
    if mask_type is None:
        raise RuntimeError("Mask Type should be defined - 0 for L x L src_mask, 1 for B x L src_key_padding_mask, or 2 for general")
    wide = mask
    if mask_type == _OF_PADDING:
        wide = aten.view.default(mask, [mask.size(0), 1, 1, mask.size(1)])
    minus_infinity = aten.scalar_tensor.default(-math.inf, dtype=self.dtype, device=self.device)
    scores = aten.where.self(wide, minus_infinity, self)
    softened: Tensor = aten._softmax.default(scores, self.dim() - 1 if dim is None else dim, False)
    return softened


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """``query``, ``key``, ``value`` ``[B, L, E]`` -> context ``[B, L, E]``, weights ``[B, L, L]`` (or per head)."""
    if any(x.is_nested for x in (query, key, value)):
        return NotImplemented
    if query.dim() != 3:
        raise RuntimeError(f"expected 3-D `query`, got {query.dim()}-D tensor")
    if query.shape[2] != embed_dim or qkv_weight.shape[0] != 3 * embed_dim:
        raise RuntimeError("passed-in embed_dim and the sizes of query and qkv_weight do not fit")
    if not query.shape == key.shape == value.shape:
        raise RuntimeError("expected `query`/`key`/`value` shapes to match")
    batch, length, _ = query.shape
    if query is key and key is value:
        heads = _heads(_rows(query), batch, length, num_head, 3, qkv_weight, qkv_bias)
    else:
        weights, biases = ([*aten.split_with_sizes.default(x, [embed_dim] * 3)] for x in (qkv_weight, qkv_bias))
        each = zip((query, key, value), weights, biases, strict=True)
        heads = [_heads(_rows(x), batch, length, num_head, 1, weight, bias)[0] for x, weight, bias in each]
    context, attention = _attended(heads, batch, length, num_head, embed_dim // num_head, mask, mask_type)
    projected = aten.view.default(_linear(context, proj_weight, proj_bias), [batch, length, embed_dim])
    if not need_weights:
        # Eager answers an undefined tensor, which Python sees as None.
        return projected, None
    attention = aten.view.default(attention, [batch, num_head, length, length])
    if average_attn_weights:
        return projected, aten.div.Scalar(aten.sum.dim_IntList(attention, [1]), num_head)
    return projected, attention


def _rows(x: Tensor) -> Tensor:
    """``[B, L, E]`` -> ``[B * L, E]``."""
    if not x.is_contiguous():
        x = aten.clone.default(x, memory_format=torch.contiguous_format)
    return aten.view.default(x, [x.shape[0] * x.shape[1], x.shape[2]])  # type: ignore[no-any-return]


def _linear(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return aten.addmm.default(bias, rows, aten.permute.default(weight, [1, 0]))  # type: ignore[no-any-return]


def _heads(rows: Tensor, batch: int, length: int, heads: int, count: int, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """`count` linear maps of rows, side by side in `weight`: each as a matrix per head, ``[B * H, L, W]``."""
    width = weight.shape[0] // (count * heads)
    split = aten.view.default(_linear(rows, weight, bias), [batch, length, count, heads, width])
    apart = aten.clone.default(aten.permute.default(split, [2, 0, 3, 1, 4]), memory_format=torch.contiguous_format)
    matrices = aten.view.default(apart, [count * batch * heads, length, width])
    return [matrices] if count == 1 else aten.split_with_sizes.default(matrices, [batch * heads] * count)


def _attended(
    heads: Sequence[Tensor], batch: int, length: int, count: int, width: int, mask: Tensor | None, mask_type: int | None
) -> tuple[Tensor, Tensor]:
    """Query, key and value heads -> context ``[B * L, E]`` and weights ``[B * H, L, L]``."""
    query, key, value = heads
    scores = aten.bmm.default(aten.mul.Scalar(query, 1 / math.sqrt(width)), aten.permute.default(key, [0, 2, 1]))
    if mask is None:
        weights = aten._softmax.default(scores, 2, False)
    else:
        scores = aten.view.default(scores, [batch, count, length, length])
        softened = masked_softmax(scores, aten._to_copy.default(mask, dtype=torch.bool), 3, mask_type)
        weights = aten.view.default(softened, [batch * count, length, length])
    context = aten.view.default(aten.bmm.default(weights, value), [batch, count, length, width])
    joined = aten.clone.default(aten.permute.default(context, [0, 2, 1, 3]), memory_format=torch.contiguous_format)
    return aten.view.default(joined, [batch * length, count * width]), weights


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """A whole encoder layer in evaluation: attention and feed-forward, each added to its input, norms before or after."""
    if src.is_nested:
        return NotImplemented

    batch, length, _ = src.shape

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return aten.native_layer_norm.default(x, [embed_dim], weight, bias, eps)[0]  # type: ignore[no-any-return]

    def attend(x: Tensor) -> Tensor:
        heads = _heads(x, batch, length, num_heads, 3, qkv_weight, qkv_bias)
        context, _ = _attended(heads, batch, length, num_heads, embed_dim // num_heads, mask, mask_type)
        return _linear(context, proj_weight, proj_bias)

    def feed_forward(x: Tensor) -> Tensor:
        hidden = _linear(x, ffn_weight_1, ffn_bias_1)
        hidden = aten.gelu.default(hidden) if use_gelu else aten.relu.default(hidden)
        return _linear(hidden, ffn_weight_2, ffn_bias_2)

    rows = _rows(src)
    if norm_first:
        rows = aten.add.Tensor(attend(norm(rows, norm_weight_1, norm_bias_1)), rows)
        rows = aten.add.Tensor(feed_forward(norm(rows, norm_weight_2, norm_bias_2)), rows)
    else:
        rows = norm(aten.add.Tensor(attend(rows), rows), norm_weight_1, norm_bias_1)
        rows = norm(aten.add.Tensor(feed_forward(rows), rows), norm_weight_2, norm_bias_2)
    return aten.view.default(rows, [batch, length, embed_dim])


RULES: tuple[Rule, ...] = (
    own(aten._masked_softmax.default, masked_softmax),
    own(aten._native_multi_head_attention.default, multi_head_attention),
    own(aten._transformer_encoder_layer_fwd.default, encoder_layer),
)
