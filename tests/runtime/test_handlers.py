"""The runtime: which handler an op gets, and what becomes of a call that its first rule cannot bring to the set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from opaque import OPAQUE

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.decomps import our_rules
from eagerdecomp.rules.link import Call, Linkable
from eagerdecomp.rules.rule import Rule, make_rule

aten = torch.ops.aten


def only_vectors(call: Call) -> Callable[..., Any]:
    """A linked rule that has a route for vectors only."""
    sigmoid, mul, inverse = call(aten.sigmoid.default), call(aten.mul.Tensor), call(OPAQUE)

    def run(x: torch.Tensor) -> torch.Tensor:
        return mul(x, sigmoid(x)) if x.dim() == 1 else inverse(x)

    return run


@pytest.fixture
def linked_silu(monkeypatch: pytest.MonkeyPatch) -> None:
    def rules(op: OpOverload) -> Iterator[Rule]:
        if op is aten.silu.default:
            yield make_rule(op, Linkable(only_vectors))
        elif op is OPAQUE:
            yield Rule(op, lambda x: NotImplemented, "own", "declines every call")

    monkeypatch.setattr("eagerdecomp.planner.planner.our_rules", rules)


@pytest.mark.usefixtures("linked_silu")
def test_a_call_that_a_linked_rule_cannot_bring_to_the_set_goes_to_the_next_rule() -> None:
    vector, matrix = torch.arange(3.0), torch.arange(4.0).view(2, 2)
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()) as mode:
        got = [F.silu(x) for x in (vector, matrix, vector, matrix)]
    torch.testing.assert_close(got, [F.silu(x) for x in (vector, matrix, vector, matrix)])
    assert not recorder.outside(ed.core_aten())
    counts = mode.stats()["aten.silu.default"]
    assert (counts.calls, counts.hits, counts.bypassed) == (4, 2, 2)
    assert "linked rule" in counts.why_bypassed


@pytest.mark.usefixtures("linked_silu")
def test_where_no_other_rule_closes_the_error_says_of_the_first() -> None:
    op_set = ed.core_aten() - ["aten.sigmoid", "aten.exp"]
    with ed.EagerDecompMode(op_set, cache=ed.ProgramCache()), pytest.raises(ed.UnsupportedOpError) as caught:
        F.silu(torch.ones(2, 2))
    assert caught.value.op == "aten.silu.default"


def vectors_alone(call: Call) -> Callable[..., Any]:
    """A linked rule that hands all but vectors to the rules after it."""
    sigmoid, mul, others = call(aten.sigmoid.default), call(aten.mul.Tensor), call(aten.silu.default)
    return lambda x: mul(sigmoid(x), x) if x.dim() == 1 else others(x)


def test_a_call_that_a_linked_rule_leaves_goes_to_the_rules_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def rules(op: OpOverload) -> Iterator[Rule]:
        return iter([make_rule(op, Linkable(vectors_alone))]) if op is aten.silu.default else our_rules(op)

    monkeypatch.setattr("eagerdecomp.planner.planner.our_rules", rules)
    vector, matrix = torch.arange(3.0), torch.arange(4.0).view(2, 2)
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()) as mode:
        got = [F.silu(x) for x in (vector, matrix, vector, matrix)]
        # Linked behind another rule, too.
        nested = [aten.silu_.default(x.clone()) for x in (vector, matrix, matrix)]
    torch.testing.assert_close(got, [F.silu(x) for x in (vector, matrix, vector, matrix)])
    torch.testing.assert_close(nested, [F.silu(x) for x in (vector, matrix, matrix)])
    assert not recorder.outside(ed.core_aten())
    counts = mode.stats()["aten.silu.default"]
    assert (counts.calls, counts.hits, counts.misses, counts.bypassed) == (4, 3, 1, 0)


def test_a_linked_rule_that_is_recorded_leaves_a_call_to_the_rules_behind_it() -> None:
    rule = make_rule(aten.silu.default, Linkable(vectors_alone))
    assert rule(torch.ones(2, 2)) is NotImplemented
    assert rule(torch.zeros(2)).tolist() == [0, 0]


def test_an_op_of_the_set_is_its_kernel_and_nothing_more() -> None:
    kernel = torch.exp
    mode = ed.EagerDecompMode(ed.core_aten(), kernels={"aten.exp.default": kernel})
    with mode:
        for _ in range(4):  # the first calls of a kernel check what it returns
            torch.ones(2).exp()
    assert mode._runtime.entry(aten.exp.default).run is kernel
    assert mode._runtime.entry(aten.sigmoid.default).run is torch.Tensor.sigmoid


def test_an_op_that_reads_offsets_gets_a_handler_with_them_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache())
    x = torch.arange(8.0)
    with mode:
        for offset in (0, 1, 0, 1):
            aten.unfold_copy.default(x[offset : offset + 6], 0, 2, 1)
    monkeypatch.setattr(mode._runtime, "_cold", lambda *args: pytest.fail("a warm call took the slow path"))
    with mode:
        got = [aten.unfold_copy.default(x[offset : offset + 6], 0, 2, 1) for offset in (0, 1)]
    torch.testing.assert_close(got, [x[offset : offset + 6].unfold(0, 2, 1) for offset in (0, 1)])
