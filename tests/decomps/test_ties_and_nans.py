"""Sorting, selection, search and counting on values full of ties, signed zeros and NaN: eager's values, places and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from on_core import check, on_core
from torch import Tensor

import eagerdecomp as ed

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int8)
NAN = float("nan")


def ones(x: Tensor) -> Tensor:
    return torch.ones_like(x)


def halves(x: Tensor) -> Tensor:
    """Two places along the last dimension, in turn."""
    return (torch.arange(x.numel()) % 2).reshape(x.shape)


def sorted_row(x: Tensor) -> Tensor:
    return torch.tensor([0, 1, 1, 2, 3]).to(x.dtype)


#: What returns the same for every order of equal values, NaN included.
RUNS: dict[str, Callable[[Tensor], Any]] = {
    "kthvalue": lambda x: torch.kthvalue(x, 2, -1)[0],
    "median": lambda x: torch.median(x, -1)[0],
    "nanmedian": lambda x: torch.nanmedian(x, -1)[0],
    "median of all": torch.median,
    "stable sort": lambda x: torch.sort(x, stable=True, dim=-1),
    "stable sort, falling": lambda x: torch.sort(x, stable=True, dim=-1, descending=True),
    "mode of a short row": lambda x: torch.mode(x, -1),
    "mode of a short column": lambda x: torch.mode(x, 0, keepdim=True),
    "cummax": lambda x: torch.cummax(x, -1),
    "cummin": lambda x: torch.cummin(x, -1),
    "max": lambda x: torch.max(x, -1),
    "argmin": torch.argmin,
    "aminmax": torch.aminmax,
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
    "unique_consecutive of slices": lambda x: torch.unique_consecutive(x, dim=0, return_inverse=True, return_counts=True),
    "searchsorted": lambda x: torch.searchsorted(sorted_row(x), x),
    "searchsorted, right": lambda x: torch.searchsorted(sorted_row(x), x, right=True),
    "bucketize": lambda x: torch.bucketize(x, sorted_row(x), out_int32=True),
    "isin": lambda x: torch.isin(x, sorted_row(x)),
    "scatter_reduce to sums": lambda x: torch.scatter_reduce(ones(x), -1, halves(x), x, "sum"),
    "scatter_reduce to greatest": lambda x: torch.scatter_reduce(ones(x), -1, halves(x), x, "amax", include_self=False),
    "scatter_reduce to means": lambda x: torch.scatter_reduce(ones(x), -1, halves(x), x, "mean"),
    "scatter that adds": lambda x: torch.scatter(ones(x), -1, halves(x), x, reduce="add"),
    "scatter that multiplies by a number": lambda x: torch.scatter(x, -1, halves(x), 2, reduce="multiply"),
    "index_reduce to products": lambda x: torch.index_reduce(ones(x), -1, torch.arange(x.size(-1)) % 2, x, "prod"),
    "index_reduce to least": lambda x: torch.index_reduce(ones(x), -1, torch.arange(x.size(-1)) % 2, x, "amin", include_self=False),
    "masked_select": lambda x: x.masked_select(x == x.flatten()[0]),
    "masked_scatter": lambda x: x.masked_scatter(x != x.flatten()[0], x.flatten()),
    "put": lambda x: torch.zeros_like(x).put(torch.arange(x.numel()) % 3, x, accumulate=True),
    "take": lambda x: x.take(torch.tensor([[0, -1], [1, 0]])),
}

#: What is no op of integers.
OF_FLOATS: dict[str, Callable[[Tensor], Any]] = {
    "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
    "histc": lambda x: torch.histc(x, 4, 0, 3),
    "segment_reduce": lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([1, 0, x.size(0) - 1])),
}

#: What wants single or double precision.
OF_WIDE: dict[str, Callable[[Tensor], Any]] = {
    "histogram": lambda x: torch.histogram(x, 4, range=(0.0, 3.0)),
    "histogramdd": lambda x: torch.histogramdd(x.reshape(-1, 1), [3], range=(0.0, 3.0)),
    "quantile": lambda x: torch.quantile(x, 0.3, -1),
    "nanquantile, nearest": lambda x: torch.nanquantile(x, 0.5, -1, interpolation="nearest"),
}

#: Slices with NaN have no order: eager's own is what its sort happens to do.
OF_NUMBERS: dict[str, Callable[[Tensor], Any]] = {
    "unique slices": lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
    "unique columns": lambda x: torch.unique(x, dim=-1, return_inverse=True, return_counts=True),
    "bincount": lambda x: torch.bincount(x.flatten().to(torch.int64), minlength=5),
}

CACHE = ed.ProgramCache()


def agrees(run: Callable[[Tensor], Any], x: Tensor) -> None:
    kind, want = outcome(lambda: run(x.clone()))
    if kind == "error" and "INTERNAL ASSERT" in str(want):
        return  # a fault of eager's own
    got_kind, got = outcome(lambda: on_core(lambda: run(x.clone()), cache=CACHE))
    assert got_kind == kind, f"eager: {want!r}; ours: {got!r}"
    if kind == "error":
        assert isinstance(got, type(want)), f"eager raised {want!r}; got {got!r}"
    else:
        assert_same(got, want)


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...], values: list[float]) -> Tensor:
    shape = draw(st.sampled_from([(7,), (3, 4), (2, 2, 3), (5, 1)]))
    count = torch.Size(shape).numel()
    flat = torch.tensor(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)))
    x = flat.reshape(shape).to(draw(st.sampled_from(dtypes)))
    return x.mT if len(shape) > 1 and draw(st.booleans()) else x


@pytest.mark.full
@given(x=tensors((*FLOATS, *INTEGERS), [0, 1, 2, 3]))
@settings(max_examples=12, deadline=None)
def test_ties(x: Tensor) -> None:
    for run in (*RUNS.values(), *OF_NUMBERS.values()):
        agrees(run, x)


@pytest.mark.full
@given(x=tensors(FLOATS, [0.0, -0.0, 1, 2, NAN, float("inf"), -float("inf")]))
@settings(max_examples=12, deadline=None)
def test_nans_and_signed_zeros(x: Tensor) -> None:
    for run in (*RUNS.values(), *OF_FLOATS.values(), *(OF_WIDE.values() if x.dtype in FLOATS[:2] else ())):
        agrees(run, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_the_mode_of_a_long_row_and_a_place_of_it(dtype: torch.dtype) -> None:
    x = torch.randint(6, (5, 40), generator=torch.Generator().manual_seed(0)).to(dtype)
    value, index = on_core(lambda: torch.mode(x), cache=CACHE)
    assert_same(value, torch.mode(x).values)
    assert_same(x.gather(-1, index[:, None])[:, 0], value)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
@pytest.mark.parametrize("number", [1, -1, 300, 1.1, True])
def test_a_number_is_sought_in_the_type_of_the_boundaries(number: float, dtype: torch.dtype) -> None:
    row = torch.tensor([0, 1, 1.1, 2, 100]).to(dtype)
    for right in (False, True):
        agrees(lambda x: torch.bucketize(number, x, right=right), row)  # noqa: B023 - called at once
        agrees(lambda x: torch.searchsorted(x, number, right=right), row)  # noqa: B023


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64])
def test_the_median_of_nothing(dtype: torch.dtype) -> None:
    agrees(torch.median, torch.empty(0, dtype=dtype))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (), (3,)])
@pytest.mark.parametrize("dim", [0, 1])
def test_unique_slices_of_nothing_and_of_dimensions_that_are_not(shape: tuple[int, ...], dim: int) -> None:
    for run in (torch.unique, torch.unique_consecutive):
        check(lambda x: run(x, dim=dim, return_inverse=True, return_counts=True), torch.ones(shape))  # noqa: B023


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


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 100])
@pytest.mark.parametrize("name", ORDER_STATISTICS)
def test_order_statistics_of_distinct_values_are_eagers(name: str, size: int) -> None:
    torch.manual_seed(size)
    x = torch.stack([torch.randperm(size) for _ in range(20)], 1).double()
    check(ORDER_STATISTICS[name], x, exact=True)
    check(lambda x: torch.autograd.grad(ORDER_STATISTICS[name](x.requires_grad_())[0].sum(), x)[0], x, exact=True)


def test_medians_of_all_spread_their_gradient_over_equal_elements_as_in_eager() -> None:
    torch.manual_seed(0)
    for size in (16, 17, 100):
        for run in (torch.median, torch.nanmedian):
            check(lambda x: torch.autograd.grad(run(x.requires_grad_()), x)[0], torch.randint(0, 3, (size,)).double(), exact=True)  # noqa: B023


@pytest.mark.parametrize("dim", [0, 1])
def test_unique_slices_with_nan(dim: int) -> None:
    """docs/reference/limits.md: NaN last, each slice with one distinct, the others as eager has them without it."""
    torch.manual_seed(0)
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
