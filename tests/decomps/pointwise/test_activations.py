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

ACTIVATIONS: dict[str, Callable[[Tensor], Any]] = {
    "mish": aten.mish.default,
    "silu": aten.silu.default,
    "gelu": aten.gelu.default,
    "gelu, tanh": lambda x: aten.gelu(x, approximate="tanh"),
    "elu": lambda x: aten.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "relu6": F.relu6,
    "softplus": aten.softplus.default,
    "softplus, steep": lambda x: aten.softplus(x, 2.0, 5.0),
    "hardswish": aten.hardswish.default,
    "hardsigmoid": aten.hardsigmoid.default,
    "hardshrink": aten.hardshrink.default,
    "softshrink": aten.softshrink.default,
    "softshrink, wide": lambda x: aten.softshrink(x, 2.7),
    "softshrink, no width": lambda x: aten.softshrink(x, 0.0),
    "log sigmoid": aten.log_sigmoid_forward.default,
    "logit": aten.logit.default,
    "logit, clamped": lambda x: aten.logit(x, 0.1),
    "threshold": lambda x: aten.threshold(x, 0.4, 2.0),
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
}

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

#: Where eager's own kernel has no one result: its vectorised and its scalar part differ.
UNSETTLED = {
    **{name: [math.inf, -math.inf] for name in ("gelu", "silu", "mish")},
    **{name: [math.nan] for name in ("hardtanh", "softshrink", "hardshrink", "hardswish", "logit, clamped", "celu")},
    **{name: [math.nan] for name in ("elu", "elu, in place", "elu, negative", "elu, in place and negative")},
    **{name: [math.nan] for name in ("selu", "selu, in place")},
    "gelu, tanh": LIMITS,
    "logit": [-0.0],
}

#: Gradients that return at NaN what eager's vectorized loop returns, NaN. The others return what its scalar loop returns.
NAN_AS_VECTORIZED = {"elu", "elu, in place", "elu, negative", "elu, in place and negative", "celu", "selu", "selu, in place"}


def values(name: str, dtype: torch.dtype, *, limits: bool = True) -> Tensor:
    unsettled = set(map(str, UNSETTLED.get(name, [])))
    kept = [x for x in SPECIAL + LIMITS * limits if str(x) not in unsettled]
    return torch.tensor(kept, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name: str, dtype: torch.dtype) -> None:
    run = ACTIVATIONS[name]
    check(run, values(name, dtype))
    check(run, torch.tensor(-1.5, dtype=dtype))
    check(run, torch.zeros(0, 3, dtype=dtype))
    if dtype is torch.float32:
        check(run, torch.randn(3, 4, 5).permute(2, 0, 1))
        check(run, torch.randn(6, 4)[::2, 1:])


@pytest.mark.full
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name: str, dtype: torch.dtype) -> None:
    run, x = GRADIENTS[name], values(name, dtype)
    check(run, torch.linspace(-2, 2, x.numel(), dtype=torch.float64).to(dtype), x)
    check(run, torch.full_like(x, -1.3), x)
    check(run, torch.tensor(0.5, dtype=dtype), torch.tensor(-1.5, dtype=dtype))
    if math.nan in UNSETTLED.get(name, []):
        count = 64 if name in NAN_AS_VECTORIZED else 1  # fewer elements run eager's scalar loop
        check(run, torch.full([count], 0.5, dtype=dtype), torch.full([count], math.nan, dtype=dtype))
    check(run, torch.zeros(0, 3, dtype=dtype), torch.zeros(0, 3, dtype=dtype))


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_first_operand_with_an_order_decides_the_layout_of_a_gradient(name: str) -> None:
    run = GRADIENTS[name]
    torch.manual_seed(0)
    across, along = torch.rand(3, 4).t(), torch.rand(4, 3)
    for grad, x in ((across, along), (along, across), (across, across), (along.expand(2, 4, 3), torch.rand(2, 4, 3))):
        check(run, grad, x)
    last = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    check(run, last, torch.rand(2, 3, 4, 5))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_other_dtypes_are_rejected_or_accepted_as_in_eager(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1]).to(dtype)
    for run in ACTIVATIONS.values():
        check(run, x)


