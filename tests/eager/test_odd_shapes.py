"""Calls with unusual shapes, such as empty tensors and other ranks, return eager's result or raise its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same, outcome
from on_core import CORE, on_core
from torch import Tensor

import eagerdecomp as ed

pytestmark = pytest.mark.full

aten = torch.ops.aten

SETS = {"core": CORE, "prims": ed.prims()}


def x(*shape: int) -> Tensor:
    return torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(shape) / 8


def at(*places: int, like: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(places, dtype=like)


def whole(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.int64)


CALLS: dict[str, Callable[[], Any]] = {
    "addmm to more dimensions": lambda: aten.addmm(x(2, 2, 3), x(2, 4), x(4, 3)),
    "addmm to what does not expand": lambda: aten.addmm(whole(0), whole(2, 4), whole(4, 3)),
    "addmm in place to more dimensions": lambda: aten.addmm_(x(2, 2, 3), x(2, 4), x(4, 3)),
    "addbmm to more dimensions": lambda: aten.addbmm(x(2, 4, 3), x(2, 4, 5), x(2, 5, 3)),
    "addbmm to what the product would expand to": lambda: aten.addbmm(x(4, 3), x(2, 1, 5), x(2, 5, 3)),
    "baddbmm of integers to more dimensions": lambda: aten.baddbmm(whole(2, 2, 4, 3), whole(2, 4, 5), whole(2, 5, 3)),
    "baddbmm of integers to what the product would expand to": lambda: aten.baddbmm(whole(2, 4, 3), whole(2, 1, 5), whole(2, 5, 3)),
    "addr to more dimensions": lambda: aten.addr(x(2, 4, 3), x(4), x(3)),
    "addr to what the product would expand to": lambda: aten.addr(x(4, 3), x(1), x(3)),
    "addr in place to more dimensions": lambda: aten.addr_(x(2, 4, 3), x(4), x(3)),
    "addr to one number": lambda: aten.addr(x(), x(4), x(3)),
    "addmv to nothing": lambda: aten.addmv(x(0), x(4, 3), x(3), beta=0),
    "addmv of a vector that does not fit, to one number": lambda: aten.addmv(x(), x(4, 0), x(3)),
    "addmv to one number": lambda: aten.addmv(x(1), x(4, 3), x(3)),
    "probabilities that nothing is drawn by": lambda: aten.bernoulli(x(0, 3), x(5)),
    "probabilities that nothing is drawn by, in place": lambda: aten.bernoulli_(x(0), 9 * x(2, 3)),
    "cholesky of nothing square": lambda: aten.cholesky(x(0, 5)),
    "cholesky of no matrix": lambda: aten.cholesky(x(0)),
    "classes for one row": lambda: aten.nll_loss_forward(x(3), at(0, 1), None, 1, -100),
    "a grid without dimensions": lambda: aten.grid_sampler_2d(x(2, 3, 5, 5), x(), 0, 0, False),
    "rows added to nothing": lambda: aten.index_add(x(0, 3), 0, at(7), x(1, 3)),
    "a number added to nothing": lambda: aten.index_add(x(0), 0, at(0), x(1)),
    "a number added to one": lambda: aten.index_add(x(), 0, at(5), x()),
    "a row added out of range": lambda: aten.index_add(x(2, 3), 0, at(5), x(1, 3)),
    "a row added out of range, by int32": lambda: aten.index_add(x(2, 3), 0, at(5, like=torch.int32), x(1, 3)),
    "a number multiplied into nothing": lambda: aten.index_reduce(x(0), 0, at(0), x(1), "prod"),
    "a number written to nothing": lambda: aten.index_copy(x(0), 0, at(0), x()),
    "a row written to nothing": lambda: aten.index_copy(x(0, 3), 0, at(0), x(1, 3)),
    "a row written out of range": lambda: aten.index_copy(x(2, 3), 0, at(5), x(1, 3)),
    "one of few elements that lie apart": lambda: aten.isin(x(20), x(5, 2).t()),
    "one of many elements that lie apart": lambda: aten.isin(x(20), x(50, 2).t()),
    "one of elements that lie apart, in one": lambda: aten.isin(x(1), x(5, 2).t()),
    "exponentials of batches that lie apart": lambda: aten.linalg_matrix_exp(x(2, 2, 3, 2).permute(3, 2, 1, 0)),
    "exponentials of a batch that lies apart": lambda: aten.linalg_matrix_exp(x(2, 2, 3).permute(2, 1, 0)),
    "a dimension dropped twice": lambda: aten.squeeze(x(1, 2), [0, -2]),
    "a dimension of none dropped twice": lambda: aten.squeeze(x(), [0, -1]),
    "a dimension that is not there dropped twice": lambda: aten.squeeze(x(1), [5, 5]),
    "all along a dimension of none, twice": lambda: aten.all(x(), [0, 0]),
    "any along a dimension of none, twice": lambda: aten.any(x(), [0, 0]),
    "a quotient with a leading dimension added": lambda: aten.addcdiv(x(5, 5), x(5, 1), x(5, 1, 1).permute(2, 1, 0)),
    "a product with a leading dimension added": lambda: aten.addcmul(x(5, 5), x(5, 1), x(5, 1, 1).permute(2, 1, 0)),
    "scattered from too few dimensions": lambda: aten.scatter(x(6, 5), 0, whole(5, 5) - 1, x(5)),
    "scattered from too few dimensions and elements": lambda: aten.scatter(x(6, 5), 0, whole(5, 5) - 1, x(2)),
    "nothing scattered along a dimension that is not there": lambda: aten.scatter_add(x(5), 1, whole(0), x(5)),
    "no number scattered along a dimension that is not there": lambda: aten.scatter(x(5), 1, whole(0), 2.0),
    "nothing reduced along a dimension that is not there": lambda: aten.scatter_reduce(x(5), 1, whole(0), x(5), "sum"),
    "taken by an index that lies by columns": lambda: aten.take(x(3, 3), whole(2, 3).t()),
    "nothing to roll by": lambda: aten.roll(x(3), [], []),
    "dimensions to roll without a shift": lambda: aten.roll(x(0, 3), [], [0]),
    "shifts to roll nothing by": lambda: aten.roll(x(0, 3), [1, 2], []),
    "windows of a number": lambda: aten.im2col(x(), [2, 2], [1, 1], [0, 0], [1, 1]),
    "windows of a vector": lambda: aten.im2col(x(5), [2, 2], [1, 1], [0, 0], [1, 1]),
    "windows of a vector, of no size": lambda: aten.im2col(x(5), [0, 2], [1, 1], [0, 0], [1, 1]),
    "one spread, to a complex number": lambda: torch.std(x(5), out=torch.zeros((), dtype=torch.complex64)),
    "spreads, to complex numbers": lambda: torch.std(x(5, 5), 0, out=torch.zeros(5, dtype=torch.complex64)),
    "spreads of nothing, to complex numbers": lambda: torch.std(x(0, 2), 0, out=torch.zeros(2, dtype=torch.complex64)),
    "no dimension to shift": lambda: aten.fft_fftshift(x(0, 3), []),
    "no dimension to sum over": lambda: aten.logsumexp(x(2, 3), []),
    "no dimension to sum over, kept": lambda: aten.logsumexp(x(2, 3), [], True),
    "no dimension to sum nothing over": lambda: aten.logsumexp(x(0, 3), []),
    "unlike tensors stacked along what is not there": lambda: aten.stack([x(), x(0)], 5),
    "unlike tensors stacked": lambda: aten.stack([x(), x(0)], -1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", SETS.values(), ids=SETS)
@pytest.mark.parametrize("name", CALLS)
def test_unusual_shapes_give_eagers_result_or_error(name: str, ops: ed.OpSet) -> None:
    kind, want = outcome(CALLS[name])
    got_kind, got = outcome(lambda: on_core(CALLS[name], ops))
    assert got_kind == kind, got
    if kind == "error":
        assert type(got) is type(want), got
    else:
        assert_same(got, want)
