"""Attention by blocks: eager's results from any block size, and no intermediate larger than a block's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from compare import assert_same
from dispatch_recorders import SizeRecorder
from on_core import CORE, on
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten
forward = aten._scaled_dot_product_flash_attention_for_cpu.default
backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def both(query: Tensor, key: Tensor, value: Tensor, causal: bool, named: dict[str, Any], size: int | None) -> tuple[Any, int, int]:
    """Forward and backward: plainly, or by blocks and with eager's own results going into backward.

    Return also the size of the largest result of a kernel, and the number of kernel calls.
    """
    out, lse = forward(query, key, value, 0.0, causal, **named)
    grad = torch.ones_like(out).cumsum(-1)
    if size is None:
        return ((out, lse), backward(grad, query, key, value, out, lse, 0.0, causal, **named)), 0, 0
    with SizeRecorder() as largest, on(CORE, rules=ed.blocked_attention(size)) as (_, seen):
        for _ in range(3):  # recorded, compiled, hit
            before = seen.ops.total()
            first = forward(query, key, value, 0.0, causal, **named)
            second = backward(grad, query, key, value, out, lse, 0.0, causal, **named)
    return (first, second), max(largest.sizes, default=0), seen.ops.total() - before


def operands(heads: int, shared: int, length: int, keys: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(
        torch.randn(2, size, count, 8, dtype=dtype).transpose(1, 2)
        for size, count in ((length, heads), (keys, shared), (keys, shared))
    )


def mask_with_empty_rows(length: int, keys: int) -> Tensor:
    mask = torch.randn(2, 1, length, keys, dtype=torch.float64)
    mask[..., 1, :] = mask[..., 3, 2:] = mask[..., 4, :-1] = -math.inf
    return mask


MASKS: dict[str, Any] = {
    "none": lambda length, keys: None,
    "whole": lambda length, keys: torch.randn(length, keys, dtype=torch.float64),
    "of keys": lambda length, keys: torch.randn(2, 1, 1, keys, dtype=torch.float64),
    "of queries": lambda length, keys: torch.randn(length, 1, dtype=torch.float64),
    "with empty rows": mask_with_empty_rows,
}


@pytest.mark.full
@pytest.mark.parametrize("size", [1, 3, 4, 100])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "keys"), [(7, 7), (5, 9), (11, 6), (5, 1)])
def test_every_block_size_gives_eagers_results(size: int, causal: bool, length: int, keys: int) -> None:
    for shared in (4, 2):
        given = operands(4, shared, length, keys)
        assert_same(both(*given, causal, {}, size)[0], both(*given, causal, {"scale": None}, None)[0])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks(mask: str, causal: bool, dtype: torch.dtype) -> None:
    given = operands(4, 2, 7, 9, dtype)
    made = MASKS[mask](7, 9)
    named = {"scale": 0.4, "attn_mask": None if made is None else made.to(dtype)}
    assert_same(both(*given, causal, named, 3)[0], both(*given, causal, named, None)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_float16_and_bfloat16_are_summed_in_float32(dtype: torch.dtype, causal: bool) -> None:
    given = operands(4, 2, 9, 9, dtype)
    (ours, our_grads), *_ = both(*given, causal, {}, 4)
    (eagers, eager_grads), *_ = both(*given, causal, {}, None)
    unit = torch.finfo(dtype).eps
    for one, other in zip((*ours, *our_grads), (*eagers, *eager_grads), strict=True):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        assert (one - other).abs().max() <= 3 * unit * other.abs().max()


def test_no_batch_is_left_to_the_library() -> None:
    given = tuple(x[:0] for x in operands(4, 2, 3, 5))
    assert_same(both(*given, False, {}, 3)[0], both(*given, False, {}, None)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_a_blocks_and_calls_grow_with_blocks(causal: bool) -> None:
    heads, length, size = 2, 256, 32
    given = tuple(x.contiguous() for x in operands(heads, heads, length, length, torch.float32))
    _, largest, calls = both(*given, causal, {}, size)
    assert largest <= 2 * heads * length * size
    assert calls <= (65 if causal else 46) * (length // size) + 30
    _, _, fewer = both(*given, causal, {}, size * 2)
    assert fewer < 0.6 * calls + 30


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None])
def test_a_block_size_is_a_positive_integer(size: Any) -> None:
    with pytest.raises(ed.ArgumentError, match="a number of keys from 1 up"):
        ed.blocked_attention(size)
