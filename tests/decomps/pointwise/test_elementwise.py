"""Elementwise rules on Core ATen: bit for bit eager's where they move bits or pick operands, else within the type's tolerance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same, outcome
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.eager.promotion import promote_types, promoted

aten = torch.ops.aten

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 40.0, -40.0, math.inf, -math.inf, math.nan, 1e-5, 3e4]


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Every special value with every other."""
    row = torch.tensor(SPECIAL, dtype=dtype)
    return row[:, None], row[None, :]


UNARY: dict[str, tuple[Callable[..., Any], bool]] = {
    "signbit": (torch.signbit, True),
    "angle": (torch.angle, True),
    "exp2": (torch.exp2, False),
}
BINARY: dict[str, tuple[Callable[..., Any], bool]] = {
    "copysign": (torch.copysign, True),
    "nextafter": (torch.nextafter, True),
    "fmax": (torch.fmax, False),
    "fmin": (torch.fmin, False),
    "hypot": (torch.hypot, False),
    "softshrink_backward": (lambda x, y: aten.softshrink_backward(x.expand(13, 13), y.expand(13, 13), 0.3), True),
    "hardshrink_backward": (lambda x, y: aten.hardshrink_backward(x.expand(13, 13), y.expand(13, 13), 0.3), True),
    "lerp to the near side": (lambda x, y: torch.lerp(x, y, 0.3), False),
    "lerp to the far side": (lambda x, y: torch.lerp(x, y, 0.7), False),
    "addcmul": (lambda x, y: torch.addcmul(x, y, x, value=0.3), False),
    "addcdiv": (lambda x, y: torch.addcdiv(x, y, x, value=-2.0), False),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary_on_special_values(name: str, dtype: torch.dtype) -> None:
    run, exact = UNARY[name]
    check(run, torch.tensor(SPECIAL, dtype=dtype), exact=exact)
    check(run, torch.tensor(-1.5, dtype=dtype), exact=exact)
    check(run, torch.randn(3, 4, 5).to(dtype).permute(2, 0, 1), exact=exact)
    check(run, torch.randn(6, 4).to(dtype)[::2, 1:], exact=exact)
    check(run, torch.zeros(0, 3, dtype=dtype), exact=exact)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
@pytest.mark.parametrize("name", UNARY)
def test_unary_on_integers(name: str, dtype: torch.dtype) -> None:
    check(UNARY[name][0], torch.tensor([0, 1, 3, 7]).to(dtype))
    if dtype.is_signed:
        check(UNARY[name][0], torch.tensor([-1, -7, 5]).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_binary_on_every_pair_of_special_values(name: str, dtype: torch.dtype) -> None:
    run, exact = BINARY[name]
    # Arithmetic on bfloat16 does not keep a NaN's sign, not even `neg`.
    check(run, *pairs(dtype), exact=exact and not (name == "copysign" and dtype is torch.bfloat16))


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in BINARY if "shrink" not in name])
def test_binary_layouts_and_broadcasting(name: str) -> None:
    run, _ = BINARY[name]
    check(run, torch.randn(3, 4).t(), torch.randn(3, 4).t())
    check(run, torch.randn(2, 3, 4).permute(2, 0, 1), torch.randn(3))
    check(run, torch.tensor(1.5), torch.randn(3))
    check(run, torch.randn(0, 3), torch.randn(3))
    check(run, torch.randn(3), torch.randn(4))


@pytest.mark.full
@pytest.mark.parametrize("name", ["copysign", "fmax", "fmin", "addcmul", "addcdiv", "lerp to the near side"])
def test_types_promote_or_are_refused_as_in_eager(name: str) -> None:
    run, _ = BINARY[name]
    given = [
        torch.tensor([1.5, -2.5, 3.0]),
        torch.tensor([1.5, -2.0, 3.0], dtype=torch.float64),
        torch.tensor(2.5, dtype=torch.float64),
    ]
    given += [torch.tensor([1, -2, 3]), torch.tensor([True, False, True]), torch.tensor([1.5, -2.0, 3.0]).half(), torch.tensor(-3)]
    for left in given:
        for right in given:
            check(run, left, right)


