"""Sorting on Core ATen: stable order, uniqueness, modes and searches as eager has them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from on_core import CORE, check, on_core
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten

NAN = math.nan
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def repeating(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.randint(0, 4, shape).to(dtype)


def adversarial_sort(self: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """A right `sort.default` that is as unstable as can be: equal values come last place first."""
    values, indices = torch.sort(self.flip(dim), dim=dim, descending=descending, stable=True)
    return values, (self.size(dim) - 1 - indices) if self.dim() else indices


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_stable_sort_needs_no_stable_kernel(dtype: torch.dtype, descending: bool) -> None:
    torch.manual_seed(0)
    backend = ed.Backend("unstable", CORE, {aten.sort.default: adversarial_sort})
    for x, dim in ((repeating(40, dtype=dtype), 0), (repeating(5, 30, dtype=dtype).t(), 0), (repeating(3, 4, 9, dtype=dtype), 1)):
        want = torch.sort(x, dim=dim, descending=descending, stable=True)
        for _ in range(3):
            with ed.EagerDecompMode(backend):
                got = torch.sort(x, dim=dim, descending=descending, stable=True)
            assert torch.equal(got[0], want[0])
            assert torch.equal(got[1], want[1])
            assert got[0].stride() == want[0].stride()
            assert got[1].stride() == want[1].stride()


def test_stable_sort_of_nans_and_signed_zeros() -> None:
    x = torch.tensor([NAN, 0.0, -0.0, NAN, 1.0, 0.0, -0.0, NAN])
    check(lambda x: tuple(torch.sort(x, stable=True)), x, exact=True)
    check(lambda x: tuple(torch.sort(x, stable=True, descending=True)), x, exact=True)
    for small in (torch.tensor(1.0), torch.zeros(0), torch.zeros(3, 0), torch.zeros(1)):
        check(lambda x: tuple(torch.sort(x, stable=True)), small)
    check(lambda x: torch.argsort(x, stable=True), repeating(50))
    check(lambda x: tuple(torch.sort(x, dim=4, stable=True)), repeating(5))


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_unique(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for x in (
        repeating(30, dtype=dtype),
        repeating(4, 5, dtype=dtype).t(),
        torch.zeros(0, dtype=dtype),
        torch.ones((), dtype=dtype),
    ):
        for inverse in (False, True):
            for counts in (False, True):
                check(torch.unique, x, return_inverse=inverse, return_counts=counts)
                check(torch.unique_consecutive, x, return_inverse=inverse, return_counts=counts)
        check(aten._unique.default, x, True, True)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unique_slices_of_the_wide_unsigned_types(dtype: torch.dtype) -> None:
    check(torch.unique, repeating(6, 2, dtype=dtype), return_inverse=True, return_counts=True, dim=0)


def test_unique_takes_each_nan_for_itself() -> None:
    check(torch.unique, torch.tensor([1.0, NAN, 1.0, NAN]), return_counts=True)
    check(torch.unique_consecutive, torch.tensor([1.0, NAN, NAN]), return_inverse=True, return_counts=True)
    check(torch.unique_consecutive, repeating(20), return_counts=True, dim=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mode_is_the_least_of_the_most_frequent(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = repeating(4, 9, dtype=dtype)
    for dim in (0, 1):
        for keepdim in (False, True):
            check(lambda x, dim=dim, keepdim=keepdim: tuple(x.mode(dim, keepdim)), x)
    check(lambda x: tuple(x.mode(1)), repeating(3, 4, 5, dtype=dtype).permute(2, 0, 1))
    check(lambda x: tuple(x.mode()), torch.tensor(1).to(dtype))


EDGES = torch.tensor([-3.0, -1.0, -1.0, 0.0, 2.0, 2.0, 2.0, math.inf, NAN])
SOUGHT = torch.tensor([[-9.0, -1.0, 0.0], [2.0, 7.0, math.inf], [NAN, -0.0, 1.9]])


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("right", [False, True])
def test_search_on_every_length(length: int, right: bool) -> None:
    check(torch.searchsorted, EDGES[:length], SOUGHT, right=right)
    # Long enough for the halving search.
    check(torch.searchsorted, EDGES[:length], SOUGHT.repeat(1000, 1), right=right)
    check(torch.searchsorted, EDGES[:length], SOUGHT, out_int32=True, side="right" if right else "left")


def test_search_row_by_row_scalars_and_sorters() -> None:
    torch.manual_seed(0)
    for width in (3, 900):
        rows, values = torch.randn(2, 3, width).sort()[0], torch.randn(2, 3, 40)
        check(torch.searchsorted, rows, values)
        check(torch.searchsorted, rows, values, right=True)
    unsorted = torch.randn(3, 5)
    check(torch.searchsorted, unsorted, torch.randn(3, 4), sorter=unsorted.argsort())
    check(torch.searchsorted, EDGES, 2.0)
    check(torch.searchsorted, EDGES, SOUGHT.t())
    check(torch.bucketize, SOUGHT, EDGES)
    check(torch.searchsorted, torch.arange(9), torch.arange(-2, 12))


@pytest.mark.parametrize("length", range(1, 18))
def test_search_of_rows_out_of_order_and_with_nan_takes_eagers_probes(length: int) -> None:
    torch.manual_seed(length)
    mixed, sought = torch.randint(5, (3, length)).float(), torch.arange(-1.0, 6).expand(3, 7).contiguous()
    cut = torch.where(torch.rand(3, length) < 0.4, NAN, mixed)
    for rows in (mixed, cut):
        for right in (False, True):
            check(torch.searchsorted, rows, sought, right=right)
            check(torch.searchsorted, rows[0], 2.0, right=right)
    check(torch.searchsorted, mixed, sought, sorter=torch.randint(length, (3, length)))


def test_search_for_no_complex_number() -> None:
    for dtype in (torch.complex64, torch.bool):
        for out_int32 in (False, True):
            check(torch.bucketize, torch.zeros(0, dtype=dtype), torch.ones(1, dtype=dtype), out_int32=out_int32)
            check(torch.searchsorted, torch.ones(1, dtype=dtype), torch.zeros(0, dtype=dtype), out_int32=out_int32)
        check(torch.bucketize, torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype))


@pytest.mark.parametrize("keepdim", [False, True])
def test_mode_of_complex_numbers(keepdim: bool) -> None:
    check(torch.mode, torch.tensor(1 + 1j), -1, keepdim)
    check(torch.mode, torch.tensor([1 + 1j]), -1, keepdim)
    with pytest.raises(NotImplementedError, match="\"mode_cpu\" not implemented for 'ComplexFloat'"):
        on_core(lambda: torch.tensor([1 + 1j]).mode(-1, keepdim))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("invert", [False, True])
def test_membership_among_numbers_of_which_some_are_nan(dtype: torch.dtype, invert: bool) -> None:
    among = torch.tensor([1.0, NAN, -0.0, NAN, 2.0, -math.inf, 3.0, NAN] * 4).to(dtype)
    for ends in ([], [math.inf]):
        held = torch.cat([among, torch.tensor(ends, dtype=dtype)])
        for sought in (among.view(4, 8).t(), torch.tensor([0.0, math.inf, NAN, 2.0, 5.0]), torch.arange(5), torch.empty(0)):
            check(torch.isin, sought, held, invert=invert)


def test_search_across_types() -> None:
    check(torch.searchsorted, EDGES, SOUGHT.double())
    check(torch.searchsorted, EDGES, 2)
    check(torch.searchsorted, torch.arange(9), 2.5)
    check(torch.searchsorted, torch.arange(9), SOUGHT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(0, 6, 4), (2, 0, 3), (0, 0), (0,)])
def test_mode_without_elements(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for dim in range(-len(shape), len(shape)):
        for keepdim in (False, True):
            check(lambda x, dim=dim, keepdim=keepdim: tuple(x.mode(dim, keepdim)), torch.zeros(shape, dtype=dtype))


@pytest.mark.full
def test_gradients_of_sorts_and_modes() -> None:
    def step(x: Tensor) -> Any:
        leaf = x.clone().requires_grad_()
        values = [torch.sort(leaf, stable=True)[0], leaf.mode(1)[0]]
        return torch.autograd.grad(sum((value * torch.arange(value.size(-1))).sum() for value in values), leaf)

    check(step, torch.randperm(20).view(4, 5).double())
    assert on_core(lambda: torch.sort(torch.tensor([2, 1]))[1]).tolist() == [1, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"out_int32": True}, {"right": True}], ids=str)
def test_without_boundaries_all_are_in_the_first_bucket(dtype: torch.dtype, options: dict[str, bool]) -> None:
    for sought in (repeating(0, dtype=dtype), repeating(3, dtype=dtype), repeating(2, 3, dtype=dtype).t(), repeating(dtype=dtype)):
        check(torch.bucketize, sought, torch.zeros(0, dtype=dtype), **options)
    check(torch.bucketize, 0.5, torch.zeros(0), **options)
    check(torch.bucketize, torch.zeros(2), torch.zeros(0, 2), **options)
