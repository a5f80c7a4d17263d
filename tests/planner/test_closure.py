"""The search over toy graphs: closed or not, at what cost, and how rules rank."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from eagerdecomp.planner.closure import Costs
from eagerdecomp.planner.rule_calls import Footprints, load_footprints


def costs(footprints: Footprints, *supported: str) -> Costs:
    return Costs(footprints, frozenset(supported), lambda op: op.startswith("prim"))


def test_an_op_costs_what_its_cheapest_closed_rule_costs() -> None:
    graph = {"a": {"core": ({"b": 2},), "table": ({"c": 1, "d": 1},)}, "b": {"core": ({"d": 2},)}}
    assert costs(graph, "d").of("a") == 4
    assert costs(graph, "c", "d").of("a") == 2
    assert costs(graph, "a").of("a") == 1
    assert costs(graph, "c").of("a") == math.inf


def test_a_circle_never_closes_and_does_not_hide_another_way() -> None:
    graph = {"a": {"core": ({"b": 1},)}, "b": {"core": ({"a": 1},), "table": ({"k": 3},)}}
    assert costs(graph).of("a") == math.inf
    assert costs(graph, "k").of("a") == 3


def test_plumbing_costs_nothing() -> None:
    assert costs({"a": {"core": ({"prim.device": 4, "k": 1},)}}, "k").of("a") == 1


def test_rules_rank_closed_then_unknown_then_partly_closed_then_not_at_all() -> None:
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
    order = sorted(["never", "partly", "unknown", "closed", "cheaper", "free"], key=lambda source: solved.of_rule("a", source))
    assert order == ["free", "cheaper", "closed", "unknown", "partly", "never"]


ops = st.sampled_from("abcdefgh")
graphs = st.dictionaries(
    ops,
    st.dictionaries(
        st.sampled_from(["core", "table"]), st.lists(st.dictionaries(ops, st.integers(1, 3), max_size=3), min_size=1, max_size=2)
    ),
)


@given(graph=graphs, supported=st.sets(ops))
def test_costs_are_the_least_fixed_point(graph: Footprints, supported: set[str]) -> None:
    solved = costs(graph, *supported)
    reference = {op: (1.0 if op in supported else math.inf) for op in "abcdefgh"}
    for _ in range(10):  # as many rounds as there are ops: longer routes repeat one
        for op, rules in graph.items():
            if op not in supported:
                found = (sum(n * reference[c] for c, n in kind.items()) for kinds in rules.values() for kind in kinds)
                reference[op] = min(reference[op], min(found, default=math.inf))
    assert {op: solved.of(op) for op in reference} == reference


@given(graph=graphs, supported=st.sets(ops), asked=st.lists(ops, max_size=4))
def test_costs_do_not_depend_on_what_was_asked_before(graph: Footprints, supported: set[str], asked: list[str]) -> None:
    solved = costs(graph, *supported)
    for op in asked:
        solved.of(op)
    assert [solved.of(op) for op in "abcdefgh"] == [costs(graph, *supported).of(op) for op in "abcdefgh"]


@given(graph=graphs, supported=st.sets(ops))
def test_a_rule_leads_nowhere_where_it_ranks_last(graph: Footprints, supported: set[str]) -> None:
    solved = costs(graph, *supported)
    pairs = [(op, source) for op in "abcdefgh" for source in ("core", "table", "unknown")]
    assert [solved.leads_nowhere(*pair) for pair in pairs] == [solved.of_rule(*pair)[0] == 3 for pair in pairs]


def test_the_shipped_footprints_close_well_known_ops_on_core_aten() -> None:
    import eagerdecomp as ed
    from eagerdecomp.planner.planner import shipped_costs

    assert load_footprints()
    solved = shipped_costs(ed.core_aten())
    assert solved.of("aten.silu.default") == 2
    assert solved.of("aten.add.Tensor") == 1
    assert solved.of("aten.is_coalesced.default") == math.inf
