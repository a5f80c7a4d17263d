"""Zeta and polygamma on Core ATen: against the mathematics, and against eager."""

from __future__ import annotations

import random

import pytest
import torch
from accuracy import assert_accurate, errors
from on_core import check, gradient, kernel_calls, on_core
from special_functions import polygamma, zeta

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DRAW = random.Random(0)
RIGHT = [DRAW.uniform(0.01, 40) for _ in range(40)] + [1e-5, 0.5, 3.0, 1e4, 1e10]
LEFT = [-DRAW.uniform(0.01, 20) for _ in range(20)]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 0.6), (torch.float64, 5)])
def test_zeta_is_accurate(dtype: torch.dtype, bound: float) -> None:
    orders = (1.0001, 1.5, 2, 3, 4, 7, 20, 50.5, 100)
    points = [(DRAW.choice(orders), q) for q in RIGHT] + [(DRAW.choice((2, 3, 4, 5)), q) for q in LEFT]
    assert_accurate(torch.special.zeta, zeta, points, dtype, bound)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 0.6), (torch.float64, 10)])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 20, 21])
def test_polygamma_is_accurate(n: int, dtype: torch.dtype, bound: float) -> None:
    points = [(x,) for x in RIGHT + LEFT]
    assert_accurate(lambda x: torch.special.polygamma(n, x), lambda x: polygamma(n, x), points, dtype, bound)


def test_polygamma_of_orders_whose_factorial_is_large() -> None:
    x = torch.tensor([0.3, 1, 2.5, 7, 30, -1.4], dtype=torch.float64)
    for n in (21, 30, 100, 170, 171):
        have, want = on_core(lambda n=n: torch.polygamma(n, x)), torch.polygamma(n, x)
        torch.testing.assert_close(have, want, rtol=1e-12, atol=0)


@pytest.mark.parametrize("n", [2, 4, 6])
def test_derivatives_of_digamma_near_a_zero(n: int) -> None:
    """Half-way between poles the two largest terms nearly cancel."""
    ((ours, _, _),) = errors(lambda x: torch.polygamma(n, x), lambda x: polygamma(n, x), [(-1.5006002332895951,)], torch.float64)
    assert ours <= 50


def test_zeta_left_of_the_origin_in_orders_of_any_size() -> None:
    q = torch.tensor([-0.5, -1.5, -0.3, -2.7, -1.0, 0.5, 1.5], dtype=torch.float64)
    for order in (torch.inf, 1e30, 2000.0, 2001.0):
        check(torch.special.zeta, torch.full_like(q, order), q)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ends_and_poles(dtype: torch.dtype) -> None:
    places = torch.tensor([0.0, -0.0, 1, -1, -2, torch.inf, -torch.inf, torch.nan, 0.5, 2, 3.5, 300], dtype=dtype)
    check(torch.special.zeta, *torch.meshgrid(places, places, indexing="ij"))
    for n in range(4):
        check(torch.special.polygamma, n, places)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_and_types(dtype: torch.dtype) -> None:
    x = torch.linspace(1.5, 9, 12, dtype=torch.float64).to(dtype).view(3, 4)
    for n in (0, 1, 2):
        for y in (x, x.t(), x[:, ::2], x[:0], x[0, 0], x[:, :1].expand(3, 5)):
            check(torch.special.polygamma, n, y)
        check(lambda x, out, n=n: torch.special.polygamma(n, x, out=out), x, torch.empty(0, dtype=dtype))
        check(lambda x, n=n: x.polygamma_(n), x)
    check(torch.special.zeta, x.t(), x.view(4, 3))
    check(torch.special.zeta, x, x[:1])
    check(torch.special.zeta, x, 2.5)
    check(torch.special.zeta, 2, x)
    check(torch.special.zeta, x, torch.tensor(3, dtype=torch.int64))


@pytest.mark.full
def test_integers_and_what_is_refused() -> None:
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64):
        x = torch.tensor([1, 0, 3]).to(dtype)
        for n in (0, 1, 2):
            check(torch.special.polygamma, n, x)
        check(torch.special.zeta, x, x)
        check(torch.special.zeta, x, 2.5)
    check(torch.special.polygamma, -1, torch.ones(2))


def test_gradients() -> None:
    x = torch.linspace(0.3, 4, 7, dtype=torch.float64)
    for run in (torch.digamma, lambda y: torch.polygamma(1, y), lambda y: torch.polygamma(3, y)):
        have = on_core(lambda f=run: gradient(lambda y: f(y).sin().sum(), x))
        # Eager's trigamma, which the gradient of digamma is, is itself 1e-9 off.
        torch.testing.assert_close(have, gradient(lambda y, f=run: f(y).sin().sum(), x), rtol=1e-8, atol=0)


def test_kernel_calls() -> None:
    x = torch.rand(4) + 2
    runs = (lambda: torch.special.zeta(x, x), *(lambda n=n: torch.special.polygamma(n, x) for n in (1, 2, 7)))
    assert [kernel_calls(run) for run in runs] == [119, 77, 69, 69]
