"""The floor calls the kernels that ours calls and returns what ours returns; what first calls are compared with."""

from __future__ import annotations

import copy
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from compare import assert_same

import eagerdecomp as ed
from benchmarks.baselines import Naive, Noop, floor
from benchmarks.cases import CASES, COMMON, SIZES, TINY, Case
from benchmarks.cold import _decomposes, _op_figures
from benchmarks.ops import contestants
from eagerdecomp._torch.ops import builtin

CORE = ed.core_aten()
DECOMPOSED = [case for case in CASES if case.op not in CORE]
RANDOM = {"aten.bernoulli_.float", "aten.normal_.default"}


@pytest.fixture(scope="module")
def mode() -> ed.EagerDecompMode:
    return ed.EagerDecompMode(CORE)


def reached(inside: Any, run: Any) -> Counter[Any]:
    with ed.BackendRecorder() as seen, inside:
        run()
    return seen.ops


@pytest.mark.parametrize("case", DECOMPOSED, ids=lambda case: case.name)
def test_the_floor_calls_the_kernels_that_ours_calls(case: Case, mode: ed.EagerDecompMode) -> None:
    run = partial(builtin(case.op), *case.args(TINY), **case.kwargs(TINY))
    low = floor(case.op, run, mode)
    kernels = reached(low, run)
    assert kernels == reached(mode, run)
    assert case.op not in kernels


@pytest.mark.parametrize("case", [case for case in DECOMPOSED if case.name not in RANDOM], ids=lambda case: case.name)
def test_the_floor_returns_what_ours_returns_and_writes_what_ours_writes(case: Case, mode: ed.EagerDecompMode) -> None:
    args, kwargs = case.args(TINY), case.kwargs(TINY)
    low = floor(case.op, partial(builtin(case.op), *copy.deepcopy(args), **copy.deepcopy(kwargs)), mode)
    mine, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    with low:
        got = case.op(*mine[0], **mine[1])
    with mode:
        want = case.op(*theirs[0], **theirs[1])
    assert_same(got, want, exact=True)
    assert_same(list(mine[0]), list(theirs[0]), exact=True)


def test_each_way_of_a_case_is_there_where_it_means_something(mode: ed.EagerDecompMode) -> None:
    by_name = {case.name: case for case in CASES}
    naive = Naive(CORE)
    assert set(contestants(by_name["aten.silu.default"], TINY, mode, naive)) == {
        "native",
        "noop",
        "ours",
        "floor",
        "naive",
        "table",
    }
    assert set(contestants(by_name["aten.mm.default"], TINY, mode, naive)) == {"native", "noop", "ours"}
    # torch's table has no entry for it: the naive mode would run it as it is
    assert "naive" not in contestants(by_name["aten._fused_adamw_.default"], TINY, mode, naive)


def test_the_cases_are_enough_and_each_is_one_call_of_its_own_op() -> None:
    assert len(DECOMPOSED) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    assert set(COMMON) <= {case.name for case in CASES}
    assert len(COMMON) == 15
    for case in CASES:
        for size in SIZES:
            seen = reached(Noop(), partial(builtin(case.op), *case.args(size), **case.kwargs(size)))
            assert seen == {case.op: 1}, case.name


aten = torch.ops.aten


def test_an_op_that_torchs_table_lacks_is_not_decomposed_by_the_naive_mode() -> None:
    naive, x = Naive(ed.core_aten()), torch.rand(2, 3, 4, 4)
    assert _decomposes(aten.silu.default, partial(aten.silu.default, x), naive)
    upsampled = partial(aten.upsample_bilinear2d_backward.default, x, [4, 4], [2, 3, 2, 2], False)
    assert not _decomposes(aten.upsample_bilinear2d_backward.default, upsampled, naive)


def test_ratios_are_of_ops_that_both_decompose_and_the_others_are_distinguished() -> None:
    def run(both: float, alone: float) -> dict[str, object]:
        ops = [
            {"op": "both", "times": {"ours": both, "naive": 1.0}, "naive_decomposes": True},
            {"op": "alone", "times": {"ours": alone, "naive": 0.001}, "naive_decomposes": False},
            {"op": "failing", "times": {"ours": alone}, "naive_decomposes": False},
        ]
        return {"start": {"ours": 1.0, "naive": 1.0}, "ops": ops}

    ratio, others, *_ = _op_figures([run(2.0, 0.5), run(3.0, 0.5), run(4.0, 0.5)])
    assert (ratio.value, ratio.note) == (pytest.approx(3), "1 ops, 3 processes")
    assert (others.value, others.note) == (pytest.approx(500), "2 ops")
