"""What closes as kernels are added and taken back, against closures made anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eagerdecomp.planner.closing import Clauses, Closing, closure, each_without

OPS = "abcdefgh"

ops = st.lists(st.sampled_from(OPS), max_size=4)
ways = st.frozensets(st.sampled_from(OPS), max_size=3)
calls = st.lists(st.lists(ways, max_size=2).map(tuple), max_size=2).map(tuple)
graphs = st.dictionaries(st.sampled_from(OPS), calls)


def slow_closure(clauses: Clauses, base: list[str]) -> set[str]:
    found = set(base)
    while True:
        more = {op for op, kinds in clauses.items() if kinds and all(any(way <= found for way in kind) for kind in kinds)} - found
        if not more:
            return found
        found |= more


@given(clauses=graphs, base=ops)
def test_a_closure_is_the_least_set_in_which_every_call_has_a_way(clauses: Clauses, base: list[str]) -> None:
    assert closure(clauses, base) == slow_closure(clauses, base)


@given(clauses=graphs, base=ops, first=ops, second=ops)
def test_kernels_are_added_and_taken_back(clauses: Clauses, base: list[str], first: list[str], second: list[str]) -> None:
    graph = Closing(clauses, base)
    start = graph.closed
    more = graph.add(first)
    assert graph.closed == slow_closure(clauses, base + first)
    assert set(more) == graph.closed - start
    assert set(graph.opened_by(second)) == slow_closure(clauses, base + first + second) - graph.closed
    yet_more = graph.add(second)
    assert graph.holds({*first, *second})
    graph.take_back(yet_more)
    assert graph.closed == slow_closure(clauses, base + first)
    graph.take_back(more)
    assert graph.closed == start
    assert set(graph.add(second)) == slow_closure(clauses, base + second) - start


@given(clauses=graphs, order=st.permutations(OPS), needed=ops)
def test_each_op_is_left_out_in_turn_beside_those_left_out_for_good(clauses: Clauses, order: list[str], needed: list[str]) -> None:
    graph, left_out, turns = Closing(clauses), set(), []
    for op in each_without(graph, order, left_out):
        turns.append(op)
        assert graph.closed == slow_closure(clauses, [other for other in order if other != op and other not in left_out])
        if graph.holds(set(needed)):
            left_out.add(op)
    assert turns == order
    assert graph.closed == slow_closure(clauses, [])
