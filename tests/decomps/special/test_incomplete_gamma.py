"""The incomplete gamma functions on Core ATen: against the mathematics."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accuracy import assert_accurate
from special_functions import lower_incomplete_gamma, upper_incomplete_gamma
from torch import Tensor

DRAW = random.Random(0)


def _around(low: float, high: float, spread: float, count: int) -> list[tuple[float, float]]:
    orders = [10 ** DRAW.uniform(low, high) for _ in range(count)]
    return [(a, a * 10 ** DRAW.uniform(-spread, spread)) for a in orders]


#: By region: the points, and the units of the last place that float64 may be off; far from `a` it is an exponential's rounding.
REGIONS = {
    "small": (_around(-6, 0, 3, 60), 8),
    "slow": ([(DRAW.uniform(1e-3, 4), DRAW.uniform(0.9, 4)) for _ in range(60)], 10),
    "middle": (_around(0, 1.08, 1, 60), 16),
    "uniform": (_around(1.08, 4, 0.02, 60), 20),
    "tails": (_around(1.08, 4, 0.2, 60), 500),
    "seams": (
        [(12.0, x) for x in (3.6, 3.5999999, 12.0, 28.2, 28.200001)]
        + [(11.999999, x) for x in (3.6, 12.0, 28.2)]
        + [(a, x) for x in (0.2499999, 0.25, 1.5, 1.4999999) for a in (1e-300, 0.5, 0.50001, 1.75, 1.7500001, 2.0)],
        16,
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize(
    ("function", "reference"), [(torch.igamma, lower_incomplete_gamma), (torch.igammac, upper_incomplete_gamma)]
)
def test_accuracy(function: Callable[..., Tensor], reference: Callable[[Any, Any], Any], region: str) -> None:
    points, bound = REGIONS[region]
    assert_accurate(function, reference, [point for point in points if point[0] > 1e-30], torch.float32, 0.6)
    assert_accurate(function, reference, points, torch.float64, bound)
