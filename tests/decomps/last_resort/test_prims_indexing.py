"""Picking and placing by indices and masks on prims, which have neither gather nor scatter."""

from __future__ import annotations

import math

import pytest
import torch
from on_core import check

import eagerdecomp as ed
from eagerdecomp.decomps.math import one_hot_indexing

PRIMS = ed.prims()
DTYPES = [torch.float32, torch.bfloat16, torch.complex64, torch.complex128, torch.int16, torch.bool]


def some(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return (torch.randn(*shape) * 4).to(dtype)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_picked_is_bit_for_bit_what_was_there(dtype: torch.dtype) -> None:
    x, index = some(4, 3, dtype=dtype), torch.tensor([[3, 0, 0], [1, 1, 2]])
    if dtype.is_floating_point:
        x[0, 0], x[3, 0], x[1, 1] = math.nan, -0.0, -math.inf
    check(torch.gather, x, 0, index, ops=PRIMS, exact=True)
    check(torch.gather, x, 0, index[:, :2], ops=PRIMS, exact=True)
    check(torch.index_select, x, 1, torch.tensor([2, 0, 2]), ops=PRIMS, exact=True)
    check(lambda x, index: x[index, index], x, torch.tensor([-1, 0, 2]), ops=PRIMS, exact=True)
    if dtype.is_floating_point:
        with ed.EagerDecompMode(PRIMS):
            zero = torch.gather(x, 0, torch.tensor([[3]]))
        assert zero.signbit()


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_keeps_the_last_value_of_each_index_as_eager(dtype: torch.dtype) -> None:
    x, source, index = some(4, 3, dtype=dtype), some(3, 3, dtype=dtype) * 2, torch.tensor([[3, 0, 0], [1, 1, 2], [3, 0, 2]])
    check(torch.scatter, x, 0, index, source.to(dtype), ops=PRIMS, exact=True)
    check(torch.scatter, x, 0, index[:2, :2], 1, ops=PRIMS, exact=True)
    check(lambda x, *rest: x.t().scatter_(1, *rest), x, index.t(), source.t().to(dtype), ops=PRIMS, exact=True)
    check(
        lambda x, place, rows: x.index_put_((place,), rows), x, torch.tensor([-1, 0, -1]), source.to(dtype), ops=PRIMS, exact=True
    )
    check(torch.masked_scatter, x, x.abs() > 1 if dtype is not torch.bool else x, some(12, dtype=dtype), ops=PRIMS, exact=True)


@pytest.mark.full
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_scatter_with_a_reduction(reduce: str, dtype: torch.dtype) -> None:
    x, source, index = some(4, 3, dtype=dtype), some(3, 3, dtype=dtype), torch.tensor([[3, 0, 0], [1, 1, 2], [3, 0, 2]])
    for include_self in (True, False):
        for places in (index, index[:2, :2]):
            check(torch.scatter_reduce, x, 0, places, source, reduce, include_self=include_self, ops=PRIMS)


@pytest.mark.parametrize("rows", [0, 3])
def test_scatters_are_contiguous_whatever_they_are_of(rows: int) -> None:
    x, source, index = some(3, 4).t(), some(3, 3), torch.tensor([[3, 0, 0], [1, 1, 2], [3, 0, 2]])[:rows]
    check(torch.scatter, x, 0, index, source, ops=PRIMS)
    check(torch.scatter, x, 0, index, 2.0, ops=PRIMS)
    check(torch.scatter_add, x, 0, index, source, ops=PRIMS)
    check(torch.scatter_reduce, x, 0, index, source, "amax", ops=PRIMS)


@pytest.mark.full
def test_indices_that_are_adjacent_separated_and_masks() -> None:
    x, row, column = some(4, 3, 5), torch.tensor([[0], [-1]]), torch.tensor([2, 0, 1])
    mask = x[..., 0] > 0
    check(lambda x, a, b: x[a, b], x, row, column, ops=PRIMS, exact=True)
    check(lambda x, a, b: x[a, :, b], x, row, column, ops=PRIMS, exact=True)
    check(lambda x, a, b: x[:, a, b], x, torch.tensor([0, 1, 1]), column, ops=PRIMS, exact=True)
    check(lambda x, m: x[m], x, mask, ops=PRIMS, exact=True)
    check(lambda x, m: x[m[0]] if x.dim() < 0 else x[:, m[0]], x, mask, ops=PRIMS, exact=True)
    check(torch.nonzero, x > 0, ops=PRIMS)
    check(torch.nonzero, torch.zeros(3, 0), ops=PRIMS)
    check(torch.nonzero, torch.tensor(1), ops=PRIMS)
    for accumulate in (False, True):
        check(lambda x, a, b, v: x.index_put((a, b), v, accumulate=accumulate), x, row, column, some(2, 3, 5), ops=PRIMS)  # noqa: B023
        put = lambda x, a, b, v: x.index_put((a, None, b), v, accumulate=accumulate)  # noqa: B023, E731
        check(put, x, torch.tensor([0, 0, 3]), column, some(3, 3), ops=PRIMS)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint16, torch.complex64, torch.float8_e5m2])
def test_types_that_eager_refuses_are_refused(dtype: torch.dtype) -> None:
    x, index = some(3, 3).abs().to(dtype), torch.tensor([[1, 0, 0]])
    check(torch.gather, x, 0, index, ops=PRIMS)
    check(torch.scatter_reduce, x, 0, index, x, "amax" if dtype.is_complex else "mean", ops=PRIMS)
    check(torch.nn.functional.avg_pool2d, x[None], 2, ops=PRIMS)
    check(torch.argmax, x, ops=PRIMS)
    check(lambda: torch.randperm(3, dtype=dtype).dtype, ops=PRIMS) if not dtype.is_floating_point else None
    if dtype is torch.float8_e5m2:
        with pytest.raises(ed.UnsupportedOpError), ed.EagerDecompMode(PRIMS):
            torch.mm(x, x)


@pytest.mark.full
def test_long_dimensions_are_processed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot_indexing, "BLOCK", 40)
    x, index = some(9, 5), torch.tensor([[3, 0, 8, 8, 1], [1, 1, 2, 0, 7], [0, 0, 0, 0, 0]])
    check(torch.gather, x, 0, index, ops=PRIMS, exact=True)
    check(torch.scatter, x, 0, index, x, ops=PRIMS, exact=True)
    check(torch.scatter_add, x, 0, index, x, ops=PRIMS)
    check(torch.nonzero, x > 0, ops=PRIMS)
    check(torch.sort, x, 0, ops=PRIMS, exact=True)


def test_halves_of_complex_numbers_are_added_where_eager_has_no_sum_of_them() -> None:
    x, values, places = torch.zeros(3, dtype=torch.complex32), torch.tensor([1 + 2j, 3 - 1j, 0.5j]).to(torch.complex32), [0, 2, 0]
    index = torch.tensor(places)
    check(torch.index_add, x, 0, index, values, ops=PRIMS)
    check(torch.index_put, x, (index,), values, True, ops=PRIMS)
