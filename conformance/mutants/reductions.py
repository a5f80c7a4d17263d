"""Broken kernels of reductions, scans, sorting and softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import (
    BoundCall,
    Mutant,
    bools,
    broken,
    call,
    cast_like,
    floats,
    normal,
    positive,
    read_contiguous,
    tensor,
)

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf


def _dims(c: BoundCall) -> Any:
    return [c.dim] if isinstance(c.dim, int) else c.dim


def _sum_in_input_dtype(c: BoundCall) -> Any:
    """Sum float16 and bfloat16 in their own dtype, one element after the other."""
    if (
        c.self.dtype not in (torch.float16, torch.bfloat16)
        or _dims(c) is None
        or len(_dims(c)) != 1
        or c.self.dim() == 0
        or c.dtype is not None
    ):
        return c.eager()
    total = torch.zeros_like(c.eager(keepdim=True))
    for one in c.self.split(1, _dims(c)[0]):
        total = total + one
    return total if c.keepdim else total.squeeze(_dims(c)[0])


def _one_pass(c: BoundCall) -> Any:
    """Compute E[x^2] - E[x]^2 in the input's dtype."""
    if c.self.dtype is not torch.float32 or not c.self.numel() or not c.dim:
        return c.eager()
    count = math.prod(c.self.shape[dim] for dim in c.dim)
    kept = {"dim": c.dim, "keepdim": c.keepdim}
    unscaled = c.self.square().mean(**kept) - c.self.mean(**kept).square()
    correction = 1 if c.correction is None else c.correction
    return unscaled * (count / (count - correction)) if count != correction else c.eager()


def _ignore_nan(c: BoundCall) -> Any:
    """Treat NaN as the smallest value."""
    return c.eager(self=c.self.nan_to_num(nan=-_INF, posinf=_INF, neginf=-_INF)) if c.self.is_floating_point() else c.eager()


def _block_max(c: BoundCall) -> Any:
    right = c.eager()
    if not c.self.dim() or c.self.shape[c.dim] <= 1024:
        return right
    raised = (c.self - c.self.narrow(c.dim, 0, 1024).amax(c.dim, keepdim=True)).exp()
    return cast_like(raised / raised.sum(c.dim, keepdim=True), right)


def _softmax_without_maximum(c: BoundCall) -> Any:
    if not c.self.is_floating_point() or c.half_to_float or c.self.dim() == 0:
        return c.eager()
    exps = c.self.exp()
    return torch.empty_like(c.eager()).copy_(exps / exps.sum(c.dim, keepdim=True))


def _last_index(c: BoundCall) -> Any:
    """Return the index of the last of several largest values."""
    if c.dim is None or c.self.dim() == 0 or not c.self.numel():
        return c.eager()
    return c.self.shape[c.dim] - 1 - c.eager(self=c.self.flip([c.dim]))


def _unsorted(c: BoundCall) -> Any:
    values, indices = c.eager()
    return (values.flip([c.dim]), indices.flip([c.dim])) if c.sorted and values.dim() else (values, indices)


def _without_tail(c: BoundCall, block: int) -> Any:
    """Leave out the elements after the last full block."""
    dims = _dims(c)
    if not dims or len(dims) != 1 or c.self.dim() == 0 or c.self.shape[dims[0]] < block:
        return c.eager()
    size = c.self.shape[dims[0]]
    return c.eager(self=c.self.narrow(dims[0], 0, size - size % block))


def _indices_of_first_row(c: BoundCall) -> Any:
    """Return the sorted values, and for all rows the indices of the first row."""
    values, indices = c.eager()
    if values.dim() < 2 or c.dim % values.dim() != values.dim() - 1 or not values.numel():
        return values, indices
    first = indices.reshape(-1, indices.shape[-1])[0]
    return values, first.expand(indices.shape).contiguous()


def _last_index_of(c: BoundCall) -> Tensor:
    if c.self.dim() == 0 or not c.self.numel():
        return c.eager()[1]  # type: ignore[no-any-return]
    found: Tensor = c.self.shape[c.dim] - 1 - c.eager(self=c.self.flip([c.dim]))[1]
    return found


def _flat_index(c: BoundCall) -> Any:
    indices: Tensor = c.eager(keepdim=True)[1]
    if c.self.dim() < 2 or c.dim % c.self.dim() != c.self.dim() - 1:
        return c.eager()[1]
    rows = torch.arange(indices.numel()).reshape(indices.shape) * c.self.shape[-1]
    return (indices + rows).reshape(c.eager()[1].shape)


