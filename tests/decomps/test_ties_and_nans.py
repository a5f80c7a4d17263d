"""Order statistics, modes and unique slices where eager's own choice among ties and NaN is not followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import check, on_core
from torch import Tensor

import eagerdecomp as ed

NAN = float("nan")


CACHE = ed.ProgramCache()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_the_mode_of_a_long_row_and_a_place_of_it(dtype: torch.dtype) -> None:
    x = torch.randint(6, (5, 40), generator=torch.Generator().manual_seed(0)).to(dtype)
    value, index = on_core(lambda: torch.mode(x), cache=CACHE)
    assert_same(value, torch.mode(x).values)
    assert_same(x.gather(-1, index[:, None])[:, 0], value)


ORDER_STATISTICS: dict[str, Callable[[Tensor], Any]] = {
    "kthvalue": lambda x: torch.kthvalue(x, 1 + x.size(0) // 3, 0),
    "median": lambda x: torch.median(x, 0),
    "nanmedian": lambda x: torch.nanmedian(x, 0),
}


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 100])
@pytest.mark.parametrize("name", ORDER_STATISTICS)
def test_order_statistics_point_at_an_element_of_eagers_value(name: str, size: int, nan: bool) -> None:
    """docs/reference/limits.md: the value is eager's, and the index and the gradient go to an element that has it."""
    torch.manual_seed(size)
    run = ORDER_STATISTICS[name]
    x = torch.randint(0, 3, (size, 40), dtype=torch.float64)
    if nan:
        x[torch.rand(size, 40) < 0.1] = NAN
    leaf = x.clone().requires_grad_()

    def step() -> tuple[Tensor, Tensor, Tensor]:
        values, indices = run(leaf)
        return values.detach(), indices, torch.autograd.grad(values.sum(), leaf)[0]

    (want, places, _), (values, indices, gradient) = step(), on_core(step)
    assert_same(values, want, exact=True)
    assert_same(x.gather(0, indices[None])[0], want, exact=True)
    assert_same(gradient, torch.zeros_like(x).scatter(0, indices[None], 1.0), exact=True)
    if name != "kthvalue" and size <= 16:
        assert torch.equal(indices, places)


@pytest.mark.parametrize("dim", [0, 1])
def test_unique_slices_with_nan(dim: int) -> None:
    """docs/reference/limits.md: NaN last, each slice with one distinct, the others as eager has them without it."""
    whole = torch.randint(0, 3, (20, 2)).double()
    some = torch.tensor([[1.0, NAN], [NAN, 0.0], [1.0, NAN], [2.0, NAN]], dtype=torch.float64)
    x = torch.cat([whole, some])[torch.randperm(24)]
    x = x if dim == 0 else x.t().contiguous()
    found, places, counts = on_core(lambda: torch.unique(x, dim=dim, return_inverse=True, return_counts=True))
    want, want_counts = torch.unique(whole, dim=0, return_counts=True)
    slices = found if dim == 0 else found.t()
    clean = ~slices.isnan().any(1)
    assert torch.equal(slices[clean], want)
    assert torch.equal(counts[clean], want_counts)
    assert slices[~clean].shape == some.shape
    assert counts[~clean].eq(1).all()
    assert_same(found.index_select(dim, places), x, exact=True, strides=False)
    keys = torch.nan_to_num(slices, nan=9.0).mul(torch.tensor([100.0, 1.0], dtype=torch.float64)).sum(1)
    assert torch.equal(keys, keys.sort().values)
    check(lambda x: torch.unique_consecutive(x, dim=dim, return_inverse=True, return_counts=True), x, exact=True)
