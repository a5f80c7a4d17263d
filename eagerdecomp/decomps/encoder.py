"""The transformer encoder's fused inference path: multi-head attention and a whole layer, as linear maps, a softmax and norms.

Formulas follow ATen's `native/transformers/attention.cpp` and `transformer.cpp`. Calls with nested tensors are declined.
"""

from __future__ import annotations

import math
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
    """``query`` ``[B, L, E]``, ``key``, ``value`` ``[B, S, E]`` -> context ``[B, L, E]``, weights ``[B, L, S]`` (or per head)."""
    if any(x.is_nested for x in (query, key, value)):
        return NotImplemented
    if query.dim() != 3:
        raise RuntimeError(f"expected 3-D `query`, got {query.dim()}-D tensor")
    if query.size(2) != embed_dim or qkv_weight.size(0) != 3 * embed_dim:
        raise RuntimeError("passed-in embed_dim and the sizes of query and qkv_weight do not fit")
    width = embed_dim // num_head
    weights = aten.split.Tensor(qkv_weight, embed_dim)
    biases = aten.split.Tensor(qkv_bias, embed_dim)
    heads = [
        _heads(aten.linear.default(x, weight, bias), num_head, width)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    ]
    scores = aten.matmul.default(aten.mul.Scalar(heads[0], 1 / math.sqrt(width)), aten.transpose.int(heads[1], 2, 3))
    if mask is None:
        attention = aten._softmax.default(scores, 3, False)
    else:
        attention = masked_softmax(scores, aten._to_copy.default(mask, dtype=torch.bool), 3, mask_type)
    context = aten.matmul.default(attention, heads[2])
    joined = aten.reshape.default(aten.permute.default(context, [0, 2, 1, 3]), [query.size(0), query.size(1), embed_dim])
    projected = aten.linear.default(joined, proj_weight, proj_bias)
    if not need_weights:
        # Eager answers an undefined tensor, which Python sees as None.
        return projected, None
    if average_attn_weights:
        return projected, aten.div.Scalar(aten.sum.dim_IntList(attention, [1]), num_head)
    return projected, attention


def _heads(x: Tensor, heads: int, width: int) -> Tensor:
    split: Tensor = aten.permute.default(aten.view.default(x, [x.size(0), x.size(1), heads, width]), [0, 2, 1, 3])
    return split


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

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return aten.native_layer_norm.default(x, [embed_dim], weight, bias, eps)[0]  # type: ignore[no-any-return]

    def attend(x: Tensor) -> Tensor:
        attended: Tensor = multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, False, mask_type
        )[0]
        return attended

    def feed_forward(x: Tensor) -> Tensor:
        hidden = aten.linear.default(x, ffn_weight_1, ffn_bias_1)
        hidden = aten.gelu.default(hidden) if use_gelu else aten.relu.default(hidden)
        return aten.linear.default(hidden, ffn_weight_2, ffn_bias_2)  # type: ignore[no-any-return]

    if norm_first:
        x = aten.add.Tensor(attend(norm(src, norm_weight_1, norm_bias_1)), src)
        last: Tensor = aten.add.Tensor(feed_forward(norm(x, norm_weight_2, norm_bias_2)), x)
        return last
    x = norm(aten.add.Tensor(attend(src), src), norm_weight_1, norm_bias_1)
    return norm(aten.add.Tensor(feed_forward(x), x), norm_weight_2, norm_bias_2)


RULES: tuple[Rule, ...] = (
    own(aten._masked_softmax.default, masked_softmax),
    own(aten._native_multi_head_attention.default, multi_head_attention),
    own(aten._transformer_encoder_layer_fwd.default, encoder_layer),
)
