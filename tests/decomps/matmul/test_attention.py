"""Attention on Core ATen: outputs, log-sum-exp and gradients of every layout, mask and head sharing are eager's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import check, kernel_calls, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.modes import DispatchMode

aten = torch.ops.aten
forward = aten._scaled_dot_product_flash_attention_for_cpu.default
backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default

B, H, L, S, D = 2, 4, 5, 7, 8
INF = math.inf


def rand(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def heads_last(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """``[B, H, L, D]`` in the memory order that a projection gives: B, L, H, D."""
    batch, heads, length, width = shape
    return rand(batch, length, heads, width, dtype=dtype).transpose(1, 2)


def emptied(mask: Tensor) -> Tensor:
    mask[..., 1, :] = -INF
    mask[..., 3, 2:] = -INF
    return mask


LAYOUTS = {
    "contiguous": lambda: (rand(B, H, L, D), rand(B, H, S, D), rand(B, H, S, D)),
    "heads last": lambda: (heads_last(B, H, L, D), heads_last(B, H, S, D), heads_last(B, H, S, D)),
    "batch second": lambda: (rand(H, B, L, D).transpose(0, 1), rand(B, H, S, D), rand(B, H, S, D)),
    "sliced": lambda: (rand(B, H, L, 2 * D)[..., :D], rand(B, H, S, D), rand(B, H, 2 * S, D)[:, :, ::2]),
    "expanded": lambda: (rand(1, H, L, D).expand(B, H, L, D), rand(B, 1, S, D).expand(B, H, S, D), rand(B, H, S, D)),
    "shared heads": lambda: (rand(B, H, L, D), rand(B, 2, S, D), rand(B, 2, S, D)),
    "shared heads, heads last": lambda: (heads_last(B, H, L, D), heads_last(B, 2, S, D), heads_last(B, 2, S, D)),
    "one shared head": lambda: (heads_last(B, H, L, D), rand(B, 1, S, D), rand(B, 1, S, D)),
    "one batch": lambda: (heads_last(1, H, L, D), heads_last(1, H, S, D), heads_last(1, H, S, D)),
    "one head": lambda: (heads_last(B, 1, L, D), rand(B, 1, S, D), rand(B, 1, S, D)),
    "one query": lambda: (rand(B, H, 1, D), heads_last(B, 2, S, D), rand(B, 2, S, D)),
    "more queries than keys": lambda: (rand(B, H, 11, D), rand(B, H, S, D), rand(B, H, S, D)),
    "no batch": lambda: (rand(0, H, L, D), rand(0, H, S, D), rand(0, H, S, D)),
}

# What `is_causal`, `attn_mask` and `scale` are; masks for B, H, L, S.
CALLS: dict[str, Any] = {
    "plain": dict,
    "causal": lambda: {"is_causal": True},
    "scaled": lambda: {"scale": 0.7},
    "mask": lambda: {"attn_mask": rand(L, S)},
    "mask per batch": lambda: {"attn_mask": rand(B, 1, L, S)},
    "mask of keys": lambda: {"attn_mask": rand(B, 1, 1, S)},
    "float mask": lambda: {"attn_mask": rand(L, S).float()},
    "emptied rows": lambda: {"attn_mask": emptied(rand(B, H, L, S))},
    "causal and masked": lambda: {"attn_mask": rand(1, S), "is_causal": True},
}


def split(given: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    given = dict(given)
    return given.pop("is_causal", False), given


def check_both(query: Tensor, key: Tensor, value: Tensor, given: dict[str, Any]) -> None:
    causal, named = split(given)
    check(forward, query, key, value, 0.0, causal, **named)
    out, lse = forward(query, key, value, 0.0, causal, **named)
    for grad in (torch.randn_like(out), torch.randn(out.transpose(1, 2).shape, dtype=out.dtype).transpose(1, 2)):
        check(backward, grad, query, key, value, out, lse, 0.0, causal, **named)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("causal", [False, True])
def test_every_layout_gives_eagers_values_and_strides(layout: str, causal: bool) -> None:
    torch.manual_seed(1)
    check_both(*LAYOUTS[layout](), {"is_causal": causal})


@pytest.mark.parametrize("call", CALLS)
def test_masks_causality_and_scale(call: str) -> None:
    torch.manual_seed(2)
    check_both(*LAYOUTS["shared heads, heads last"](), CALLS[call]())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("call", ["plain", "causal", "emptied rows"])
def test_narrow_dtypes_are_as_exact_as_eager(dtype: torch.dtype, call: str) -> None:
    """Within twice eager's largest error and one rounding: in which order eager adds, and so its error, depends on the CPU."""
    torch.manual_seed(3)
    causal, named = split(CALLS[call]())
    wide = [x.to(dtype).double() for x in LAYOUTS["heads last"]()]
    narrow = [x.to(dtype) for x in wide]
    wide_named = {k: v.to(dtype).double() if isinstance(v, Tensor) else v for k, v in named.items()}
    narrow_named = {k: v.to(dtype) if isinstance(v, Tensor) else v for k, v in named.items()}
    true_out, true_lse = forward(*wide, 0.0, causal, **wide_named)
    eager_out, eager_lse = forward(*narrow, 0.0, causal, **narrow_named)
    our_out, our_lse = on_core(lambda: forward(*narrow, 0.0, causal, **narrow_named))
    grad = torch.randn_like(eager_out)
    true_grads = backward(grad.double(), *wide, true_out, true_lse, 0.0, causal, **wide_named)
    eager_grads = backward(grad, *narrow, eager_out, eager_lse, 0.0, causal, **narrow_named)
    our_grads = on_core(lambda: backward(grad, *narrow, our_out, our_lse, 0.0, causal, **narrow_named))
    resolution = torch.finfo(dtype).eps
    results = (our_out, our_lse, *our_grads), (eager_out, eager_lse, *eager_grads), (true_out, true_lse, *true_grads)
    for ours, eager, true in zip(*results, strict=True):
        assert ours.dtype is eager.dtype
        assert ours.stride() == eager.stride()
        unit = resolution if ours.dtype is dtype else torch.finfo(torch.float32).eps
        allowed = 2 * (eager.double() - true).abs().max() + unit * true.abs().max()
        assert (ours.double() - true).abs().max() <= allowed


