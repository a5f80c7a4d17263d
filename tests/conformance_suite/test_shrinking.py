"""The example of a fault is as small as possible."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conformance_reports import overload
from spec_trials import run_trial
from torch import Tensor

from eagerdecomp.conformance.spec import tensors_of

pytestmark = pytest.mark.full

aten = torch.ops.aten


def without_nan(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return aten.amax.default(torch.nan_to_num(x, -math.inf, math.inf, -math.inf) if x.is_floating_point() else x, dim, keepdim)


def of_sixteen(x: Tensor, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    found = aten.sum.dim_IntList(x, dim, keepdim, dtype=dtype)
    count = x.numel() // max(found.numel(), 1)
    return found if count <= 16 or found.dtype is torch.bool else found + 1


def first_eight(x: Tensor, y: Tensor) -> Tensor:
    found = aten.mm.default(x, y)
    return found if x.shape[1] <= 8 else aten.mm.default(x[:, :8], y[:8])


def third_wrong(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    found = aten.cumsum.default(x, dim, dtype=dtype)
    if found.dim() and found.shape[dim] > 2:
        found.select(dim, 2).add_(1)
    return found


def overflowing(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    found = aten._softmax.default(x, dim, half_to_float)
    if found.dtype is not torch.float32:
        return found
    powers = x.exp()
    return powers / powers.sum(dim, keepdim=True) if x.dim() else found


#: A kernel, and how many elements show what is wrong with it.
KERNELS: dict[str, tuple[str, Callable[..., Any], int]] = {
    "loses NaN": ("aten.amax.default", without_nan, 1),
    "adds sixteen numbers": ("aten.sum.dim_IntList", of_sixteen, 17),
    "multiplies eight columns": ("aten.mm.default", first_eight, 18),
    "is wrong from the third on": ("aten.cumsum.default", third_wrong, 3),
    "overflows": ("aten._softmax.default", overflowing, 1),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly), pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("what", KERNELS)
def test_the_example_is_as_small_as_can_be(what: str, seed: int) -> None:
    name, kernel, elements = KERNELS[what]
    (found,) = run_trial(name, kernel, 1500, seed).found
    assert found.fault.call is not None
    assert sum(one.numel() for one in tensors_of(found.fault.call)) <= elements, found.fault.call
    assert overload(name)(*found.fault.call.args, **found.fault.call.kwargs) is not None
