"""Rules: registration, where a rule is defined, and how it is bound; one that does not fit its op raises."""

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


def test_locations_of_wrapped_functions_and_callables_without_code() -> None:
    class Halves:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x / 2

    @functools.wraps(double)
    def wrapped(x: torch.Tensor) -> torch.Tensor:
        return double(x)

    assert register_decomposition(aten.silu.default)(wrapped).where.endswith(f"double:{double.__code__.co_firstlineno}")
    assert "Halves" in register_decomposition(aten.silu.default)(Halves()).where


# -- calling rules --------------------------------------------------------------------------------------------------------


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


# -- users' rules ------------------------------------------------------------------------------------------------------


def test_a_rule_may_omit_optional_arguments() -> None:
    rule = ed.register_decomposition("aten.gelu.default")(lambda x: x)
    assert rule(torch.ones(2)).tolist() == [1, 1]


def test_a_rule_with_another_default_than_its_op_raises() -> None:
    """Torch omits arguments that equal the schema's default, so the rule would use its own default."""
    with pytest.raises(ed.RuleError, match=r"alpha=0\.5, where the op has alpha=1\.0"):
        ed.register_decomposition("aten.celu.default")(lambda x, alpha=0.5: x)
    with pytest.raises(ed.RuleError, match=r"keepdim=True, where the op has keepdim=False"):
        ed.register_decomposition("aten.sum.dim_IntList")(lambda x, dim, keepdim=True, *, dtype=None: x)
    for fn in (lambda x, alpha=1: x, lambda x, alpha=None: x, lambda x, *rest: x, lambda self, **rest: self):
        ed.register_decomposition("aten.celu.default")(fn)
