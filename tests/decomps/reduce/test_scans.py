"""Running sums, products, extremes and log-sum-exps over many numbers: eager's, in time and memory of the length."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import CORE, check, kernel_calls, on_core

#: Shapes of more numbers than are doubled, and dimensions: one block and several, whole and cut, others before and behind.
LONG = [((5003,), 0), ((8, 640), 1), ((640, 8), 0), ((3, 1600, 2), -2), ((600, 12), -1), ((40_000,), 0)]

SCANS: dict[str, Callable[..., Any]] = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": lambda x, dim: tuple(torch.cummax(x, dim)),
    "cummin": lambda x, dim: tuple(torch.cummin(x, dim)),
    "logcumsumexp": torch.logcumsumexp,
}

#: A set that lacks running sums too.
WITHOUT_SUMS = CORE - ["aten.cumsum"]


def drawn(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (1 + x / 100).to(dtype) if dtype.is_floating_point else (3 * x).to(dtype)


@pytest.mark.parametrize(("shape", "dim"), LONG)
@pytest.mark.parametrize("name", SCANS)
def test_long_scans(name: str, shape: tuple[int, ...], dim: int) -> None:
    check(SCANS[name], drawn(shape), dim, ops=WITHOUT_SUMS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_running_products_stay_where_they_leave_the_range(dtype: torch.dtype) -> None:
    """They reach 0 or infinity, and stay there, though what follows would bring them back."""
    large = 1e4 if dtype is torch.bfloat16 else 1e60
    for factor in (large, 1 / large):
        rows = [[factor] * 60 + [1 / factor] * 90, [1.0] * 100 + [factor, 1 / factor] * 25, [-1.0] * 70 + [factor] * 80]
        if dtype is torch.float32:
            rows = [[max(min(one, 1e30), 1e-30) for one in row] for row in rows]
        x = torch.tensor(rows, dtype=torch.float64).to(dtype)
        check(torch.cumprod, x, 1, ops=WITHOUT_SUMS)
        check(torch.cumprod, x.repeat(1, 40), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_long_running_extremes_name_the_last_of_equals(dtype: torch.dtype) -> None:
    x = drawn((5000,), torch.int64).cumsum(0).div_(50, rounding_mode="trunc").to(dtype)
    check(SCANS["cummax"], x, 0)
    check(SCANS["cummin"], x, 0)
    if dtype.is_floating_point:
        x[3000] = x[4000] = math.nan
        check(SCANS["cummax"], x, 0)
        check(SCANS["cummin"], x.flip(0), 0)


@pytest.mark.parametrize("name", ["cumprod", "cumsum", "logcumsumexp"])
def test_long_scans_are_rounded_once(name: str) -> None:
    """Like eager's, which accumulate float32 in float64."""
    x = drawn((50_000,))
    found = on_core(lambda: SCANS[name](x, 0), WITHOUT_SUMS)
    expected = SCANS[name](x.double(), 0)
    units = (found.double() - expected).abs() / torch.finfo(torch.float32).eps / expected.abs()
    assert units.max() <= 0.51


@pytest.mark.parametrize("name", SCANS)
def test_kernel_calls_grow_with_the_logarithm_of_the_length(name: str) -> None:
    counts = [kernel_calls(lambda: SCANS[name](torch.ones(length), 0), WITHOUT_SUMS) for length in (8192, 131_072)]  # noqa: B023
    assert counts[1] <= 2 * counts[0]
