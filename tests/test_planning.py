"""Plans: what they say of ops and models, that it is so, and how they are told, kept, compared and required."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Collection
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from on_core import CORE, kernel_calls
from weekly import WEEK

import eagerdecomp as ed
from eagerdecomp.calls import load_calls
from eagerdecomp.cli import main
from eagerdecomp.planned import OpPlan
from eagerdecomp.planning import aten_ops
from eagerdecomp.plans import Plan
from eagerdecomp.routes import Route
from eagerdecomp.tracer import tensors_in

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.cases import Case, Selection, cases, full_name, opinfos
from conformance.judge import clone_arguments

aten = torch.ops.aten

ROOT = Path(__file__).resolve().parents[1]

#: One part in so many of the OpInfos runs each time; the week chooses which.
PARTS = 8

FINE = ("supported", "passes", "closed")


@pytest.fixture(scope="module")
def core() -> Plan:
    return ed.plan(CORE)


def net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.SiLU(), torch.nn.LayerNorm(8)), (torch.randn(4, 8),)


# -- what it says ----------------------------------------------------------------------------------------------------


def test_a_plan_has_every_overload_of_aten_once(core: Plan) -> None:
    assert [one.op for one in core.ops] == [str(op) for op in aten_ops()]
    assert len({one.op for one in core.ops}) == len(core.ops) > 3000
    assert sum(core.counts.values()) == len(core.ops)


def test_an_op_of_the_set_is_one_kernel_and_one_outside_those_of_its_rule(core: Plan) -> None:
    assert (core["aten.mul.Tensor"].status, core["aten.mul.Tensor"].kernels) == ("supported", (1, 1))
    silu = core[aten.silu.default]
    assert silu.status == "closed"
    plain = next(route for route in silu.routes if route.call.startswith("f32["))
    assert plain.rule.startswith("own rule eagerdecomp.decomps.")
    assert plain.kernels == {"aten.mul.Tensor": 1, "aten.sigmoid.default": 1}


def test_an_op_without_a_route_names_the_end_and_a_set_with_it_opens_it() -> None:
    name, ops = "aten.special_gammainc.default", CORE - ["aten.erf"]
    asked = ed.plan(ops, ops=[name])[name]
    assert (asked.status, asked.missing) == ("missing", ("aten.igamma.default",))
    assert ed.plan(ops | ["aten.igamma"], ops=[name]).counts == {"closed": 1}


def test_an_in_place_form_is_its_twin_and_a_copy(core: Plan) -> None:
    assert core["aten.silu_.default"].status == "closed"
    assert set(core["aten.silu_.default"].routes[0].kernels) == {"aten.mul.Tensor", "aten.sigmoid.default", "aten.copy_.default"}


def test_the_gradient_is_told_apart_from_the_op() -> None:
    ops = ed.infra() | ["aten.silu.default", "aten.mul.Tensor", "aten.sigmoid.default"]
    one = ed.plan(ops, ops=["aten.silu.default"])["aten.silu.default"]
    assert (one.status, one.gradient, one.gradient_missing) == ("supported", "missing", ("aten.silu_backward.default",))
    assert ed.plan(CORE, ops=["aten.silu.default"])["aten.silu.default"].gradient == "closed"


def test_an_op_whose_route_depends_on_the_call_says_on_which() -> None:
    ops = ed.infra() | ["aten.mul.Tensor", "aten.sigmoid.default", "aten._to_copy.default"]
    seen = {call.example: set(call.by_source) for call in load_calls()["aten.gelu.default"].calls}
    assert {"f32[10, 10]", "f32[10, 10], approximate='tanh'"} <= set(seen)
    one = ed.plan(ops | ["aten.add.Tensor", "aten.erf.default"], ops=["aten.gelu.default"])["aten.gelu.default"]
    assert one.status == "partly"
    assert "approximate='tanh'" in one.depends
    assert "closes for (f32[10, 10])" in one.depends


def test_a_predicate_says_for_which_calls_the_kernel_runs() -> None:
    floats = (ed.infra() | ["aten.mul.Tensor", "aten.sigmoid.default"]).with_predicate(
        "aten.sigmoid.default", lambda x: x.dtype is torch.float32
    )
    made = ed.plan(floats, ops=["aten.sigmoid.default", "aten.silu.default"])
    sigmoid, silu = made["aten.sigmoid.default"], made["aten.silu.default"]
    assert {route.call[:4]: bool(route.missing) for route in sigmoid.routes}.items() >= {"f32[": False, "bf16": True}.items()
    assert "not for (" in sigmoid.depends
    assert "closes for (f32[" in sigmoid.depends
    assert silu.depends == "through aten.sigmoid.default, which closes in part"
    assert sigmoid.depends in str(made)
    exact = CORE.with_predicate("aten.gelu", lambda x, approximate="none": approximate == "none")
    told = str(ed.plan(exact, ops=["aten.gelu.default"]))
    assert "the kernel, by its predicate for (f32[10, 10])" in told
    assert "torch._refs.nn.functional.gelu for (f32[10, 10], approximate='tanh')" in told


def test_the_next_kernels_open_what_the_plan_says(core: Plan) -> None:
    ops = ed.infra() | ["aten.mul.Tensor"]
    asked = ["aten.silu.default", "aten.silu_backward.default", "aten.mul_.Tensor", "aten.sigmoid.out"]
    before = ed.plan(ops, ops=asked, kernels=1)
    (kernel,) = before.next_kernels
    after = ed.plan(ops | [kernel.op], ops=asked)
    opened = {one.op for one in after.ops if one.status in FINE} - {one.op for one in before.ops if one.status in FINE}
    assert opened == set(kernel.opens)
    assert opened
    closed = ed.plan(ops | list(before.to_close), ops=asked)
    assert not closed.of("partly", "missing")


@pytest.mark.parametrize("lacks", [("sigmoid", "exp", "tanh"), ("mm", "bmm", "addmm"), ("where", "maximum", "clamp", "abs")])
def test_no_other_kernels_open_more(lacks: tuple[str, ...]) -> None:
    """Against all the choices there are, each planned for."""
    asked = [f"aten.{op}" for op in ("silu.default", "linear.default", "mse_loss.default", "relu.default", "softplus.default")]
    ops = CORE - [f"aten.{op}" for op in (*lacks, "relu", "linear", "matmul", "silu", "threshold", "softplus")]
    before = ed.plan(ops, ops=asked, kernels=2)

    def opens(kernels: Collection[str]) -> int:
        return len(before.of("partly", "missing")) - len(ed.plan(ops | list(kernels), ops=asked, kernels=0).of("partly", "missing"))

    chosen = [kernel.op for kernel in before.next_kernels]
    assert chosen
    ends = {op for one in before.of("partly", "missing") for op in (one.op, *one.missing)} | set(before.to_close)
    ends = {op for op in ends if not op.startswith("prims.")}  # which are not proposed to a set without any
    most = max(opens(two) for two in itertools.combinations(sorted(ends), len(chosen)))
    assert opens(chosen) == sum(len(kernel.opens) for kernel in before.next_kernels) >= most
    assert most <= before.bound


def test_ten_kernels_for_core_aten_are_known_to_be_the_best(core: Plan) -> None:
    assert len(core.next_kernels) == 10
    assert sum(len(kernel.opens) for kernel in core.next_kernels) == core.bound


# -- that it is so ---------------------------------------------------------------------------------------------------


def run(case: Case, backward: bool) -> None:
    args, kwargs = clone_arguments(case.arguments)
    wanted = [t for t in tensors_in([case.function(*args, **kwargs)]) if t.requires_grad]
    if wanted and backward:
        torch.autograd.backward(wanted, [torch.ones_like(t) for t in wanted])


def heard(case: Case, backward: bool) -> set[str] | None:
    """The ops of a case, forward and perhaps backward; None where eager refuses it."""
    try:
        with ed.BackendRecorder() as seen:
            run(case, backward)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    return {str(op) for op in seen.ops}


def core_less(share: float, seed: int) -> ed.OpSet:
    """Core ATen less so much of it, at random."""
    names = sorted(map(str, ed.core_aten() - ed.infra()))
    return ed.core_aten() - random.Random(seed).sample(names, int(share * len(names)))


SETS: dict[str, Any] = {
    "core": ed.core_aten,
    "prims": ed.prims,
    "small": lambda: ed.infra() | list(ed.carrying_set().ops),
    "core less a tenth": lambda: core_less(0.1, WEEK),
    "core less a half": lambda: core_less(0.5, WEEK),
}


def prove(ops: ed.OpSet, part: int, parts: int) -> tuple[int, int, int]:
    """Run the cases of which the plan says that each op closes, those of the backward too where it says so of all of them. How many
    there were, how many with a backward, and of how many the ops' gradients were told to close though the backward calls an op
    that does not (that of a broadcast operand, which was not among the few calls whose gradients were heard)."""
    made = {one.op: one for one in ed.plan(ops, kernels=0).ops}
    plumbing = set(map(str, ed.infra()))  # what the copies of the arguments are made by
    proved = gradients = overstated = 0
    for info in opinfos()[part % parts :: parts]:
        for case in cases(info, Selection(samples=2, grad=True), seed=WEEK):
            forward, everything = heard(case, False), heard(case, True)
            if forward is None or not forward <= made.keys() or not all(made[op].status in FINE for op in forward):
                continue
            backward = all(made[op].gradient in ("closed", "none") for op in forward - plumbing)
            told = everything is not None and all(op in made and made[op].status in FINE for op in everything)
            with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops):
                run(case, told)
            assert not seen.outside(ops), full_name(info)
            proved += 1
            gradients += told and everything != forward
            open_ops = {op for op in everything or () if op not in made or made[op].status not in FINE}
            overstated += backward and bool(open_ops - {"aten.ones_like.default"})  # which is our own call
    return proved, gradients, overstated


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETS)
def test_nothing_else_reaches_the_backend_where_the_plan_says_closed(name: str) -> None:
    """A part of the operators each week, on sets that change with it."""
    proved, gradients, overstated = prove(SETS[name](), WEEK, PARTS)
    assert proved > 10
    assert gradients > 5 or name == "prims"  # there what the backward begins with, a tensor of ones, closes in part
    assert overstated <= proved / 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETS)
def test_nothing_else_reaches_the_backend_for_any_operator_where_the_plan_says_closed(name: str) -> None:
    assert prove(SETS[name](), 0, 1)[0] > 40


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.silu.default, (torch.rand(3),)),
        (aten.silu_backward.default, (torch.rand(3), torch.rand(3))),
        (aten.hardswish.default, (torch.rand(3),)),
        (aten.mse_loss.default, (torch.rand(3), torch.rand(3))),
    ],
)
def test_kernel_calls_are_those_that_are_made(core: Plan, op: Any, args: Any) -> None:
    low, high = core[op].kernels or (0, 0)
    assert low <= kernel_calls(lambda: op(*args)) <= high


# -- models ----------------------------------------------------------------------------------------------------------


def test_the_plan_of_a_model_is_what_a_run_of_it_calls() -> None:
    made = ed.plan(CORE, model=net)
    model, inputs = net()
    with ed.BackendRecorder() as eager:
        model(*inputs).backward(torch.ones(4, 8))
    called = {one.op: one.calls for one in made.ops if one.status != "passes" and one.calls}
    assert {op for op in called if "detach" not in op and "ones_like" not in op} <= {str(op) for op in eager.ops}
    assert called["aten.silu_backward.default"] == eager.ops[aten.silu_backward.default] == 1
    assert made.of("closed")
    assert all(one.exact for one in made.ops)


def test_no_kernel_runs_for_the_plan_of_a_model() -> None:
    class Huge(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(2**20, 2**20))  # four terabytes

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.silu(x @ self.weight)

    made = ed.plan(CORE, model=lambda: (Huge(), torch.randn(8, 2**20)))
    assert made["aten.silu.default"].routes[0].call == "f32[8, 1048576]"
    assert made["aten.silu.default"].routes[0].kernels == {"aten.mul.Tensor": 1, "aten.sigmoid.default": 1}


def test_a_model_s_gaps_are_ranked_for_it_alone() -> None:
    made = ed.plan(CORE - ["aten.sigmoid"] - ["aten.exp"], model=net)
    missing = [one.op for one in made.of("missing")]
    assert "aten.silu.default" in missing
    assert made.next_kernels
    assert {op for kernel in made.next_kernels for op in kernel.opens} <= {one.op for one in made.ops}


def test_a_factory_may_give_a_step_instead() -> None:
    def step() -> Any:
        weight = torch.randn(3, requires_grad=True)
        return lambda: (weight * 2).sum().backward()

    assert ed.plan(CORE, model=step)["aten.mul.Tensor"].calls == 2


def test_a_model_that_stops_at_data_says_so() -> None:
    def reading() -> Any:
        return lambda: torch.randn(3).sin().nonzero().cos()

    made = ed.plan(CORE, model=reading)
    assert made["aten.sin.default"].calls == 1
    assert "stopped on fake tensors" in made.notes[0]
    assert not made.failing("closed")
    assert "stopped on fake tensors" in made.refusal("closed")
    assert Plan.from_json(made.to_json()).refusal("closed") == made.refusal("closed")


@pytest.mark.parametrize("made", [3, torch.nn.Linear(2, 2)])
def test_a_factory_that_gives_no_model_is_an_error(made: Any) -> None:
    with pytest.raises(ed.PlanError, match="return model"):
        ed.plan(CORE, model=lambda: made)


# -- the small set ---------------------------------------------------------------------------------------------------


def test_the_small_set_carries_what_it_was_asked_for() -> None:
    found = ed.carrying_set(["aten.silu", "aten.silu_backward", "aten.hardswish", "aten.mul"])
    made = ed.plan(ed.infra() | list(found.ops), ops=["aten.silu.default", "aten.silu_backward.default", "aten.hardswish.default"])
    assert made.counts == {"closed": 3}
    assert set(found.ops) != set(found.necessary)
    for spare in found.ops:
        left = ed.infra() | [op for op in found.ops if op != spare]
        assert ed.plan(left, ops=["aten.silu", "aten.silu_backward", "aten.hardswish", "aten.mul"]).of("partly", "missing")


def test_the_tour_says_how_small_a_set_carries_all_that_eager_calls() -> None:
    found = ed.carrying_set()
    eager = sum(seen.eager for seen in load_calls().values())
    text = " ".join((ROOT / "docs" / "tour.md").read_text(encoding="utf-8").split())
    assert f"{len(found.ops)} ops beside `infra()` carry every call seen of the {eager} ops" in text
    assert f"any such set holds {len(found.necessary)} of them" in text


# -- told, kept, compared, required ----------------------------------------------------------------------------------


def test_a_plan_is_kept_as_json(core: Plan) -> None:
    assert Plan.from_json(core.to_json()) == core
    assert json.loads(core.to_json())["counts"] == core.counts


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"ops": 3}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ed.PlanError, match="not a plan"):
        Plan.from_json(text)


def test_plans_compare() -> None:
    ops = ed.infra() | ["aten.mul.Tensor", "aten.sigmoid.default"]
    asked = ["aten.silu.default", "aten.cos.default"]
    old, new = ed.plan(ops, ops=asked), ed.plan(ops - ["aten.sigmoid"] | ["aten.cos"], ops=asked)
    found = new.compare(old)
    assert (found.opened, found.lost) == (("aten.cos.default",), ("aten.silu.default",))
    assert "close no more: 1 (aten.silu.default)" in str(found)
    assert str(old.compare(old)) == "no op differs"


def test_only_the_calls_that_both_plans_tell_of_are_compared() -> None:
    def shapes(*sizes: int) -> Any:
        return lambda: lambda: [torch.nn.functional.mse_loss(torch.randn(n), torch.randn(n)) for n in sizes]

    samples = ed.plan(CORE, ops=["aten.mse_loss.default"])
    small, large, both = ed.plan(CORE, model=shapes(3)), ed.plan(CORE, model=shapes(5)), ed.plan(CORE, model=shapes(3, 5))
    few = ed.plan(ed.infra(), model=shapes(3, 5))
    assert small.compare(samples).apart == samples.compare(small).apart == ("aten.mse_loss.default",)
    assert "not compared, the plans tell of different calls: 1 (aten.mse_loss.default)" in str(small.compare(samples))
    assert "aten.mse_loss.default" in large.compare(small).apart
    assert small.compare(both).apart == ()
    assert "aten.mse_loss.default" in few.compare(small).lost
    assert str(both.compare(both)) == "no op differs"


def test_a_refusal_lists_all_ops_and_the_line_that_opens_them() -> None:
    ops = ed.infra() | ["aten.mul.Tensor"]
    asked = ["aten.silu.default", "aten.cos.default", "aten.mul_.Tensor"]
    made = ed.plan(ops, ops=asked)
    told = made.refusal("closed")
    assert [line.split(":")[0].strip() for line in told.splitlines()[1:3]] == ["aten.cos.default", "aten.silu.default"]
    assert not ed.plan(ops | added(told), ops=asked).refusal("closed")


def added(refusal: str) -> list[str]:
    """The ops of the line that a refusal says to add."""
    (line,) = [line for line in refusal.splitlines() if line.startswith("  ops | ")]
    found: list[str] = json.loads(line.removeprefix("  ops | "))
    return found


@pytest.mark.parametrize("require", ["closed", "gradients", "known"])
@pytest.mark.parametrize("share", [0.2, 0.7])
@pytest.mark.parametrize("part", range(2))
def test_the_line_of_a_refusal_closes_all_that_it_names(require: str, share: float, part: int) -> None:
    """For ops and sets that change with the week."""
    chance = random.Random(1000 * WEEK + part)
    ops = core_less(share, WEEK + part)
    asked = chance.sample([str(op) for op in aten_ops()], 250)
    before = ed.plan(ops, ops=asked)
    told = before.refusal(require)
    assert told
    after = ed.plan(ops | added(told), ops=asked)
    # Naming an op is not enough where torch has no kernel of it for the CPU: there a backend has to bring one.
    assert all(one.missing and set(one.missing) <= set(added(told)) for one in after.failing(require)), after.refusal(require)
    assert len(after.failing(require)) <= 3
    assert {kernel.op for kernel in before.next_kernels} <= set(added(told))


def test_an_op_without_a_call_is_told_apart_and_required_by_known_alone() -> None:
    asked = ["aten.infinitely_differentiable_gelu_backward.default", "aten.cos.default"]
    made = ed.plan(ed.infra(), ops=asked)
    assert made[asked[0]].status == "unknown"
    assert [one.op for one in made.failing("closed")] == ["aten.cos.default"]
    assert f"no call was ever seen of 1 ({asked[0]})" in made.refusal("closed")
    assert added(made.refusal("closed")) == ["aten.cos.default"]
    assert {one.op for one in made.failing("known")} == set(asked)
    assert "unknown: no call of it was ever seen" in made.refusal("known")
    assert set(added(made.refusal("known"))) == set(asked)


def test_gradients_are_opened_too() -> None:
    ops = ed.infra() | ["aten.silu.default", "aten.mul.Tensor", "aten.sigmoid.default"]
    made = ed.plan(ops, ops=["aten.silu.default"])
    assert made.refusal("closed") == ""
    assert added(made.refusal("gradients")) == list(made.for_gradients) != []
    assert ed.plan(ops | added(made.refusal("gradients")), ops=["aten.silu.default"])["aten.silu.default"].gradient == "closed"


def test_prims_are_proposed_to_sets_alone_that_hold_some() -> None:
    asked = ["aten.le.Scalar", "aten.clamp.default", "aten.relu.default", "aten.ne.Scalar"]
    made = ed.plan(ed.infra(), ops=asked)
    assert made.next_kernels
    proposed = {*(kernel.op for kernel in made.next_kernels), *made.to_close, *made.for_gradients}
    assert not any(op.startswith("prims.") for op in proposed)
    lacking = ["prims.le.default", "prims.ne.default", "prims.where.default"]
    made = ed.plan(ed.prims() - lacking, ops=[*asked, "aten.le.Tensor", "aten.ne.Tensor"])
    assert {"prims.le.default", "prims.ne.default"} <= {*made.to_close} <= {*lacking}


def test_the_kernel_that_opens_most_is_told_first(core: Plan) -> None:
    opened = [len(kernel.opens) for kernel in core.next_kernels]
    assert opened == sorted(opened, reverse=True)
    assert core.to_close[: len(opened)] == tuple(kernel.op for kernel in core.next_kernels)
    assert "the one that opens most first; an op that waits for several counts at one of them" in str(core)


def test_a_loss_is_no_gain() -> None:
    """An op of which only the calls still close that came to fewer kernels anyway."""
    cheap = Route("f32[0]", "a rule", {}, {"aten.full.default": 1})
    dear = Route("f32[3]", "a rule", {}, {"aten.mul.Tensor": 9})
    broken = Route("f32[3]", "", {}, {}, ("aten.mul.Tensor",))

    def made(status: str, *routes: Route) -> Plan:
        return Plan("a set", "ops", "2.13", (OpPlan("aten.x.default", status, routes),))

    found = made("partly", cheap, broken).compare(made("closed", cheap, dear))
    assert (found.lost, found.cheaper, found.dearer) == (("aten.x.default",), (), ())
    found = made("closed", cheap, dear).compare(made("partly", cheap, broken))
    assert (found.opened, found.cheaper, found.dearer) == (("aten.x.default",), (), ())
    other = Route("f32[9]", "a rule", {}, {"aten.mul.Tensor": 2})
    assert made("partly", cheap, broken).compare(made("partly", cheap, other)).cheaper == ()
    through = Route("f32[3]", "a rule", {}, {"aten.full.default": 1}, (), ("aten.y.default",))
    assert made("partly", cheap, through).compare(made("partly", cheap, dear)).cheaper == ()
    less = Route("f32[3]", "another", {}, {"aten.mul.Tensor": 4})
    assert made("closed", cheap, less).compare(made("closed", cheap, dear)).cheaper == (("aten.x.default", 9, 4),)


class Page(HTMLParser):
    """What of a page matters here: addresses within it, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        self.links.add(given.get("href") or "")
        if given.get("src") or tag in ("link", "iframe", "img"):
            self.loads.append(tag)


