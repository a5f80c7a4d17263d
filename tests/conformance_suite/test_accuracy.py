"""Accuracy: which errors of values are accepted, and which are not."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from eagerdecomp.conformance.accuracy import NearValues
from eagerdecomp.conformance.spec import EXACT, Call, Near
from eagerdecomp.eager.tolerance import Truth

aten = torch.ops.aten
NEAR = Near(4)


def off(op: Any, kernel: Callable[..., Tensor], *args: Any, near: Near = NEAR, exact: bool = False) -> Any:
    return near_values(op, Call(args, exact=exact), near)(op(*args), kernel(*args))


def near_values(
    op: Any, call: Call, near: Near = NEAR, native: Callable[..., Any] | None = None
) -> Callable[[Tensor, Tensor], Any]:
    native = native or op
    overload = op if isinstance(op, torch._ops.OpOverload) else aten.clone.default  # any op that is not elementwise
    return functools.partial(NearValues(overload, call, native, near), "leaves", 0, "the result")


def truth_of(op: Any, *args: Any) -> Truth:
    return NearValues(op, Call(args), op, NEAR).truth


def spread(dtype: torch.dtype, count: int = 4000) -> Tensor:
    draws = torch.Generator().manual_seed(0)
    return (torch.randn(count, generator=draws, dtype=torch.float64) * 3).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_some_ulps_are_accepted_and_a_thousandth_is_not(dtype: torch.dtype) -> None:
    x = spread(dtype)
    unit = torch.finfo(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype).eps
    wide = torch.float64
    assert off(aten.exp.default, lambda one: (one.to(wide).exp() * (1 + unit)).to(dtype), x) is None
    assert off(aten.exp.default, lambda one: (one.to(wide).exp() * 1.02).to(dtype), x) is not None


@pytest.mark.parametrize(
    ("want", "have", "wrong"),
    [
        (math.nan, math.nan, False),
        (math.nan, 1.0, True),
        (1.0, math.nan, True),
        (math.inf, math.inf, False),
        (math.inf, 3e38, True),
        (-math.inf, math.inf, True),
        (0.0, -0.0, True),
        (1e-40, 0.0, True),
    ],
)
def test_special_values(want: float, have: float, wrong: bool) -> None:
    x = torch.tensor([want])
    assert (off(aten.clone.default, lambda one: torch.tensor([have]), x, near=EXACT) is not None) is wrong


def test_values_that_underflow_may_be_either_zero() -> None:
    x, y = torch.tensor([0.0]), torch.tensor([1e-45])

    def either(zero: float) -> Any:
        return off(
            lambda one, other: torch.add(one, other, alpha=-0.25), lambda one, other: torch.tensor([zero]), x, y, near=Near(2)
        )

    assert either(0.0) is either(-0.0) is None
    assert off(aten.neg.default, lambda one: torch.tensor([0.0]), x, near=Near(2)) is not None


def test_subnormal_results_may_be_zero_where_a_spec_says_so() -> None:
    x = torch.tensor([-90.0])
    assert off(aten.exp.default, lambda one: torch.zeros(1), x) is None
    assert off(aten.exp.default, lambda one: torch.zeros(1), x, near=Near(4, tiny=True)) is not None


def test_integers_are_exact() -> None:
    x = torch.tensor([2**53 + 1, 5])
    found = off(aten.clone.default, lambda one: one.double().long(), x)
    assert found.index == (0,)
    assert found.wrong == 1
    assert "1 of 2 values" in str(found)


def test_a_kernels_error_may_be_twice_eagers() -> None:
    def rough(x: Tensor) -> Tensor:
        return x.exp() if x.dtype is torch.float64 else x.exp() * (1 + 3e-5)

    x = spread(torch.float32)
    compared = near_values(aten.exp.default, Call([x]), Near(4), rough)
    assert compared(rough(x), x.exp() * (1 - 5e-5)) is None
    assert compared(rough(x), x.exp() * (1 - 9e-5)) is not None


def test_the_true_values_are_right_while_subnormal_numbers_are_flushed() -> None:
    """Eager's `atan2` of two numbers near the end of float64 is zero then: it multiplies by a reciprocal that is flushed."""
    most, least = torch.tensor([[2.0**1023], [2.0**-1022]], dtype=torch.float64).repeat(1, 16)
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU flushes no subnormal numbers")
    try:
        atan2 = truth_of(aten.atan2.default, most, most).values("leaves", 0)
        half = truth_of(aten.mul.Scalar, least, 0.25).values("leaves", 0)
        still = least.mul(0.25).eq(0).all()
    finally:
        torch.set_flush_denormal(False)
    assert atan2 is not None
    assert bool(((atan2 - math.pi / 4).abs() < 1e-15).all())
    assert half is not None
    assert still
    assert half.gt(0).all()
