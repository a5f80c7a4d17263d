"""Reductions of segments and their gradients against eager's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from on_core import CORE, check, kernel_calls, on_core

import eagerdecomp as ed

aten = torch.ops.aten

REDUCTIONS = ["sum", "mean", "max", "min", "prod"]
NAN, INF = math.nan, math.inf
DATA = torch.tensor([1.0, 5, 5, NAN, 2, 0, 3, 0, 0, -2, 4, NAN, 0, INF, NAN, NAN, 3, NAN, 0, 2, 0, 0, 4])
LENGTHS = torch.tensor([3, 0, 2, 2, 2, 1, 2, 2, 3, 3, 3])


def forward(data: torch.Tensor, reduce: str, **options: Any) -> torch.Tensor:
    return torch.segment_reduce(data, reduce, **options)


def gradient(data: torch.Tensor, reduce: str, **options: Any) -> torch.Tensor:
    leaf = data.detach().requires_grad_()
    out = torch.segment_reduce(leaf, reduce, **options)
    weights = torch.arange(1.0, out.numel() + 1).view(out.shape).to(out.dtype) * (-1) ** (torch.arange(out.size(-1)) // 3)
    return torch.autograd.grad(out, leaf, weights)[0]


def bounds_of(lengths: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(lengths.cumsum(-1), (1, 0)).to(lengths.dtype)


@pytest.mark.full
@pytest.mark.parametrize("initial", [None, 2.5, 0])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_special_values_ties_and_empty_segments(reduce: str, initial: float | None) -> None:
    for run in (forward, gradient):
        for data in (DATA, -DATA, DATA.nan_to_num(1.0, 7.0), DATA.double()):
            check(run, data, reduce, lengths=LENGTHS, initial=initial)
            check(run, data, reduce, offsets=bounds_of(LENGTHS), initial=initial)


@pytest.mark.full
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_batches_and_inner_dimensions(reduce: str, index: torch.dtype) -> None:
    torch.manual_seed(0)
    batched = torch.tensor([[3, 4, 0], [0, 6, 1]], dtype=index)
    doubled = batched.expand(4, 2, 3).contiguous()
    for run in (forward, gradient):
        for lengths, data, axis in (
            (batched[0], torch.randn(7, 3), 0),
            (batched[0], torch.randn(3, 7).t(), 0),
            (batched, torch.randn(2, 7), 1),
            (batched, torch.randn(2, 7, 3), 1),
            (batched, torch.randn(2, 7, 0), -2),
            (doubled, torch.randn(4, 2, 7), -1),
        ):
            check(run, data, reduce, lengths=lengths, axis=axis)
            check(run, data, reduce, offsets=bounds_of(lengths), axis=axis)


@pytest.mark.full
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_elements_outside_all_segments(reduce: str) -> None:
    data = torch.arange(1.0, 8.0)
    for run in (forward, gradient):
        check(run, data, reduce, offsets=torch.tensor([1, 3, 3, 5]))
        check(run, data, reduce, lengths=torch.tensor([3, 1]), unsafe=True)
        check(run, data[:0], reduce, lengths=torch.tensor([0, 0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_float16_and_bfloat16(reduce: str, dtype: torch.dtype) -> None:
    data = torch.tensor([1.0, 2.0, 2.0, 0.5, 4.0, 8.0, 1.0]).to(dtype)
    check(forward, data, reduce, lengths=torch.tensor([4, 0, 3]))
    check(gradient, data, reduce, lengths=torch.tensor([4, 0, 3]))


def test_float16_and_bfloat16_are_summed_in_float32() -> None:
    """Eager adds them up in their own dtype, which stops at 256."""
    ones = torch.ones(1000, dtype=torch.bfloat16)
    assert on_core(lambda: forward(ones, "sum", lengths=torch.tensor([1000]))).item() == 1000


def test_lengths_are_read_at_each_call_of_a_cached_program() -> None:
    data, cache = torch.ones(5), ed.ProgramCache()
    for lengths in ([2, 3], [1, 4], [5, 0]):
        sizes = torch.tensor(lengths)
        want = forward(data, "sum", lengths=sizes)
        assert torch.equal(on_core(lambda: forward(data, "sum", lengths=sizes), cache=cache), want)  # noqa: B023 - called at once
    with pytest.raises(RuntimeError, match="to sum to data"):
        on_core(lambda: forward(data, "sum", lengths=torch.tensor([2, 2])), cache=cache)


@pytest.mark.full
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_derivatives(reduce: str) -> None:
    data = torch.tensor([0.3, -1.2, 2.0, 0.7, 1.1], dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([2, 0, 3])
    assert on_core(lambda: torch.autograd.gradcheck(lambda x: forward(x, reduce, lengths=lengths, initial=0.5), (data,)))


@pytest.mark.full
@pytest.mark.parametrize("held", [aten.segment_reduce.default, aten._segment_reduce_backward.default])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_training_where_the_set_holds_one_of_the_pair(reduce: str, held: Any) -> None:
    check(gradient, DATA, reduce, lengths=LENGTHS, ops=CORE | ed.OpSet([held]))


@pytest.mark.parametrize(
    ("reduce", "calls", "back"), [("sum", 21, 16), ("mean", 23, 19), ("max", 21, 29), ("min", 21, 29), ("prod", 21, 45)]
)
def test_kernel_calls(reduce: str, calls: int, back: int) -> None:
    data, grad = torch.rand(7, 2), torch.rand(2, 2)
    lengths = torch.tensor([3, 4])
    assert kernel_calls(lambda: forward(data, reduce, lengths=lengths)) <= calls
    backward = aten._segment_reduce_backward.default
    assert kernel_calls(lambda: backward(grad, grad, data, reduce, lengths=lengths)) <= back