def test_the_page_has_a_part_for_each_op_and_needs_no_other_file(core: Plan) -> None:
    found = Page(core.to_html())
    assert {one.op for one in core.ops} <= found.ids
    assert {link[1:] for link in found.links if link} <= found.ids
    assert all(link.startswith("#") for link in found.links if link)
    assert not found.loads


def test_the_page_tells_of_each_op_on_other_sets_too(core: Plan) -> None:
    others = [ed.plan(ed.prims()), ed.plan(ed.infra() | ["aten.mul.Tensor", "aten.sigmoid.default"])]
    text = core.to_html(others)
    part = text[text.index('id="aten.silu_backward.default"') :].split("</details>")[0]
    rows = part.split("<th scope=row")[1:]
    assert [row.split("<br>")[0].split(">")[-1] for row in rows] == ["core_aten", "prims", "infra | 2 ops"]
    assert "own rule eagerdecomp." in rows[0]
    assert "prims.mul.default" in rows[1]
    assert "ends at <a href=#aten." in rows[2]
    assert all("gradient <span class=" in row for row in rows)
    assert Page(text).ids >= {one.op for one in core.ops}
    assert len(text) < 7e6


def test_the_page_counts_gradients_and_tells_sets_together_that_come_to_the_same() -> None:
    asked = ["aten.silu.default", "aten.cos.default"]
    made = ed.plan(CORE, ops=asked)
    text = made.to_html([ed.plan(CORE | ["aten.erf"], ops=asked), ed.plan(ed.infra(), ops=asked)])
    head = text[: text.index("<h2>Ops")]
    assert 'gradients</th><td class="n">2</td><td><span class="closed">2 closed</span>' in head
    part = text[text.index('id="aten.silu.default"') :].split("</details>")[0]
    assert part.count("<th scope=row") == 2
    assert "core_aten<br>" in part
    assert part.count("infra") == 1


