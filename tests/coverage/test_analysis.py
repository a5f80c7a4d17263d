"""Plans of ops and models agree with what the mode does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE
from sampled import SEED

import eagerdecomp as ed
from conformance.cases import Case, Selection, cases, full_name, opinfos
from conformance.scoreboard import random_core_subset
from eagerdecomp._torch.ops import op_called
from eagerdecomp.conformance.judge import clone_arguments
from eagerdecomp.coverage import analysis
from eagerdecomp.coverage.plan_report import Plan
from eagerdecomp.eager.observe import Caught
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.schema import tensors_in
from eagerdecomp.planner.rule_calls import load_calls

aten = torch.ops.aten

ROOT = Path(__file__).resolve().parents[2]

#: One part in so many of the OpInfos runs each time.
PARTS = 8

FINE = ("supported", "passes", "closed")


def net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.SiLU(), torch.nn.LayerNorm(8)), (torch.randn(4, 8),)


# -- what it says ----------------------------------------------------------------------------------------------------


def test_an_op_of_the_set_is_one_kernel_and_others_have_the_kernels_of_their_rule() -> None:
    core = ed.plan(CORE, ops=["aten.mul.Tensor", "aten.silu.default"])
    assert (core["aten.mul.Tensor"].status, core["aten.mul.Tensor"].kernels) == ("supported", (1, 1))
    silu = core[aten.silu.default]
    assert silu.status == "closed"
    plain = next(route for route in silu.routes if route.call.startswith("f32["))
    assert plain.rule.startswith("own rule eagerdecomp.decomps.")
    assert plain.kernels == {"aten.mul.Tensor": 1, "aten.sigmoid.default": 1}


@pytest.mark.full
def test_a_predicate_says_for_which_calls_the_kernel_runs() -> None:
    floats = (ed.infra() | ["aten.mul.Tensor", "aten.sigmoid.default"]).with_predicate(
        "aten.sigmoid.default", lambda x: x.dtype is torch.float32
    )
    made = ed.plan(floats, ops=["aten.sigmoid.default", "aten.silu.default"])
    sigmoid, silu = made["aten.sigmoid.default"], made["aten.silu.default"]
    assert {route.call[:4]: bool(route.missing) for route in sigmoid.routes}.items() >= {"f32[": False, "bf16": True}.items()
    assert "not for (" in sigmoid.depends
    assert "closed for (f32[" in sigmoid.depends
    assert silu.depends == "through aten.sigmoid.default, which is partly closed"
    assert sigmoid.depends in str(made)
    exact = CORE.with_predicate("aten.gelu", lambda x, approximate="none": approximate == "none")
    reported = str(ed.plan(exact, ops=["aten.gelu.default"]))
    assert "the kernel, by its predicate for (f32[10, 10])" in reported
    assert "torch._refs.nn.functional.gelu for (f32[10, 10], approximate='tanh')" in reported


# -- that it is so ---------------------------------------------------------------------------------------------------


def run(case: Case, backward: bool) -> None:
    args, kwargs = clone_arguments(case.arguments)
    wanted = [t for t in tensors_in([case.function(*args, **kwargs)]) if t.requires_grad and t.layout is torch.strided]
    if wanted and backward:
        torch.autograd.backward(wanted, [torch.ones_like(t) for t in wanted])


def observed(case: Case, backward: bool) -> set[str] | None:
    """The ops of a case, forward and perhaps backward; None where eager refuses it."""
    try:
        with ed.BackendRecorder() as seen:
            run(case, backward)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    return {str(op) for op in seen.ops}


SETS: dict[str, Any] = {
    "core": ed.core_aten,
    "prims": ed.prims,
    "small": lambda: ed.infra() | list(ed.minimal_opset().ops),
    "core less a tenth": lambda: random_core_subset(0.1, SEED),
    "core less a half": lambda: random_core_subset(0.5, SEED),
}


def prove(ops: ed.OpSet, part: int, parts: int) -> tuple[int, int, int]:
    """Run the cases of which the plan says that each op closes, those of the backward too where it says so of all of them. How many
    there were, how many with a backward, and of how many the ops' gradients were reported to close though the backward calls an op
    that does not (that of a broadcast operand, which was not among the few calls whose gradients were observed)."""
    made = {one.op: one for one in ed.plan(ops, kernels=0).ops}
    passthrough = set(map(str, ed.infra()))  # what the copies of the arguments are made by
    proved = gradients = overstated = 0
    for info in opinfos()[part % parts :: parts]:
        for case in cases(info, Selection(samples=2, grad=True), seed=SEED):
            forward, everything = observed(case, False), observed(case, True)
            if forward is None or not forward <= made.keys() or not all(made[op].status in FINE for op in forward):
                continue
            backward = all(made[op].gradient in ("closed", "none") for op in forward - passthrough)
            reported = everything is not None and all(op in made and made[op].status in FINE for op in everything)
            with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops):
                run(case, reported)
            assert not seen.outside(ops), full_name(info)
            proved += 1
            gradients += reported and everything != forward
            open_ops = {op for op in everything or () if op not in made or made[op].status not in FINE}
            overstated += backward and bool(open_ops - {"aten.ones_like.default"})  # which is our own call
    return proved, gradients, overstated


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETS)
def test_closed_ops_reach_the_backend_only_as_ops_of_the_set(name: str) -> None:
    """A part of the operators, on sets that are drawn."""
    proved, gradients, overstated = prove(SETS[name](), SEED, PARTS)
    assert proved > 10
    assert gradients > 5 or name == "prims"  # there what the backward begins with, a tensor of ones, closes in part
    assert overstated <= proved / 10


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETS)
def test_all_closed_ops_reach_the_backend_only_as_ops_of_the_set(name: str) -> None:
    assert prove(SETS[name](), 0, 1)[0] > 40


# -- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_the_plan_of_a_model_has_the_ops_of_its_run() -> None:
    made = ed.plan(CORE, model=net)
    model, inputs = net()
    with ed.BackendRecorder() as eager:
        model(*inputs).backward(torch.ones(4, 8))
    called = {one.op: one.calls for one in made.ops if one.status != "passes" and one.calls}
    assert {op for op in called if "detach" not in op and "ones_like" not in op} <= {str(op) for op in eager.ops}
    assert called["aten.silu_backward.default"] == eager.ops[aten.silu_backward.default] == 1
    assert made.with_status("closed")
    assert all(one.exact for one in made.ops)


@pytest.mark.full
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


@pytest.mark.full
def test_a_model_that_reads_data_is_reported() -> None:
    def reading() -> Any:
        return lambda: torch.randn(3).sin().nonzero().cos()

    made = ed.plan(CORE, model=reading)
    assert made["aten.sin.default"].calls == 1
    assert "stopped on fake tensors" in made.notes[0]
    assert not made.failing("closed")
    assert "stopped on fake tensors" in made.unmet("closed")
    assert Plan.from_json(made.to_json()).unmet("closed") == made.unmet("closed")


@pytest.mark.full
def test_a_plan_is_the_same_in_every_process() -> None:
    """Sets of strings have another order in each process, unless PYTHONHASHSEED is set."""
    script = "import eagerdecomp as ed; print(ed.plan(ed.infra() | ['aten.add.Tensor', 'aten.mul.Tensor']).to_json())"
    texts = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
        texts.append(json.loads(done.stdout) | {"seconds": 0})
    assert texts[0] == texts[1]


def test_an_op_that_leads_to_one_without_recorded_calls_is_unknown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {name: seen for name, seen in load_calls().items() if "randperm" not in name}
    monkeypatch.setattr(analysis, "load_calls", lambda: calls)
    op = "aten.randperm.generator"
    made = ed.plan(ed.tiny(), ops=[op])
    assert made[op].status == "unknown"
    assert made.next_kernels == made.to_close == ()


def test_kernels_of_ops_that_are_not_decomposed_are_counted_apart() -> None:
    made = ed.plan(ed.tiny(), ops=["aten.mkldnn_reorder_conv2d_weight.default", "aten.mkldnn_reorder_conv3d_weight.default"])
    assert made.counts == {"outside": 2}
    assert made.next_kernels == ()
    assert "all 2 kernels that are missing, 2 of them for ops that are not decomposed" in " ".join(str(made).split())


@pytest.mark.full
def test_a_plan_of_all_ops_agrees_with_the_mode_on_a_small_set() -> None:
    """Statuses are those of each op, not of each call: for few complex calls of other ops a closed op has no route."""
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for one in ed.plan(ed.tiny()).ops:
        for route in (route for route in one.routes if one.status in ("closed", "missing") and route.call):
            with Caught() as caught:
                args, kwargs = parse_call(route.call)
                op_called(one.op)(*args, **kwargs)
            if caught.error is None:
                args, kwargs = parse_call(route.call)
                with Caught() as caught, ed.EagerDecompMode(ed.tiny()):
                    op_called(one.op)(*args, **kwargs)
                outcomes[not route.missing, caught.error is None] += 1
    assert outcomes[True, True] > 2500
    assert outcomes[False, True] == 0
    assert outcomes[True, False] < 40


# -- the small set ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [{torch.float32}, {torch.float32, torch.float64}, {torch.float64}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_plan_of_a_model_agrees_with_the_mode_on_dtypes(dtype: torch.dtype, taken: set[torch.dtype]) -> None:
    """A supported op, a linked rule, a recorded one, and a view."""
    backend = ed.Backend("narrow", ed.core_aten(), dtypes={*taken, torch.bool})
    x = torch.ones(2, 3, dtype=dtype)

    def step() -> None:
        for run in (lambda: x * 2, lambda: F.silu(x), lambda: torch.special.i0e(x), lambda: x.t()):
            run()

    made = ed.plan(backend, model=lambda: step)
    with ed.EagerDecompMode(backend, on_unsupported="fallback") as mode, pytest.warns() if dtype not in taken else nullcontext():
        step()
    fell_back = {op for op, one in mode.stats().items() if one.fell_back}
    assert {one.op for one in made.failing("closed")} == fell_back
    assert bool(fell_back) == (dtype not in taken)
    if fell_back:
        assert made["aten.mul.Tensor"].refused.endswith(f"{dtype} is not among the dtypes of backend 'narrow'")
        assert not made.next_kernels
        assert not made.to_close
        assert f"take only torch.bool, {min(taken, key=str)}, and refuse calls of aten.mul.Tensor" in " ".join(made.notes)


def test_a_plan_names_an_op_whose_result_has_a_refused_dtype() -> None:
    """`argmax` returns int64, which is in no argument."""
    backend = ed.Backend("narrow", ed.core_aten(), dtypes={torch.float32})
    made = ed.plan(backend, model=lambda: lambda: torch.ones(2, 3).argmax(1))
    assert made.op_set == "Backend('narrow', OpSet(core_aten: 208 ops), 0 kernels, only torch.float32)"
    assert "torch.int64" in made["aten.argmax.default"].refused
    assert "refused: aten.argmax.default(f32[2, 3], 1)" in made.unmet("closed")
    assert Plan.from_json(made.to_json()) == made


@pytest.mark.full
def test_the_minimal_opset_gives_routes_to_the_requested_ops() -> None:
    found = ed.minimal_opset(["aten.silu", "aten.silu_backward", "aten.hardswish", "aten.mul"])
    made = ed.plan(ed.infra() | list(found.ops), ops=["aten.silu.default", "aten.silu_backward.default", "aten.hardswish.default"])
    assert made.counts == {"closed": 3}
    assert set(found.ops) != set(found.necessary)
    for spare in found.ops:
        left = ed.infra() | [op for op in found.ops if op != spare]
        assert ed.minimal_opset(["aten.silu", "aten.silu_backward", "aten.hardswish", "aten.mul"], base=ed.Backend("", left)).ops


@pytest.mark.full
def test_the_tour_states_the_size_of_the_minimal_opset_of_eagers_ops() -> None:
    found = ed.minimal_opset()
    eager = sum(seen.eager for seen in load_calls().values())
    text = " ".join((ROOT / "docs" / "tutorial" / "tour.md").read_text(encoding="utf-8").split())
    assert f"Eager calls {eager} ops when it runs the samples of OpInfo" in text
    assert f"They decompose to a set of {len(found.ops)} ops, not counting `infra()`." in text
    assert f"{len(found.necessary)} of these are needed in every such set" in text
