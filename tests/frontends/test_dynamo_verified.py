"""`verify=` with `dynamo_backend`: wrong kernels in compiled graphs are found and named, right ones are not reported."""

from __future__ import annotations

import gc
import sys
import weakref
from contextlib import nullcontext

import pytest
import torch
from on_core import CORE, rows
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.verify.policy import Verified

aten = torch.ops.aten
pytestmark = pytest.mark.usefixtures("dynamo_afresh")

ALL = ed.Verify(every=1)
RECORD = ed.Verify(every=1, on_difference="record")


def slightly_off(x: Tensor) -> Tensor:
    return aten.sigmoid(x) * 1.01


def times_off(x: Tensor, other: Tensor) -> Tensor:
    return aten.mul(x, other) * 1.01


WRONG = ed.Backend("wrong", CORE, {"aten.sigmoid.default": slightly_off})


def swish(x: Tensor) -> Tensor:
    return F.silu(x) * 2


@ed.register_decomposition("aten.silu.default", effects=True)
def at_run_time(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


# -- its own verify -------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("around", [False, True])
def test_a_wrong_kernel_of_a_forward_graph_is_raised_out_of_the_compiled_function(around: bool) -> None:
    made = ed.dynamo_backend(WRONG, verify="cpu")
    fn = torch.compile(swish, backend=made)
    with ed.EagerDecompMode(WRONG) if around else nullcontext(), pytest.raises(ed.DifferenceError) as caught:
        fn(rows(4))
    blame = caught.value.blame
    assert (blame.op, blame.culprit.kind, blame.culprit.op) == ("aten.sigmoid.default", "kernel", "aten.sigmoid.default")
    assert "slightly_off" in blame.culprit.name
    assert "test_dynamo_verified.py" in blame.where[0]
    assert "in swish" in blame.where[0]
    assert made.verified.differences == 1
    assert made.verified.checked == {"aten.sigmoid.default": 1}


def test_a_wrong_kernel_of_a_backward_graph_is_raised_out_of_backward() -> None:
    made = ed.dynamo_backend(ed.Backend("wrong", CORE, {"aten.mul.Tensor": times_off}), verify="cpu")
    x = rows(4).requires_grad_()
    y = torch.compile(torch.sin, backend=made)(x)
    assert not made.verified
    with pytest.raises(ed.DifferenceError, match=r"to blame +the kernel of aten\.mul\.Tensor: .*times_off"):
        y.sum().backward()
    assert made.verified.found[0].op == "aten.mul.Tensor"


def test_ops_that_run_at_run_time_are_verified() -> None:
    made = ed.dynamo_backend(WRONG, rules=[at_run_time], verify=ALL)
    fn = torch.compile(swish, backend=made)
    with pytest.raises(ed.DifferenceError, match=r"to blame +the kernel of aten\.sigmoid\.default: .*slightly_off") as caught:
        fn(rows(4))
    assert [call.partition("(")[0] for call in caught.value.blame.culprit.chain] == ["aten.silu.default"]
    assert made.stats()["aten.silu.default"].calls == 1


def test_without_verify_graphs_call_the_kernels_themselves() -> None:
    callers = []

    def kernel(x: Tensor) -> Tensor:
        callers.append(sys._getframe(1).f_code.co_filename)
        return aten.sigmoid(x)

    ours = ed.Backend("mine", CORE, {"aten.sigmoid.default": kernel})
    made = ed.dynamo_backend(ours)
    fn = torch.compile(swish, backend=made)
    with ed.EagerDecompMode(ours):
        fn(rows(4))
    assert callers == ["<eagerdecomp graph>"]
    assert made.verified == Verified()
    with ed.EagerDecompMode(ours, verify=ALL):
        fn(rows(4))
    assert callers[1] != callers[0]


# -- the mode's verify ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_mode_around_a_compiled_function_verifies_its_graphs() -> None:
    made, x = ed.dynamo_backend(WRONG), rows(4).requires_grad_()
    fn = torch.compile(swish, backend=made)
    reported = ed.EagerDecompMode(WRONG, verify=RECORD)
    with reported:
        fn(x).sum().backward()
    assert [one.op for one in reported.verified.found] == ["aten.sigmoid.default"] * 2  # forward and backward: two lines
    assert not reported.verified.skipped
    assert not made.verified.calls
    before = reported.verified.calls
    fn(rows(4))  # outside nobody watches
    assert reported.verified.calls == before
    with pytest.raises(ed.DifferenceError, match="slightly_off"), ed.EagerDecompMode(WRONG, verify="cpu"):
        fn(rows(4))
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


@pytest.mark.full
def test_a_mode_that_verified_a_graph_is_freed() -> None:
    fn = torch.compile(swish, backend=ed.dynamo_backend(CORE, rules=[at_run_time]))
    mode = ed.EagerDecompMode(CORE, rules=[at_run_time], verify=ALL)
    with mode:
        fn(rows(4))
    assert mode.verified.checked["aten.silu.default"] == 1
    held = weakref.ref(mode)
    del mode
    gc.collect()
    assert held() is None


def test_dynamo_does_not_compile_the_verifier() -> None:
    from torch._dynamo.utils import counters

    made = ed.dynamo_backend(ed.Backend("right", CORE, {"aten.sigmoid.default": lambda x: aten.sigmoid(x)}), verify=ALL)
    fn = torch.compile(swish, backend=made)
    counters.clear()
    for _ in range(2):
        fn(rows(4).requires_grad_()).sum().backward()
    assert counters["frames"]["total"] == counters["frames"]["ok"] == 1
    assert counters["stats"]["unique_graphs"] == 1
    assert made.verified.checked["aten.sigmoid.default"] >= 2
