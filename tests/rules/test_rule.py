"""Rules: registration, and where a rule is defined; how rules are applied, bound and compared."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.rules.link import Linkable
from eagerdecomp.rules.rule import Rule, make_rule
from eagerdecomp.rules.user_rules import register_decomposition

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


# -- tables of rules ------------------------------------------------------------------------------------------------------


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


def test_a_partial_function_has_the_name_of_its_function() -> None:
    rule = ed.register_decomposition("aten.gelu.default")(functools.partial(torch.mul, 2))
    assert "functools" not in rule.where


def test_a_call_with_an_omitted_optional_argument_raises_and_names_the_rule() -> None:
    @ed.register_decomposition("aten.celu.default")
    def short(x: torch.Tensor) -> torch.Tensor:
        return x * 1

    x = torch.tensor([-1.0, 2.0])
    with ed.EagerDecompMode(ed.core_aten(), rules=[short]):
        assert torch.celu(x).tolist() == x.tolist()
        with pytest.raises(ed.RuleError, match=r"short:\d+ for aten.celu.default cannot take the arguments of this call"):
            torch.celu(x, 2.0)