@pytest.mark.parametrize("name", [name for name in BINARY if "shrink" not in name])
def test_the_first_operand_with_an_order_decides_the_layout(name: str) -> None:
    run, _ = BINARY[name]
    for left, right in ((torch.randn(3, 4).t(), torch.randn(4, 3)), (torch.randn(4, 3), torch.randn(3, 4).t())):
        check(run, left, right)
    check(run, torch.randn(4, 1), torch.randn(3, 4).t())


def test_layouts_of_shifts_and_shrinks() -> None:
    across, along = torch.arange(12).view(3, 4).t(), torch.arange(12).view(4, 3)
    for left, right in ((across, along), (along, across)):
        check(torch.bitwise_left_shift, left, right % 5)
        check(torch.bitwise_right_shift, left, right % 5)
        for backward in (aten.softshrink_backward.default, aten.hardshrink_backward.default):
            check(backward, left.float(), right.float(), 3.5)


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


@pytest.mark.full
@pytest.mark.parametrize("run", [torch.addcmul, torch.addcdiv])
def test_types_promote_among_those_with_dimensions_and_among_those_without(run: Callable[..., Any]) -> None:
    """Where a number without dimensions decides nothing, two of them may still not promote."""
    for dtype in UNSIGNED:
        given = [torch.tensor(3, dtype=dtype), torch.tensor(2, dtype=torch.int8), torch.ones(3)]
        for operands in itertools.permutations(given):
            check(run, *operands)


