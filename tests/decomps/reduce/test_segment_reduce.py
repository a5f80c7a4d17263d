"""Reductions of segments: sums of 16-bit floats, and lengths that are read."""

from __future__ import annotations

import pytest
import torch
from on_core import on_core

import eagerdecomp as ed


def test_float16_and_bfloat16_are_summed_in_float32() -> None:
    """Eager adds them up in their own dtype, which stops at 256."""
    assert on_core(lambda: torch.segment_reduce(torch.ones(1000).bfloat16(), "sum", lengths=torch.tensor([1000]))).item() == 1000


def test_lengths_are_read_at_each_call_of_a_cached_program() -> None:
    data, cache = torch.ones(5), ed.ProgramCache()
    for lengths in ([2, 3], [1, 4], [5, 0]):
        sizes = torch.tensor(lengths)
        got = on_core(lambda: torch.segment_reduce(data, "sum", lengths=sizes), cache=cache)  # noqa: B023 - called at once
        assert torch.equal(got, torch.segment_reduce(data, "sum", lengths=sizes))
    with pytest.raises(RuntimeError, match="to sum to data"):
        on_core(lambda: torch.segment_reduce(data, "sum", lengths=torch.tensor([2, 2])), cache=cache)
    on_core(lambda: torch.segment_reduce(data, "sum", offsets=torch.tensor([0, 2, 5])), cache=cache)
    with pytest.raises(RuntimeError, match="segment_length >= 0"):
        on_core(lambda: torch.segment_reduce(data, "sum", offsets=torch.tensor([0, 3, 2])), cache=cache)
