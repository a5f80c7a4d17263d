"""The complement of the error function and its relatives on Core ATen: against the mathematics."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mpmath as mp
import pytest
import torch
from accuracy import assert_accurate
from special_functions import erfcx, log_ndtr, ndtri
from torch import Tensor

special = torch.special
DRAW = random.Random(0)
LINE = [DRAW.uniform(-6, 6) for _ in range(60)] + [DRAW.uniform(-26, 28) for _ in range(60)]
SEAMS = [0.5, 0.4999999, 0.7, 0.6999999, -1.0, -1.0000001, 1e-8, -1e-8, 1e-300, 26.5, 1e5, 1e20]
UNIT = [DRAW.random() for _ in range(80)] + [2.0 ** -DRAW.uniform(3, 100) for _ in range(20)] + [0.176, 0.824, 0.5000001, 0.25]


#: Function, reference, where, and how many units of the last place it may be off in float32 and float64.
CASES: tuple[tuple[Callable[..., Tensor], Callable[[Any], Any], list[float], float, float], ...] = (
    (torch.erfc, mp.erfc, LINE + SEAMS, 0.6, 2),
    (special.erfcx, erfcx, LINE + SEAMS, 0.6, 5),
    (special.log_ndtr, log_ndtr, [*LINE, -100.0, -1e4, *SEAMS[:-2]], 0.6, 6),
    (special.ndtri, ndtri, UNIT, 0.6, 6),
)


@pytest.mark.parametrize(("function", "reference", "points", "single", "double"), CASES)
def test_accuracy(
    function: Callable[..., Tensor], reference: Callable[[Any], Any], points: list[float], single: float, double: float
) -> None:
    assert_accurate(function, reference, [(x,) for x in points if abs(x) > 1e-30], torch.float32, single)
    assert_accurate(function, reference, [(x,) for x in points], torch.float64, double)
