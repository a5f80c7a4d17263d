"""Plans as values: printed, saved as JSON, compared, required, and shown as pages."""

from __future__ import annotations

import ast
import json
import random
from typing import Any

import pytest
import torch
from on_core import CORE
from sampled import SEED

import eagerdecomp as ed
from conformance.scoreboard import random_core_subset
from eagerdecomp.coverage import analysis
from eagerdecomp.coverage.analysis import aten_ops
from eagerdecomp.coverage.op_plan import OpPlan
from eagerdecomp.coverage.plan_report import Plan, plan_text
from eagerdecomp.coverage.routes import Route
from eagerdecomp.planner.rule_calls import load_calls

REFUSED = Route(
    "f64[3]", "", {}, {}, ("aten.sin.default",), refused="aten.sin.default(f64[3]): torch.float64 is not among the dtypes"
)


@pytest.fixture(scope="module")
def core() -> Plan:
    return ed.plan(CORE)


@pytest.mark.full
def test_a_plan_survives_json(core: Plan) -> None:
    assert Plan.from_json(core.to_json()) == core
    assert json.loads(core.to_json())["counts"] == core.counts


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"ops": 3}'])
def test_json_that_is_not_a_plan_raises(text: str) -> None:
    with pytest.raises(ed.FileError, match=r"(not a|no) plan") as caught:
        Plan.from_json(text)
    assert "Error" not in str(caught.value)


@pytest.mark.parametrize(
    ("ops", "to_close", "said"),
    [
        ([OpPlan("aten.sin.default", "closed", calls=1)], (), "nothing is missing"),
        ([OpPlan("aten.sin.default", "missing", making=2)], (), "what has no route only builds the model (1 ops"),
        ([OpPlan("aten.sin.default", "missing", (REFUSED,), calls=1)], (), "no further kernel helps"),
        (
            [OpPlan("aten.sin.default", "missing", (REFUSED,), calls=1), OpPlan("aten.cos.default", "missing", calls=1)],
            ("aten.cos.default",),
            "1 supported, 1 missing; those are refused because of their dtype",
        ),
        (
            [OpPlan("aten.sin.default", "missing", making=1), OpPlan("aten.cos.default", "missing", calls=1)],
            ("aten.cos.default",),
            "1 supported, 1 missing; those only build the model",
        ),
    ],
)
def test_the_sentences_about_what_is_missing_agree(ops: list[OpPlan], to_close: tuple[str, ...], said: str) -> None:
    text = str(Plan("set", "a model", "2.13", tuple(ops), to_close=to_close))
    assert said in text
    assert ("nothing is missing" in text) == (ops[0].status == "closed")


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_the_text_fits_the_width(width: int) -> None:
    made = ed.plan(ed.infra(), ops=["aten.gelu_backward", "aten.silu", "aten.infinitely_differentiable_gelu_backward"])
    lines = plan_text(made, width).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == str(made).split()


@pytest.mark.full
def test_only_calls_of_both_plans_are_compared() -> None:
    def shapes(*sizes: int) -> Any:
        return lambda: lambda: [torch.nn.functional.mse_loss(torch.randn(n), torch.randn(n)) for n in sizes]

    samples = ed.plan(CORE, ops=["aten.mse_loss.default"])
    small, large, both = ed.plan(CORE, model=shapes(3)), ed.plan(CORE, model=shapes(5)), ed.plan(CORE, model=shapes(3, 5))
    few = ed.plan(ed.infra(), model=shapes(3, 5))
    assert small.compare(samples).apart == samples.compare(small).apart == ("aten.mse_loss.default",)
    assert "not compared, because the plans are of different calls: 1 (aten.mse_loss.default)" in str(small.compare(samples))
    assert "aten.mse_loss.default" in large.compare(small).apart
    assert small.compare(both).apart == ()
    assert "aten.mse_loss.default" in few.compare(small).lost
    assert str(both.compare(both)) == "no op differs"


def added(refusal: str) -> set[str]:
    """The ops of the line that a refusal says to add."""
    (line,) = [line for line in refusal.splitlines() if line.startswith("  ops | ")]
    found: set[str] = ast.literal_eval(line.removeprefix("  ops | "))
    return found


@pytest.mark.full
@pytest.mark.parametrize("require", ["closed", "gradients", "known"])
@pytest.mark.parametrize("share", [0.2, 0.7])
@pytest.mark.parametrize("part", range(2))
def test_the_line_of_an_unmet_requirement_closes_all_its_ops(require: str, share: float, part: int) -> None:
    """For ops and sets that are drawn."""
    chance = random.Random(1000 * SEED + part)
    ops = random_core_subset(share, SEED + part)
    asked = chance.sample([str(op) for op in aten_ops()], 250)
    before = ed.plan(ops, ops=asked)
    reported = before.unmet(require)
    assert reported
    after = ed.plan(ops | added(reported), ops=asked)
    # Naming an op is not enough where torch has no kernel of it for the CPU: there a backend has to bring one.
    assert all(one.missing and set(one.missing) <= added(reported) for one in after.failing(require)), after.unmet(require)
    assert len(after.failing(require)) <= 3
    assert {kernel.op for kernel in before.next_kernels} <= added(reported)


