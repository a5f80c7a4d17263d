"""Elementwise rules on Core ATen: bit for bit eager's where they move bits or pick operands, else within the type's tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same, outcome
from on_core import CORE, check, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.eager.promotion import promote_types, promoted

aten = torch.ops.aten

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 40.0, -40.0, math.inf, -math.inf, math.nan, 1e-5, 3e4]


def test_promotion_is_torchs() -> None:
    dtypes = [*INTEGERS, *UNSIGNED, *FLOATS, torch.bool, torch.complex64, torch.complex128, torch.complex32]
    for left in dtypes:
        for right in dtypes:
            want, got = (
                outcome(lambda to=to, left=left, right=right: to(left, right)) for to in (torch.promote_types, promote_types)
            )
            assert str(got) == str(want), (left, right)
            for dims, others in ((1, 0), (0, 1), (1, 1), (0, 0)):
                operands = [torch.empty([1] * dims, dtype=left), torch.empty([1] * others, dtype=right)]
                want, got = outcome(lambda one=operands: torch.result_type(*one)), outcome(lambda one=operands: promoted(one))
                assert str(got) == str(want), (left, dims, right, others)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_by_every_amount(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    values = torch.tensor([0, 1, 2, 5, info.max, info.max - 1, info.min, info.min + 1, info.max // 3]).to(dtype)[:, None]
    amounts = torch.arange(0 if info.min == 0 else -3, info.bits + 3).to(dtype)[None, :]
    for run in (torch.bitwise_left_shift, torch.bitwise_right_shift, lambda x, y: x << y, lambda x, y: x >> y):
        check(run, values, amounts)
    for amount in (0, 3, info.bits - 1):
        for run in (torch.bitwise_left_shift, torch.bitwise_right_shift, lambda x, y: x << y, lambda x, y: x >> y):
            check(run, values, amount)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_to_decimals(dtype: torch.dtype) -> None:
    """Powers of ten beyond the dtype's range too: torch's decomposition raises an OverflowError from 10^19 on."""
    torch.manual_seed(0)
    x = torch.cat([torch.tensor(SPECIAL), torch.randn(50) * 1000]).to(dtype)
    for decimals in (0, 1, 3, -2, 5, -5, 19, 39, -39, 308, 309, 1024, -1024, 2**40):
        check(
            torch.round, x, decimals=decimals, exact=dtype in (torch.float32, torch.float64)
        )  # the sign of NaN is not kept in half


def test_efficient_zeros_are_zeros() -> None:
    made = on_core(lambda: aten._efficientzerotensor([2, 3], dtype=torch.float64))
    assert_same(made, torch.zeros(2, 3, dtype=torch.float64))


def test_nextafter_crosses_zero_and_the_ends_of_the_range() -> None:
    for dtype in FLOATS:
        info = torch.finfo(dtype)
        edge = torch.tensor([info.max, -info.max, info.smallest_normal, math.inf, -math.inf, 0.0, -0.0], dtype=dtype)
        for towards in (math.inf, -math.inf, 0.0):
            check(torch.nextafter, edge, torch.tensor(towards, dtype=dtype).expand(7), exact=True)


def test_hypot_neither_overflows_nor_underflows() -> None:
    sides = torch.tensor([3e38, 1e-40, 1e-30, 1e30, 2e19])
    check(torch.hypot, sides, sides * 0.5)
    check(torch.hypot, torch.full((3,), 1e300, dtype=torch.float64), torch.full((3,), 1e300, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", [torch.xlogy, torch.special.xlog1py])
def test_logarithms_of_float16_and_bfloat16_are_rounded_before_they_are_multiplied(op: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = (torch.rand(500, 4) * 5).to(dtype), (torch.rand(4, 500) * 9).to(dtype).t()
    x[:5], y[:2] = 0, math.inf
    check(op, x, y, exact=True)
    check(op, torch.tensor([0.0, 0.0, 2.0]).to(dtype), torch.tensor([math.nan, 0.0, math.nan]).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", [torch.addcmul, torch.addcdiv])
def test_sums_of_products_in_float16_and_bfloat16_round_once(op: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(op, *((torch.rand(20000) * 3 + 0.1).to(dtype) for _ in range(3)), value=0.3, exact=True)


# -- tensors like another -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [torch.zeros_like, torch.ones_like])
def test_filled_tensors_like_another(make: Callable[..., Tensor]) -> None:
    images = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for x in (images, torch.rand(3, 4).t(), torch.rand(4).expand(3, 4), torch.tensor(1), torch.zeros(0, 3), images > 0.5):
        check(make, x)
        check(make, x, dtype=torch.float64)
        check(make, x, dtype=torch.complex64, memory_format=torch.contiguous_format)
    check(make, images[0:1, :, :1], memory_format=torch.channels_last)
    check(make, torch.rand(3, device="meta"), device="cpu")


def test_empty_tensors_like_another() -> None:
    images = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for x in (torch.rand(3, 4), images, torch.rand(3, 4).t(), torch.rand(4).expand(3, 4), torch.tensor(1), torch.zeros(0, 3)):
        for options in ({}, {"dtype": torch.int16}, {"memory_format": torch.contiguous_format}, {"device": "meta"}):
            want, got = torch.empty_like(x, **options), on_core(lambda: torch.empty_like(x, **options))  # noqa: B023
            assert (got.shape, got.stride(), got.dtype, got.device) == (want.shape, want.stride(), want.dtype, want.device)


def test_tensors_like_another_leave_no_programs() -> None:
    cache = ed.ProgramCache()
    with ed.EagerDecompMode(CORE, cache=cache):
        for length in range(1, 5):
            for make in (torch.zeros_like, torch.ones_like, torch.empty_like):
                make(torch.rand(length))
    assert cache.info().programs == 0


@pytest.mark.full
@pytest.mark.parametrize("without", [None, "aten.where"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_copysign_of_a_number(dtype: torch.dtype, without: str | None) -> None:
    ops = CORE if without is None else CORE - [without]
    x = torch.tensor([[1.0, -2.0], [0.0, -0.0], [3.0, -4.0]]).to(dtype)
    for number in (-3.14, 2, 0.0, -0.0, -1, True, float("-inf"), 1e300, 1j):
        for given in (x, x.t(), x[::2], x[:1].expand(3, 2), x[0, 0]):
            check(torch.copysign, given, number, ops=ops, exact=True)
        check(lambda given, number=number: given.copysign_(number), x, ops=ops, exact=True)


@pytest.mark.parametrize("ops", [CORE, ed.tiny(), ed.prims()])
def test_copysign_gives_nan_its_sign(ops: ed.OpSet) -> None:
    for dtype in FLOATS:
        x = torch.tensor(SPECIAL, dtype=dtype)
        for other in (x.float()[:, None], torch.tensor(-0.0), -0.0, 2):
            got, want = on_core(lambda: torch.copysign(x, other), ops), torch.copysign(x, other)  # noqa: B023 - called at once
            assert_same(got, want)
            assert torch.equal(got.signbit(), want.signbit())


@pytest.mark.parametrize("ops", [CORE, CORE - ["aten.pow.Tensor_Scalar"], ed.tiny(), ed.prims()])
@pytest.mark.parametrize("dtype", FLOATS)
def test_half_powers_of_infinities_and_negative_zeros(dtype: torch.dtype, ops: ed.OpSet) -> None:
    """Eager takes a root, except in float16."""
    for exponent in (0.5, -0.5):
        check(torch.pow, torch.tensor([math.inf, -math.inf, 0.0, -0.0, -1.0, 4.0], dtype=dtype), exponent, ops=ops)
