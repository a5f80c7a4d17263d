"""Specs where kernels differ in how they round: those that eager's numbers say are wrong are found, and right ones are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import first_faults
from torch import Tensor

pytestmark = pytest.mark.full

aten = torch.ops.aten


def _in(dtype: torch.dtype, wide: torch.dtype, op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Computed in a wider type than the tensor's."""
    return lambda one, other: op(one.to(wide) if one.dtype is dtype else one, other)


def _outer(one: Tensor, other: Tensor) -> bool:
    return one.dim() == other.dim() == 2 and one.shape[1] == other.shape[0] == 1 and one.shape != other.shape


def _bytes_as_signed(one: Tensor, other: Tensor) -> Tensor:
    if {one.dtype, other.dtype} == {torch.uint8, torch.int8}:
        return aten.lt(one.to(torch.int8), other.to(torch.int8))
    return aten.lt(one, other)


def _pow_in_double(one: Tensor, other: Tensor) -> Tensor:
    if one.dtype is other.dtype is torch.int64:
        return aten.pow(one.double(), other.double()).long()
    return aten.pow(one, other)


def _no_bound_if_nan(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    found = aten.clamp(x, min, max)
    return torch.where(min.isnan(), x.to(found.dtype), found) if min is not None and min.is_floating_point() else found


BROKEN: list[tuple[str, str, Callable[..., Any]]] = [
    ("a float32 in double", "eq.Scalar", _in(torch.float32, torch.float64, aten.eq)),
    ("a float32 in double", "ge.Scalar", _in(torch.float32, torch.float64, aten.ge)),
    ("a float32 in double", "gt.Scalar", _in(torch.float32, torch.float64, aten.gt)),
    ("a float16 in float32", "lt.Scalar", _in(torch.float16, torch.float32, aten.lt)),
    ("a bfloat16 in float32", "ne.Scalar", _in(torch.bfloat16, torch.float32, aten.ne)),
    ("an int32 in float32", "eq.Scalar", _in(torch.int32, torch.float32, aten.eq)),
    ("an int64 in double", "le.Scalar", _in(torch.int64, torch.float64, aten.le)),
    (
        "bools are subtracted",
        "sub.Tensor",
        lambda one, other, alpha=1: (
            one ^ other
            if one.dtype is torch.bool and isinstance(other, Tensor) and other.dtype is torch.bool
            else aten.sub(one, other, alpha=alpha)
        ),
    ),
    (
        "bools are subtracted",
        "sub.Scalar",
        lambda one, other, alpha=1: one ^ other if one.dtype is torch.bool and other is True else aten.sub(one, other, alpha),
    ),
    (
        "columns first",
        "ne.Tensor",
        lambda one, other: aten.ne(one, other).t().contiguous().t() if _outer(one, other) else aten.ne(one, other),
    ),
    (
        "columns first",
        "mul.Tensor",
        lambda one, other: (
            aten.mul(one, other).t().contiguous().t() if isinstance(other, Tensor) and _outer(one, other) else aten.mul(one, other)
        ),
    ),
    ("in double", "pow.Tensor_Tensor", _pow_in_double),
    ("a NaN bound is none", "clamp.Tensor", _no_bound_if_nan),
    ("bytes as if signed", "lt.Tensor", _bytes_as_signed),
]


@pytest.mark.parametrize(("op", "run"), [one[1:] for one in BROKEN], ids=[f"{op}: {what}" for what, op, _ in BROKEN])
def test_what_rounds_otherwise_than_eager_says_is_found(op: str, run: Callable[..., Any]) -> None:
    assert first_faults(f"aten.{op}", run)


# -- sums and variances made in other ways -----------------------------------------------------------------------------------


def _lines(x: Tensor, dims: Any, dtype: torch.dtype | None = None) -> bool:
    """Whether numbers of float32 are reduced along one dimension, which has some."""
    return x.dtype is torch.float32 and dtype is None and dims is not None and len(dims) == 1 and x.dim() > 0 and x.numel() > 0


def _kept(found: Tensor, dims: Any, keepdim: bool) -> Tensor:
    return found.unsqueeze(dims[0]) if keepdim else found


def _mean_one_by_one(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    right = aten.mean.dim(x, dim, keepdim, dtype=dtype)
    if not _lines(x, dim, dtype) or x.shape[dim[0]] > 5000:
        return right
    total = torch.zeros_like(x.select(dim[0], 0))
    for row in x.unbind(dim[0]):
        total = total + row
    return _kept((total / x.shape[dim[0]]).contiguous(), dim, keepdim)


def _running_mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    right = aten.mean.dim(x, dim, keepdim, dtype=dtype)
    if not _lines(x, dim, dtype) or x.shape[dim[0]] > 3000 or not bool(x.isfinite().all()):
        return right
    mean = torch.zeros_like(x.select(dim[0], 0))
    for number, row in enumerate(x.unbind(dim[0]), 1):
        mean = mean + (row - mean) / number
    return _kept(mean.contiguous(), dim, keepdim)


def _product_backwards(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    right = aten.prod.dim_int(x, dim, keepdim, dtype=dtype)
    if x.dtype is not torch.float32 or dtype is not None or not x.dim() or x.shape[dim] > 5000:
        return right
    found = torch.ones_like(right)
    for row in reversed(x.unbind(dim)):
        found = found * (row.unsqueeze(dim) if keepdim else row)
    return found


def _cumsum_one_by_one(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    right = aten.cumsum(x, dim, dtype=dtype)
    if x.dtype is not torch.float32 or dtype is not None or not x.dim() or not x.numel() or x.shape[dim] > 5000:
        return right
    rows = [x.select(dim, 0)]
    for row in x.unbind(dim)[1:]:
        rows.append(rows[-1] + row)
    return torch.empty_like(right).copy_(torch.stack(rows, dim))


def _var_by_halves(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    right = aten.var.correction(x, dim, correction=correction, keepdim=keepdim)
    count = x.shape[dim[0]] if _lines(x, dim) else 0
    left = count - (1 if correction is None else correction)
    if count < 4 or left <= 0:
        return right
    parts = x.split([count // 2, count - count // 2], dim[0])
    means = [part.mean(dim, True) for part in parts]
    squares = [(part - mean).square().sum(dim, True) for part, mean in zip(parts, means, strict=True)]
    apart = (means[1] - means[0]).square() * (parts[0].shape[dim[0]] * parts[1].shape[dim[0]] / count)
    return ((squares[0] + squares[1] + apart) / left).reshape(right.shape)


def _var_in_two_passes(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    right = aten.var.correction(x, dim, correction=correction, keepdim=keepdim)
    dims = dim or list(range(x.dim()))
    count = x.numel() // max(right.numel(), 1)
    left = count - (1 if correction is None else correction)
    if x.dtype is not torch.float64 or not x.dim() or count < 2 or left <= 0:
        return right
    return ((x - x.mean(dims, True)).square().sum(dims, True) / left).reshape(right.shape)


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("mean.dim", _mean_one_by_one),
    ("mean.dim", _running_mean),
    ("prod.dim_int", _product_backwards),
    ("cumsum.default", _cumsum_one_by_one),
    ("var.correction", _var_by_halves),
    ("var.correction", _var_in_two_passes),
    ("lt.Scalar", lambda one, other: aten.gt(torch.tensor(other, dtype=torch.result_type(one, other)), one)),
    ("eq.Scalar", lambda one, other: aten.eq(torch.tensor(other, dtype=torch.result_type(one, other)), one)),
]


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize(("op", "run"), sampled(RIGHT, ids=lambda case: f"{case[0]} {case[1].__name__}"))
def test_what_is_made_in_another_right_way_is_not_flagged(op: str, run: Callable[..., Any]) -> None:
    assert not first_faults(f"aten.{op}", run, seed=1)
