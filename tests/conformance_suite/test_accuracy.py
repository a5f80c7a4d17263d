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


def test_truncation_to_16_bits_is_found() -> None:
    x = spread(torch.bfloat16)

    def cut(one: Tensor) -> Tensor:
        bits = one.float().exp().view(torch.int32) & -65536
        return bits.view(torch.float32).to(torch.bfloat16)

    assert off(aten.exp.default, cut, x) is not None
    assert off(aten.exp.default, lambda one: one.double().exp().to(torch.bfloat16), x) is None


def test_small_values_are_compared_relatively() -> None:
    x = torch.tensor([1e-6, 3.0])
    assert off(aten.log1p.default, lambda one: (1 + one).log(), x) is not None


def test_sums_may_have_another_order_but_not_a_16_bit_accumulator() -> None:
    x, near = spread(torch.float32).reshape(4, -1), Near(4, of="terms")
    args = (x, [1])
    assert off(aten.sum.dim_IntList, lambda one, dims: one.flip(1).cumsum(1)[:, -1], *args, near=near) is None
    assert off(aten.sum.dim_IntList, lambda one, dims: one.half().float().sum(dims), *args, near=near) is not None


def test_sums_of_integers_in_floats_are_compared_relative_to_their_terms() -> None:
    x = torch.tensor([2**30 + 1, -(2**30), 12345] * 40)

    def turned(one: Tensor, dims: Any, keepdim: bool) -> Tensor:
        return one.float().flip(0).cumsum(0)[-1]

    call = Call([x, [0], False], {"dtype": torch.float32})
    want, compared = x.sum().float(), near_values(aten.sum.dim_IntList, call, Near(4, of="terms"))
    assert abs(turned(*call.args) - want) > 10
    assert compared(want, turned(*call.args)) is None
    assert compared(want, want + 2**24) is not None


def test_exact_sums_have_one_result() -> None:
    x = torch.randint(-4, 5, (3, 1000)).float()
    args = (x, [1])
    near = Near(4, of="terms")
    assert off(aten.sum.dim_IntList, lambda one, dims: one.sum(dims) + 1e-3, *args, near=near, exact=True) is not None
    assert off(aten.sum.dim_IntList, lambda one, dims: one.flip(1).cumsum(1)[:, -1], *args, near=near, exact=True) is None


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
    found = off(aten.clone.default, lambda one: torch.tensor([have]), x, near=EXACT)
    assert (found is not None) is wrong


def test_the_sign_of_zero_may_be_unspecified() -> None:
    x = torch.tensor([0.0])
    assert off(aten.clone.default, lambda one: torch.tensor([-0.0]), x, near=Near(1, zeros=False)) is None


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


def test_halves_may_be_what_float32_makes_of_them_where_its_formula_overflows_sooner() -> None:
    # Eager computes contiguous tensors by another formula on CPUs with AVX2. It overflows; the true value, 2.2e38, does not.
    x = torch.full((128,), 89.0, dtype=torch.bfloat16)[::2]

    def dense(one: Tensor) -> Tensor:
        return aten.sinh.default(one.float()).to(one.dtype)

    assert off(aten.sinh.default, dense, x) is None
    # Where float32 does not overflow nothing else may.
    x = torch.full((64,), 80.0, dtype=torch.bfloat16)
    assert off(aten.sinh.default, lambda one: torch.full_like(one, math.inf), x) is not None


def test_sums_of_one_number_many_times_may_be_off_by_as_much_as_rounding_each_makes() -> None:
    def one_by_one(one: Tensor, dims: list[int]) -> Tensor:
        total = torch.zeros(())
        for row in one:
            total = total + row
        return total

    def in_half(one: Tensor, dims: list[int]) -> Tensor:
        return one.half().float().sum(dims)

    x, near = torch.tensor([-2.3104]).expand(513), Near(4, of="terms")
    assert off(aten.sum.dim_IntList, one_by_one, x, [0], near=near) is None
    assert off(aten.sum.dim_IntList, in_half, x, [0], near=near) is not None


def test_either_zero_does_for_a_half_that_is_too_small_and_one_alone_where_the_result_is_zero() -> None:
    zero, least = torch.zeros(1, dtype=torch.float16), torch.full((1,), 2.0**-24, dtype=torch.float16)

    def rounded_once(one: Tensor, other: Tensor) -> Tensor:
        return (one.double() - 0.5 * other.double()).half()

    call = Call([zero, least], {"alpha": 0.5})
    want = aten.sub.Tensor(zero, least, alpha=0.5)
    assert torch.signbit(want).tolist() != torch.signbit(rounded_once(zero, least)).tolist()
    assert near_values(aten.sub.Tensor, call, EXACT)(want, rounded_once(zero, least)) is None
    assert off(aten.sub.Tensor, lambda one, other: torch.full_like(one, -0.0), zero, zero, near=EXACT) is not None


def test_a_part_beside_an_infinite_one_may_be_rounded_and_what_only_moves_may_not() -> None:
    x = torch.tensor([2.75 + 1j / 3, complex(-math.inf, -1.55), 0.4 - 0.1j])
    near = Near(4, of="terms")

    def backwards(one: Tensor, dims: list[int]) -> Tensor:
        return aten.sum.dim_IntList(one, dims) * (1 + 1e-7)

    assert off(aten.sum.dim_IntList, backwards, x, [0], near=near) is None
    assert off(aten.clone.default, lambda one: torch.complex(one.real, one.imag + 1e-3), x, near=EXACT) is not None


def test_the_least_of_whole_numbers_counts_with_its_size() -> None:
    x = torch.tensor([-(2**63), 2**63 - 2, 1])

    def backwards(one: Tensor, dims: list[int], dtype: torch.dtype) -> Tensor:
        return one.flip(0).to(dtype).cumsum(0)[-1]

    def summed(one: Tensor, dims: list[int], dtype: torch.dtype) -> Tensor:
        return aten.sum.dim_IntList(one, dims, dtype=dtype)

    assert off(summed, backwards, x, [0], torch.float32, near=Near(4, of="terms")) is None


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


def test_every_input_moves_by_at_least_one_rounding() -> None:
    x = torch.linspace(1, 2, 5000, dtype=torch.float64)
    moved = truth_of(aten.clone.default, x).moved("leaves", 0)
    assert moved is not None
    assert bool((moved > 0).all())
    assert bool((moved <= 4 * torch.finfo(x.dtype).eps).all())
