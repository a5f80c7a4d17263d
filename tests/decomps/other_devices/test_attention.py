"""Fused attention of CUDA's kernels, called on CPU data: values and gradients are those of the composition, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.decomps.math import attention_heads
from eagerdecomp.ops.passthrough import is_passthrough_name

aten = torch.ops.aten
CORE = ed.core_aten()
pytestmark = pytest.mark.usefixtures("largest_scores")
DTYPES = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 3e-2}

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture(params=[attention_heads.LARGEST_SCORES, 400], ids=["whole", "in blocks"])
def largest_scores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_heads, "LARGEST_SCORES", request.param)


def made(*shapes: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def composed(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, bias: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Attention as it is defined, ``[B, H, L, D]``, heads of keys repeated; and the log-sum-exp."""
    shared = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(shared, 1) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.nan_to_num(scores.softmax(-1))
    return weights @ value, scores.logsumexp(-1)


def check(run: Callable[..., Tensor], reference: Callable[..., Tensor], inputs: list[Tensor], tolerance: float) -> None:
    """Under the mode nothing but Core ATen runs, forward and backward, and both are the reference's in float64."""
    wide = [x.detach().double().requires_grad_() for x in inputs]
    want = reference(*wide)
    weight = torch.randn(want.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    want_grads = torch.autograd.grad((want * weight).sum(), wide)
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
        found = run(*inputs)
        grads = torch.autograd.grad(found, inputs, weight.to(found.dtype))
    assert [str(op) for op in seen.ops if op not in CORE and not is_passthrough_name(str(op))] == []
    assert found.dtype is inputs[0].dtype
    for one, other in zip((found, *grads), (want, *want_grads), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance * max(1.0, other.abs().max().item()))


def causal(length: int, keys: int, *, lower_right: bool) -> Tensor:
    return torch.ones(length, keys, dtype=torch.bool).tril(keys - length if lower_right else 0)


@dtypes
@pytest.mark.parametrize(("heads", "groups", "keys", "is_causal"), [(4, 4, 7, False), (4, 2, 5, True), (2, 2, 7, True)])
def test_flash(dtype: torch.dtype, heads: int, groups: int, keys: int, is_causal: bool) -> None:
    mask = causal(5, keys, lower_right=True) if is_causal else None
    inputs = made((2, heads, 5, 8), (2, groups, keys, 8), (2, groups, keys, 8), dtype=dtype)
    check(
        lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)[0],
        lambda q, k, v: composed(q, k, v, mask)[0],
        inputs,
        DTYPES[dtype],
    )


@dtypes
def test_efficient_with_a_bias_that_is_learned(dtype: torch.dtype) -> None:
    inputs = made((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6), (1, 3, 5, 7), dtype=dtype)
    check(
        lambda q, k, v, b: aten._scaled_dot_product_efficient_attention(q, k, v, b.expand(2, 3, 5, 7), True, scale=0.3)[0],
        lambda q, k, v, b: composed(q, k, v, None, b, 0.3)[0],
        inputs,
        DTYPES[dtype],
    )


