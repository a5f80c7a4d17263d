"""Rules: registration, locations and signatures; two rules for one op raise; the first applicable rule runs."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.rules.link import Linkable
from eagerdecomp.rules.rule import NoRoute, Rule, first_applicable, index_rules, make_rule, register_decomposition

aten = torch.ops.aten


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


# -- making rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["aten.silu.default", aten.silu.default])
def test_a_rule_has_the_location_of_its_function(op: Any) -> None:
    rule = register_decomposition(op)(double)
    assert isinstance(rule, Rule)
    assert (rule.op, rule.fn, rule.source, rule.linked, rule.effects) == (aten.silu.default, double, "user", False, False)
    assert rule.where == f"{__name__}.double:{double.__code__.co_firstlineno}"
    assert str(rule) == f"user rule {rule.where}"


def test_registration_has_no_effect_without_a_mode() -> None:
    register_decomposition("aten.silu.default")(lambda x: x * 0)
    with ed.EagerDecompMode(ed.core_aten()):
        assert torch.nn.functional.silu(torch.ones(1)).item() != 0


def test_locations_of_wrapped_functions_and_callables_without_code() -> None:
    class Halves:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x / 2

    import functools

    @functools.wraps(double)
    def wrapped(x: torch.Tensor) -> torch.Tensor:
        return double(x)

    assert register_decomposition(aten.silu.default)(wrapped).where.endswith(f"double:{double.__code__.co_firstlineno}")
    assert "Halves" in register_decomposition(aten.silu.default)(Halves()).where


def test_a_rule_is_for_one_overload() -> None:
    with pytest.raises(ed.RuleError, match=r"aten\.add has several overloads, .*aten\.add\.Tensor"):
        register_decomposition("aten.add")
    with pytest.raises(ed.OpSetError, match=r"Did you mean aten\.silu"):
        register_decomposition("aten.sillu.default")


def test_a_rule_must_be_a_function() -> None:
    wrong: Any = 3
    with pytest.raises(ed.ArgumentTypeError, match=r"rule for aten\.silu\.default must be a function, not 3"):
        register_decomposition("aten.silu.default")(wrong)


# -- tables of rules ------------------------------------------------------------------------------------------------------


def test_rules_are_indexed_by_overload() -> None:
    silu, gelu = (
        make_rule(aten.silu.default, double, recorded=True),
        make_rule(aten.gelu.default, double, effects=True, recorded=True),
    )
    assert index_rules([silu, gelu]) == {aten.silu.default: silu, aten.gelu.default: gelu}
    assert gelu.effects


def test_two_rules_for_one_overload_raise_and_both_locations_are_named() -> None:
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    first, second = make_rule(aten.silu.default, double, recorded=True), register_decomposition("aten.silu.default")(halve)
    with pytest.raises(ed.RuleError) as caught:
        index_rules([first, second])
    assert str(caught.value) == f"two rules for aten.silu.default, {first.where} and {second.where}: remove one of them"
    assert first.where != second.where


def test_an_undecorated_function_is_not_a_rule() -> None:
    wrong: Any = double
    with pytest.raises(ed.ArgumentTypeError, match="register_decomposition"):
        index_rules([wrong])


def test_a_rule_equals_only_itself() -> None:
    # By identity: a mode's programs depend on the function objects it was given.
    one, other = make_rule(aten.silu.default, double, recorded=True), make_rule(aten.silu.default, double, recorded=True)
    assert one == one
    assert one != other
    assert len({one, other}) == 2


# -- calling rules --------------------------------------------------------------------------------------------------------


def test_a_plain_rule_is_called_with_the_ops_arguments() -> None:
    rule = make_rule(aten.elu.default, lambda x, alpha=1, scale=1: (x, alpha, scale), recorded=True)
    assert rule(1, 2, scale=3) == (1, 2, 3)


def test_a_linked_rule_is_bound_to_what_runs_its_ops() -> None:
    bound: list[Any] = []

    def link(call: Any) -> Any:
        add = call(aten.add.Tensor)
        return lambda x: add(x, x)

    def runs(op: Any) -> Any:
        bound.append(op)
        return lambda *args: ("ran", op, args)

    rule = make_rule(aten.silu.default, Linkable(link))
    run = rule.bind(runs).run
    assert run(3) == ("ran", aten.add.Tensor, (3, 3))
    assert run(4) == ("ran", aten.add.Tensor, (4, 4))
    assert bound == [aten.add.Tensor]
    # If called directly, it goes through the dispatcher.
    assert rule(torch.ones(2)).tolist() == [2, 2]
    assert (rule.source, rule.linked) == ("own", True)


# -- the first result -----------------------------------------------------------------------------------------------------


def rules_returning(*results: Any) -> list[Rule]:
    return [make_rule(aten.silu.default, lambda result=result: result, recorded=True) for result in results]


def apply(rule: Rule) -> Any:
    result = rule()
    if isinstance(result, Exception):
        raise result
    return result


def test_the_first_applicable_rule_returns_and_no_later_one_runs() -> None:
    ran: list[Rule] = []

    def noted(rule: Rule) -> Any:
        ran.append(rule)
        return apply(rule)

    rules = rules_returning(NotImplemented, None, "late")
    assert first_applicable(aten.silu.default, rules, noted) is None
    assert ran == rules[:2]


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


def test_without_rules_there_is_no_route_and_no_attempt() -> None:
    with pytest.raises(NoRoute) as caught:
        first_applicable(aten.silu.default, [], apply)
    assert caught.value.attempts == ()


def test_an_error_of_a_users_rule_propagates_and_no_other_rule_is_tried() -> None:
    rules = rules_returning(ValueError("mine"), "late")
    with pytest.raises(ValueError, match="mine"):
        first_applicable(aten.silu.default, rules, apply)


@pytest.mark.parametrize("fn", [lambda: None, lambda x, y, z: x, lambda x, *, y: x])
def test_a_rule_with_wrong_parameters_raises_at_registration(fn: Any) -> None:
    with pytest.raises(ed.RuleError, match=r"cannot take the arguments of aten\.gelu_backward\.default"):
        ed.register_decomposition("aten.gelu_backward.default")(fn)


def test_a_rule_may_omit_optional_arguments() -> None:
    rule = ed.register_decomposition("aten.gelu.default")(lambda x: x)
    assert rule(torch.ones(2)).tolist() == [1, 1]


def test_a_partial_function_has_the_name_of_its_function() -> None:
    rule = ed.register_decomposition("aten.gelu.default")(functools.partial(torch.mul, 2))
    assert "functools" not in rule.where


def test_a_rule_with_another_default_than_its_op_raises() -> None:
    """Torch omits arguments that equal the schema's default, so the rule would use its own default."""
    with pytest.raises(ed.RuleError, match=r"alpha=0\.5, where the op has alpha=1\.0"):
        ed.register_decomposition("aten.celu.default")(lambda x, alpha=0.5: x)
    with pytest.raises(ed.RuleError, match=r"keepdim=True, where the op has keepdim=False"):
        ed.register_decomposition("aten.sum.dim_IntList")(lambda x, dim, keepdim=True, *, dtype=None: x)
    for fn in (lambda x, alpha=1: x, lambda x, alpha=None: x, lambda x, *rest: x, lambda self, **rest: self):
        ed.register_decomposition("aten.celu.default")(fn)


def test_a_call_with_an_omitted_optional_argument_raises_and_names_the_rule() -> None:
    @ed.register_decomposition("aten.celu.default")
    def short(x: torch.Tensor) -> torch.Tensor:
        return x * 1

    x = torch.tensor([-1.0, 2.0])
    with ed.EagerDecompMode(ed.core_aten(), rules=[short]):
        assert torch.celu(x).tolist() == x.tolist()
        with pytest.raises(ed.RuleError, match=r"short:\d+ for aten.celu.default cannot take the arguments of this call"):
            torch.celu(x, 2.0)
