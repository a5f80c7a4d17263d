"""The device's kernels: Core ATen, the passthrough that every device needs, and on request four composites as single kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import eagerdecomp as ed
from npu import host
from npu.host import drop, given
from npu.memory import wrap

__all__ = ["COMPOSITES", "SUPPORTED", "composite_kernels"]

aten = torch.ops.aten

#: Of the forms with `out=` Core ATen has one, which needs no kernel of its own.
SUPPORTED = ed.core_aten() - host.COMPOSED - ["aten.atan2.out"]

#: What eager decomposes in C++ before a device sees it, and a device may run in one piece; no part of `SUPPORTED`.
COMPOSITES = [
    *("aten.linear.default", "aten.layer_norm.default", "aten.scaled_dot_product_attention.default"),
    "aten.silu_backward.default",
]


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, *args: Any, **options: Any
) -> Tensor:
    """The CPU's. It drops what torch's composition of it drops, which backward runs again."""
    op = aten.scaled_dot_product_attention.default
    query, key, value, attn_mask = (given(one, op) for one in (query, key, value, attn_mask))
    if not dropout_p:
        return wrap(op(query, key, value, attn_mask, 0.0, *args, **options))
    one_each = torch.eye(key.shape[-2], dtype=key.dtype, device="cpu").expand(*key.shape[:-1], -1)
    weights, _ = drop(op(query, key, one_each, attn_mask, 0.0, *args, **options).contiguous(), dropout_p)
    if options.get("enable_gqa"):
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    return wrap(weights @ value)


def composite_kernels() -> dict[Any, Callable[..., Any]]:
    """A kernel for each of `COMPOSITES`, for a `Backend` that has them reach the device whole."""
    own = {aten.scaled_dot_product_attention.default: scaled_dot_product_attention}
    return {op: host.kernel(op, own.get(op)) for op in ed.OpSet(COMPOSITES)}
