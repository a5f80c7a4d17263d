"""Orders, and places of extremes, on prims, which have no sort and no argmax."""

from __future__ import annotations

import math

import pytest
import torch
from on_core import check, on_core

import eagerdecomp as ed

PRIMS = ed.prims()


def some(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randint(-3, 3, (4, 6)).to(dtype)
    if dtype.is_floating_point:
        x[0, 1] = x[0, 4] = x[2, 0] = math.nan
        x[1, 1], x[1, 2], x[3, 3] = -0.0, 0.0, -math.inf
    return x


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_sorts_are_stable_and_put_nan_last(dtype: torch.dtype) -> None:
    x = some(dtype)
    for dim in (0, -1):
        for descending in (False, True):
            check(lambda x: torch.sort(x, dim=dim, descending=descending, stable=True), x, ops=PRIMS, exact=True)  # noqa: B023
    x = x + 0  # of equal elements eager's choice is any
    check(lambda x: torch.topk(x, 3)[0], x, ops=PRIMS, exact=True)
    check(lambda x: torch.topk(x, 2, dim=0, largest=False)[0], x, ops=PRIMS, exact=True)


def test_indices_of_topk_are_contiguous_in_dimensions_of_size_1_too() -> None:
    assert on_core(lambda: torch.topk(torch.ones(1, 4), 1).indices, PRIMS).stride() == (1, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_the_first_of_equal_extremes_is_named_and_nan_before_all(dtype: torch.dtype) -> None:
    x = some(dtype)
    for dim in (0, 1):
        check(torch.max, x, dim, ops=PRIMS, exact=True)
        check(torch.min, x.t(), dim, True, ops=PRIMS, exact=True)
    if dtype is not torch.bool:
        check(torch.argmax, x, ops=PRIMS)
        check(torch.argmin, x, 0, keepdim=True, ops=PRIMS)


def test_scalars_and_dimensions_without_elements() -> None:
    scalar, none = torch.tensor(2.0), torch.zeros(2, 0)
    for one in (torch.sort, torch.argmax, lambda x: torch.max(x, 0), lambda x: torch.topk(x, 1), lambda x: torch.topk(x, 3)):
        check(one, scalar, ops=PRIMS)
        check(one, none, ops=PRIMS)
    check(lambda x: torch.max(x, 1), none, ops=PRIMS)
    check(lambda x: torch.sort(x, dim=2), none, ops=PRIMS)


@pytest.mark.full
def test_orders_lie_as_their_input_and_of_complex_numbers_there_are_none() -> None:
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for x in (torch.randn(3, 4).t(), images, images.transpose(0, 1)):
        check(torch.msort, x, ops=PRIMS)
        check(lambda x: torch.autograd.grad(torch.sort(x, 0)[0].sum(), x), x.detach().requires_grad_(), ops=PRIMS)
    for x in (torch.tensor(1j), torch.zeros(0, dtype=torch.complex64)):
        check(torch.sort, x, ops=PRIMS)
        check(lambda x: torch.topk(x, 0), x, ops=PRIMS)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_wide_unsigned_integers_are_ordered(dtype: torch.dtype) -> None:
    most = torch.iinfo(dtype).max
    x = torch.tensor([3, 1, most, most // 2 + 1, 0, 3], dtype=dtype)
    check(torch.sort, x, ops=PRIMS)
    check(torch.unique, x, return_inverse=True, return_counts=True, ops=PRIMS)
