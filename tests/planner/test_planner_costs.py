"""Routes by cost: costs as a function or a table, and choices that depend on the size of a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.planner.closure import OpCosts
from eagerdecomp.planner.planner import Planner
from eagerdecomp.rules.rule import Rule

aten = torch.ops.aten
MUL, EXP, SILU = "aten.mul.Tensor", "aten.exp.default", aten.silu.default


def rule(source: str) -> Rule:
    return Rule(SILU, lambda x: source, source, f"{source} for silu")


#: One rule calls many cheap kernels, another a kernel that is expensive for large tensors.
SEEN = {"aten.silu.default": {"own": ({MUL: 30},), "small": ({EXP: 1},), "core": ({MUL: 1},), "table": ({EXP: 2},)}}
OURS, SHIPPED = [rule("own"), rule("small")], [rule("table"), rule("core")]


def first(costs: Any, size: int, ours: list[Rule], shipped: list[Rule]) -> str:
    """Return the source of the rule that runs for a tensor with `size` elements."""
    made = Planner(
        ed.Backend("toy", [MUL, EXP], costs=costs),
        {},
        lambda op: ours if op is SILU else [],
        lambda op: shipped if op is SILU else [],
        lambda op_set: OpCosts(SEEN, frozenset(map(str, op_set)), is_passthrough_name),
    )
    return str(made.decide(SILU).rules[0](torch.empty(size)))


def growing(op: str, size: int) -> float:
    return 1e-6 if op == MUL else 1e-6 + 1e-8 * size


TABLE = {MUL: {16: 1e-6, 65_536: 1e-6}, EXP: {"16": 1e-6, "1000": 1.1e-5}}


@pytest.mark.parametrize("costs", [growing, TABLE])
def test_the_cheapest_rule_depends_on_the_size(costs: Any) -> None:
    assert [first(costs, size, OURS, SHIPPED) for size in (1, 16, 200_000, 10**8)] == ["small", "small", "own", "own"]
    assert [first(costs, size, [], SHIPPED) for size in (1, 200_000)] == ["core", "core"]


def test_our_rules_come_before_torchs_at_any_cost() -> None:
    assert first(growing, 200_000, [rule("own")], SHIPPED) == "own"
    assert first(None, 200_000, OURS, SHIPPED) == "own"


def test_a_choice_by_size_runs_in_the_mode() -> None:
    """For each size, the chosen rule's kernels reach the backend: recorded, compiled, and on a cache hit."""
    calls: list[str] = []

    def way(source: str, run: Callable[[torch.Tensor], torch.Tensor]) -> Rule:
        def fn(x: torch.Tensor) -> torch.Tensor:
            calls.append(source)
            return run(x)

        return Rule(SILU, fn, source, source)

    ways = [way("own", lambda x: aten.mul.Tensor(x, aten.sigmoid.default(x))), way("small", lambda x: aten.exp.default(x))]
    mode = ed.EagerDecompMode(ed.Backend("toy", ed.core_aten(), costs=growing), cache=ed.ProgramCache())
    planner = mode._runtime.planner
    planner._ours, planner._shipped = lambda op: ways if op is SILU else [], lambda op: []
    planner._costs_on = lambda op_set: OpCosts(SEEN, frozenset(map(str, op_set)), is_passthrough_name)
    for size, expected in ((4, torch.exp), (200_000, torch.nn.functional.silu), (5, torch.exp)):
        x = torch.linspace(-1, 1, size)
        for _ in range(3):
            with mode:
                found = aten.silu.default(x)
            torch.testing.assert_close(found, expected(x))
    assert calls[0] == "small"
    assert "own" in calls


_BAD_SIZES = ({0: 1.0}, {1.5: 1.0}, {"many": 1.0}, {math.inf: 1.0}, {10**400: 1.0}, {1: 1.0, "1": 5.0})
_BAD_SECONDS = ({1: math.nan}, {1: math.inf}, {1: -1.0}, {1: None}, {1: 10**400})


@pytest.mark.parametrize("costs", [3, {}, {MUL: {}}, {MUL: 1.0}, *({MUL: table} for table in (*_BAD_SIZES, *_BAD_SECONDS))])
def test_invalid_costs_are_rejected(costs: Any) -> None:
    with pytest.raises(ed.ArgumentError, match="costs"):
        ed.Backend("toy", [MUL], costs=costs)


def test_a_cost_table_must_name_ops_of_this_torch() -> None:
    with pytest.raises(ed.OpSetError, match=r"no\.such\.op"):
        ed.Backend("toy", [MUL], costs={"no.such.op": {1: 1.0}})
    costs = ed.Backend("toy", [MUL], costs={"aten.mul": {1: 3.0}, EXP: {1: 1.0}}).costs
    assert costs is not None
    assert costs(MUL, 1) == 3.0


@pytest.mark.parametrize("seconds", [None, "x", 1j, math.nan, -math.inf, -1])
def test_a_cost_function_returns_seconds(seconds: Any) -> None:
    mode = ed.EagerDecompMode(ed.Backend("toy", ed.core_aten(), costs=lambda op, size: seconds), cache=ed.ProgramCache())
    with mode, pytest.raises(ed.ArgumentError, match=r"costs\('aten\.\w+\.\w+', \d+\) returned"):
        torch.nn.functional.silu(torch.ones(3))
