"""Registrations of kept composites in the dispatcher: which threads they affect, and that they are removed afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from kept_composites import detached_copies, dispatch_table, forward_and_backward, random_leaves
from on_core import CORE
from threads import together

import eagerdecomp as ed
from eagerdecomp._torch import dispatcher
from eagerdecomp._torch.dispatcher import registered

aten = torch.ops.aten


def test_exit_of_the_last_mode_restores_the_dispatcher() -> None:
    before = dispatch_table(), dispatch_table("aten::layer_norm")
    first = ed.EagerDecompMode(CORE, keep=[aten.linear])
    second = ed.EagerDecompMode(CORE, keep=[aten.linear, aten.layer_norm])
    with first:
        inner = dispatch_table()
        assert inner != before[0]
        with second, first:
            assert dispatch_table("aten::layer_norm") != before[1]
        assert (dispatch_table(), dispatch_table("aten::layer_norm")) == (inner, before[1])
    assert (dispatch_table(), dispatch_table("aten::layer_norm")) == before
    with pytest.raises(ZeroDivisionError), second:
        raise ZeroDivisionError
    assert (dispatch_table(), dispatch_table("aten::layer_norm")) == before


@pytest.mark.parametrize(("theirs", "other"), [("linear", "layer_norm"), ("layer_norm", "linear")])
def test_a_kernel_of_another_library_stays_and_the_error_says_so(theirs: str, other: str) -> None:
    before = dispatch_table(f"aten::{other}")
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl(theirs, lambda x, *more: x, "AutogradCPU")
        registered = dispatch_table(f"aten::{theirs}")
        with (
            pytest.raises(ed.OpSetError, match="another library's kernel at AutogradCPU"),
            ed.EagerDecompMode(CORE, keep=[aten.layer_norm, aten.linear]),
        ):
            pass
        assert (dispatch_table(f"aten::{theirs}"), dispatch_table(f"aten::{other}")) == (registered, before)
        assert len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()) == 0


def test_other_threads_are_not_affected_and_threads_can_take_turns() -> None:
    before = dispatch_table()
    x, weight, bias = random_leaves((3, 4), (5, 4), (5,))

    def outside() -> None:
        with ed.BackendRecorder() as seen:
            out = F.linear(x, weight, bias)
        assert (type(out.grad_fn).__name__, seen.ops[aten.linear.default]) == ("AddmmBackward0", 0)

    with ed.EagerDecompMode(CORE, keep=[aten.linear]):
        together(outside)
    want = forward_and_backward(F.linear, detached_copies([x, weight, bias]))

    def inside() -> None:
        for _ in range(20):
            tensors = detached_copies([x, weight, bias])
            with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE, keep=[aten.linear]):
                out = F.linear(*tensors)
            assert seen.ops[aten.linear.default] == 1
            got, native = (torch.autograd.grad(one.sum(), tensors)[0] for one in (out, F.linear(*tensors)))
            assert torch.equal(got, native)

    # A mode around all threads: torch's dispatcher is not made for kernels that come while other threads call the op.
    with ed.EagerDecompMode(CORE, keep=[aten.linear]):
        together(*[inside] * 4)
    assert dispatch_table() == before
    assert_same(forward_and_backward(F.linear, detached_copies([x, weight, bias])), want)


def test_a_removed_kernel_is_kept_for_threads_that_have_looked_it_up() -> None:
    # Threads that call the op meanwhile crash without this, but rarely also with it: torch's own table has no lock.
    dispatcher._removed.clear()
    registered(aten.linear.default, {"AutogradCPU": lambda *args: args[0]})()
    assert len(dispatcher._removed) == 1


def test_gradients_computed_in_autograds_threads_are_right() -> None:
    tensors = random_leaves((3, 4), (5, 4))
    want = forward_and_backward(F.linear, detached_copies(tensors))[1]
    got: list[Any] = []
    with ed.EagerDecompMode(CORE, keep=[aten.linear, aten.layer_norm]):
        out = F.linear(*tensors)
        weights = (torch.arange(out.numel()) % 7 - 2).float().view(out.shape)
    together(lambda: got.append(torch.autograd.grad(out, tensors, weights)))
    assert_same(got, [want])
