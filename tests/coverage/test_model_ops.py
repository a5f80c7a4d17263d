"""The ops that a model calls: in several steps, during its construction, and on fake tensors as in eager."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import eagerdecomp as ed

CORE = ed.core_aten()


def trained(model: torch.nn.Module, optimizer: Callable[..., torch.optim.Optimizer]) -> Callable[[], None]:
    x, optimizing = torch.randn(2, 4), optimizer(model.parameters())

    def step() -> None:
        optimizing.zero_grad()
        model(x).square().mean().backward()
        optimizing.step()

    return step


def momentum() -> Callable[[], None]:
    return trained(torch.nn.Linear(4, 4), functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9))


def adam() -> Callable[[], None]:
    return trained(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout()), torch.optim.AdamW)


def clipped() -> Callable[[], None]:
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    return step


def eager_steps(factory: Callable[[], Callable[[], None]], steps: int) -> Counter[str]:
    """The most calls of each op in a step of some, outside any mode."""
    step, most = factory(), Counter[str]()
    for _ in range(steps):
        with ed.BackendRecorder() as seen:
            step()
        most |= Counter({str(op): count for op, count in seen.ops.items()})
    return most


@pytest.mark.full
@pytest.mark.parametrize("factory", [momentum, clipped, adam])
def test_a_step_calls_what_three_eager_steps_call(factory: Any) -> None:
    made = ed.plan(CORE, model=factory)
    planned = {one.op: one.calls for one in made.ops if one.calls and "detach" not in one.op}
    eager = {op: count for op, count in eager_steps(factory, 3).items() if "detach" not in op}
    assert planned == eager


@pytest.mark.full
def test_a_step_runs_three_times_at_most() -> None:
    runs = []
    ed.plan(CORE, model=lambda: lambda: runs.append(torch.ones(len(runs) + 1) * 2))
    assert len(runs) == 3
    runs.clear()
    ed.plan(CORE, model=lambda: lambda: runs.append(torch.ones(3) * 2))
    assert len(runs) == 2


@pytest.mark.full
def test_ops_of_the_construction_are_reported_and_not_required() -> None:
    made = ed.plan(CORE - ["aten.uniform_"] - ["aten.rand"], model=lambda: (torch.nn.Linear(3, 3), torch.ones(2, 3)))
    uniform = made["aten.uniform_.default"]
    assert (uniform.calls, uniform.making, uniform.required) == (0, 2, False)
    assert made["aten.addmm"].required
    assert all(text in str(made) for text in ("aten.uniform_.default (building the model)", "without a loss and an optimizer"))
    small = ed.plan(ed.infra() | ["aten.mul.Tensor"], model=lambda: (lambda x: x * 2, torch.randn(3)))
    assert small["aten.randn.default"].status == "missing"
    assert small.unmet("closed") == ""
    assert "ops without a route that no step calls (aten.randn.default)" in str(small)
    assert all(text not in str(small) for text in ("nothing is missing", "without a loss"))  # a function may have its loss inside
    assert "no step of the model lacks a kernel; what has no route only builds the model (1 ops, see the note)" in str(small)
    sine = [ed.plan(ed.infra() | more, model=lambda: (torch.sin, torch.empty(3).sin_())) for more in ([], ["aten.sin"])]
    assert sine[0].counts_after == sine[1].counts == {"supported": 2, "closed": 1}


@pytest.mark.full
def test_a_plan_of_a_model_proposes_no_kernel_that_can_be_left_out() -> None:
    """The recorded calls of `tanh_backward` are complex too, and need `_conj_physical`."""
    x = torch.ones(2, 2, requires_grad=True)
    base, model = ed.infra() | ["aten.as_strided"], lambda: (lambda x: torch.tanh(x @ x) + torch.bmm(x[None], x[None]), x)
    made = ed.plan(base, model=model)
    assert [kernel.op for kernel in made.next_kernels] == [*made.to_close]
    assert made.counts_after == ed.plan(base | [*made.to_close], model=model).counts
    assert all(ed.plan(base | {*made.to_close} - {spare}, model=model).failing("closed") for spare in made.to_close)


def test_an_error_of_the_models_step_propagates() -> None:
    reported = r"the model fails on fake tensors, which have shapes and no values: KeyError: 'no such batch' \(.*model_ops.py:\d+\)"
    with pytest.raises(ed.ArgumentError, match=reported):
        ed.plan(CORE, model=lambda: lambda: {}["no such batch"])


@pytest.mark.parametrize("net", [torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.BatchNorm1d(2, affine=False))])
def test_a_model_made_outside_its_factory_cannot_be_converted_in_it(net: torch.nn.Module) -> None:
    """Module.to and the like would replace its weights and buffers by fake ones."""
    for convert in (torch.nn.Module.double, torch.nn.Module.half, lambda module: module.to(torch.bfloat16)):
        with pytest.raises(
            ed.ArgumentError, match=rf"^{type(net).__name__}\.(double|half|to)\(\) is called on a module .* outside"
        ):
            ed.plan(CORE, model=lambda convert=convert: (convert(net), (torch.randn(3, 2),)))
    kept = [*net.parameters(), *net.buffers()]
    assert {type(tensor) for tensor in kept} <= {torch.nn.Parameter, torch.Tensor}
    assert ed.plan(CORE, model=lambda: (torch.nn.Linear(2, 2).double().half(), torch.randn(3, 2).half())).with_status("closed")
    assert ed.plan(CORE, model=lambda: (net.float(), torch.randn(3, 2))).ops  # converts nothing


@pytest.mark.full
@pytest.mark.parametrize("form", ["module and inputs", "a step"])
@pytest.mark.parametrize("had", [None, 3.0])
def test_a_model_made_outside_its_factory_keeps_the_gradients_that_it_had(form: str, had: float | None) -> None:
    net = torch.nn.Linear(2, 2)
    for parameter in net.parameters():
        parameter.grad = None if had is None else torch.full_like(parameter, had)
    before = [parameter.grad for parameter in net.parameters()]
    x = torch.randn(3, 2, requires_grad=True)

    def step() -> None:
        net(x).sum().backward()

    ed.plan(ed.core_aten(), model=lambda: (net, (x,)) if form == "module and inputs" else step)
    assert all(one is other for one, other in zip(before, (parameter.grad for parameter in net.parameters()), strict=True))
    assert x.grad is None
