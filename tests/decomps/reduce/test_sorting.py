"""Sorting on Core ATen: stable order, uniqueness, modes and searches as eager has them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from on_core import CORE, check
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


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unique_slices_of_the_wide_unsigned_types(dtype: torch.dtype) -> None:
    check(torch.unique, repeating(6, 2, dtype=dtype), return_inverse=True, return_counts=True, dim=0)


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


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("invert", [False, True])
def test_membership_among_numbers_of_which_some_are_nan(dtype: torch.dtype, invert: bool) -> None:
    among = torch.tensor([1.0, NAN, -0.0, NAN, 2.0, -math.inf, 3.0, NAN] * 4).to(dtype)
    for ends in ([], [math.inf]):
        held = torch.cat([among, torch.tensor(ends, dtype=dtype)])
        for sought in (among.view(4, 8).t(), torch.tensor([0.0, math.inf, NAN, 2.0, 5.0]), torch.arange(5), torch.empty(0)):
            check(torch.isin, sought, held, invert=invert)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"out_int32": True}, {"right": True}], ids=str)
def test_without_boundaries_all_are_in_the_first_bucket(dtype: torch.dtype, options: dict[str, bool]) -> None:
    for sought in (repeating(0, dtype=dtype), repeating(3, dtype=dtype), repeating(2, 3, dtype=dtype).t(), repeating(dtype=dtype)):
        check(torch.bucketize, sought, torch.zeros(0, dtype=dtype), **options)
    check(torch.bucketize, 0.5, torch.zeros(0), **options)
    check(torch.bucketize, torch.zeros(2), torch.zeros(0, 2), **options)
