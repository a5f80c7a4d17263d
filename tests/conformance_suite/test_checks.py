"""Checks: each kind of difference from eager is found, and reported with its kind."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.conformance.checks import compared, refuses
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.devices import kernel_of
from eagerdecomp.conformance.refusals import accepted_calls
from eagerdecomp.conformance.spec import EXACT, Call, Near, Skip, Spec, TestedKernel
from eagerdecomp.conformance.specs import SPECS
from eagerdecomp.conformance.state import repeats
from eagerdecomp.conformance.suite import Profile, run_conformance
from eagerdecomp.conformance.trial import Effort

aten = torch.ops.aten


def kind(op: Any, run: Callable[..., Any], *args: Any, spec: Spec | None = None, **kwargs: Any) -> str | None:
    call = Call(args, kwargs)
    found = compared(TestedKernel(op, run, op), spec or Spec(lambda draw: call, EXACT), call)
    return None if found is None else found.kind


def x() -> Tensor:
    return torch.arange(-3.0, 3.0).reshape(2, 3)


def overwriting(one: Tensor) -> Tensor:
    result = one.abs()
    one.zero_()
    return result


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (aten.abs.default, None),
        (lambda one: one, "aliasing"),
        (lambda one: one.clone(), "values"),
        (lambda one: one.abs().double(), "dtype"),
        (lambda one: one.abs()[None], "shape"),
        (lambda one: (one.abs(),), "shape"),
        (lambda one: one.abs().t().contiguous().t(), "strides"),
        (lambda one: one.abs().tolist(), "shape"),
        (lambda one: None, "dtype"),
        (lambda one: torch.zeros(1)[3], "raises"),
        (overwriting, "memory"),
        (lambda one: one.abs_(), "aliasing"),
    ],
)
def test_a_function_of_one_number(run: Callable[..., Any], expected: str | None) -> None:
    assert kind(aten.abs.default, run, x()) == expected


def drawing(one: Tensor) -> Tensor:
    torch.rand(1)
    return aten.abs(one)


def switching(one: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    return aten.abs(one)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (drawing, "state"),
        (switching, "state"),
        (torch.inference_mode()(lambda one: aten.abs(one)), "autograd"),
        (lambda one: aten.abs(one).requires_grad_(), "autograd"),
        (lambda one: aten.abs(one).to("meta"), "device"),
    ],
)
def test_changes_of_global_state_are_found(run: Callable[..., Any], expected: str) -> None:
    assert kind(aten.abs.default, run, x()) == expected
    assert torch.get_default_dtype() is torch.float32


def test_calls_that_a_backend_does_not_support_are_not_checked() -> None:
    call = Call([x()])
    kernel = TestedKernel(aten.abs.default, lambda one: one, aten.abs.default, claims=lambda one: one.dtype is torch.int64)
    with pytest.raises(Skip, match="does not claim"):
        compared(kernel, Spec(lambda draw: call), call)


def test_calls_that_raise_are_generated_separately() -> None:
    def refused(draw: Draw) -> Call:
        return Call([x(), [draw.pick("size", (5, 6))]])

    spec = Spec(lambda draw: Call([x(), [6]]), refused=refused)
    lenient = TestedKernel(aten.view.default, lambda one, size: one.flatten()[: size[0]], aten.view.default)
    assert refuses(lenient, spec, Draw([0])).kind == "errors"
    with pytest.raises(Skip, match="eager accepts the call"):
        refuses(lenient, spec, Draw([1]))


@pytest.mark.parametrize("by_design", [True, False])
def test_not_implemented_in_eager_is_checked_only_if_eager_rejects_the_call_by_design(by_design: bool) -> None:
    call = Call([torch.ones(2), 5], by_design=by_design)
    spec = Spec(lambda draw: call, refused=lambda draw: call)
    op = aten.bitwise_xor.Scalar
    with pytest.raises(NotImplementedError, match="not implemented for"):
        op(*call.args)

    def tried(run: Callable[..., Any]) -> str | None:
        found = refuses(TestedKernel(op, run, op), spec, Draw())
        return None if found is None else found.kind

    if by_design:
        assert tried(op) is None
        assert tried(lambda one, other: one.clone()) == "errors"
    else:  # nobody wrote such a kernel for the CPU, which says nothing of others
        with pytest.raises(Skip):
            tried(op)


def test_a_call_for_which_eager_has_no_kernel_is_skipped_in_one_sentence() -> None:
    """The dispatcher's message lists the kernels of all devices, in a hundred lines."""
    with pytest.raises(Skip) as skipped:
        kind(aten.mm.dtype, aten.mm.dtype, torch.ones(1, 1), torch.ones(1, 1), torch.float32)
    assert str(skipped.value) == "eager refuses it: Could not run 'aten::mm.dtype' with arguments from the 'CPU' backend"


