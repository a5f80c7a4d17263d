"""The transformer encoder's fused inference path: multi-head attention and a whole layer, as linear maps, a softmax and norms.

Formulas follow ATen's `native/transformers/attention.cpp` and `transformer.cpp`. Calls with nested tensors are declined. The rules
are linked, so that their twenty arguments need no cache key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import in_type, widened
from eagerdecomp.eager.strides import in_order, memory_order
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

# The values of `mask_type`.
_OF_ATTENTION, _OF_PADDING, _OF_BOTH = 0, 1, 2


@rule("aten._masked_softmax.default")
def masked_softmax(self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
    """Return the softmax over the unmasked entries (True masks an entry). A fully masked row is NaN.

    A 2-D mask for a 4-D input is expanded as `mask_type` says; any other mask must have the input's shape. For a non-contiguous
    input, eager's kernel returns elements in the wrong order.
    """
    wide, fits = mask, mask.shape == self.shape
    if mask.dim() == 2 and self.dim() == 4:
        batch, _, length, keys = self.shape
        shapes: dict[int | None, list[int]] = {_OF_ATTENTION: [1, 1, length, length], _OF_PADDING: [batch, 1, 1, length]}
        shape = shapes.get(mask_type)
        fits = shape is not None and list(mask.shape) == [shape[0] * shape[2], length] and length in (1, keys)
        wide = aten.view.default(as_contiguous(mask), shape) if fits else mask
    if not fits or mask.dtype is not torch.bool or not self.dtype.is_floating_point:
        raise Declined
    minus_infinity = aten.scalar_tensor.default(-math.inf, dtype=self.dtype, device=self.device)
    softened: Tensor = aten._softmax.default(aten.where.self(wide, minus_infinity, self), -1 if dim is None else dim, False)
    strides = in_order(self.shape, memory_order(self))
    if not softened.numel() or list(softened.stride()) == strides:
        return softened
    return aten.copy_.default(aten.empty_strided.default(self.shape, strides, dtype=self.dtype, device=self.device), softened)  # type: ignore[no-any-return]


@rule("aten._native_multi_head_attention.default")
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
    """Map ``query``, ``key``, ``value`` ``[B, L, E]`` to context ``[B, L, E]`` and weights ``[B, L, L]`` (or per head)."""
    if any(x.is_nested for x in (query, key, value)) or not query.shape == key.shape == value.shape:
        return NotImplemented
    if query.dim() != 3 or query.shape[2] != embed_dim or qkv_weight.shape[0] != 3 * embed_dim:
        return NotImplemented
    batch, length, _ = query.shape

    def heads() -> Sequence[Any]:
        if query is key and key is value:
            return _heads(_rows(query), batch, length, num_head, 3, qkv_weight, qkv_bias)
        weights, biases = ([*aten.split_with_sizes.default(x, [embed_dim] * 3)] for x in (qkv_weight, qkv_bias))
        each = zip((query, key, value), weights, biases, strict=True)
        return [_heads(_rows(x), batch, length, num_head, 1, weight, bias)[0] for x, weight, bias in each]

    context, attention = _attended(heads(), batch, length, num_head, embed_dim // num_head, mask, mask_type)
    projected = aten.view.default(_linear(context, proj_weight, proj_bias), [batch, length, embed_dim])
    if not need_weights:
        # Eager returns an undefined tensor, which Python sees as None.
        return projected, None
    attention = aten.view.default(attention, [batch, num_head, length, length])
    if average_attn_weights:
        return projected, aten.div.Scalar(aten.sum.dim_IntList(attention, [1]), num_head)
    return projected, attention


def _rows(x: Tensor) -> Any:
    """View ``[B, L, E]`` as ``[B * L, E]``."""
    x = as_contiguous(x)
    return aten.view.default(x, [x.shape[0] * x.shape[1], x.shape[2]])


def _linear(rows: Tensor, weight: Tensor, bias: Tensor) -> Any:
    return aten.addmm.default(bias, rows, aten.permute.default(weight, [1, 0]))


def _heads(rows: Tensor, batch: int, length: int, heads: int, count: int, weight: Tensor, bias: Tensor) -> Sequence[Any]:
    """Apply `count` linear maps, concatenated in `weight`, to the rows. Return each as a matrix per head, ``[B * H, L, W]``."""
    width = weight.shape[0] // (count * heads)
    split = aten.view.default(_linear(rows, weight, bias), [batch, length, count, heads, width])
    apart = aten.clone.default(aten.permute.default(split, [2, 0, 3, 1, 4]), memory_format=torch.contiguous_format)
    matrices = aten.view.default(apart, [count * batch * heads, length, width])
    return [matrices] if count == 1 else aten.split_with_sizes.default(matrices, [batch * heads] * count)


def _attended(
    heads: Sequence[Any], batch: int, length: int, count: int, width: int, mask: Tensor | None, mask_type: int | None
) -> tuple[Any, Any]:
    """Map query, key and value heads to context ``[B * L, E]`` and weights ``[B * H, L, L]``."""
    query, key, value = heads
    weights = aten.bmm.default(aten.mul.Scalar(query, 1 / math.sqrt(width)), aten.permute.default(key, [0, 2, 1]))
    if mask is None:
        weights = aten._softmax.default(weights, 2, False)
    else:
        weights = aten.view.default(weights, [batch, count, length, length])
        weights = masked_softmax(weights, aten._to_copy.default(mask, dtype=torch.bool), 3, mask_type)
        weights = aten.view.default(weights, [batch * count, length, length])
    context = aten.view.default(aten.bmm.default(weights, value), [batch, count, length, width])
    del heads, query, key, value
    context = aten.clone.default(aten.permute.default(context, [0, 2, 1, 3]), memory_format=torch.contiguous_format)
    return aten.view.default(context, [batch * length, count * width]), weights


@rule("aten._transformer_encoder_layer_fwd.default")
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
    """Run an encoder layer in evaluation mode: attention and feed-forward, each added to its input, with norms before or after."""
    if src.is_nested:
        return NotImplemented
    batch, length, _ = src.shape

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return aten.native_layer_norm.default(x, [embed_dim], weight, bias, eps)[0]

    def attend(x: Tensor) -> Any:
        heads = _heads(x, batch, length, num_heads, 3, qkv_weight, qkv_bias)
        context = _attended(heads, batch, length, num_heads, embed_dim // num_heads, mask, mask_type)[0]
        del heads
        return _linear(context, proj_weight, proj_bias)

    def feed_forward(x: Tensor) -> Any:
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


@rule("aten._transform_bias_rescale_qkv.default", recorded=True)
def _transform_bias_rescale_qkv(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> Any:
    """Add a bias to ``[B, L, 3 * E]`` and split it into query, key and value, ``[B, H, L, E / H]``, in one storage.

    The query is scaled.
    """
    if qkv.is_nested:
        return NotImplemented
    batch, length, columns = qkv.size(0), qkv.size(1), qkv.size(2)
    if num_heads == 0 or qkv.dim() > 3 or columns % (3 * num_heads):
        return NotImplemented  # eager divides by zero, or leaves memory as it was, or refuses the call
    width = columns // 3 // num_heads
    if qkv_bias.dtype is not qkv.dtype or qkv_bias.numel() < columns:
        return NotImplemented  # eager reads its memory as if it were of that dtype, and past its end
    bias = aten.reshape.default(qkv_bias, [qkv_bias.numel()])
    if qkv_bias.numel() > columns:
        bias = aten.slice.Tensor(bias, 0, 0, columns)
    # float16 and bfloat16 are rounded once, at the end.
    added = aten.add.Tensor(widened(as_contiguous(qkv)), widened(bias))
    split = aten.view.default(added, [batch, length, 3, num_heads, width])
    apart = aten.clone.default(aten.permute.default(split, [2, 0, 3, 1, 4]), memory_format=torch.contiguous_format)
    scale = 1 / math.sqrt(width) if width else 1.0
    each = [aten.full.default([size], value, dtype=apart.dtype, device=qkv.device) for size, value in ((1, scale), (2, 1))]
    scaled = in_type(aten.mul.Tensor(apart, aten.view.default(aten.cat.default(each), [3, 1, 1, 1, 1])), qkv.dtype)
    return tuple(aten.select.int(scaled, 0, at) for at in range(3))
