"""Rows of different lengths end to end: padded and back, as eager has it, and nested, which eager's CPU kernel refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerdecomp as ed

aten = torch.ops.aten
MODE = ed.EagerDecompMode(ed.core_aten())


def offsets(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(1, 6), st.sampled_from([torch.float32, torch.bfloat16]))
def test_both_ways_are_eagers(lengths: list[int], most: int, dtype: torch.dtype) -> None:
    starts, total = offsets(lengths), sum(lengths)
    values = torch.arange(2.0 * total).view(total, 2).to(dtype)
    want = aten._jagged_to_padded_dense_forward(values, [starts], [most], -1.0)
    back = aten._padded_dense_to_jagged_forward(want, [starts], total) if max(lengths) <= most else None
    with ed.BackendRecorder() as seen, MODE:
        found = aten._jagged_to_padded_dense_forward(values, [starts], [most], -1.0)
        mine = aten._padded_dense_to_jagged_forward(want, [starts], total)
    assert not seen.outside(MODE.backend.ops)
    torch.testing.assert_close(found, want)
    if back is not None:
        torch.testing.assert_close(mine, back)


def test_a_total_that_is_not_given_is_read() -> None:
    starts = offsets([2, 0, 3])
    with MODE:
        found = aten._padded_dense_to_jagged_forward(torch.arange(24.0).view(3, 4, 2), [starts])
    assert found[:, 0].tolist() == [0, 2, 16, 18, 20]


@pytest.mark.parametrize("most", [[3, 4], [2, 5]])
def test_two_levels_are_two_steps_of_one(most: list[int]) -> None:
    outer, inner = offsets([2, 0, 3]), offsets([1, 4, 0, 2, 2])
    values = torch.arange(9.0).view(9, 1)
    with MODE:
        rows = aten._jagged_to_padded_dense_forward(values, [inner], [most[1]], -1.0)
        want = aten._jagged_to_padded_dense_forward(rows.flatten(1), [outer], [most[0]], -1.0).unflatten(2, (most[1], 1))
        found = aten._jagged_to_padded_dense_forward(values, [outer, inner], most, -1.0)
    assert torch.equal(found, want)
    if most == [3, 4]:  # nothing is cut
        with MODE:
            assert torch.equal(aten._padded_dense_to_jagged_forward(found, [outer, inner], 9), values)