def test_a_call_on_which_eager_disagrees_with_itself_is_no_evidence() -> None:
    turns = itertools.count()

    def unsteady(one: Tensor) -> Tensor:
        return one + float(next(turns) // 2)  # the second call agrees with the first

    call = Call([x()])
    spec = Spec(lambda draw: call, EXACT)
    with pytest.raises(Skip, match="eager disagrees with itself"):
        compared(TestedKernel(aten.abs.default, lambda one: one + 100.0, unsteady), spec, call)
    assert kind(aten.abs.default, lambda one: one + 100.0, x()) == "values"


def test_a_result_that_the_call_does_not_request_is_not_compared() -> None:
    call = Call([x(), 1])
    spec = Spec(lambda draw: call, EXACT, optional=lambda call: [0])
    assert kind(aten.max.dim, lambda one, dim: (one, aten.max.dim(one, dim)[1]), *call.args, spec=spec) is None
    assert kind(aten.max.dim, lambda one, dim: (None, aten.min.dim(one, dim)[1]), *call.args, spec=spec) == "values"


@pytest.mark.parametrize(("in_table", "switched_on"), [(True, False), (True, True), (False, False)])
def test_a_sum_in_any_order_is_allowed_where_torch_lists_the_op_and_the_switch_is_heeded(in_table: bool, switched_on: bool) -> None:
    draws = random.Random(0)

    def sum_(one: Tensor, dims: list[int]) -> Tensor:
        still = torch.are_deterministic_algorithms_enabled() and not switched_on
        return aten.sum.dim_IntList(one if still else one[draws.sample(range(300), 300)], dims)

    values = torch.randn(300, generator=torch.Generator().manual_seed(0))
    spec = Spec(lambda draw: Call([values, [0]]), Near(4, "terms"))
    found = repeats(TestedKernel(aten.sum.dim_IntList, sum_, aten.sum.dim_IntList, nondeterministic=in_table), spec, Draw([]))
    assert (found is None) == (in_table and not switched_on)
    assert found is None or ("use_deterministic_algorithms" in found.message) == switched_on


def test_a_backend_may_declare_more_nondeterministic_ops() -> None:
    mine = ed.Backend("mine", ed.core_aten(), nondeterministic=["aten.sum.dim_IntList"])
    assert kernel_of(mine, aten.sum.dim_IntList).nondeterministic
    assert kernel_of(mine, aten.scatter_add.default).nondeterministic
    assert not kernel_of(mine, aten.mean.dim).nondeterministic


def test_calls_that_eager_refuses_and_a_kernel_accepts_are_found() -> None:
    spec = SPECS["aten.permute.default"]

    def lenient(one: Tensor, dims: list[int]) -> Tensor:
        return aten.permute.default(one, [max(-one.dim(), min(dim, one.dim() - 1)) for dim in dims])

    found = accepted_calls(TestedKernel(aten.permute.default, lenient, aten.permute.default), spec, 150, 0)
    assert {one.fault.kind for one in found} == {"accepts"}
    assert any("dims with 99" in one.fault.message for one in found)
    assert accepted_calls(TestedKernel(aten.permute.default, aten.permute.default, aten.permute.default), spec, 150, 0) == []


def test_a_wrong_call_that_ends_the_process_hides_no_other() -> None:
    def lenient(one: Tensor, dims: list[int]) -> Tensor:
        if 99 in dims:
            os._exit(1)
        return aten.permute.default(one, dims[: one.dim()])

    profile = Profile(Effort(20, 60.0, 0), Effort(0, 0.0, 0), 0, 0, 150, 60.0)
    mine = ed.Backend("mine", ed.OpSet([aten.permute]), kernels={"aten.permute": lenient})
    report = run_conformance(mine, ops=[aten.permute.default], profile=profile)
    assert "accepts what eager refuses: dims with a number more" in [one.message for one in report.accepts]
