"""Sorting by a kernel that is not stable, and searches that probe as eager does."""

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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int64, torch.float16])
def test_a_search_for_a_0_dim_tensor_takes_the_dtype_of_the_boundaries(dtype: torch.dtype) -> None:
    sought = torch.tensor(150).to(dtype)
    for boundaries in (torch.tensor([-100, 0, 100], dtype=torch.int8), torch.tensor([1, 100, 200]), torch.tensor([0.5, 149.9])):
        check(torch.bucketize, sought, boundaries)
        check(torch.searchsorted, boundaries, sought)
