"""Orthogonal polynomials on Core ATen: eager's values, at every order that it treats by itself."""

from __future__ import annotations

import pytest
import torch
from accuracy import errors
from on_core import check, kernel_calls, on_core
from special_functions import _POLYNOMIALS

KINDS = [f"{prefix}chebyshev_polynomial_{kind}" for prefix in ("", "shifted_") for kind in "tuvw"]
NAMES = [*KINDS, "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]
PLACES = [-1.5, -1.0, -0.99, -0.3, 0, 0.4, 1.0, 0.99, 1.0001, 1.7, -3, 20, torch.inf, -torch.inf]
ORDERS = [-1.0, -0.5, 0, 0.9, *range(1, 12), 20, 40, 140, 200, torch.nan]
TOLERANCES = {torch.float32: (1e-4, 3e-5), torch.float64: (1e-11, 1e-12)}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, dtype: torch.dtype) -> None:
    x, n = torch.meshgrid(torch.tensor(PLACES, dtype=dtype), torch.tensor(ORDERS, dtype=dtype), indexing="ij")
    function = getattr(torch.special, name)
    rtol, atol = TOLERANCES[dtype]
    torch.testing.assert_close(on_core(lambda: function(x, n)), function(x, n), rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_scalars_layouts_and_types(name: str) -> None:
    function = getattr(torch.special, name)
    x, n = torch.linspace(-0.9, 0.8, 12).view(3, 4), torch.arange(12).view(3, 4)
    check(function, x.t(), n.t().float())
    check(function, x, n)
    check(function, x[:, ::2], n[:1, :2].double())
    check(function, x[:0], n[:0])
    check(function, x[0, 0], torch.tensor(3))
    for order in (0, 1, 2, 7, 2.5, -1):
        check(function, x.t(), order)
    check(function, 0.3, n.float())
    check(function, n, 3)
    for dtype in (torch.bool, torch.float16, torch.bfloat16, torch.complex64):
        check(function, x.to(dtype), n.to(dtype))
    check(lambda x, n, out: function(x, n, out=out), x, n, torch.empty(0))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", NAMES)
def test_beside_a_zero_the_recurrence_rounds_no_more_than_eager(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch.special, name)
    points = [(x, 4.0) for x in (torch.rand(150, generator=torch.Generator().manual_seed(3)) * 6 - 3).tolist()]
    found = errors(function, _POLYNOMIALS[name], points, dtype)
    assert max(ours for ours, _, _ in found) <= 2 * max(eagers for _, eagers, _ in found) + 1


@pytest.mark.parametrize("name", NAMES)
def test_huge_arguments(name: str) -> None:
    function = getattr(torch.special, name)
    x = torch.tensor([1e30, -1e30, 1e200, -1.7e308, 2e154, 5.0], dtype=torch.float64)[:, None]
    n = torch.arange(12, dtype=torch.float64)
    torch.testing.assert_close(on_core(lambda: function(x, n)), function(x, n), rtol=1e-12, atol=0, equal_nan=True)


def test_kernel_calls() -> None:
    x, n = torch.rand(3), torch.tensor([1.0, 2, 5])
    functions = [getattr(torch.special, name) for name in NAMES]
    assert [kernel_calls(lambda f=f: f(x, n)) for f in functions] == [68, 104, 111, 111, 70, 94, 101, 89, 52, 48, 65, 68]
    assert [kernel_calls(lambda f=f: f(x, 5)) for f in functions[8:]] == [33, 34, 46, 53]