def test_the_command_puts_core_aten_and_prims_beside_a_set(files: Path) -> None:
    assert main(["plan", "--ops", "few.txt", "--match", "^aten.silu.default", "--html", "plan.html"]) == 0
    text = Path("plan.html").read_text(encoding="utf-8")
    assert text.count("<th scope=row") == 3
    assert "core_aten" in text
    assert "prims.mul.default" in text


def test_the_page_escapes_what_it_shows() -> None:
    nasty = "<script>alert('&\"')</script>"
    one = OpPlan(nasty, "missing", (Route(nasty, nasty, {}, {nasty: 2}, (nasty,)),), (nasty,), "missing", (nasty,))
    text = Plan(nasty, nasty, nasty, (one,), notes=(nasty,)).to_html()
    assert text.count("<script>") == 1  # the page's own
    assert nasty not in text


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "planned_nets.py").write_text(
        "import torch\n"
        "def mlp():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SiLU()), torch.randn(2, 4)\n"
        "size = 3\n"
        "def broken():\n"
        "    raise ValueError('no such net\\nof any size')\n"
        "def mismatched():\n"
        "    return torch.randn(2) + torch.randn(3)\n",
        encoding="utf-8",
    )
    (tmp_path / "unreadable_nets.py").write_text("import torch\nnet = torch.nn.(\n", encoding="utf-8")
    (tmp_path / "few.txt").write_text("@infra\naten.mul.Tensor\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "planned_nets", raising=False)  # that of an earlier test
    return tmp_path


def test_the_command_plans_a_model_and_is_a_gate(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "planned_nets:mlp", "--require", "closed"]) == 0
    assert "nothing is missing" in capsys.readouterr().out
    assert main(["plan", "--ops", "few.txt", "--model", "planned_nets:mlp", "--require", "closed"]) == 1
    told = capsys.readouterr()
    assert "aten.silu.default" in told.err
    assert "aten.addmm.default" in told.err
    assert "  ops | [" in told.err
    assert "kernels to write" in told.out