@pytest.mark.full
def test_an_op_without_a_call_is_distinguished_and_required_by_known_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["aten.infinitely_differentiable_gelu_backward.default", "aten.cos.default"]
    seen = {op: one for op, one in load_calls().items() if op != asked[0]}
    monkeypatch.setattr(analysis, "load_calls", lambda: seen)
    made = ed.plan(ed.infra(), ops=asked)
    assert made[asked[0]].status == "unknown"
    assert [one.op for one in made.failing("closed")] == ["aten.cos.default"]
    assert f"no call was ever seen of 1 ({asked[0]})" in made.unmet("closed")
    assert added(made.unmet("closed")) == {"aten.cos.default"}
    assert {one.op for one in made.failing("known")} == set(asked)
    assert "unknown: no call of it was ever seen" in made.unmet("known")
    assert added(made.unmet("known")) == set(asked)


@pytest.mark.full
def test_prims_are_proposed_only_to_sets_with_prims() -> None:
    asked = ["aten.le.Scalar", "aten.clamp.default", "aten.relu.default", "aten.ne.Scalar"]
    made = ed.plan(ed.infra(), ops=asked)
    assert made.next_kernels
    proposed = {*(kernel.op for kernel in made.next_kernels), *made.to_close, *made.for_gradients}
    assert not any(op.startswith("prims.") for op in proposed)
    lacking = ["prims.cos.default", "prims.erf.default", "prims.where.default"]
    made = ed.plan(ed.prims() - lacking, ops=[*asked, "aten.cos.default", "aten.erf.default"])
    assert {"prims.cos.default", "prims.erf.default"} <= {*made.to_close} <= {*lacking}


def test_a_lost_route_is_not_reported_as_a_gain() -> None:
    """An op of which only the calls with fewer kernels still close."""
    cheap = Route("f32[0]", "a rule", {}, {"aten.full.default": 1})
    dear = Route("f32[3]", "a rule", {}, {"aten.mul.Tensor": 9})
    broken = Route("f32[3]", "", {}, {}, ("aten.mul.Tensor",))

    def made(status: str, *routes: Route) -> Plan:
        return Plan("a set", "ops", "2.13", (OpPlan("aten.x.default", status, routes),))

    found = made("partly", cheap, broken).compare(made("closed", cheap, dear))
    assert (found.lost, found.cheaper, found.dearer) == (("aten.x.default",), (), ())
    found = made("closed", cheap, dear).compare(made("partly", cheap, broken))
    assert (found.enabled, found.cheaper, found.dearer) == (("aten.x.default",), (), ())
    other = Route("f32[9]", "a rule", {}, {"aten.mul.Tensor": 2})
    assert made("partly", cheap, broken).compare(made("partly", cheap, other)).cheaper == ()
    through = Route("f32[3]", "a rule", {}, {"aten.full.default": 1}, (), ("aten.y.default",))
    assert made("partly", cheap, through).compare(made("partly", cheap, dear)).cheaper == ()
    less = Route("f32[3]", "another", {}, {"aten.mul.Tensor": 4})
    assert made("closed", cheap, less).compare(made("closed", cheap, dear)).cheaper == (("aten.x.default", 9, 4),)


@pytest.mark.full
def test_the_page_shows_each_op_on_all_sets(core: Plan) -> None:
    others = [ed.plan(ed.prims()), ed.plan(ed.infra() | ["aten.mul.Tensor", "aten.sigmoid.default"])]
    text = core.to_html(others)
    part = text[text.index('id="aten.silu_backward.default"') :].split("</details>")[0]
    rows = part.split("<th scope=row")[1:]
    assert [row.split("<br>")[0].split(">")[-1] for row in rows] == ["core_aten", "prims", "infra | 2 ops"]
    assert "own rule eagerdecomp." in rows[0]
    assert "prims.mul.default" in rows[1]
    assert "ends at <a href=#aten." in rows[2]
    assert all("gradient <span class=" in row for row in rows)
    assert len(text) < 9e6


def test_the_page_escapes_what_it_shows() -> None:
    nasty = "<script>alert('&\"')</script>"
    one = OpPlan(nasty, "missing", (Route(nasty, nasty, {}, {nasty: 2}, (nasty,)),), (nasty,), "missing", (nasty,))
    text = Plan(nasty, nasty, nasty, (one,), notes=(nasty,)).to_html()
    assert text.count("<script>") == 1  # the page's own
    assert nasty not in text
