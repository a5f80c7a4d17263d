"""Dead code: calls with unused results are removed; writes and random calls stay."""

from __future__ import annotations

from typing import Any

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


def test_a_call_stays_if_one_of_its_results_is_used() -> None:
    before = program([S[0]], [call([S[1], S[2]], aten.max.dim, S[0], 0)], S[2])
    assert dead_code(before) == before


def test_writes_stay_with_the_calls_that_they_use() -> None:
    before = program(
        [S[0], S[1]],
        [
            call(S[2], aten.neg.default, S[1]),
            call(None, aten.add_.Tensor, S[0], S[2]),
            call(S[3], aten.sin.default, S[1]),
        ],
        S[0],
    )
    assert str(check(dead_code(before))) == (
        "aten.silu.default(%0, %1):\n"
        "  %2 = aten.neg.default(%1)\n"
        "  _ = aten.add_.Tensor(%0, %2)\n"
        "  return %0"
    )  # fmt: skip


def test_a_write_to_a_view_of_a_returned_value_stays() -> None:
    before = program(
        [S[0]],
        [
            call(S[1], aten.clone.default, S[0]),
            call(S[2], aten.select.int, S[1], 0, 0),
            call(None, aten.zero_.default, S[2]),
        ],
        S[1],
    )
    assert dead_code(before) == before


def test_random_calls_stay() -> None:
    before = program([S[0]], [call(S[1], aten.rand_like.default, S[0]), call(S[2], aten.rand_like.default, S[0])], S[2])
    assert dead_code(before) == before


def test_arguments_in_lists_and_keywords_count_as_used() -> None:
    before = program(
        [S[0]],
        [
            call(S[1], aten.sin.default, S[0]),
            call(S[2], aten.cos.default, S[0]),
            call(S[3], aten.cat.default, [S[1]]),
            call(S[4], aten.clamp.Tensor, S[3], max=S[2]),
        ],
        [(S[4],)],
    )
    assert dead_code(before) == before


def test_a_program_that_returns_its_argument_loses_all_calls() -> None:
    before = program([S[0]], [call(S[1], aten.sin.default, S[0])], S[0])
    after: Any = dead_code(before)
    assert after.calls == ()
    assert after.parameters == (S[0],)
