"""Reductions of segments: lengths that are read, and a backend with one of two kernels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from on_core import CORE, check, on_core

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
@pytest.mark.parametrize("held", [aten.segment_reduce.default, aten._segment_reduce_backward.default])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_training_where_the_set_holds_one_of_the_pair(reduce: str, held: Any) -> None:
    check(gradient, DATA, reduce, lengths=LENGTHS, ops=CORE | ed.OpSet([held]))
