"""Zeta and polygamma on Core ATen: against the mathematics."""

from __future__ import annotations

import random

import pytest
import torch
from accuracy import assert_accurate, errors
from on_core import on_core
from special_functions import polygamma, zeta

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
