"""Special functions on Core ATen: eager's values everywhere, at their poles and ends too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from on_core import check, gradient, kernel_calls, on_core
from torch import Tensor

FUNCTIONS = (torch.erfinv, torch.lgamma, torch.digamma)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def line(function: Callable[..., Tensor], dtype: torch.dtype) -> Tensor:
    if function is torch.erfinv:
        return torch.linspace(-0.999, 0.999, 64, dtype=torch.float64).to(dtype)
    # Away from the poles, beside which a rounding of the argument is any value.
    return torch.cat([torch.linspace(0.05, 40, 64), torch.arange(-6, 0) + 0.3, torch.tensor([500.0, 3e4])]).to(dtype)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values(function: Callable[..., Tensor], dtype: torch.dtype) -> None:
    x = line(function, dtype)
    check(function, x)
    check(function, x[:12].view(3, 4).t())
    check(function, x[::2])
    check(function, x[:1].expand(3, 2))
    check(function, x[:0])
    check(function, x[3])
    check(lambda x, out: function(x, out=out), x, torch.empty(0, dtype=dtype))
    check(lambda x: getattr(x, f"{function.__name__}_")(), x)


@pytest.mark.full
@pytest.mark.parametrize("function", FUNCTIONS)
def test_ends_and_poles(function: Callable[..., Tensor]) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1.5, -7.0, torch.inf, -torch.inf, torch.nan])
    for dtype in (torch.float32, torch.float64):
        check(function, x.to(dtype))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_integers_become_floats_and_complex_numbers_are_refused(function: Callable[..., Tensor]) -> None:
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64):
        check(function, torch.tensor([1, 0]).to(dtype))


@given(st.floats(-1, 1, width=32))
@example(1e-30)
@example(0.7000000476837158)
@example(-0.9999999403953552)
def test_erfinv_of_any_number_between_its_ends(value: float) -> None:
    x = torch.tensor([value])
    torch.testing.assert_close(on_core(lambda: torch.erfinv(x)), torch.erfinv(x), rtol=2e-6, atol=0)


@pytest.mark.full
@given(st.floats(2**-60, 2.0**100, width=32))
@example(1.0)
@example(2.0)
@example(0.5)
@example(7.0)
def test_gamma_of_any_positive_number(value: float) -> None:
    x = torch.tensor([value], dtype=torch.float64)
    for function in (torch.lgamma, torch.digamma):
        torch.testing.assert_close(on_core(lambda f=function: f(x)), function(x), rtol=1e-10, atol=1e-11)


def test_erfinv_keeps_the_sign_of_zero() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16):
        found = on_core(lambda dtype=dtype: torch.erfinv(torch.tensor([-0.0, 0.0], dtype=dtype)))
        assert found.signbit().tolist() == [True, False]


def test_gradients() -> None:
    x = torch.linspace(0.1, 0.9, 7, dtype=torch.float64)
    for function in (torch.erfinv, torch.lgamma):
        have = on_core(lambda f=function: gradient(lambda y: f(y).sin().sum(), x))
        torch.testing.assert_close(have, gradient(lambda y, f=function: f(y).sin().sum(), x))


def test_kernel_calls() -> None:
    x = torch.rand(4)
    calls = [kernel_calls(lambda f=function: f(x)) for function in FUNCTIONS]
    assert calls == [34, 142, 74]
