"""Users' rules: a function that does not fit its op raises when it is registered."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.rules.rule import make_rule
from eagerdecomp.rules.user_rules import index_rules, register_decomposition

aten = torch.ops.aten


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


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


@pytest.mark.parametrize("fn", [lambda: None, lambda x, y, z: x, lambda x, *, y: x])
def test_a_rule_with_wrong_parameters_raises_at_registration(fn: Any) -> None:
    with pytest.raises(ed.RuleError, match=r"cannot take the arguments of aten\.gelu_backward\.default"):
        ed.register_decomposition("aten.gelu_backward.default")(fn)


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
