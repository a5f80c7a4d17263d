"""Divisors, mantissas, hashes and writes through strides on Core ATen, all exactly eager's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from on_core import check, kernel_calls

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@given(st.sampled_from(INTEGERS), st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2), min_size=1, max_size=6))
@example(torch.int64, [(7540113804746346429, 4660046610375530309)])  # neighbours of Fibonacci: the most steps
@example(torch.int8, [(89, 55), (-128, -128), (-128, 0), (0, -128)])
@example(torch.int64, [(-(2**63), 0), (-(2**63), -(2**63)), (0, 0), (12, -18)])
def test_gcd(dtype: torch.dtype, pairs: list[tuple[int, int]]) -> None:
    left, right = (torch.tensor(column).to(dtype) for column in zip(*pairs, strict=True))
    check(torch.gcd, left, right, exact=True)


@pytest.mark.parametrize("function", [torch.gcd, torch.lcm])
def test_gcd_layouts_and_types(function: object) -> None:
    x, y = torch.arange(12).view(3, 4), torch.arange(6, 18).view(4, 3)
    check(function, x, y.t(), exact=True)
    check(function, x.t(), y.int(), exact=True)
    check(function, x, torch.tensor(6), exact=True)
    check(function, x[:0], y.t()[:0], exact=True)
    for dtype in (torch.bool, torch.float32):
        check(torch.gcd, x.to(dtype), x.to(dtype))
    check(lambda a, b: a.gcd_(b), x, y.t().contiguous(), exact=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_frexp(dtype: torch.dtype) -> None:
    places = [1.0, 0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, -3.7, 5e-324, -2.2e-308, 1e300, 0.5, 6e-8, 65504]
    x = torch.tensor(places, dtype=torch.float64).to(dtype)
    check(torch.frexp, x, exact=True)
    check(torch.frexp, x[:12].view(3, 4).t(), exact=True)
    check(torch.frexp, x[0], exact=True)
    check(torch.frexp, x[:0], exact=True)
    check(torch.frexp, torch.arange(3))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_hash(dtype: torch.dtype) -> None:
    x = torch.arange(-7, 23).mul(3).to(dtype).view(5, 6)
    check(torch.hash_tensor, x, exact=True)
    for dim in (0, 1, -1):
        for keepdim in (False, True):
            check(lambda x, dim=dim, keep=keepdim: torch.hash_tensor(x, dim, keepdim=keep), x.t(), exact=True)
    check(torch.hash_tensor, x[0, 0], exact=True)
    check(lambda x: torch.hash_tensor(x, 5), x)


@pytest.mark.parametrize(
    ("size", "stride", "offset"), [((2, 2), (1, 2), 0), ((2, 2), (1, 2), 3), ((3,), (4,), 2), ((2,), (1,), None), ((), (), 1)]
)
def test_as_strided_scatter(size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> None:
    source = torch.rand(size)
    base = torch.rand(24)
    for x in (base[:12].view(3, 4), base[:12].view(3, 4).t(), base[6:18].view(3, 4), base[::2].view(3, 4)):
        check(torch.as_strided_scatter, x, source, size, stride, offset, exact=True)
    check(torch.as_strided_scatter, base[:12], torch.rand(5), size, stride, offset)
    leaf = base[:12].clone().requires_grad_()
    check(lambda x, s: torch.autograd.grad(torch.as_strided_scatter(x, s, size, stride, offset).sin().sum(), x), leaf, source)


def test_kernel_calls() -> None:
    x = torch.arange(8)
    y, z = x.byte(), x.float()
    runs = (
        lambda: torch.gcd(x, x),
        lambda: torch.gcd(y, y),
        lambda: torch.frexp(z),
        lambda: torch.hash_tensor(x),
    )
    assert [kernel_calls(run) for run in runs] == [279, 42, 18, 13]
