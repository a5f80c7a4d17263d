"""The closure of an op set on toy graphs: which ops have a route, its cost, added and removed kernels, and the order of rules."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from eagerdecomp.planner.closure import Clauses, Closure, OpCosts, each_left_out
from eagerdecomp.planner.rule_calls import Footprint, Footprints


def costs(footprints: Footprints, *supported: str) -> OpCosts:
    return OpCosts(footprints, frozenset(supported), lambda op: op.startswith("prim"))


def test_rules_are_ordered_closed_unknown_partly_closed_not_closed() -> None:
    graph = {
        "a": {
            "closed": ({"k": 3},),
            "cheaper": ({"k": 2},),
            "partly": ({"k": 1}, {"missing": 1}),
            "never": ({"missing": 1},),
            "free": ({},),
        }
    }
    solved = costs(graph, "k")
    order = sorted(["never", "partly", "unknown", "closed", "cheaper", "free"], key=lambda source: solved.rank_of_rule("a", source))
    assert order == ["free", "cheaper", "closed", "unknown", "partly", "never"]


OPS = "abcdefgh"
ops = st.sampled_from(OPS)
graphs = st.dictionaries(
    ops,
    st.dictionaries(
        st.sampled_from(["core", "table"]), st.lists(st.dictionaries(ops, st.integers(1, 3), max_size=3), min_size=1, max_size=2)
    ),
)


@given(graph=graphs, supported=st.sets(ops))
def test_costs_are_the_least_fixed_point(graph: Footprints, supported: set[str]) -> None:
    solved = costs(graph, *supported)
    reference = {op: (1.0 if op in supported else math.inf) for op in OPS}
    for _ in range(10):  # as many rounds as there are ops: a longer route has a cycle
        for op, rules in graph.items():
            if op not in supported:
                found = (sum(n * reference[c] for c, n in kind.items()) for kinds in rules.values() for kind in kinds)
                reference[op] = min(reference[op], min(found, default=math.inf))
    assert {op: solved.of(op) for op in reference} == reference


@given(graph=graphs, supported=st.sets(ops), asked=st.lists(ops, max_size=4))
def test_costs_do_not_depend_on_earlier_queries(graph: Footprints, supported: set[str], asked: list[str]) -> None:
    solved = costs(graph, *supported)
    for op in asked:
        solved.of(op)
    assert [solved.of(op) for op in OPS] == [costs(graph, *supported).of(op) for op in OPS]


# -- calls, and kernels that are added and taken back ------------------------------------------------------------------

kernels = st.lists(ops, max_size=4)
ways = st.dictionaries(ops, st.integers(1, 3), max_size=3)
clauses_of_ops = st.dictionaries(ops, st.lists(st.lists(ways, max_size=2), max_size=2))


def slow_closure(clauses: Clauses, base: list[str]) -> set[str]:
    found = set(base)
    while True:
        more = {op for op, calls in clauses.items() if calls and all(any(way.keys() <= found for way in call) for call in calls)}
        if more <= found:
            return found
        found |= more


@given(clauses=clauses_of_ops, base=kernels, first=kernels, second=kernels)
def test_kernels_can_be_added_and_removed(clauses: Clauses, base: list[str], first: list[str], second: list[str]) -> None:
    graph = Closure(clauses, base)
    start = graph.closed
    more = graph.add(first)
    assert graph.closed == slow_closure(clauses, base + first)
    assert set(more) == graph.closed - start
    assert set(graph.enabled_by(second)) == slow_closure(clauses, base + first + second) - graph.closed
    yet_more = graph.add(second)
    assert graph.holds({*first, *second})
    graph.take_back(yet_more)
    assert graph.closed == slow_closure(clauses, base + first)
    graph.take_back(more)
    assert graph.closed == start
    assert set(graph.add(second)) == slow_closure(clauses, base + second) - start


@given(clauses=clauses_of_ops, order=st.permutations(OPS), needed=kernels)
def test_each_op_is_excluded_in_turn_in_addition_to_fixed_ones(clauses: Clauses, order: list[str], needed: list[str]) -> None:
    graph, left_out, turns = Closure(clauses), set(), []
    for op in each_left_out(graph, order, left_out):
        turns.append(op)
        assert graph.closed == slow_closure(clauses, [other for other in order if other != op and other not in left_out])
        if graph.holds(set(needed)):
            left_out.add(op)
    assert turns == order
    assert graph.closed == slow_closure(clauses, [])


COSTS = {"a": 0.0, "b": 5.0}


@given(clauses=clauses_of_ops, base=kernels)
def test_an_op_costs_the_maximum_over_calls_of_the_cheapest_route(clauses: Clauses, base: list[str]) -> None:
    closure = Closure(clauses, base, COSTS)
    for op in closure.closed - {*base}:
        assert closure.cost(op) == max(min(cost_of(closure, way) for way in call) for call in clauses[op])
        assert cost_of(closure, closure.way(op) or {}) == closure.cost(op)
    assert all(
        closure.way(op) is None and closure.cost(op) <= {"a": 0.0, "b": 5.0}.get(op, 1.0) for op in base if op not in clauses
    )
    assert all(closure.cost(op) <= COSTS.get(op, 1.0) for op in base)
    assert all(closure.cost(op) == math.inf for op in clauses if op not in closure)


@given(clauses=clauses_of_ops, base=kernels)
def test_the_cheapest_route_has_no_cycle(clauses: Clauses, base: list[str]) -> None:
    closure = Closure(clauses, base, dict.fromkeys(OPS, 0.0))

    def follow(op: str, above: frozenset[str]) -> None:
        assert op not in above
        for needed in closure.way(op) or ():
            follow(needed, above | {op})

    for op in closure.closed:
        follow(op, frozenset())


def cost_of(closure: Closure, way: Footprint) -> float:
    return sum(times * closure.cost(op) for op, times in way.items())
