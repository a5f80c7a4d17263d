"""Users' rules in a plan: they run on the recorded calls of their ops, and a run makes the same calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE
from opaque import OPAQUE

import eagerdecomp as ed
from eagerdecomp.coverage.user_rules import with_rules
from eagerdecomp.planner.rule_calls import load_calls

IGAMMA, GAMMAINC = "aten.igamma.default", "aten.special_gammainc.default"
#: What the library's own rule of the incomplete gamma function calls, and others of these tests do not.
FEWER = CORE - ["aten.erf"]


@ed.register_decomposition(IGAMMA)
def igamma(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(y)


@ed.register_decomposition("aten.silu.default")
def silu_of_floats(x: torch.Tensor) -> Any:
    return torch.sin(x) if x.dtype is torch.float32 else NotImplemented


@pytest.mark.full
def test_a_rule_gives_a_route_to_its_op_and_to_its_callers() -> None:
    asked = [IGAMMA, GAMMAINC]
    assert ed.plan(FEWER, ops=asked).counts == {"missing": 2}
    made = ed.plan(FEWER, ops=asked, rules=[igamma])
    assert made.counts == {"closed": 2}
    assert made[IGAMMA].routes[0].rule.startswith("user rule ")
    x = torch.rand(3)
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(FEWER, rules=[igamma]):
        torch.special.gammainc(x, x)
    assert {str(op): count for op, count in seen.ops.items()} == made[GAMMAINC].routes[0].kernels


@pytest.mark.full
def test_calls_that_a_rule_declines_use_the_next_rule() -> None:
    made = ed.plan(CORE, ops=["aten.silu.default"], rules=[silu_of_floats])["aten.silu.default"]
    by_call = {route.call[:3]: (route.rule.split()[0], route.kernels) for route in made.routes}
    assert by_call["f32"] == ("user", {"aten.sin.default": 1})
    assert by_call["bf1"][0] == "own"


@pytest.mark.full
def test_a_rule_for_an_op_without_recorded_calls_is_reported() -> None:
    @ed.register_decomposition(OPAQUE)
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x * 1

    made = ed.plan(CORE, ops=[OPAQUE], rules=[opaque])
    assert made.counts == {"unknown": 1}
    assert any("no call of edtests.opaque.default was seen" in note for note in made.notes)


@pytest.mark.full
def test_a_rule_that_cannot_run_on_samples_names_the_calls() -> None:
    @ed.register_decomposition("aten.silu.default")
    def by_data(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 0 else x

    made = ed.plan(CORE, ops=["aten.silu.default"], rules=[by_data])
    assert any("could not be tried" in note and "by_data" in note for note in made.notes)
    assert made.counts == {"closed": 1}  # by the rule after it, wherever it leads
    assert ed.plan(ed.infra(), ops=["aten.silu.default"], rules=[by_data]).counts == {"unknown": 1}


def test_no_kernel_runs_while_a_rule_is_tried() -> None:
    seen: list[type] = []

    @ed.register_decomposition("aten.silu.default")
    def watched(x: torch.Tensor) -> torch.Tensor:
        seen.append(type(x))
        return x * 2

    with ed.BackendRecorder() as ran:
        found, notes = with_rules(load_calls(), [watched])
    assert not ran.ops
    assert not notes
    assert torch.Tensor not in seen
    assert all(call.by_rule["user"] == {"aten.mul.Tensor": 1} for call in found["aten.silu.default"].calls)
    assert len(seen) == len(found["aten.silu.default"].calls)
