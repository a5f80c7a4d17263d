"""Attention on Core ATen: what it allocates, and that a cache is not copied."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from dispatch_recorders import SizeRecorder
from on_core import check, kernel_calls, rand

import eagerdecomp as ed
from eagerdecomp.decomps.math import attention_heads

aten = torch.ops.aten
forward = aten._scaled_dot_product_flash_attention_for_cpu.default

B, H, S, D = 2, 4, 7, 8


@pytest.mark.parametrize("causal", [False, True])
def test_nothing_is_larger_than_the_scores(causal: bool) -> None:
    query, key, value = (rand(B, heads, 32, D).requires_grad_() for heads in (H, 2, 2))
    with SizeRecorder() as seen, ed.EagerDecompMode(ed.core_aten()):
        F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True).sum().backward()
    assert max(seen.sizes) == B * H * 32 * 32


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("run", ["cpu", "efficient"])
def test_large_scores_are_computed_in_blocks(monkeypatch: pytest.MonkeyPatch, run: str, causal: bool) -> None:
    elements = B * H * 64 * 8
    monkeypatch.setattr(attention_heads, "LARGEST_SCORES", 8 * elements)
    given = [rand(B, H, 64, D).requires_grad_() for _ in range(3)]
    want = torch.autograd.grad(F.scaled_dot_product_attention(*given, is_causal=causal).square().sum(), given)
    with SizeRecorder() as seen, ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()):
        if run == "cpu":
            out = F.scaled_dot_product_attention(*given, is_causal=causal)
        else:
            out = aten._scaled_dot_product_efficient_attention(*given, None, True, 0.0, causal)[0]
        found = torch.autograd.grad(out.square().sum(), given)
    assert_same(found, want, strides=False)
    assert max(seen.sizes) <= elements
    assert seen.most_bytes < 4 * 8 * 8 * elements  # four times all scores. In these first calls too, no block outlives its use


def test_a_part_of_a_cache_is_not_copied_for_one_query() -> None:
    cache = rand(B, H, 16, D)
    query, part, whole = rand(B, H, 1, D), cache[:, :, :S], cache[:, :, :S].contiguous()
    check(forward, query, part, part)
    assert kernel_calls(lambda: forward(query, part, part)) == kernel_calls(lambda: forward(query, whole, whole))
