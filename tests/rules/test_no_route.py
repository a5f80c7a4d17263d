"""Rules are tried in order; what none of them handles has no route."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from eagerdecomp.rules.no_route import NoRoute, first_applicable
from eagerdecomp.rules.rule import Rule, make_rule

aten = torch.ops.aten


def rules_returning(*results: Any) -> list[Rule]:
    return [make_rule(aten.silu.default, lambda result=result: result, recorded=True) for result in results]


def apply(rule: Rule) -> Any:
    result = rule()
    if isinstance(result, Exception):
        raise result
    return result


def test_effects_of_a_rule_that_declines_are_undone_before_the_next_runs() -> None:
    events: list[str] = []

    def noted(rule: Rule) -> Any:
        events.append("ran")
        return apply(rule)

    first_applicable(
        aten.silu.default,
        rules_returning(NotImplemented, NoRoute(aten.sin.default), "result"),
        noted,
        undo=lambda: events.append("undone"),
    )
    assert events == ["ran", "undone", "ran", "undone", "ran"]


def test_if_all_rules_decline_every_attempt_is_reported_with_its_reason() -> None:
    inner = NoRoute(aten.sin.default)
    rules = rules_returning(NotImplemented, inner)
    undone: list[int] = []
    with pytest.raises(NoRoute) as caught:
        first_applicable(aten.silu.default, rules, apply, undo=lambda: undone.append(1))
    assert caught.value.op is aten.silu.default
    assert caught.value.attempts == ((rules[0], "does not cover this call", None), (rules[1], "", inner))
    assert undone == [1, 1]
