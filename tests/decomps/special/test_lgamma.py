"""Special functions on Core ATen: eager's values at any number, and what they cost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from on_core import kernel_calls, on_core

FUNCTIONS = (torch.erfinv, torch.lgamma, torch.digamma)


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


def test_kernel_calls() -> None:
    x = torch.rand(4)
    calls = [kernel_calls(lambda f=function: f(x)) for function in FUNCTIONS]
    assert calls == [34, 142, 74]
