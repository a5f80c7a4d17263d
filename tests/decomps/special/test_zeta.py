"""Polygamma on Core ATen, where factorials are large and where terms cancel."""

from __future__ import annotations

import pytest
import torch
from on_core import on_core

from tools.accuracy import errors
from tools.special_functions import polygamma


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
