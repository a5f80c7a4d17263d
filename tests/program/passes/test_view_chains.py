"""View chains: a view of a view becomes a view of the first tensor, unless it is returned or written."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from compare import assert_same
from hypothesis import given
from hypothesis import strategies as st
from programs import S, call, native, program

from eagerdecomp.program.ir import check, evaluate
from eagerdecomp.program.passes.view_chains import view_chains

aten = torch.ops.aten


@given(st.lists(st.permutations([0, 1, 2]), min_size=1, max_size=4), st.lists(st.booleans(), min_size=12, max_size=12))
def test_random_chains_of_permutes_give_the_same_view(orders: list[list[int]], negative: list[bool]) -> None:
    signs = iter(negative)
    calls = [
        call(S[number], aten.permute.default, S[number - 1], [dim - 3 if next(signs) else dim for dim in order])
        for number, order in enumerate(orders, 1)
    ]
    before = program([S[0]], calls, S[len(orders)])
    after = check(view_chains(before))
    x = torch.arange(24.0).view(2, 3, 4)
    assert_same(evaluate(after, native, [x]), evaluate(before, native, [x]), exact=True)
    assert all(one.args[0] == S[0] for one in after.calls)


@pytest.mark.parametrize("renaming", [aten.alias.default, aten.detach.default], ids=str)
def test_readers_of_an_alias_read_the_tensor(renaming: Any) -> None:
    before = program(
        [S[0]],
        [
            call(S[1], renaming, S[0]),
            call(S[2], aten.detach.default, S[1]),
            call(S[3], aten.cat.default, [S[2], S[1]]),
            call(S[4], aten.clamp.Tensor, S[3], max=S[2]),
        ],
        S[4],
    )
    after = check(view_chains(before))
    assert [repr(one) for one in after.calls][2:] == ["%3 = aten.cat.default([%0, %0])", "%4 = aten.clamp.Tensor(%3, max=%0)"]


def test_a_returned_view_stays_a_separate_tensor() -> None:
    # Eager returns a new tensor for `detach`; the caller must not get the argument itself.
    before = program([S[0]], [call(S[1], aten.detach.default, S[0]), call(S[2], aten.alias.default, S[1])], (S[1], S[2]))
    after = check(view_chains(before))
    assert after.result == (S[1], S[2])
    x = torch.ones(2)
    one, other = evaluate(after, native, [x])
    assert len({id(x), id(one), id(other)}) == 3


def test_a_program_that_writes_does_not_change() -> None:
    for writes, order in itertools.product((True, False), ([1, 0], [0, 1])):
        before = program(
            [S[0]],
            [
                call(S[1], aten.permute.default, S[0], order),
                call(S[2], aten.permute.default, S[1], order),
                *([call(None, aten.zero_.default, S[2])] if writes else []),
            ],
            S[0],
        )
        assert (view_chains(before) == before) is writes
