"""What linked rules share: numbers made once, and formulas of one floating type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import check, kernel_calls, on_core
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import eagerdecomp as ed
from eagerdecomp.rules.link import formula, kept_number, kept_numbers
from eagerdecomp.rules.rule import Call

aten = torch.ops.aten


def counted() -> tuple[Call, list[Any]]:
    """A `Call` that gives the ops themselves, and what is called through it."""
    calls: list[Any] = []

    def call(op: Any) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            calls.append(op)
            return op(*args, **kwargs)

        return run

    return call, calls


def test_a_number_is_made_once_for_each_type() -> None:
    call, calls = counted()
    number = kept_number(call, 0.5)
    single, double = torch.ones(2), torch.ones(2, dtype=torch.float64)
    assert number(single) is number(torch.zeros(3))
    assert number(single).dtype is torch.float32
    assert number(double).dtype is torch.float64
    assert number(double).item() == 0.5
    assert calls == [aten.full.default] * 2


def test_values_that_python_takes_for_equal_are_told_apart_where_they_differ() -> None:
    number, x = kept_numbers(counted()[0]), torch.ones(2)
    for value in (0.0, -0.0, 0.0, 1, True, math.nan, -0.0):
        got = number(x, value)
        assert str(got) == str(torch.full([], value, dtype=torch.float32))


def test_not_every_value_is_kept() -> None:
    call, calls = counted()
    number, x = kept_numbers(call), torch.ones(2)
    for value in range(1, 200):
        assert number(x, value).item() == value
    del calls[:]
    for value in range(1, 200):
        number(x, value)
    assert 100 < len(calls) < 199


def test_fake_tensors_get_fake_numbers_and_leave_none_behind() -> None:
    x = torch.randn(3)
    with ed.EagerDecompMode(ed.core_aten()):
        with FakeTensorMode() as fakes:
            made = aten.gelu_backward(torch.ones(3), torch.ones(3))
        assert made.fake_mode is fakes
        got = aten.gelu_backward(x, x)
        with FakeTensorMode():
            aten.gelu_backward(torch.ones(3), torch.ones(3))
        inside = aten.gelu_backward(x, x)
    torch.testing.assert_close(got, aten.gelu_backward(x, x))
    assert torch.equal(got, inside)


def test_a_number_made_in_inference_mode_serves_outside_of_it() -> None:
    cache = ed.ProgramCache()
    x = torch.randn(4, requires_grad=True)
    with ed.EagerDecompMode(ed.core_aten(), cache=cache):
        with torch.inference_mode():
            aten.threshold_backward(torch.ones(4), torch.ones(4), 0.5)
        F.gelu(x).sum().backward()
        (grad,) = torch.autograd.grad(F.relu(x).sum(), x)
    assert grad.tolist() == (x > 0).float().tolist()


def silu(call: Call) -> Callable[..., Any]:
    sigmoid, mul = call(aten.sigmoid.default), call(aten.mul.Tensor)
    return lambda self: mul(self, sigmoid(self))


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_a_formula_leaves_other_types_to_the_rules_behind_it(dtype: torch.dtype) -> None:
    assert formula(aten.silu.default, silu)(torch.ones(2, dtype=dtype)) is NotImplemented
    assert formula(aten.gelu_backward.default, silu, operands=(0, 1))(torch.ones(2), torch.ones(2).double()) is NotImplemented


def test_half_types_are_rounded_once_or_at_every_step() -> None:
    x = torch.randn(100).bfloat16()
    once = formula(aten.silu.default, silu)(x)
    assert torch.equal(once, (x.float() * torch.sigmoid(x.float())).bfloat16())
    assert torch.equal(formula(aten.silu.default, silu, stepwise=True)(x), x * torch.sigmoid(x))
    assert not torch.equal(once, x * torch.sigmoid(x))


def test_every_argument_reaches_a_formula() -> None:
    def link(call: Call) -> Callable[..., Any]:
        return lambda *args, **kwargs: (args[1:], kwargs)

    rule = formula(aten.softplus.default, link)
    assert rule(torch.ones(2)) == ((1, 20), {})
    assert rule(torch.ones(2), 3, threshold=4) == ((3, 4), {})
    gelu_backward = formula(aten.gelu_backward.default, link, operands=(0, 1))
    x = torch.ones(2)
    assert gelu_backward(x, x, approximate="tanh") == ((x,), {"approximate": "tanh"})


def test_shapes_and_scalars_leave_no_programs() -> None:
    cache = ed.ProgramCache()
    with ed.EagerDecompMode(ed.core_aten(), cache=cache):
        for length in range(2, 9):
            x = torch.rand(length, 3)
            for run in (aten.silu_backward, aten.tanh_backward, aten.hardswish_backward):
                run(x, x)
            aten._softmax_backward_data(x, x, 1, x.dtype)
            aten.elu_backward(x, 1.0 + length, 1.0, 1.0, False, x)
    assert cache.info().programs == 0


def test_a_number_costs_no_kernel_once_it_is_there() -> None:
    x = torch.rand(3)
    assert kernel_calls(lambda: aten.threshold_backward(x, x, 0.0)) == 2


def test_a_result_is_copied_only_where_it_lies_otherwise() -> None:
    across, along = torch.rand(3, 4).t(), torch.rand(4, 3)
    check(aten.silu_backward.default, along, across)
    check(aten.silu_backward.default, across, along)
    dense: list[Tensor] = [across, torch.rand(3, 4).t()]
    assert kernel_calls(lambda: aten.silu_backward(*dense)) == 6
    assert on_core(lambda: aten.silu_backward(*dense)).stride() == across.stride()
