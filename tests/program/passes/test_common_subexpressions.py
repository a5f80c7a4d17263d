"""Common subexpressions: equal calls are merged if that changes no result."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from programs import S, call, program

from eagerdecomp.program.passes.common_subexpressions import common_subexpressions

aten = torch.ops.aten


UNLIKE: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0, False),
    (0.0, -0.0),
    (1.0, 1 + 0j),
    ([1], [True]),
    ([1, 2], [2, 1]),
    (None, 0),
    ("a", "b"),
    (torch.float32, torch.float64),
]


@pytest.mark.parametrize(("left", "right"), UNLIKE, ids=repr)
def test_calls_whose_literals_only_compare_equal_are_not_merged(left: Any, right: Any) -> None:
    for calls in (
        [call(S[1], aten.silu.default, S[0], left), call(S[2], aten.silu.default, S[0], right)],
        [call(S[1], aten.silu.default, S[0], named=left), call(S[2], aten.silu.default, S[0], named=right)],
    ):
        before = program([S[0]], [*calls, call(S[3], aten.add.Tensor, S[1], S[2])], S[3])
        assert common_subexpressions(before) == before


@pytest.mark.parametrize("literal", [math.nan, -0.0, [1, [2.0]], torch.float32, torch.device("cpu"), math.inf], ids=repr)
def test_calls_with_the_same_literal_are_merged(literal: Any) -> None:
    calls = [call(S[number], aten.silu.default, S[0], literal) for number in (1, 2)]
    before = program([S[0]], [*calls, call(S[3], aten.add.Tensor, S[1], S[2])], S[3])
    assert len(common_subexpressions(before).calls) == 2


SIN_TWICE = [call(S[1], aten.sin.default, S[0]), call(S[2], aten.sin.default, S[0])]
SUM = call(S[3], aten.add.Tensor, S[1], S[2])
VIEWS = [
    call(S[3], aten.view.default, S[1], [6]),
    call(S[4], aten.permute.default, S[2], [0]),
    call(S[5], aten.view.default, S[4], [6]),
]
UNMERGED: dict[str, tuple[list[Any], Any]] = {
    "random": ([call(S[n], aten.rand_like.default, S[0]) for n in (1, 2)] + [SUM], S[3]),
    "returned": (SIN_TWICE, (S[1], S[2])),
    "returned in lists": (SIN_TWICE, [S[1], [S[2]]]),
    "bases of returned views": (SIN_TWICE + VIEWS, (S[3], S[5])),
    "written between": ([SIN_TWICE[0], call(None, aten.zero_.default, S[0]), SIN_TWICE[1], SUM], S[3]),
}


@pytest.mark.parametrize("name", UNMERGED)
def test_equal_calls_whose_results_are_not_one_value_are_not_merged(name: str) -> None:
    before = program([S[0]], *UNMERGED[name])
    assert common_subexpressions(before) == before
