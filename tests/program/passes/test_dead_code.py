"""Dead code: calls with unused results are removed; writes and random calls stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from programs import S, call, program

from eagerdecomp.program.ir import check
from eagerdecomp.program.passes.dead_code import dead_code

aten = torch.ops.aten


def test_an_unused_call_is_removed_with_the_calls_that_only_it_used() -> None:
    before = program(
        [S[0]],
        [
            call(S[1], aten.sin.default, S[0]),
            call(S[2], aten.cos.default, S[1]),
            call(S[3], aten.add.Tensor, S[2], S[4]),
            call(S[5], aten.exp.default, S[1]),
        ],
        S[5],
        constants=[(S[4], torch.ones(1))],
    )
    assert str(check(dead_code(before))) == (
        "aten.silu.default(%0):\n"
        "  %1 = aten.sin.default(%0)\n"
        "  %5 = aten.exp.default(%1)\n"
        "  return %5"
    )  # fmt: skip


READ_BY_NAME = [
    call(S[1], aten.sin.default, S[0]),
    call(S[2], aten.cos.default, S[0]),
    call(S[3], aten.cat.default, [S[1]]),
    call(S[4], aten.clamp.Tensor, S[3], max=S[2]),
]
WRITTEN_BY_A_VIEW = [
    call(S[1], aten.clone.default, S[0]),
    call(S[2], aten.select.int, S[1], 0, 0),
    call(None, aten.zero_.default, S[2]),
]
LIVE: dict[str, tuple[list[Any], Any]] = {
    "one of its results is read": ([call([S[1], S[2]], aten.max.dim, S[0], 0)], S[2]),
    "a write to a view of a result": (WRITTEN_BY_A_VIEW, S[1]),
    "random": ([call(S[n], aten.rand_like.default, S[0]) for n in (1, 2)], S[2]),
    "read in lists and by keyword": (READ_BY_NAME, [(S[4],)]),
}


@pytest.mark.parametrize("name", LIVE)
def test_live_calls_stay(name: str) -> None:
    before = program([S[0]], *LIVE[name])
    assert dead_code(before) == before
