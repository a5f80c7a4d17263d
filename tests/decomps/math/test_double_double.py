"""Sums, products, logarithms and exponentials with what their rounding lost, against the mathematics."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath as mp
import pytest
import torch

from eagerdecomp.decomps.math.double_double import exponential, logarithm, product, total
from eagerdecomp.decomps.math.operators import TensorExpr

DRAWS = random.Random(0)
MIDDLE = [DRAWS.uniform(0.5, 2) for _ in range(300)]
WIDE = [10 ** DRAWS.uniform(-290, 290) for _ in range(200)]
BESIDE_1 = [1 + DRAWS.choice((-1, 1)) * 10 ** DRAWS.uniform(-15, -2) for _ in range(100)]


def term(*numbers: float) -> TensorExpr:
    return TensorExpr(torch.tensor(numbers, dtype=torch.float64))


def numbers(pair: tuple[TensorExpr, TensorExpr]) -> list[tuple[float, float]]:
    return list(zip(*(part.tensor.tolist() for part in pair), strict=True))


def test_sums_and_products_lose_nothing() -> None:
    left, right = MIDDLE[:150], MIDDLE[150:]
    for x, y, (rounded, rest) in zip(left, right, numbers(total(term(*left), term(*right))), strict=True):
        assert rounded == x + y
        assert Fraction(rounded) + Fraction(rest) == Fraction(x) + Fraction(y)
    for x, y, (rounded, rest) in zip(left, right, numbers(product(term(*left), term(*right))), strict=True):
        assert rounded == x * y
        assert Fraction(rounded) + Fraction(rest) == Fraction(x) * Fraction(y)


@pytest.mark.parametrize("given", [MIDDLE, WIDE, BESIDE_1], ids=["middle", "wide", "beside 1"])
def test_a_logarithm_is_right_far_below_its_last_place(given: list[float]) -> None:
    for x, (rounded, rest) in zip(given, numbers(logarithm(term(*given))), strict=True):
        with mp.workdps(40):
            exact = mp.log(mp.mpf(x))
            assert abs(mp.mpf(rounded) + mp.mpf(rest) - exact) <= abs(exact) * mp.mpf(2) ** -56, x


def test_logarithms_at_the_ends_are_the_kernels() -> None:
    ends = torch.tensor([0.0, torch.inf, -1.0, 5e-324, 1e-310], dtype=torch.float64)
    rounded, rest = logarithm(TensorExpr(ends))
    torch.testing.assert_close((rounded + rest).tensor, ends.log(), rtol=1e-15, atol=0, equal_nan=True)


def test_an_exponential_is_right_far_below_its_last_place() -> None:
    given = [-x for x in MIDDLE] + [-600 * x for x in MIDDLE[:50] if x < 1]
    for x, (rounded, rest) in zip(given, numbers(exponential(term(*given))), strict=True):
        with mp.workdps(40):
            exact = mp.exp(mp.mpf(x))
            assert abs(mp.mpf(rounded) + mp.mpf(rest) - exact) <= exact * mp.mpf(2) ** -56, x
    rounded, rest = exponential(term(-1000.0, -744.0, 0.0))
    assert rounded.tensor.tolist() == [0.0, 1e-323, 1.0]
    assert rest.tensor.tolist() == [0.0, 0.0, 0.0]