# -- softmax and dropout ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_softmax(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    grad, x = torch.randn(3, 4, 5).to(dtype), torch.randn(3, 4, 5).to(dtype)
    for dim in (0, 1, -1):
        check(lambda g, y: aten._softmax_backward_data(g, y, dim, dtype), grad, torch.softmax(x, dim))  # noqa: B023
        check(lambda g, y: aten._log_softmax_backward_data(g, y, dim, dtype), grad, torch.log_softmax(x, dim))  # noqa: B023
        check(lambda g, y, m: aten._masked_softmax_backward(g, y, m, dim), grad, torch.softmax(x, dim), x > 0)  # noqa: B023


def test_gradient_of_masked_softmax() -> None:
    torch.manual_seed(0)
    grad, output, mask = torch.randn(2, 3, 4), torch.rand(2, 3, 4), torch.rand(2, 3, 4) > 0.5
    masked = mask.clone()
    masked[0, 1] = True
    backward = aten._masked_softmax_backward
    check(backward, grad, output, mask)
    check(backward, grad, aten._masked_softmax(output, masked, 2, 2), masked, 2)
    check(backward, grad.transpose(0, 1), output.transpose(0, 1), mask.transpose(0, 1), 2)
    check(backward, grad, output, mask[0], 2)
    check(backward, grad, output, mask.float(), 2)
    check(backward, grad.bfloat16(), output, mask, 2)


# -- gated linear units -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e38])
@pytest.mark.parametrize("gate", [*LIMITS, 0.0, 1.0, -100.0])
def test_the_gradient_of_a_gated_unit_at_the_limits(value: float, gate: float) -> None:
    x = torch.tensor([value, 1.0, gate, 1.0], requires_grad=True)
    check(lambda: torch.autograd.grad(F.glu(x, 0).sum(), x)[0])


@pytest.mark.full
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_gated_linear_units(dtype: torch.dtype, dim: int) -> None:
    torch.manual_seed(0)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2], torch.zeros(0, 2)):
        given = x.to(dtype)
        check(aten.glu, given, dim)
        grad, moved = torch.randn_like(aten.glu(given, dim)), torch.randn_like(given)
        check(aten.glu_backward, grad, given, dim)
        check(aten.glu_jvp, aten.glu(given, dim), given, moved, dim)
        gradient = aten.glu_backward(grad, given, dim)
        check(aten.glu_backward_jvp, gradient, grad, given, torch.randn_like(grad), moved, dim)


# -- derivatives ------------------------------------------------------------------------------------------------------------

DIFFERENTIABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "mish": F.mish,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu": lambda x: F.elu(x, 0.7),
    "elu, in place": lambda x: F.elu_(x.clone(), 0.7),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "softplus": lambda x: F.softplus(x, 2.0),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "log sigmoid": F.logsigmoid,
    "logit": lambda x: torch.logit(torch.sigmoid(x)),
    "leaky relu": F.leaky_relu,
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.3, dtype=x.dtype)),
    "glu": F.glu,
    "softmax": lambda x: torch.softmax(x, 1),
    "log softmax": lambda x: torch.log_softmax(x, 1),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}

#: Eager has no second derivative of these.
ONCE = {"hardsigmoid"}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_first_and_second_derivatives(name: str) -> None:
    run = DIFFERENTIABLE[name]
    x = torch.tensor([[-4.2, -1.7, -0.8, 0.2], [0.7, 1.4, 2.2, 4.1]], dtype=torch.float64, requires_grad=True)
    assert on_core(lambda: torch.autograd.gradcheck(run, x))
    if name not in ONCE:
        assert on_core(lambda: torch.autograd.gradgradcheck(run, x))


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
        check(run, values("log sigmoid", dtype, limits=False), ops=held)


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
