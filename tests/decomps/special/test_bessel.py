"""Bessel functions on Core ATen: against the mathematics."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mpmath as mp
import pytest
import torch
from accuracy import assert_accurate
from special_functions import exponentially_scaled
from torch import Tensor

special = torch.special
DRAW = random.Random(0)
SEAMS = [1e-10, 1e-30, 1e-4, 1.0, 1.0000001, 5.0, 5.000001, 8.0, 8.000001, 2.404825557695773, 7.015586669815619, 1000.0]
RIGHT = [DRAW.uniform(0, 12) for _ in range(40)] + [DRAW.uniform(0, 80) for _ in range(20)] + SEAMS
BOTH = RIGHT + [-x for x in RIGHT]
AIRY = [DRAW.uniform(-9, 12) for _ in range(60)] + [-2.6, -2.6000001, 1.5, 1.5000001, 0.0, 50.0, 100.0]

#: Function, reference, where, units of the last place that it may be off in float64.
CASES: tuple[tuple[Callable[..., Tensor], Callable[[Any], Any], list[float], float], ...] = (
    (torch.i0, lambda x: mp.besseli(0, x), BOTH, 5),
    (special.i0e, exponentially_scaled(mp.besseli, 0, -1), BOTH, 5),
    (special.i1, lambda x: mp.besseli(1, x), BOTH, 5),
    (special.i1e, exponentially_scaled(mp.besseli, 1, -1), BOTH, 5),
    (special.modified_bessel_i0, lambda x: mp.besseli(0, x), BOTH, 5),
    (special.modified_bessel_i1, lambda x: mp.besseli(1, x), BOTH, 5),
    (special.modified_bessel_k0, lambda x: mp.besselk(0, x), RIGHT, 5),
    (special.modified_bessel_k1, lambda x: mp.besselk(1, x), RIGHT, 5),
    (special.scaled_modified_bessel_k0, exponentially_scaled(mp.besselk, 0, 1), RIGHT, 5),
    (special.scaled_modified_bessel_k1, exponentially_scaled(mp.besselk, 1, 1), RIGHT, 5),
    (special.bessel_j0, lambda x: mp.besselj(0, x), BOTH, 20),
    (special.bessel_j1, lambda x: mp.besselj(1, x), BOTH, 20),
    (special.bessel_y0, lambda x: mp.bessely(0, x), RIGHT, 20),
    (special.bessel_y1, lambda x: mp.bessely(1, x), RIGHT, 20),
    (special.spherical_bessel_j0, lambda x: mp.sin(x) / x, BOTH, 3),
    (special.airy_ai, mp.airyai, AIRY, 60),
)


@pytest.mark.full
@pytest.mark.parametrize(("function", "reference", "points", "bound"), CASES)
def test_accuracy(function: Callable[..., Tensor], reference: Callable[[Any], Any], points: list[float], bound: float) -> None:
    assert_accurate(function, reference, [(x,) for x in points], torch.float32, 0.6)
    assert_accurate(function, reference, [(x,) for x in points], torch.float64, bound)