def test_the_command_writes_and_compares(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["plan", "--match", r"aten\.silu(_backward)?\.default"]
    assert main([*few, "--json", "old.json", "--html", "plan.html"]) == 0
    assert {one.op for one in Plan.from_json(Path("old.json").read_text()).ops} == {
        "aten.silu.default",
        "aten.silu_backward.default",
    }
    assert 'id="aten.silu.default"' in Path("plan.html").read_text()
    assert main([*few, "--ops", "few.txt", "--compare", "old.json"]) == 0
    assert main([*few, "--ops", "few.txt", "--compare", "old.json", "--require", "no-worse"]) == 1
    assert "close no more: 2" in capsys.readouterr().out
    assert main([*few, "--compare", "old.json", "--require", "no-worse", "--json", "-"]) == 0
    assert Plan.from_json(capsys.readouterr().out).counts == {"closed": 2}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--ops", "nosuch"], "no such file"),
        (["--match", "aten.sillu"], "did you mean silu"),
        (["--match", "("], "--match ("),
        (["--model", "planned_nets"], "write module:name"),
        (["--model", "no_such_module:mlp"], "cannot be imported"),
        (["--model", "planned_nets:mlpp"], "did you mean mlp?"),
        (["--model", "planned_nets:size"], "is no function"),
        (["--model", "planned_nets:broken"], "--model planned_nets:broken fails: ValueError: no such net (planned_nets.py:6)\n"),
        (["--model", "planned_nets:mismatched"], "(planned_nets.py:8)\n"),
        (["--model", "unreadable_nets:net"], "found, but importing it fails: SyntaxError: invalid syntax (unreadable_nets.py:2)"),
        (["--compare", "few.txt"], "not a plan"),
        (["--compare", "nosuch.json"], "cannot be read"),
        (["--require", "no-worse"], "needs --compare"),
        (["--json", "no/such/folder.json"], "cannot be written"),
    ],
)
def test_a_mistake_is_a_line_or_two_and_ends_with_2(
    words: list[str], told: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.splitlines()) <= 2
