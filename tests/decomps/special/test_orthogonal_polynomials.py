"""Orthogonal polynomials on Core ATen: how recurrences round, and huge arguments."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from on_core import on_core

from eagerdecomp.decomps.math.operators import TensorExpr
from eagerdecomp.decomps.special.orthogonal_polynomials import _product_less

KINDS = [f"{prefix}chebyshev_polynomial_{kind}" for prefix in ("", "shifted_") for kind in "tuvw"]
NAMES = [*KINDS, "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]


def test_a_step_of_a_recurrence_in_float32_loses_nothing_where_it_cancels() -> None:
    dtype = torch.float32
    generator = torch.Generator().manual_seed(0)
    x, y, apart = (torch.rand(200, dtype=dtype, generator=generator) * 6 - 3 for _ in range(3))
    for z in (x * y, x * y * (1 + torch.finfo(dtype).eps * apart), apart):
        exact = [Fraction(a) * Fraction(b) - Fraction(c) for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]
        have = _product_less(TensorExpr(x), TensorExpr(y), TensorExpr(z)).tensor
        torch.testing.assert_close(have, torch.tensor([float(v) for v in exact], dtype=dtype), rtol=torch.finfo(dtype).eps, atol=0)


def test_recurrences_in_float32_round_as_a_processor_that_multiplies_and_adds_at_a_time() -> None:
    def rounded(value: Fraction) -> Fraction:
        return Fraction(torch.tensor(float(value)).item())

    def legendre(x: Fraction, n: int) -> float:
        previous, last = Fraction(1), x
        for k in range(1, n):
            step = rounded(rounded((2 * k + 1) * x) * last - rounded(k * previous))
            previous, last = last, rounded(step / (k + 1))
        return float(last)

    x = torch.rand(100, generator=torch.Generator().manual_seed(1)) * 6 - 3
    have = on_core(lambda: torch.special.legendre_polynomial_p(x, 7))
    assert have.tolist() == [legendre(Fraction(value), 7) for value in x.tolist()]


@pytest.mark.parametrize("name", NAMES)
def test_huge_arguments(name: str) -> None:
    function = getattr(torch.special, name)
    x = torch.tensor([1e30, -1e30, 1e200, -1.7e308, 2e154, 5.0], dtype=torch.float64)[:, None]
    n = torch.arange(12, dtype=torch.float64)
    torch.testing.assert_close(on_core(lambda: function(x, n)), function(x, n), rtol=1e-12, atol=0, equal_nan=True)