def test_the_angle_of_an_unsigned_integer() -> None:
    for dtype in UNSIGNED:
        check(torch.angle, torch.tensor([3, 0], dtype=dtype))


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


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("number", [1, 0, -5, 300, True, 2.5])
def test_shifts_of_numbers_and_by_numbers(number: Any, dtype: torch.dtype) -> None:
    runs: list[Callable[[torch.Tensor], Any]] = [
        lambda x: number << x,
        lambda x: number >> x,
        lambda x: x << number,
        lambda x: x >> number,
        lambda x: torch.bitwise_left_shift(x, number),
        lambda x: torch.bitwise_right_shift(number, x),
    ]
    for run in runs:
        check(run, torch.tensor([[1, 2, 7], [0, 20, 100]]).to(dtype).t())
        check(run, torch.tensor(3).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_to_decimals(dtype: torch.dtype) -> None:
    """Powers of ten beyond the dtype's range too: torch's decomposition raises an OverflowError from 10^19 on."""
    torch.manual_seed(0)
    x = torch.cat([torch.tensor(SPECIAL), torch.randn(50) * 1000]).to(dtype)
    for decimals in (0, 1, 3, -2, 5, -5, 19, 39, -39, 308, 309, 1024, -1024, 2**40):
        check(
            torch.round, x, decimals=decimals, exact=dtype in (torch.float32, torch.float64)
        )  # the sign of NaN is not kept in half


def test_shifts_of_mixed_types_and_floats() -> None:
    check(torch.bitwise_left_shift, torch.tensor([1, 2], dtype=torch.int64), torch.tensor([40, 3], dtype=torch.uint8))
    check(torch.bitwise_right_shift, torch.tensor([1, 2], dtype=torch.int8), torch.tensor([0, 1], dtype=torch.int64))
    check(torch.bitwise_left_shift, torch.tensor([1.0]), torch.tensor([2.0]))
    check(lambda x: x << 2, torch.tensor([1.5, -3.0]))
    check(lambda x: x >> 1, torch.tensor([1.5, -3.0]))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers(dtype: torch.dtype) -> None:
    parts = torch.tensor(SPECIAL[:10], dtype=torch.zeros(1, dtype=dtype).real.dtype)
    grid = torch.complex(*(x.contiguous() for x in torch.broadcast_tensors(parts[:, None], parts[None, :])))
    check(aten._conj_physical.default, grid, exact=False)
    check(lambda x: torch.view_as_real(torch.conj_physical(x)), grid, exact=True)
    check(torch.angle, grid)
    check(torch.angle, grid.conj())
    check(torch.conj_physical, torch.randn(2, 3, 4, dtype=dtype).permute(2, 0, 1))
    check(lambda x: torch.view_as_real(torch.conj_physical(x.conj())), grid, exact=True)
    check(torch.addcmul, *(torch.randn(3, dtype=dtype) for _ in range(3)), value=0.5 + 1j)
    check(lambda x, y: torch.lerp(x, y, 0.3), torch.randn(3, dtype=dtype), torch.randn(3, dtype=dtype))


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


def test_gradients() -> None:
    def step(run: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Any]:
        def go(x: Tensor, y: Tensor) -> Any:
            leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            return torch.autograd.grad(run(*leaves).sum(), leaves, allow_unused=True)

        return go

    x, y = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    for name in ("copysign", "fmax", "hypot", "lerp to the far side", "addcmul", "addcdiv"):
        check(step(BINARY[name][0]), x, y)
    for run in (torch.nn.functional.softshrink, torch.nn.functional.hardshrink, torch.exp2, torch.angle):
        check(step(lambda x, y, run=run: run(x) + y), x, y)


def test_optimizer_steps_stay_short() -> None:
    x, y, z = torch.randn(3), torch.randn(3), torch.rand(3)
    assert kernel_calls(lambda: torch.addcmul(x, y, z, value=0.1)) == 2
    assert kernel_calls(lambda: torch.addcdiv(x, y, z, value=0.1)) == 2
    assert kernel_calls(lambda: torch.lerp(x, y, 0.1)) == 2


@pytest.mark.full
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool, torch.complex64])
def test_filling(dtype: torch.dtype) -> None:
    for x in (torch.ones(2, 3, dtype=dtype), torch.ones(4, 6, dtype=dtype)[::2].t(), torch.ones((), dtype=dtype)):
        check(lambda x: x.zero_(), x)
        for value in (2, -1.5, True, 300, math.nan, 1j):
            check(lambda x, value=value: x.fill_(value), x)
    check(lambda x: x.zero_(), torch.ones(3, 1, dtype=dtype).expand(3, 4))
    check(lambda x: x.fill_(0), torch.ones(3, 1, dtype=dtype).expand(3, 4))
    check(lambda x: x.zero_(), torch.ones(0, dtype=dtype))
    if dtype.is_complex:
        check(lambda x: x.fill_(1 + 2j), torch.ones(3, dtype=dtype).conj())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64])
def test_addbmm(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    left, right = (torch.randn(4, 2, 3) * 3).to(dtype), (torch.randn(4, 3, 5) * 3).to(dtype)
    for base in (torch.ones(2, 5, dtype=dtype), torch.ones(5, dtype=dtype), torch.ones((), dtype=dtype)):
        check(torch.addbmm, base, left, right)
        check(torch.addbmm, base, left, right, beta=2, alpha=3)
    check(torch.addbmm, torch.full((2, 5), 7).to(dtype), left, right, beta=0)
    check(torch.addbmm, torch.ones(2, 5, dtype=dtype), left.permute(0, 2, 1).contiguous().permute(0, 2, 1), right)
    check(torch.addbmm, torch.ones(2, 5, dtype=dtype), left[:0], right[:0])
    check(torch.addbmm, torch.ones(2, 5, dtype=dtype), left, right[:3])
    check(torch.addbmm, torch.ones(3, 5, dtype=dtype), left, right)


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


def test_angles_of_complex_numbers_are_contiguous() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 2, dtype=torch.complex64)
    for given in (x, x.permute(2, 0, 1), x[:, ::2], x[0].t(), x[:1].expand(4, 3, 2), x.conj().mT):
        check(torch.angle, given)


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
