"""The runtime: which handler an op gets, and what becomes of a call that its first rule cannot bring to the set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from opaque import OPAQUE

import eagerdecomp as ed
from eagerdecomp._torch import OpOverload
from eagerdecomp.rules import Call, Rule, linked

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
            yield linked(op, only_vectors)
        elif op is OPAQUE:
            yield Rule(op, lambda x: NotImplemented, "own", "declines every call")

    monkeypatch.setattr("eagerdecomp.mode.our_rules", rules)


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
def test_where_no_other_rule_closes_the_error_tells_of_the_first() -> None:
    op_set = ed.core_aten() - ["aten.sigmoid", "aten.exp"]
    with ed.EagerDecompMode(op_set, cache=ed.ProgramCache()), pytest.raises(ed.UnsupportedOpError) as caught:
        F.silu(torch.ones(2, 2))
    assert caught.value.op == "aten.silu.default"


def test_an_op_of_the_set_is_its_kernel_and_nothing_more() -> None:
    kernel = torch.mul
    mode = ed.EagerDecompMode(ed.core_aten(), kernels={"aten.mul.Tensor": kernel})
    assert mode._runtime.entry(aten.mul.Tensor).run is kernel
    assert mode._runtime.entry(aten.sigmoid.default).run is aten.sigmoid.default._op


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
