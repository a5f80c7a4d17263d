"""The planner on toy rules. The order: kernel of the set, passthrough, the user's rules, the library's, the cheapest of torch's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp._torch.ops import builtin, op_named
from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.ops.passthrough import HOST_OPS, PASSTHROUGH_NAMESPACES, PASSTHROUGH_OPS, is_passthrough_name
from eagerdecomp.planner.closure import OpCosts
from eagerdecomp.planner.planner import Planner
from eagerdecomp.planner.rule_calls import Footprints, load_footprints
from eagerdecomp.rules.rule import Rule

aten = torch.ops.aten
SILU, MUL, SIGMOID, EXP = aten.silu.default, aten.mul.Tensor, aten.sigmoid.default, aten.exp.default


def rule(source: str, op: Any = SILU) -> Rule:
    return Rule(op, lambda *args: None, source, f"{source} for {op}")


OWN, COMPOSITE, CORE, TABLE, EXPLICIT = map(rule, ("own", "composite", "core", "table", "explicit"))
USER = rule("user")


def planner(
    ops: Any = (),
    *,
    ours: Iterable[Rule] = (),
    shipped: Iterable[Rule] = (),
    user: Mapping[Any, Rule] | None = None,
    seen: Footprints | None = None,
    kernels: Any = None,
) -> Planner:
    """Return a planner with toy sources; `seen` has for each source the recorded calls of its rule of silu."""

    def of(rules: Iterable[Rule]) -> Any:
        return lambda op: [one for one in rules if one.op is op]

    return Planner(
        ed.Backend("toy", ops, kernels),
        user or {},
        of(ours),
        of(shipped),
        lambda op_set: OpCosts(seen or {}, frozenset(map(str, op_set)), is_passthrough_name),
    )


def order(made: Planner) -> list[str]:
    return [one.source for one in made.decide(SILU).rules]


# -- supported and passthrough --------------------------------------------------------------------------------------------------


def test_a_backends_kernel_replaces_the_native_one() -> None:
    def kernel(x: Any) -> Any:
        return x

    assert planner([SILU], kernels={SILU: kernel}).decide(SILU).kernel is kernel


def test_a_predicate_leaves_other_calls_to_the_rules() -> None:
    def when(x: Any) -> bool:
        return True

    decision = planner(ed.OpSet([SILU]).with_predicate(SILU, when), ours=[OWN]).decide(SILU)
    assert (decision.kernel, decision.when, list(decision.rules)) == (builtin(SILU), when, [OWN])


def test_passthrough_ops_need_no_rules_unless_the_set_contains_them() -> None:
    asked = aten.sym_size.default
    decision = planner().decide(asked)
    assert (decision.kernel, decision.passthrough, decision.rules) == (None, True, ())
    supported = planner([asked]).decide(asked)
    assert (supported.kernel, supported.passthrough) == (builtin(asked), False)


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("prim.device.default", True),
        ("profiler._record_function_enter_new.default", True),
        ("c10d.allreduce_.default", True),
        ("fsdp.chunk_cat.default", False),
        ("aten.sym_size.default", True),
        ("aten.sym_size.int", False),
        ("aten.silu.default", False),
        ("primitive.op.default", False),
        ("prims.mul.default", False),
        ("torch_nn._linear_cross_entropy_batch_chunked.default", False),
        ("mylib.op.default", False),
    ],
)
def test_only_listed_ops_are_passthrough(name: str, passes: bool) -> None:
    assert is_passthrough_name(name) is passes


def test_every_op_listed_as_passthrough_exists_and_computes_nothing() -> None:
    for name in PASSTHROUGH_OPS:
        (op,) = resolve_ops([name])
        returns = [str(value.real_type) for value in op._schema.returns]
        assert not any("Tensor" in one for one in returns), f"{name} returns a tensor"
        assert not op._schema.is_mutable, f"{name} writes"
    assert "aten" not in PASSTHROUGH_NAMESPACES


def test_ops_that_need_the_host_exist_and_read_no_tensor() -> None:
    for name in HOST_OPS:
        (op,) = resolve_ops([name])
        assert not any("Tensor" in str(argument.real_type) for argument in op._schema.arguments), f"{name} reads a tensor"
        assert is_passthrough_name(name)


# -- the order of rules -------------------------------------------------------------------------------------------------------


def test_the_users_rule_comes_before_all_others() -> None:
    made = planner(user={SILU: USER}, ours=[OWN], shipped=[CORE], seen={"aten.silu.default": {"core": ({},)}})
    assert order(made) == ["user", "own", "core"]


def test_the_cheapest_closed_route_comes_first() -> None:
    seen = {
        "aten.silu.default": {
            "composite": ({"aten.sigmoid.default": 1, "aten.mul.Tensor": 2},),
            "core": ({"aten.sigmoid.default": 1, "aten.mul.Tensor": 1},),
            "table": ({"aten.nosuch.default": 1},),
        }
    }
    made = planner([SIGMOID, MUL], shipped=[TABLE, COMPOSITE, CORE, EXPLICIT], seen=seen)
    # Closed rules by cost, then the rule without recorded calls, then the one that leaves the set.
    assert order(made) == ["core", "composite", "explicit", "table"]


def test_the_cheapest_route_depends_on_the_set() -> None:
    seen = {
        "aten.silu.default": {"core": ({"aten.sigmoid.default": 1},), "table": ({"aten.exp.default": 2},)},
        "aten.sigmoid.default": {"core": ({"aten.exp.default": 3},)},
    }
    assert order(planner([SIGMOID, EXP], shipped=[CORE, TABLE], seen=seen)) == ["core", "table"]
    assert order(planner([EXP], shipped=[CORE, TABLE], seen=seen)) == ["table", "core"]


def test_our_rule_is_first_even_if_more_expensive_and_last_if_it_leaves_the_set() -> None:
    seen = {"aten.silu.default": {"own": ({"aten.mul.Tensor": 9},), "core": ({"aten.mul.Tensor": 1},)}}
    assert order(planner([MUL], ours=[OWN], shipped=[CORE], seen=seen)) == ["own", "core"]
    seen = {"aten.silu.default": {"own": ({"aten.nosuch.default": 1},), "core": ({"aten.mul.Tensor": 1},)}}
    assert order(planner([MUL], ours=[OWN], shipped=[CORE], seen=seen)) == ["core", "own"]


def test_a_written_rule_comes_before_the_schema_rule_even_without_recorded_calls() -> None:
    seen = {"aten.silu.default": {"schema": ({"aten.mul.Tensor": 1},)}}
    assert order(planner([MUL], ours=[OWN, rule("schema")], seen=seen)) == ["own", "schema"]


def test_fallback_rules_are_created_when_a_call_needs_one() -> None:
    asked: list[Any] = []

    def shipped(op: Any) -> list[Rule]:
        asked.append(op)
        return [CORE, TABLE]

    seen = {"aten.silu.default": {"own": ({"aten.mul.Tensor": 9},), "table": ({"aten.mul.Tensor": 1},)}}
    given = OpCosts(seen, frozenset(["aten.mul.Tensor"]), is_passthrough_name)
    for user, first in (({}, OWN), ({SILU: USER}, USER)):
        asked.clear()
        rules = Planner(ed.Backend("toy", [MUL]), user, lambda op: [OWN], shipped, lambda op_set: given).decide(SILU).rules
        assert rules[0] is first
        assert next(iter(rules)) is first
        assert asked == []
        others = rules[1:]
        assert asked == []
        wanted = [USER, OWN, TABLE, CORE] if user else [OWN, TABLE, CORE]
        assert list(others) == wanted[1:]
        assert (list(rules), len(rules), rules[-1], list(rules[1:3])) == (wanted, len(wanted), CORE, wanted[1:3])
        assert list(others[1:]) == wanted[2:]
        assert asked == [SILU], "asked for once"


# -- deciding once, and the same way -----------------------------------------------------------------------------------------------


def test_planners_of_equal_sets_decide_alike_in_any_order_of_queries() -> None:
    asked = [SILU, aten.gelu.default, aten.native_layer_norm.default, aten.addmm.default, aten.std.correction, aten.stack.default]
    op_set = ed.core_aten() - ["aten.gelu", "aten.native_layer_norm", "aten.addmm"]
    one = ed.EagerDecompMode(op_set)._runtime.planner
    other = ed.EagerDecompMode(ed.OpSet(reversed(list(op_set))))._runtime.planner
    decided = {op: [str(rule) for rule in one.decide(op).rules] for op in asked}
    assert {op: [str(rule) for rule in other.decide(op).rules] for op in reversed(asked)} == dict(reversed(decided.items()))
    assert all(decided.values())


def test_every_first_rule_of_ours_has_a_route_on_core_aten() -> None:
    ops = ed.core_aten()
    by_footprints = OpCosts(load_footprints(), frozenset(map(str, ops)), is_passthrough_name)
    firsts = [(str(op), rule.key) for op in map(op_named, load_footprints()) if op is not None for rule in our_rules(op)[:1]]
    assert len(firsts) > 1000
    assert [
        one
        for one in firsts
        if one[1] in ("own", "own-linked", "schema", "schema-linked") and by_footprints.rank_of_rule(*one)[0] == 3
    ] == []


def test_a_prim_of_the_set_is_called_before_a_rule_decomposes_the_op() -> None:
    x = torch.rand(3) + 0.5
    for call, prim in ((torch.lgamma, "prims.lgamma.default"), (torch.exp2, "prims.exp2.default")):
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.prims(), cache=ed.ProgramCache()):
            got = call(x)
        torch.testing.assert_close(got, call(x))
        assert {str(op): count for op, count in seen.ops.items()} == {prim: 1}
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()):
        torch.lgamma(x)
    assert not seen.outside(ed.core_aten())
    with pytest.raises(RuntimeError, match="alpha"), ed.EagerDecompMode(ed.prims()):  # our rule's error still propagates
        torch.add(torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64), alpha=1.5)


def test_a_decision_is_made_once() -> None:
    asked: list[Any] = []

    def shipped(op: Any) -> list[Rule]:
        asked.append(op)
        return [CORE]

    made = Planner(
        ed.Backend("toy", [MUL]), {}, lambda op: [], shipped, lambda op_set: OpCosts({}, frozenset(), is_passthrough_name)
    )
    assert made.decide(SILU) is made.decide(SILU)
    assert asked == [SILU]
