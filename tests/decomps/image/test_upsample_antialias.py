"""Antialiased upsampling and its gradient against eager's: values, what is infinite, bytes, layouts, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from on_core import check, kernel_calls, on_core

aten = torch.ops.aten

NAMES = [f"_upsample_{way}2d_aa" for way in ("bilinear", "bicubic", "lanczos")]
ANTIALIASED = [getattr(aten, name) for name in NAMES if hasattr(aten, name)]  # torch 2.11 has no Lanczos


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", ANTIALIASED)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(4, 3), (1, 1), (20, 9), (8, 13), (7, 11)])
def test_antialiased(op: Any, size: tuple[int, int], corners: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 9, dtype=torch.float64).to(dtype)

    def gradient(x: torch.Tensor, *options: Any) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        out = op(leaf, *options)
        return torch.autograd.grad(out, leaf, (torch.arange(out.numel()).view(out.shape) % 7 - 3.0).to(out.dtype))[0]

    for y in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3), x[:0]):
        check(op, y, list(size), corners)
        check(gradient, y, list(size), corners)
    # As `interpolate` has them, whose sizes are rounded down; far past the end of the input eager reads what is not its own.
    scales = [(size[0] + 0.4) / 8, (size[1] + 0.7) / 9]
    check(op, x, list(size), False, *scales)
    check(gradient, x, list(size), False, scales[0], None)


@pytest.mark.parametrize("op", ANTIALIASED)
def test_antialiased_to_the_same_size_is_a_copy(op: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 9)
    for y in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3), x.transpose(1, 2), x.to(torch.uint8)):
        check(op, y, list(y.shape[2:]), False, exact=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_gradients_of_first_and_second_order(mode: str) -> None:
    x = torch.linspace(-1, 1, 20, dtype=torch.float64).view(1, 1, 4, 5).requires_grad_()

    def run(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=(3, 2), mode=mode, antialias=True)

    assert on_core(lambda: torch.autograd.gradcheck(run, (x,)))
    assert on_core(lambda: torch.autograd.gradgradcheck(run, (x,)))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("op", ANTIALIASED)
def test_the_memory_format_of_a_gradient(op: Any, dense: bool) -> None:
    grad = torch.empty_strided((2, 3, 4, 5), (200, 1, 50, 6)).copy_(torch.arange(120.0).view(2, 3, 4, 5))
    grad = grad.contiguous(memory_format=torch.channels_last) if dense else grad
    for given_ in (grad, grad.contiguous()):
        check(backward_of(op), given_, [4, 5], [2, 3, 7, 6], False)


def backward_of(op: Any) -> Any:
    return getattr(aten, f"{op.__name__}_backward")


SIDES = st.integers(1, 14)
FACTORS = st.sampled_from([None, 0.4, 0.5, 0.77, 1.3, 1.7, 2.0, 3.0])
VALUES = st.sampled_from([math.nan, math.inf, -math.inf])


def _target(size: tuple[int, int], count: tuple[int, int], factor: float | None) -> tuple[tuple[int, int], tuple[float, ...]]:
    """The output's size and the scales that `interpolate` gives."""
    if factor is None:
        return count, ()
    count = (int(size[0] * factor), int(size[1] * factor))
    assume(min(count) > 0)
    return count, (factor, factor)


def _assume_not_to_one_column(count: tuple[int, int]) -> None:
    """Eager fills a result of one column and many rows with its first row: a fault of its kernel, not followed."""
    assume(count[1] > 1 or count[0] == 1)


@pytest.mark.full
@settings(max_examples=80, deadline=None)
@example(op=ANTIALIASED[0], size=(7, 5), count=(3, 9), factor=None, corners=False, dtype=torch.float32, value=math.inf, at=9)
@example(op=ANTIALIASED[1], size=(6, 7), count=(6, 7), factor=0.4, corners=False, dtype=torch.float64, value=math.nan, at=20)
@given(
    op=st.sampled_from(ANTIALIASED),
    size=st.tuples(SIDES, SIDES),
    count=st.tuples(SIDES, SIDES),
    factor=FACTORS,
    corners=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    value=VALUES,
    at=st.integers(0, 1000),
)
def test_what_is_infinite_stays_where_eager_has_it(
    op: Any, size: Any, count: Any, factor: float | None, corners: bool, dtype: torch.dtype, value: float, at: int
) -> None:
    # Where the cubic passes through 0 the sign of a weight is rounding, and of an infinity the sign shows.
    value = math.nan if op is ANTIALIASED[1] else value
    count, scales = _target(size, count, factor)
    grad = torch.linspace(-1, 1, math.prod(count), dtype=dtype).view(1, 1, *count)
    grad.view(-1)[at % grad.numel()] = value
    check(backward_of(op), grad, list(count), [1, 1, *size], corners, *scales)
    _assume_not_to_one_column(count)
    x = torch.linspace(-1, 1, math.prod(size), dtype=dtype).view(1, 1, *size)
    x.view(-1)[at % x.numel()] = value
    check(op, x, list(count), corners, *scales)


@pytest.mark.full
@settings(max_examples=80, deadline=None)
@given(
    op=st.sampled_from(ANTIALIASED),
    size=st.tuples(SIDES, SIDES),
    count=st.tuples(SIDES, SIDES),
    factor=FACTORS,
    corners=st.booleans(),
    channels=st.integers(1, 5),
    last=st.booleans(),
    sharp=st.booleans(),
    seed=st.integers(0, 100),
)
def test_bytes_are_eagers_bit_for_bit(
    op: Any, size: Any, count: Any, factor: float | None, corners: bool, channels: int, last: bool, sharp: bool, seed: int
) -> None:
    count, scales = _target(size, count, factor)
    _assume_not_to_one_column(count)
    x = torch.randint(0, 256, (2, channels, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    x = (x > 127).to(torch.uint8) * 255 if sharp else x
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    check(op, x, list(count), corners, *scales, exact=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(64, 96), (224, 224), (3, 300)])
def test_pictures_of_bytes(mode: str, size: tuple[int, int]) -> None:
    x = torch.randint(0, 256, (1, 3, 187, 211), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    check(F.interpolate, x, size=size, mode=mode, antialias=True, exact=True)


@pytest.mark.parametrize(("op", "calls"), list(zip(ANTIALIASED, ((57, 69, 66), (75, 87, 84), (77, 87, 86)), strict=False)))
def test_kernel_calls(op: Any, calls: tuple[int, int, int]) -> None:
    x, grad = torch.randn(1, 2, 8, 9), torch.randn(1, 2, 4, 5)
    assert kernel_calls(lambda: op(x, [4, 5], False)) <= calls[0]
    assert kernel_calls(lambda: op(x.to(torch.uint8), [4, 5], False)) <= calls[1]
    assert kernel_calls(lambda: backward_of(op)(grad, [4, 5], [1, 2, 8, 9], False)) <= calls[2]
