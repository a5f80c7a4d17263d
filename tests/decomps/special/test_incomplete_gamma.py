"""The incomplete gamma functions on Core ATen: against the mathematics, and against eager."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accuracy import assert_accurate
from on_core import check, gradient, kernel_calls, on_core
from special_functions import lower_incomplete_gamma, upper_incomplete_gamma
from torch import Tensor

FUNCTIONS = (torch.igamma, torch.igammac)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
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


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_ends(function: Callable[..., Tensor], dtype: torch.dtype) -> None:
    places = torch.tensor([0.0, -0.0, 1, -1, 0.5, 3, 40, 1e30, 1e-30, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    check(function, *torch.meshgrid(places, places, indexing="ij"))


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_layouts_and_types(function: Callable[..., Tensor], dtype: torch.dtype) -> None:
    a = torch.linspace(0.5, 9, 12, dtype=torch.float64).to(dtype).view(3, 4)
    x = torch.linspace(8, 1, 12, dtype=torch.float64).to(dtype).view(3, 4)
    check(function, a, x)
    check(function, a.t(), x.view(4, 3))
    check(function, a.t(), x.t())
    check(function, a, x[:1])
    check(function, a[:, ::2], x[0, 0])
    check(function, a[:0], x[:0])
    check(function, a[:, :1].expand(3, 5), x[0, 0])
    check(function, a, x.double())
    check(function, a, torch.tensor(3, dtype=torch.int64))
    check(lambda a, x, out: function(a, x, out=out), a, x, torch.empty(0, dtype=dtype))
    check(lambda a, x: getattr(a, f"{function.__name__}_")(x), a, x)


@pytest.mark.full
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients(function: Callable[..., Tensor]) -> None:
    a, x = torch.linspace(0.3, 20, 7, dtype=torch.float64), torch.linspace(0.1, 30, 7, dtype=torch.float64)
    run = lambda y: function(a, y).sin().sum()  # noqa: E731 - twice the same
    torch.testing.assert_close(on_core(lambda: gradient(run, x)), gradient(run, x))
    with pytest.raises(NotImplementedError, match=r"input. is not implemented"):
        on_core(lambda: gradient(lambda y: function(y, x).sum(), a))


@pytest.mark.full
def test_kernel_calls() -> None:
    tensors = (torch.rand(4), torch.rand(4, dtype=torch.float64))
    assert [kernel_calls(lambda f=f, x=x: f(x, x)) for f in FUNCTIONS for x in tensors] == [508, 750] * 2
