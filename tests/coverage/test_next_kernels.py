"""Which kernels to write next, and the minimal op set: toy graphs, compared with an exhaustive search."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagerdecomp.coverage import next_kernels
from eagerdecomp.coverage.next_kernels import choose_kernels, fewest_kernels, rank_kernels, smallest_set
from eagerdecomp.planner.closure import Clauses, Closure

OPS = "abcdefgh"

ways = st.dictionaries(st.sampled_from(OPS), st.integers(1, 3), min_size=1, max_size=3)
calls = st.lists(st.lists(ways, max_size=2), min_size=1, max_size=2)


def others_only(clauses: Clauses) -> Clauses:
    """Without ways by the op itself: in a graph of ops that stands for another kind of call."""
    return {op: [[way for way in call if op not in way] for call in found] for op, found in clauses.items()}


graphs = st.dictionaries(st.sampled_from(OPS), calls).map(others_only)


def graph(**ops: str) -> Clauses:
    """``a="b c | d"``: a's only call goes by b and c, or by d; calls apart by `;`."""
    calls = {op: [call.split("|") for call in text.split(";")] for op, text in ops.items()}
    return {op: [[dict.fromkeys(way.split(), 1) for way in call] for call in found] for op, found in calls.items()}


def closure(clauses: Clauses, base: Iterable[str]) -> frozenset[str]:
    return Closure(clauses, base).closed


def best_of_all(clauses: Clauses, wanted: Collection[str], count: int) -> int:
    return max(len(closure(clauses, chosen) & set(wanted)) for chosen in itertools.combinations(OPS, count))


def test_of_equivalent_kernels_the_avoided_one_is_not_chosen() -> None:
    choice = choose_kernels(graph(a="b", b="a"), (), "ab", 1, "ba".index)
    assert [kernel.op for kernel in choice.kernels] == ["b"]


@settings(deadline=None)
@given(clauses=graphs, wanted=st.frozensets(st.sampled_from(OPS)), count=st.integers(1, 4))
def test_small_graphs_are_solved_exactly(clauses: Clauses, wanted: frozenset[str], count: int) -> None:
    choice = choose_kernels(clauses, (), wanted, count, lambda op: 0)
    assert len(choice.kernels) <= count
    assert choice.enabled == choice.bound == best_of_all(clauses, wanted, count)
    enabled = {op for kernel in choice.kernels for op in kernel.enables}
    assert closure(clauses, [kernel.op for kernel in choice.kernels]) & wanted == enabled


@settings(deadline=None)
@given(clauses=graphs, wanted=st.frozensets(st.sampled_from(OPS)), count=st.integers(1, 4))
def test_the_bound_of_a_greedy_choice_holds(clauses: Clauses, wanted: frozenset[str], count: int) -> None:
    before, next_kernels._EXACT = next_kernels._EXACT, 0
    try:
        choice = choose_kernels(clauses, (), wanted, count, lambda op: 0)
    finally:
        next_kernels._EXACT = before
    assert choice.enabled <= best_of_all(clauses, wanted, count) <= choice.bound


@pytest.mark.full
@settings(deadline=None)
@given(clauses=graphs, wanted=st.frozensets(st.sampled_from(OPS)))
def test_kernels_to_close_all_are_sufficient_and_minimal(clauses: Clauses, wanted: frozenset[str]) -> None:
    kernels = fewest_kernels(clauses, (), wanted, lambda op: 0)
    assert wanted <= closure(clauses, kernels)
    for spare in kernels:
        assert not wanted <= closure(clauses, set(kernels) - {spare})


@settings(deadline=None)
@given(clauses=graphs, wanted=st.frozensets(st.sampled_from(OPS)), base=st.frozensets(st.sampled_from(OPS), max_size=2))
def test_a_minimal_set_is_sufficient_and_minimal(clauses: Clauses, wanted: frozenset[str], base: frozenset[str]) -> None:
    found = smallest_set(clauses, base, wanted, lambda op: 0)
    assert wanted <= closure(clauses, {*base, *found.ops})
    for spare in found.ops:
        assert not wanted <= closure(clauses, {*base, *found.ops} - {spare})
    for needed in found.necessary:
        assert not wanted <= closure(clauses, set(OPS) - {needed})


# -- given kernels, ranked -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(graphs, st.frozensets(st.sampled_from(OPS), max_size=2), st.frozensets(st.sampled_from(OPS)), st.integers(0, 3))
def test_given_kernels_are_ranked_by_the_routes_they_give(
    clauses: Clauses, base: frozenset[str], kernels: frozenset[str], count: int
) -> None:
    closed = closure(clauses, base)
    ranked = rank_kernels(clauses, closed, OPS, kernels - closed, count, lambda op: 0)

    def enabled(*ops: str) -> int:
        return len((closure(clauses, closed | {*ops}) - closed) & {*OPS})

    reported = [one.op for one in ranked]
    assert {*reported} == {op for op in kernels - closed if enabled(op)}
    assert all(one.alone == enabled(one.op) for one in ranked)
    assert [one.alone for one in ranked[count:]] == sorted((one.alone for one in ranked[count:]), reverse=True)
    assert [one.together for one in ranked] == [enabled(*reported[: n + 1]) - enabled(*reported[:n]) for n in range(len(reported))]
    best = max(enabled(*chosen) for chosen in itertools.combinations(kernels, min(count, len(kernels))))
    assert enabled(*reported[:count]) == best
