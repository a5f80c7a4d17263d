"""The op set of the device (Core ATen), and kernels of four composites for the backend `npu.whole`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import eagerdecomp as ed
from npu import host
from npu.host import drop, to_cpu
from npu.memory import wrap

__all__ = ["COMPOSITES", "SUPPORTED", "composite_kernels"]

aten = torch.ops.aten

#: `atan2.out` is the only `out=` form in Core ATen. It needs no kernel.
SUPPORTED = ed.core_aten() - host.COMPOSED - ["aten.atan2.out"]

#: Ops that eager decomposes before a device sees them. A device may have kernels for them. They are not in `SUPPORTED`.
COMPOSITES = [
    *("aten.linear.default", "aten.layer_norm.default", "aten.scaled_dot_product_attention.default"),
    "aten.silu_backward.default",
]


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, *args: Any, **options: Any
) -> Tensor:
    """Run the CPU's kernel. Dropout uses the mask of torch's decomposition, because backward runs that again."""
    op = aten.scaled_dot_product_attention.default
    query, key, value, attn_mask = (to_cpu(one, op) for one in (query, key, value, attn_mask))
    if not dropout_p:
        return wrap(op(query, key, value, attn_mask, 0.0, *args, **options))
    one_each = torch.eye(key.shape[-2], dtype=key.dtype, device="cpu").expand(*key.shape[:-1], -1)
    weights, _ = drop(op(query, key, one_each, attn_mask, 0.0, *args, **options).contiguous(), dropout_p)
    if options.get("enable_gqa"):
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    return wrap(weights @ value)


def composite_kernels() -> dict[Any, Callable[..., Any]]:
    """Return op -> kernel for `COMPOSITES`."""
    own = {aten.scaled_dot_product_attention.default: scaled_dot_product_attention}
    return {op: host.kernel(op, own.get(op)) for op in ed.OpSet(COMPOSITES)}