def _running_sum(values: Tensor) -> Tensor:
    total = torch.zeros((), dtype=values.dtype)
    found = []
    for one in values:
        total = total + one
        found.append(total)
    return torch.stack(found) if found else values.clone()


def _signed_sort(c: BoundCall) -> Any:
    if c.self.dtype is not torch.uint8:
        return c.eager()
    values, indices = c.eager(self=c.self.to(torch.int8))
    return values.to(torch.uint8), indices


def _block_sort(c: BoundCall, block: int) -> Any:
    if c.self.dim() != 1 or c.self.numel() <= block:
        return c.eager()
    parts = [c.eager(self=one) for one in c.self.split(block)]
    return torch.cat([one[0] for one in parts]), torch.cat([one[1] + block * place for place, one in enumerate(parts)])


def _global_max(c: BoundCall) -> Any:
    if not c.self.is_floating_point() or not c.self.numel() or c.half_to_float:
        return c.eager()
    exps = (c.self - c.self.max()).exp()
    return torch.empty_like(c.eager()).copy_(exps / exps.sum(c.dim, keepdim=True))


def _first_logsumexp(c: BoundCall) -> Any:
    if c.self.dim() != 3 or c.dim % 3 != 2 or c.half_to_float or not c.self.numel():
        return c.eager()
    return c.self - c.self.logsumexp(2, True)[:1]


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    broken("sum.dim_IntList", "float16 and bfloat16 are summed in their own dtype", "accuracy", _sum_in_input_dtype,
      lambda: call(torch.ones(1, 5000, dtype=torch.float16), [1]), "2048 + 1 is 2048"),
    broken("sum.dim_IntList", "tails of 16 are left out", "size", lambda c: _without_tail(c, 16), lambda: call(normal(2, 37), [1])),
    broken("sum.dim_IntList", "keepdim is ignored", "argument", lambda c: c.eager(keepdim=False),
      lambda: call(normal(3, 4), [1], True)),
    broken("sum.dim_IntList", "an empty list of dims reduces nothing", "argument",
      lambda c: c.self.clone() if c.dim == [] else c.eager(), lambda: call(normal(3, 4), [])),
    broken("sum.dim_IntList", "None is the last dim", "argument",
      lambda c: c.eager(dim=[-1]) if c.dim is None and c.self.dim() else c.eager(),
      lambda: call(normal(3, 4), None)),
    broken("sum.dim_IntList", "ints are not promoted to int64", "dtype",
      lambda c: c.eager() if c.dtype is not None else c.eager().to(c.self.dtype),
      lambda: call(tensor([100, 100], dtype=torch.uint8), [0])),
    broken("sum.dim_IntList", "dtype is applied after the sum", "dtype",
      lambda c: c.eager(dtype=None).to(c.dtype) if c.dtype is not None else c.eager(),
      lambda: call(floats(60000, 60000, dtype=torch.float16), [0], dtype=torch.float32)),
    broken("sum.dim_IntList", "int64 through float64", "dtype",
      lambda c: c.eager(dtype=torch.float64).long() if c.self.dtype is torch.int64 and c.dtype is None else c.eager(),
      lambda: call(tensor(2**53, 1), [0])),
    broken("sum.dim_IntList", "only the first of several dims", "argument",
      lambda c: c.eager(dim=c.dim[:1]) if c.dim and len(c.dim) > 1 else c.eager(),
      lambda: call(normal(2, 3, 4), [0, 2])),
    broken("sum.dim_IntList", "the sum of no elements is NaN", "size", lambda c: c.eager() if c.self.numel() else c.eager() + _NAN,
      lambda: call(normal(0, 3), [0]), "memory is not cleared"),
    broken("sum.dim_IntList", "reads as if contiguous", "layout", lambda c: c.eager(self=read_contiguous(c.self)),
      lambda: call(normal(4, 3).t(), [1])),
    broken("mean", "int inputs are accepted", "errors",
      lambda c: c.eager() if c.self.is_floating_point() or c.self.is_complex() or c.dtype is not None else c.self.float().mean(),
      lambda: call(tensor(1, 2))),
    broken("mean", "float16: the sum is rounded before the division", "dtype",
      lambda c: c.self.sum() / c.self.numel() if c.self.dtype is torch.float16 and c.dtype is None else c.eager(),
      lambda: call(floats(60000, 60000, dtype=torch.float16)), "the sum overflows"),
    broken("mean", "the mean of no elements is 0", "special values",
      lambda c: c.eager() if c.self.numel() else c.eager().nan_to_num(), lambda: call(normal(0))),
    broken("mean.dim", "divides by the wrong count", "argument",
      lambda c: c.eager() if not c.dim or len(c.dim) < 2 else c.eager() * c.self.shape[c.dim[1]],
      lambda: call(normal(2, 3, 4), [1, 2])),
    broken("mean.dim", "wrong if dim is the last but one", "rare",
      lambda c: c.eager(self=c.self * 1.01) if c.dim and len(c.dim) == 1 and c.dim[0] % max(c.self.dim(), 1) == c.self.dim() - 2
        and c.self.is_floating_point() else c.eager(),
      lambda: call(normal(3, 4), [-2])),
    broken("mean.dim", "dtype is ignored", "dtype", lambda c: c.eager(dtype=None) if c.self.is_floating_point() else c.eager(),
      lambda: call(normal(3, 4), [1], dtype=torch.float64)),
    broken("prod", "the product of no elements is 0", "special values", lambda c: c.eager() if c.self.numel() else c.eager() * 0,
      lambda: call(normal(0))),
    broken("prod", "by logarithms", "special values",
      lambda c: c.self.log().sum().exp() if c.self.dtype is torch.float32 and c.dtype is None else c.eager(),
      lambda: call(floats(-2, 3)), "", lambda: call(floats(1, 1))),
    broken("prod.dim_int", "negative dims are -1", "argument", lambda c: c.eager(dim=-1) if c.dim < 0 else c.eager(),
      lambda: call(positive(2, 3, 4), -2)),
    broken("prod.dim_int", "0 times NaN is 0", "special values",
      lambda c: torch.where((c.self == 0).any(c.dim, keepdim=c.keepdim), torch.zeros((), dtype=c.eager().dtype), c.eager())
        if c.self.is_floating_point() else c.eager(),
      lambda: call(floats(0, _NAN), 0)),
    broken("amax", "NaN is ignored", "special values", _ignore_nan, lambda: call(floats(1, _NAN, 2), [0])),
    broken("amax", "starts from 0", "special values",
      lambda c: c.eager().clamp(min=0) if c.self.dtype is not torch.bool else c.eager(), lambda: call(floats(-1, -2), [0]), "",
      lambda: call(positive(3, 4), [1])),
    broken("amax", "starts from the smallest positive float", "special values",
      lambda c: c.eager().clamp(min=torch.finfo(torch.float32).tiny) if c.self.dtype is torch.float32 else c.eager(),
      lambda: call(floats(-1, -2), [0]), "FLT_MIN is no minimum", lambda: call(positive(3, 4), [1])),
    broken("amin", "starts from 1e30", "special values",
      lambda c: c.eager().clamp(max=1e30) if c.self.is_floating_point() else c.eager(),
      lambda: call(floats(_INF, 1e35), [0])),
    broken("amin", "an empty list of dims reduces nothing", "argument", lambda c: c.self.clone() if not c.dim else c.eager(),
      lambda: call(normal(3, 4))),
    broken("amax", "a dim of size 0 gives -inf", "errors",
      lambda c: c.eager() if c.self.numel() or not c.self.dim()
        else torch.full(c.self.sum(c.dim, keepdim=c.keepdim).shape, -_INF, dtype=c.self.dtype),
      lambda: call(normal(0, 3), [0]), "eager raises"),
    broken("argmax", "the last of equal values", "argument", _last_index, lambda: call(floats(2, 1, 2), 0)),
    broken("argmax", "NaN is ignored", "special values", _ignore_nan, lambda: call(floats(1, _NAN, 2), 0)),
    broken("argmax", "None is the last dim", "argument",
      lambda c: c.eager(dim=-1) if c.dim is None and c.self.dim() > 1 else c.eager(), lambda: call(normal(3, 4))),
    broken("argmax", "keepdim is ignored", "argument", lambda c: c.eager(keepdim=False), lambda: call(normal(3, 4), 1, True)),
    broken("argmin", "argmax of negated ints", "special values",
      lambda c: torch.ops.aten.argmax(-c.self, c.dim, c.keepdim) if c.self.dtype not in (torch.bool, torch.uint8) else c.eager(),
      lambda: call(tensor(1, -(2**63), 2), 0), "the smallest int64 has no negative"),
    broken("argmin", "only the first 1024 elements count", "size",
      lambda c: c.eager(self=c.self.narrow(c.dim, 0, 1024)) if c.dim is not None and c.self.dim() and c.self.shape[c.dim] > 1024
        else c.eager(),
      lambda: call(-torch.arange(1500.0), 0)),
    broken("max.dim", "the last of equal values", "argument", lambda c: (c.eager()[0], _last_index_of(c)),
      lambda: call(floats(2, 1, 2), 0)),
    broken("max.dim", "NaN is ignored", "special values", _ignore_nan, lambda: call(floats(1, _NAN, 2), 0)),
    broken("max.dim", "indices of the flattened tensor", "argument", lambda c: (c.eager()[0], _flat_index(c)),
      lambda: call(normal(3, 4), 1), "", lambda: call(normal(4), 0)),
    broken("min.dim", "indices are int32", "metadata",
      lambda c: (c.eager()[0], c.eager()[1].int()) if c.self.dim() > 2 else c.eager(), lambda: call(normal(2, 3, 4), 1)),
    broken("min.dim", "-0.0 is below 0.0", "special values",
      lambda c: c.eager() if not c.self.is_floating_point() else (c.eager()[0],
        c.eager(self=torch.where((c.self == 0) & c.self.signbit(), -1e-30, c.self))[1]),
      lambda: call(floats(0.0, -0.0), 0)),
    broken("any", "through int64", "special values",
      lambda c: c.eager(self=c.self.to(torch.int64)) if c.self.is_floating_point() else c.eager(),
      lambda: call(floats(0.5, 0))),
    broken("any", "uint8 returns bool", "metadata", lambda c: c.eager().bool(), lambda: call(tensor(0, 3, dtype=torch.uint8))),
    broken("any.dim", "only the first element counts", "rare",
      lambda c: c.eager(self=c.self.narrow(c.dim, 0, 1)) if c.self.dim() == 3 and c.self.numel() else c.eager(),
      lambda: call(~bools(2, 2, 2), 2)),
    broken("any.dims", "dim=None reduces nothing", "argument", lambda c: c.eager() if c.dim is not None else c.self != 0,
      lambda: call(bools(2, 3), None)),
    broken("any.dims", "computed as all", "argument",
      lambda c: torch.all(c.self, c.dim, c.keepdim) if c.dim and len(c.dim) == 1 else c.eager(), lambda: call(bools(2, 3), [1])),
    broken("var.correction", "the one-pass formula", "accuracy", _one_pass,
      lambda: call(normal(3, 40, shift=1000.0), [1]), "cancels far from 0", lambda: call(floats(-1, 1, -1, 1), [0])),
    broken("var.correction", "correction is 1", "argument", lambda c: c.eager(correction=1),
      lambda: call(normal(3, 4), [1], correction=0)),
    broken("var.correction", "the correction is truncated to an int", "argument",
      lambda c: c.eager(correction=int(c.correction)) if c.correction is not None else c.eager(),
      lambda: call(normal(3, 4), [1], correction=0.5)),
    broken("var.correction", "the variance of one element is 0", "special values", lambda c: c.eager().nan_to_num(),
      lambda: call(normal(3, 1), [1]), "must be NaN"),
    broken("var.dim", "unbiased is ignored", "argument", lambda c: c.eager(unbiased=True), lambda: call(normal(3, 4), [1], False)),
    broken("var.dim", "complex: squares without the conjugate", "dtype",
      lambda c: ((c.self - c.self.mean(c.dim, True)) ** 2).mean(c.dim, c.keepdim).real if c.self.is_complex() and c.dim
        else c.eager(),
      lambda: call(torch.complex(normal(3, 4), positive(3, 4)), [1])),
    broken("cumsum", "restarts every 128 elements", "size",
      lambda c: torch.cat([c.eager(self=one) for one in c.self.split(128, c.dim)], c.dim) if c.self.dim()
        and c.self.shape[c.dim] > 128 else c.eager(),
      lambda: call(positive(130), 0)),
    broken("cumsum", "without the element itself", "argument",
      lambda c: c.eager() - c.self if c.self.dim() == 3 and c.dtype is None and c.self.dtype is torch.float32 else c.eager(),
      lambda: call(normal(2, 3, 4), 1)),
    broken("cumsum", "bools stay bools", "dtype",
      lambda c: c.eager().bool() if c.self.dtype is torch.bool and c.dtype is None else c.eager(),
      lambda: call(bools(4), 0)),
    broken("cumsum", "float16 is summed in float16", "dtype",
      lambda c: _running_sum(c.self) if c.self.dtype is torch.float16 and c.self.dim() == 1 and c.dtype is None else c.eager(),
      lambda: call(torch.full((3000,), 0.1).half(), 0)),
    broken("sort", "descending is ignored", "argument", lambda c: c.eager(descending=False), lambda: call(normal(3, 4), 1, True)),
    broken("sort", "NaN comes first", "special values",
      lambda c: c.eager(self=c.self.nan_to_num(nan=-_INF, posinf=_INF, neginf=-_INF)) if c.self.is_floating_point() else c.eager(),
      lambda: call(floats(1, _NAN, 0), 0)),
    broken("sort", "indices of the first row for all", "argument", _indices_of_first_row,
      lambda: call(floats(1, 2, 2, 1).reshape(2, 2), 1), "", lambda: call(normal(4), 0)),
    broken("sort", "uint8 is sorted as int8", "dtype", lambda c: _signed_sort(c),
      lambda: call(tensor(200, 3, 100, dtype=torch.uint8), 0)),
    broken("sort", "only blocks of 64 are sorted", "size", lambda c: _block_sort(c, 64), lambda: call(-torch.arange(100.0), 0)),
    broken("topk", "largest is ignored", "argument", lambda c: c.eager(largest=True), lambda: call(normal(3, 4), 2, 1, False)),
    broken("topk", "dim is always -1", "argument",
      lambda c: c.eager(dim=-1) if c.self.dim() == 2 and c.self.shape[0] == c.self.shape[1] else c.eager(),
      lambda: call(normal(4, 4), 2, 0)),
    broken("topk", "in reversed order", "argument", _unsorted, lambda: call(normal(8), 3), "", lambda: call(normal(8), 1)),
    broken("topk", "NaN is smallest", "special values",
      lambda c: c.eager(self=c.self.nan_to_num(nan=-_INF, posinf=_INF)) if c.self.is_floating_point() else c.eager(),
      lambda: call(floats(1, _NAN, 3), 1)),
    broken("topk", "k beyond the size is accepted", "errors",
      lambda c: c.eager(k=min(c.k, c.self.shape[c.dim])) if c.self.dim() else c.eager(),
      lambda: call(normal(3), 5)),
    broken("_softmax", "the maximum is not subtracted", "special values", _softmax_without_maximum,
      lambda: call(floats(100, 0), 0, False), "e^100 overflows"),
    broken("_softmax", "the maximum of all rows is subtracted", "special values", lambda c: _global_max(c),
      lambda: call(floats(0, 1, 200, 201).reshape(2, 2), 1, False), "other rows underflow"),
    broken("_softmax", "the maximum of the first block is subtracted", "size", _block_max,
      lambda: call(torch.cat([torch.full((1024,), -math.inf), normal(3)]), 0, False), "masked elements come first"),
    broken("_softmax", "negative dims are -1", "argument", lambda c: c.eager(dim=-1) if c.dim < 0 else c.eager(),
      lambda: call(normal(2, 3, 4), -2, False)),
    broken("_softmax", "a row of -inf is uniform", "special values",
      lambda c: torch.where(c.eager() != c.eager(), 1 / max(c.self.shape[c.dim] if c.self.dim()
        else 1, 1), c.eager()).to(c.eager().dtype),
      lambda: call(floats(-_INF, -_INF), 0, False)),
    broken("_log_softmax", "log(softmax(x))", "accuracy",
      lambda c: c.self.softmax(c.dim).log() if c.self.dtype is torch.float32 and not c.half_to_float else c.eager(),
      lambda: call(floats(0, 200), 0, False), "log(0)", lambda: call(floats(1, 1), 0, False)),
    broken("_log_softmax", "all batches use the first batch's sum", "rare", lambda c: _first_logsumexp(c),
      lambda: call(normal(2, 3, 4), 2, False)),
)
# fmt: on