def test_gradients_through_the_user_function() -> None:
    torch.manual_seed(4)

    def step(query: Tensor, key: Tensor, value: Tensor) -> Any:
        leaves = [x.detach().requires_grad_() for x in (query, key, value)]
        out = F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
        return out, torch.autograd.grad(out.square().sum(), leaves)

    check(step, rand(B, H, L, D), rand(B, 2, S, D), rand(B, 2, S, D))


def test_stays_short() -> None:
    query, key, value = LAYOUTS["contiguous"]()
    out, lse = forward(query, key, value)
    assert kernel_calls(lambda: forward(query, key, value)) <= 17
    assert kernel_calls(lambda: backward(torch.ones_like(out), query, key, value, out, lse, 0.0, False)) <= 38


class Largest(DispatchMode):
    """Outside the mode: the number of elements of the largest result."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numel = max(self.numel, result.numel())
        return result


@pytest.mark.parametrize("causal", [False, True])
def test_nothing_is_larger_than_the_scores(causal: bool) -> None:
    query, key, value = (rand(B, heads, 32, D).requires_grad_() for heads in (H, 2, 2))
    with Largest() as seen, ed.EagerDecompMode(ed.core_aten()):
        F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True).sum().backward()
    assert seen.numel == B * H * 32 * 32


def test_a_part_of_a_cache_is_not_copied_for_one_query() -> None:
    cache = rand(B, H, 16, D)
    query, part, whole = rand(B, H, 1, D), cache[:, :, :S], cache[:, :, :S].contiguous()
    check(forward, query, part, part)
    assert kernel_calls(lambda: forward(query, part, part)) == kernel_calls(lambda: forward(query, whole, whole))