@dtypes
@pytest.mark.parametrize(
    "run",
    [
        lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, True)[0],
        lambda q, k, v: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)[0],
        lambda q, k, v: aten._scaled_dot_product_fused_attention_overrideable(q, k, v, None, 0.0, True)[0],
        lambda q, k, v: aten._efficient_attention_forward(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, None, None, None, None, 0.0, 1, True
        )[0].transpose(1, 2),
    ],
    ids=["efficient", "cudnn", "overrideable", "efficient_forward"],
)
def test_causal_from_the_upper_left(run: Callable[..., Tensor], dtype: torch.dtype) -> None:
    mask = causal(5, 7, lower_right=False)
    inputs = made((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=dtype)
    check(run, lambda q, k, v: composed(q, k, v, mask)[0], inputs, DTYPES[dtype])


LENGTHS_Q, LENGTHS_K = [2, 3, 0, 4], [3, 4, 2, 4]


def by_sequence(q: Tensor, k: Tensor, v: Tensor, mask: Callable[[int, int], Tensor | None]) -> Tensor:
    """``[total, H, D]``, one sequence after the other."""
    rows, keys, values = (x.split(n) for x, n in ((q, LENGTHS_Q), (k, LENGTHS_K), (v, LENGTHS_K)))
    outs = [
        composed(*(x.transpose(0, 1)[None] for x in (a, b, c)), mask(a.size(0), b.size(0)))[0][0].transpose(0, 1)
        for a, b, c in zip(rows, keys, values, strict=True)
    ]
    return torch.cat(outs)


def offsets(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


@dtypes
@pytest.mark.parametrize("is_causal", [False, True])
def test_flash_of_sequences_end_to_end(dtype: torch.dtype, is_causal: bool) -> None:
    inputs = made((9, 2, 8), (13, 2, 8), (13, 2, 8), dtype=dtype)
    check(
        lambda q, k, v: aten._flash_attention_forward(q, k, v, offsets(LENGTHS_Q), offsets(LENGTHS_K), 4, 4, 0.0, is_causal, False)[
            0
        ],
        lambda q, k, v: by_sequence(q, k, v, lambda m, n: causal(m, n, lower_right=True) if is_causal else None),
        inputs,
        DTYPES[dtype],
    )


@dtypes
@pytest.mark.parametrize("mask_type", [0, 1, 2])
def test_efficient_of_sequences_end_to_end(dtype: torch.dtype, mask_type: int) -> None:
    inputs = made((9, 2, 8), (13, 2, 8), (13, 2, 6), dtype=dtype)
    check(
        lambda q, k, v: aten._efficient_attention_forward(
            q[None], k[None], v[None], None, offsets(LENGTHS_Q), offsets(LENGTHS_K), 4, 4, 0.0, mask_type, True
        )[0][0],
        lambda q, k, v: by_sequence(q, k, v, lambda m, n: causal(m, n, lower_right=mask_type == 2) if mask_type else None),
        inputs,
        DTYPES[dtype],
    )


@pytest.mark.parametrize(("left", "right"), [(2, 1), (0, None), (None, 2)])
def test_windows(left: int | None, right: int | None) -> None:
    behind = torch.arange(5)[:, None] + 2 - torch.arange(7)
    mask = (behind >= -(9 if right is None else right)) & (behind <= (9 if left is None else left))
    inputs = made((2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 8), dtype=torch.float64)
    check(
        lambda q, k, v: aten._flash_attention_forward(
            q, k, v, None, None, 5, 7, 0.0, False, False, window_size_left=left, window_size_right=right
        )[0],
        lambda q, k, v: composed(*(x.transpose(1, 2) for x in (q, k, v)), mask)[0].transpose(1, 2),
        inputs,
        1e-12,
    )


def test_the_log_sum_exp_and_other_saved_tensors() -> None:
    q, k, v = (x.detach() for x in made((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), dtype=torch.float32))
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
        flash = aten._scaled_dot_product_flash_attention(q, k, v)
        efficient = aten._scaled_dot_product_efficient_attention(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), None, True)
    want = composed(q, k, v)[1]
    torch.testing.assert_close(flash[1], want)
    assert [flash[2], flash[3], flash[4], flash[5]] == [None, None, 5, 7]
    assert (flash[6].dtype, flash[6].shape, flash[8].shape) == (torch.uint64, (2,), (0,))
    assert efficient[1].shape == (2, 4, 32)
    assert efficient[1][..., 5:].isinf().all()


def test_dropout_keeps_its_share_and_backward_makes_the_same_choice() -> None:
    q, k = (torch.zeros(1, 2, 64, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    value = torch.eye(64, dtype=torch.float64).expand(1, 2, 64, 64).clone().requires_grad_()
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
        out, *_ = aten._scaled_dot_product_efficient_attention(q, k, value, None, True, 0.25)
        (grad,) = torch.autograd.grad(out, value, torch.eye(64, dtype=torch.float64).expand(1, 2, 64, 64))
        other, *_ = aten._scaled_dot_product_efficient_attention(q, k, value, None, True, 0.25)
    kept = out * 64 * 0.75  # each weight is 1 / 64
    assert set(kept.detach().round(decimals=9).unique().tolist()) == {0.0, 1.0}
    assert abs(kept.mean().item() - 0.75) < 0.02
    torch.testing.assert_close(grad, out.detach().mT)  # the weights of the products are the same ones
    assert not torch.equal(out, other)


def test_without_dropout_nothing_is_sampled() -> None:
    q, k, v = (x.detach() for x in made((1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), dtype=torch.float32))
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
        aten._scaled_dot_product_flash_attention(q, k, v)
    assert torch.equal(torch.rand(2), want)


def test_rows_that_see_nothing_give_zeros_and_no_gradient() -> None:
    inputs = made((1, 1, 5, 8), (1, 1, 2, 8), (1, 1, 2, 8), dtype=torch.float64)  # the first three rows lie before every key
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
        out, logsumexp, *_ = aten._scaled_dot_product_flash_attention(*inputs, 0.0, True)
        grads = torch.autograd.grad(out.sum(), inputs)
    assert out[0, 0, :3].eq(0).all()
    assert logsumexp[0, 0, :3].isposinf().all()
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[0][0, 0, :3].eq(0).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda q: aten._scaled_dot_product_flash_attention(q, q, q, 0.1, True),
        lambda q: aten._scaled_dot_product_efficient_attention(q, q, q, None, True),
        lambda q: aten._scaled_dot_product_cudnn_attention(q, q, q, None, True),
        lambda q: aten._flash_attention_forward(q, q, q, None, None, 5, 5, 0.0, True, False),
        lambda q: aten._efficient_attention_forward(q, q, q, None, None, None, None, None, 0.0, 1, True),
    ],
    ids=["flash", "efficient", "cudnn", "flash_forward", "efficient_forward"],
)
def test_what_torch_says_of_the_results_holds(call: Callable[[Tensor], Any]) -> None:
    """Shapes, dtypes and strides are those of torch's own meta functions."""
    q = torch.randn(2, 4, 5, 8).transpose(1, 2).contiguous().transpose(1, 2)
    want = call(q.to("meta"))
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
        found = call(q)
    for one, other in zip(found, want, strict=True):
        if isinstance(other, Tensor) and other.dtype is not torch.uint64:
            assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
