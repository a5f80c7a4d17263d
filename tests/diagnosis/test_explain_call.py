"""`explain` of a call agrees with what the mode does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from opaque import OPAQUE, opaque_rule
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.cli.main import main
from eagerdecomp.diagnosis.explain_call import conditions
from eagerdecomp.diagnosis.explanation import Explanation, explanation_text
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.program.key import Guard, key_labels, key_of

aten = torch.ops.aten
CORE, PRIMS = ed.core_aten(), ed.prims()


def explained(op: str, text: str, **options: Any) -> Explanation:
    args, kwargs = parse_call(text)
    return ed.explain(op, *args, **options, **kwargs)


@pytest.mark.parametrize("ops", [CORE, CORE - ["aten.sigmoid", "aten.native_layer_norm"], PRIMS], ids=["core", "less", "prims"])
@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("aten.native_layer_norm", "f32[2, 4], [4], f32[4], None, 1e-5"),
        ("aten.addcmul_", "f32[3], f32[3], f32[3], value=2"),
        ("aten._foreach_add.List", "[f32[2], f32[3]], [f32[2], f32[3]]"),
        ("aten.hardswish", "f32[2, 3][1, 2]"),
        ("aten.linalg_cross", "f32[2, 3], f32[2, 3]"),
        ("aten.frexp.Tensor", "f32[3]"),
        ("aten.add.Tensor", "f32[3], f16[3, 3]"),
        ("aten.native_batch_norm", "f32[2, 3, 4], f32[3], None, f32[3], f32[3], True, 0.1, 1e-5"),
    ],
)
def test_the_kernels_are_those_that_reach_the_backend(op: str, text: str, ops: ed.OpSet) -> None:
    explanation = explained(op, text, supported_ops=ops)
    args, kwargs = parse_call(text)
    overload = getattr(aten, explanation.op.split(".")[1])
    if explanation.verdict.startswith("no route"):
        with pytest.raises(ed.UnsupportedOpError), ed.EagerDecompMode(ops):
            overload(*args, **kwargs)
        return
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops, cache=ed.ProgramCache()) as mode:
        overload(*args, **kwargs)
        live = mode.explain(explanation.op, *args, **kwargs)
    assert explanation.kernels == {str(kernel): times for kernel, times in seen.ops.items()}
    assert explanation.op in str(explanation)
    assert (live.kernels, live.guards, live.code) == (explanation.kernels, explanation.guards, explanation.code)


def test_a_linked_rule_has_no_program_and_a_recorded_one_has_guards() -> None:
    linked = explained("aten.silu", "f32[3]")
    assert "linked rule" in linked.verdict
    assert linked.rules[0].kind == "linked"
    assert linked.rules[0].verdict == "used"
    assert "not tried (may decompose to the set, about " in linked.rules[1].verdict
    assert not linked.code
    recorded = ed.explain(OPAQUE, torch.ones(2, 3), rules=[opaque_rule])
    assert recorded.verdict == "decomposed once, and cached as a program"
    assert "x.dtype == torch.float32" in recorded.guards
    assert "x.shape == (2, 3)" in recorded.guards
    assert recorded.code.startswith("def program(a0):")
    assert set(recorded.passes) == {"common_subexpressions", "view_chains", "dead_code"}


def test_guards_have_the_results_of_comparisons() -> None:
    guards = {
        Guard("(self.shape[1] == 1)"): False,
        Guard("(self.numel() != 0)"): True,
        Guard("self.is_contiguous()"): True,
        Guard("self.shape"): torch.Size([2, 3]),
        Guard("self.shape[7]"): None,
    }
    explanation = conditions(aten.elu.default, [torch.ones(2, 3), 1.0, 1, 1], guards)
    scalars = ["alpha == 1.0", "scale == 1", "input_scale == 1"]
    facts = ["not (self.shape[1] == 1)", "self.numel() != 0", "self.is_contiguous()", "self.shape == (2, 3)"]
    assert explanation == scalars + facts


def test_the_text_fits_a_width_and_loses_no_word() -> None:
    explanation = explained("aten.native_layer_norm", "f32[2, 4], [4], f32[4], None, 1e-5", supported_ops=PRIMS)
    whole, narrow = str(explanation), explanation_text(explanation, 60)
    assert narrow.split() == whole.split()
    (before, code), (same, same_code) = (text.split("\nits code\n") for text in (narrow, whole))
    assert code == same_code, "code is to be pasted"
    assert len(before.splitlines()) > len(same.splitlines())
    assert all(len(line) <= 60 or len(line.split()) == 1 for line in before.splitlines())


def test_the_effect_of_passes_is_shown() -> None:
    @ed.register_decomposition("aten.hardswish.default")
    def twice(x: Tensor) -> Tensor:
        x.cos()
        return x.exp() * x.exp()

    explanation = ed.explain("aten.hardswish", torch.ones(3), rules=[twice])
    assert explanation.kernels == {"aten.exp.default": 2, "aten.cos.default": 1, "aten.mul.Tensor": 1}
    assert explanation.passes == {"common_subexpressions": 3, "view_chains": 3, "dead_code": 2}
    assert explanation.before.count("exp") == 2
    assert explanation.after.count("exp") == 1
    assert "aten.mul.Tensor" in explanation.direct
    assert "after the passes (common_subexpressions leaves 3" in str(explanation)


def test_a_supported_op_and_one_without_a_route_say_so() -> None:
    assert explained("aten.relu", "f32[2]").verdict == "in the set: goes to the backend's kernel"
    none = explained("aten.mm", "f32[2, 2], f32[2, 2]", supported_ops=ed.infra())
    assert none.verdict.startswith("no route: ")
    assert "aten.mm.default" in none.verdict
    narrow = CORE.with_predicate("aten.relu", lambda x: x.dtype == torch.float64)
    assert explained("aten.relu", "f64[2]", supported_ops=narrow).kernels == {"aten.relu.default": 1}
    assert "aten.relu.default" not in explained("aten.relu", "f32[2]", supported_ops=narrow).kernels


def test_without_arguments_the_rules_are_listed() -> None:
    explanation = ed.explain("aten.silu")
    assert explanation.call == ""
    assert [way.verdict for way in explanation.rules] == ["may decompose to the set, about 2 kernel calls"] * 2
    assert ed.explain("aten.linear").notes
    assert not ed.explain("aten.silu_backward.default").notes  # has a composition too, and kernels that come before it


def test_an_error_keeps_its_lines_which_are_to_paste() -> None:
    explanation = explained("aten.mm", "f32[2, 2], f32[2, 2]", supported_ops=ed.infra())
    text = explanation_text(explanation, 60)
    pasted = [line for line in explanation.verdict.splitlines() if "eagerdecomp " in line or "ops | {" in line]
    assert len(pasted) >= 2
    assert set(pasted) < set(text.splitlines())
    others = [line for line in text.splitlines() if line not in pasted]
    assert all(len(line) <= 60 or len(line.split()) == 1 for line in others)
    assert " ".join(explanation.verdict.split()) in " ".join(text.split())


@pytest.mark.parametrize(("op", "call"), [("aten.uniform_", "f32[3]"), ("aten.t", "f32[2, 3]"), ("aten.t", "f32[2]")])
def test_without_arguments_a_verdict_holds_for_calls_with_and_without_a_route(op: str, call: str) -> None:
    """On this set, `uniform_` has a route for empty tensors only, and `t` for vectors only."""
    known, tried = explained(op, "", supported_ops=ed.infra()), explained(op, call, supported_ops=ed.infra())
    assert tried.verdict.startswith("no route: ") == (call != "f32[2]")
    assert "may decompose" in known.rules[0].verdict or "recorded calls" in known.verdict


def test_arguments_and_random_state_do_not_change() -> None:
    base = torch.arange(6.0)
    views = base[:3], base[3:]
    before, state = base.clone(), torch.get_rng_state()
    explanation = ed.explain("aten.addcmul_", views[0], views[1], torch.ones(3))
    assert explanation.kernels
    ed.explain("aten.normal_", base)
    assert torch.equal(base, before)
    assert torch.equal(torch.get_rng_state(), state)
    leaf = torch.ones(3, requires_grad=True)
    assert ed.explain("aten.silu", leaf).kernels
    assert leaf.grad_fn is None


# -- a live mode -----------------------------------------------------------------------------------------------------------------


def test_a_mode_names_the_new_guard() -> None:
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache(), rules=[opaque_rule]) as mode:
        assert mode.explain(OPAQUE).counts == "not called yet"
        OPAQUE(torch.ones(3))
        OPAQUE(torch.ones(3, dtype=torch.float64))
        assert mode.why_missed(OPAQUE) == "x.dtype: torch.float32 became torch.float64"
        explanation = mode.explain(OPAQUE)
    assert explanation.last_miss == mode.why_missed(OPAQUE)
    assert "misses=2" in explanation.counts
    assert "x.dtype: torch.float64" in explanation.guards
    assert explanation.before.startswith(str(OPAQUE))
    assert "def program" in explanation.code


@pytest.mark.parametrize(
    ("op", "values"),
    [
        (aten.gelu_backward.default, [torch.ones(2), torch.ones(2), "tanh"]),
        (aten._foreach_add.List, [[torch.ones(2)], [torch.ones(2)], 1]),
        (aten.addcmul.default, [torch.ones(2), torch.ones(2), torch.ones(2), 1]),
    ],
)
def test_a_key_has_as_many_labels_as_parts(op: Any, values: Any) -> None:
    from eagerdecomp.program.key import exact_guards

    guards = exact_guards(op, offsets=True)
    labels = key_labels(op, guards)
    key = key_of(op, values, guards)
    assert len(labels) == len(key)
    assert dict(zip(labels, key, strict=True))["get_default_dtype"] is torch.float32
    if op is aten.gelu_backward.default:
        assert dict(zip(labels, key, strict=True))["approximate"] == "tanh"


# -- the command -----------------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_tree_the_kernels_and_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "explanation.json"
    assert main(["explain", "aten.silu", "--call", "f32[3]", "--json", str(target)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("aten.silu.default(f32[3]) on OpSet(core_aten: ")
    for words in (
        "1. own rule eagerdecomp.decomps.pointwise.activations",
        "aten.sigmoid.default(f32[3]) -> kernel",
        "2 kernel calls: 1 x aten.sigmoid.default, 1 x aten.mul.Tensor",
        "%1 = aten.sigmoid.default(%0)",
    ):
        assert words in out
    facts = json.loads(target.read_text(encoding="utf-8"))
    assert facts["kernels"] == {"aten.sigmoid.default": 1, "aten.mul.Tensor": 1}
    assert facts["tree"]["steps"][0]["kernel"] is True


@pytest.mark.parametrize(("op", "call"), [("aten.silu.default", "i64[2]"), ("aten.sigmoid_.default", "i64[2]")])
def test_a_call_that_eager_refuses_raises_its_error(op: str, call: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=r"not implemented for 'Long'|can't be cast"):
        explained(op, call, supported_ops=CORE)
