"""Activations and their gradients against eager: special values, types, layouts, and first and second derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor

aten = torch.ops.aten

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SPECIAL = [0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 2.5, -2.5, 6.0, -6.5, 19.0, 21.0, -40.0, 40.0, 1e-5]
LIMITS = [math.inf, -math.inf, math.nan, 3e4, -3e4]

GRADIENTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "silu": aten.silu_backward.default,
    "gelu": aten.gelu_backward.default,
    "gelu, tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "elu": lambda g, x: aten.elu_backward(g, 0.7, 1.0, 1.0, False, x),
    "elu, in place": lambda g, x: aten.elu_backward(g, 0.7, 1.0, 1.0, True, x),
    "elu, negative": lambda g, x: aten.elu_backward(g, -0.7, 1.0, 1.0, False, x),
    "elu, in place and negative": lambda g, x: aten.elu_backward(g, -0.7, 1.0, 1.0, True, x),
    "celu": lambda g, x: aten.elu_backward(g, 1.3, 1.0, 1 / 1.3, False, x),
    "selu": lambda g, x: aten.elu_backward(g, 1.6733, 1.0507, 1.0, False, x),
    "selu, in place": lambda g, x: aten.elu_backward(g, 1.6733, 1.0507, 1.0, True, x),
    "leaky relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.2, False),
    "hardswish": aten.hardswish_backward.default,
    "hardsigmoid": aten.hardsigmoid_backward.default,
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 2.5),
    "mish": aten.mish_backward.default,
    "log sigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1]),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1.0, 20.0),
    "softplus, steep": lambda g, x: aten.softplus_backward(g, x, 2.0, 5.0),
    "softshrink": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "hardshrink": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0.3),
    "tanh": aten.tanh_backward.default,
    "sigmoid": aten.sigmoid_backward.default,
    "logit": aten.logit_backward.default,
    "logit, clamped": lambda g, x: aten.logit_backward(g, x, 0.1),
    "rrelu": lambda g, x: aten.rrelu_with_noise_backward(g, x, torch.ones_like(x), 0.1, 0.3, False, False),
    "dropout": lambda g, x: aten.native_dropout_backward(g, x > 0, 1 / 0.9),
}

# -- softmax and dropout ----------------------------------------------------------------------------------------------------


# -- gated linear units -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e38])
@pytest.mark.parametrize("gate", [*LIMITS, 0.0, 1.0, -100.0])
def test_the_gradient_of_a_gated_unit_at_the_limits(value: float, gate: float) -> None:
    x = torch.tensor([value, 1.0, gate, 1.0], requires_grad=True)
    check(lambda: torch.autograd.grad(F.glu(x, 0).sum(), x)[0])


# -- derivatives ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_forward_mode_of_gated_linear_units() -> None:
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert on_core(lambda: torch.autograd.gradcheck(F.glu, x, check_forward_ad=True))
    assert on_core(lambda: torch.autograd.gradgradcheck(F.glu, x, check_fwd_over_rev=True))


@pytest.mark.parametrize(
    "held",
    [CORE, CORE | [aten.log_sigmoid_forward.default], CORE | [aten.log_sigmoid_backward.default]],
    ids=["neither", "forward", "backward"],
)
def test_a_backend_may_have_one_of_two_kernels_of_log_sigmoid(held: Any) -> None:
    def run(x: Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        out = F.logsigmoid(leaf)
        return out.detach(), torch.autograd.grad(out, leaf, torch.ones_like(out))[0]

    for dtype in FLOATS:
        check(run, torch.tensor(SPECIAL, dtype=torch.float64).to(dtype), ops=held)


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("gelu", 10),
        ("gelu, tanh", 12),
        ("elu", 6),
        ("hardswish", 8),
        ("hardsigmoid", 5),
        ("mish", 10),
        ("softplus", 4),
        ("dropout", 3),
    ],
)
def test_gradients_cost_few_kernels(name: str, kernels: int) -> None:
    grad, x = torch.randn(4), torch.randn(4)
    assert kernel_calls(lambda: GRADIENTS[name](grad, x)) <= kernels


@pytest.mark.parametrize("eps", [None, 0.001, 0.01, 0.2, -1.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logit_rounds_at_every_step_in_float16_and_bfloat16(dtype: torch.dtype, eps: float | None) -> None:
    edges = [0.0, 1.0, 1e-3, 1 - 1e-3, 0.01, 0.99, 0.2, 0.8, -1.0, 2.0, float("nan")]
    x = torch.cat([torch.linspace(0, 1, 501), torch.tensor(edges).repeat(3)]).to(dtype)
    check(aten.logit.default, x, eps, exact=True)
    x = x[~x.isnan()]  # there eager's vector and scalar loops differ
    check(aten.logit_backward.default, torch.ones_like(x), x, eps, exact=True)


@pytest.mark.parametrize("slope", [-0.1, float("nan")])
@pytest.mark.parametrize("name", ["leaky_relu_", "elu_", "celu_", "rrelu_"])
def test_the_gradient_of_an_in_place_activation_with_a_negative_slope_is_refused(name: str, slope: float) -> None:
    x = torch.randn(4, requires_grad=True)
    slopes = (slope, slope) if name == "rrelu_" else (slope,)
    check(lambda: getattr(torch.nn.functional, name)(x.clone(), *slopes).sum().backward())


def test_the_gradient_of_gelu_by_tanh_is_as_near_as_eagers_in_its_tail() -> None:
    x = torch.cat([torch.linspace(1, 12, 2000), torch.linspace(-6, -1, 2000), torch.tensor([1e13, 1e18, -1e15])])
    ones = torch.ones_like(x)
    want = aten.gelu_backward(ones.double(), x.double(), approximate="tanh")
    ours, eagers = (
        (run(lambda: aten.gelu_backward(ones, x, approximate="tanh")) - want).abs().max() for run in (on_core, lambda call: call())
    )
    assert ours <= eagers
    assert ours < 3e-7
