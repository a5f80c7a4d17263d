"""Fake quantization, its gradients and the fused observer against eager's."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import check, kernel_calls, on_core
from torch import nn

import eagerdecomp as ed

aten = torch.ops.aten

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SPECIAL = [-3.0, -1.2, -0.05, -0.001, 0.0, 0.025, 0.075, 0.3, 20.0, 1e30, float("nan"), float("inf"), -float("inf")]


def _inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = (torch.randn(3, 4, 5, 2, dtype=torch.float64) * 4).to(dtype)
    x.view(-1)[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    last = x.contiguous(memory_format=torch.channels_last)
    return [x, last, x.transpose(0, 2), x[:, ::2], x[:, :, :0], x[:1].expand(3, 4, 5, 2)]


@pytest.mark.full
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("scale", "zero_point", "levels"), [(0.05, 3, (0, 255)), (0.1, 0, (-128, 127)), (1.7, -2, (-8, 7))])
def test_per_tensor(scale: float, zero_point: int, levels: tuple[int, int], dtype: torch.dtype) -> None:
    for x in _inputs(dtype):
        check(aten.fake_quantize_per_tensor_affine_cachemask, x, scale, zero_point, *levels, exact=True)
        for on in (0, 1):
            for zero in (torch.int32, torch.float32):
                given = torch.tensor([scale]), torch.tensor([zero_point], dtype=zero), torch.tensor([on])
                check(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams, x, *given, *levels, exact=True)


@pytest.mark.parametrize("scale", [0.0, 1e-40, -0.5])
def test_per_tensor_of_an_odd_scale(scale: float) -> None:
    check(aten.fake_quantize_per_tensor_affine_cachemask, torch.tensor(SPECIAL), scale, 1, 0, 255, exact=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("zero", [torch.int32, torch.float32, torch.float16])
@pytest.mark.parametrize("axis", [0, 1, 3])
def test_per_channel(axis: int, zero: torch.dtype, dtype: torch.dtype) -> None:
    for x in _inputs(dtype):
        scale = torch.linspace(0.02, 0.9, x.size(axis))
        zero_point = torch.arange(x.size(axis)).to(zero) + (0.25 if zero.is_floating_point else 0)
        check(aten.fake_quantize_per_channel_affine_cachemask, x, scale, zero_point.to(zero), axis, 0, 31, exact=True)


def _learned(op: Any, x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, *options: Any) -> tuple[torch.Tensor, ...]:
    leaves = [tensor.detach().requires_grad_() for tensor in (x, scale, zero)]
    out = op(*leaves, *options)
    weights = (torch.arange(out.numel()).view(out.shape) % 7 - 3.0).to(out.dtype)
    return out.detach(), *torch.autograd.grad(out, leaves, weights)


@pytest.mark.full
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_learnable_per_tensor(factor: float) -> None:
    for x in _inputs(torch.float32):
        x = torch.where(x.isfinite() & (x.abs() < 1e9), x, 0.0) if x.numel() else x
        for zero in (3.5, -7.0, 0.0):
            given = x, torch.tensor([0.3]), torch.tensor([zero]), -8, 7, factor
            check(_learned, torch._fake_quantize_learnable_per_tensor_affine, *given)


@pytest.mark.parametrize("factor", [1.0, 0.3])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_learnable_per_channel(axis: int, factor: float) -> None:
    for x in (torch.randn(4, 3, 5), torch.randn(3, 4, 2).transpose(0, 1), torch.randn(4, 3, 5, 0)):
        count = x.size(axis)
        given = x, torch.linspace(0.1, 0.4, count), torch.linspace(-9.0, 5.5, count), axis, -8, 7, factor
        check(_learned, torch._fake_quantize_learnable_per_channel_affine, *given)


def test_learnable_of_a_vector_and_in_bfloat16() -> None:
    op, x = aten._fake_quantize_learnable_per_channel_affine_backward, torch.randn(4)
    check(op, torch.randn(4), x, torch.full((4,), 0.3), torch.zeros(4), 0, -8, 7)
    half = [tensor.bfloat16() for tensor in (torch.randn(4, 3), torch.randn(4, 3), torch.full((4,), 0.3), torch.zeros(4))]
    check(op, *half, 0, -8, 7)
    check(aten._fake_quantize_learnable_per_tensor_affine_backward, x.double(), x.double(), torch.ones(1), torch.ones(1), 0, 7)
    check(aten._fake_quantize_learnable_per_tensor_affine_backward, x, x, torch.ones(1), torch.ones(1), 1, 7)


def _states(kind: torch.dtype, rows: int | None, low: float, high: float) -> list[torch.Tensor]:
    count = rows or 1
    return [torch.full((count,), low), torch.full((count,), high), torch.ones(count), torch.zeros(count, dtype=kind)]


INF = float("inf")
ENDS = [(INF, -INF), (-1.0, 2.0), (0.5, 2.0), (-2.0, -0.5), (0.0, 0.0), (-1e-4, 2e-4), (0.0, 1e-3), (-1e-3, 0.0), (-1e-40, 0.0)]
ENDS += [(float("nan"), 1.0), (-1e38, 3e38), (-0.7, 0.7)]


@pytest.mark.full
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("levels", [(0, 255), (-128, 127), (-127, 127), (0, 127), (5, 20)])
@pytest.mark.parametrize("observing", [0, 1])
def test_fused(observing: int, levels: tuple[int, int], symmetric: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 2)
    flags = torch.tensor([observing]), torch.tensor([1])
    for low, high in ENDS:
        given = _states(torch.int32, None, low, high)
        check(aten._fused_moving_avg_obs_fq_helper, x, *flags, *given, 0.01, *levels, 0, False, symmetric, exact=True)


@pytest.mark.full
@pytest.mark.parametrize("quantizing", [0, 1])
@pytest.mark.parametrize("per_row", [False, True])
def test_fused_by_its_options(per_row: bool, quantizing: int) -> None:
    torch.manual_seed(0)
    for x in (torch.randn(4, 3, 2), torch.randn(3, 4).t(), torch.randn(4, 3, 2, 2).contiguous(memory_format=torch.channels_last)):
        for observing in (0, 1):
            for kind in (torch.int32, torch.float32):
                flags = torch.tensor([observing], dtype=torch.uint8), torch.tensor([quantizing], dtype=torch.uint8)
                for low, high in ((-1.0, 2.0), (INF, -INF)) if observing else ((-1.0, 2.0),):
                    given = (*flags, *_states(kind, 4 if per_row else None, low, high), 0.3, -8, 7, 0, per_row)
                    check(aten._fused_moving_avg_obs_fq_helper, x, *given, exact=True)
                    check(aten._fused_moving_avg_obs_fq_helper_functional, x, *given, exact=True)


def test_fused_makes_state_for_rows() -> None:
    x, on = torch.randn(4, 3), torch.tensor([1])
    for scale in (torch.ones(1), torch.ones(4)):
        given = torch.empty(0), torch.empty(0), scale, torch.zeros(scale.shape, dtype=torch.int32)
        check(aten._fused_moving_avg_obs_fq_helper, x, on, on, *given, 0.01, 0, 255, 0, True, exact=True)


def test_fused_in_float16_and_bfloat16_and_what_eager_refuses() -> None:
    x, on, off = torch.randn(4, 3), torch.tensor([1]), torch.tensor([0])
    state, rows = _states(torch.int32, None, -1.0, 2.0), _states(torch.int32, 4, -1.0, 2.0)
    op, options = aten._fused_moving_avg_obs_fq_helper, (0.01, 0, 255)
    check(op, x.half(), off, on, *state, *options, 0, exact=True)
    check(op, x.half(), on, on, *state, *options, 0)
    check(op, x, on, on, *state, *options, 2)
    check(op, x, on, on, *rows, *options, 1, True)
    check(op, x, on, on, *rows, *options, 0)
    check(op, x[0], on, on, *rows, *options, 0, True)
    check(op, x, on, on, *state, *options, 0, True)
    check(op, x, on, on, *state[:2], torch.ones(()), torch.zeros((), dtype=torch.int32), *options, 0)


def _trained(version: int, steps: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.ao import quantization as ao

        model = nn.Sequential(ao.QuantStub(), nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
        model.train()
        model.qconfig = ao.get_default_qat_qconfig("fbgemm", version=version)  # type: ignore[assignment]
        model = ao.prepare_qat(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(5, 2, 6, 6)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        seen.append(loss.detach())
    return [*seen, *model.state_dict().values(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("version", [0, 1])  # the observer apart, and fused
def test_a_model_trained_for_quantization(version: int) -> None:
    want = _trained(version)
    assert_same(on_core(lambda: _trained(version)), want, strides=True)
    assert len(want) > 40


def test_forward_or_backward_alone_may_be_native() -> None:
    ops = [
        aten._fake_quantize_learnable_per_tensor_affine.default,
        aten._fake_quantize_learnable_per_tensor_affine_backward.default,
    ]
    given = torch.randn(4, 3), torch.tensor([0.3]), torch.tensor([2.0]), -8, 7, 0.5
    for op in ops:
        check(_learned, torch._fake_quantize_learnable_per_tensor_affine, *given, ops=ed.core_aten() | {op})


def test_kernel_calls() -> None:
    x, on = torch.randn(4, 3), torch.tensor([1])
    state = _states(torch.int32, None, -1.0, 2.0)
    assert kernel_calls(lambda: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, 0, 255)) <= 10
    qparams = torch.tensor([0.1]), torch.tensor([3], dtype=torch.int32)
    assert kernel_calls(lambda: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, *qparams, on, 0, 255)) <= 19
    rows = torch.full((4,), 0.1), torch.zeros(4, dtype=torch.int32)
    assert kernel_calls(lambda: aten.fake_quantize_per_channel_affine_cachemask(x, *rows, 0, 0, 255)) <= 14
    assert kernel_calls(lambda: aten._fused_moving_avg_obs_fq_helper(x, on, on, *state, 0.01, 0, 255, 0)) <= 80
