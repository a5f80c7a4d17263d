"""Broken kernels that reduce, scan, sort or normalise along dimensions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import Bound, Mutant, bits, f, given, like, m, n, p, raw, t

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf


def _dims(c: Bound) -> Any:
    return [c.dim] if isinstance(c.dim, int) else c.dim


def _half_sum(c: Bound) -> Any:
    """Sum float16 and bfloat16 in their own dtype, one element after the other."""
    if (
        c.self.dtype not in (torch.float16, torch.bfloat16)
        or _dims(c) is None
        or len(_dims(c)) != 1
        or c.self.dim() == 0
        or c.dtype is not None
    ):
        return c.but()
    total = torch.zeros_like(c.but(keepdim=True))
    for one in c.self.split(1, _dims(c)[0]):
        total = total + one
    return total if c.keepdim else total.squeeze(_dims(c)[0])


def _one_pass(c: Bound) -> Any:
    """E[x^2] - E[x]^2, in the input's own precision."""
    if c.self.dtype is not torch.float32 or not c.self.numel() or not c.dim:
        return c.but()
    count = math.prod(c.self.shape[dim] for dim in c.dim)
    kept = {"dim": c.dim, "keepdim": c.keepdim}
    unscaled = c.self.square().mean(**kept) - c.self.mean(**kept).square()
    correction = 1 if c.correction is None else c.correction
    return unscaled * (count / (count - correction)) if count != correction else c.but()


def _first_nan(c: Bound) -> Any:
    """NaN compares as nothing: it is never the largest."""
    return c.but(self=c.self.nan_to_num(nan=-_INF, posinf=_INF, neginf=-_INF)) if c.self.is_floating_point() else c.but()


def _block_max(c: Bound) -> Any:
    right = c.but()
    if not c.self.dim() or c.self.shape[c.dim] <= 1024:
        return right
    raised = (c.self - c.self.narrow(c.dim, 0, 1024).amax(c.dim, keepdim=True)).exp()
    return like(raised / raised.sum(c.dim, keepdim=True), right)


def _softmax_raw(c: Bound) -> Any:
    if not c.self.is_floating_point() or c.half_to_float or c.self.dim() == 0:
        return c.but()
    exps = c.self.exp()
    return torch.empty_like(c.but()).copy_(exps / exps.sum(c.dim, keepdim=True))


def _last_index(c: Bound) -> Any:
    """The last of equal largest values."""
    if c.dim is None or c.self.dim() == 0 or not c.self.numel():
        return c.but()
    return c.self.shape[c.dim] - 1 - c.but(self=c.self.flip([c.dim]))


def _unsorted(c: Bound) -> Any:
    values, indices = c.but()
    return (values.flip([c.dim]), indices.flip([c.dim])) if c.sorted and values.dim() else (values, indices)


def _tail(c: Bound, block: int) -> Any:
    """Without what is behind the last full block."""
    dims = _dims(c)
    if not dims or len(dims) != 1 or c.self.dim() == 0 or c.self.shape[dims[0]] < block:
        return c.but()
    size = c.self.shape[dims[0]]
    return c.but(self=c.self.narrow(dims[0], 0, size - size % block))


def _reordered(c: Bound) -> Any:
    """Values sorted, and indices as they would be for the first row."""
    values, indices = c.but()
    if values.dim() < 2 or c.dim % values.dim() != values.dim() - 1 or not values.numel():
        return values, indices
    first = indices.reshape(-1, indices.shape[-1])[0]
    return values, first.expand(indices.shape).contiguous()


def _last_index_of(c: Bound) -> Tensor:
    if c.self.dim() == 0 or not c.self.numel():
        return c.but()[1]  # type: ignore[no-any-return]
    found: Tensor = c.self.shape[c.dim] - 1 - c.but(self=c.self.flip([c.dim]))[1]
    return found


def _flat_index(c: Bound) -> Any:
    indices: Tensor = c.but(keepdim=True)[1]
    if c.self.dim() < 2 or c.dim % c.self.dim() != c.self.dim() - 1:
        return c.but()[1]
    rows = torch.arange(indices.numel()).reshape(indices.shape) * c.self.shape[-1]
    return (indices + rows).reshape(c.but()[1].shape)


def _running(values: Tensor) -> Tensor:
    total = torch.zeros((), dtype=values.dtype)
    found = []
    for one in values:
        total = total + one
        found.append(total)
    return torch.stack(found) if found else values.clone()


def _signed_sort(c: Bound) -> Any:
    if c.self.dtype is not torch.uint8:
        return c.but()
    values, indices = c.but(self=c.self.to(torch.int8))
    return values.to(torch.uint8), indices


def _block_sort(c: Bound, block: int) -> Any:
    if c.self.dim() != 1 or c.self.numel() <= block:
        return c.but()
    parts = [c.but(self=one) for one in c.self.split(block)]
    return torch.cat([one[0] for one in parts]), torch.cat([one[1] + block * place for place, one in enumerate(parts)])


def _global_max(c: Bound) -> Any:
    if not c.self.is_floating_point() or not c.self.numel() or c.half_to_float:
        return c.but()
    exps = (c.self - c.self.max()).exp()
    return torch.empty_like(c.but()).copy_(exps / exps.sum(c.dim, keepdim=True))


def _first_norm(c: Bound) -> Any:
    if c.self.dim() != 3 or c.dim % 3 != 2 or c.half_to_float or not c.self.numel():
        return c.but()
    return c.self - c.self.logsumexp(2, True)[:1]


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    m("sum.dim_IntList", "float16 and bfloat16 added in themselves", "accuracy", _half_sum,
      lambda: given(torch.ones(1, 5000, dtype=torch.float16), [1]), "2048 + 1 is 2048"),
    m("sum.dim_IntList", "tails of 16 are left out", "size", lambda c: _tail(c, 16), lambda: given(n(2, 37), [1])),
    m("sum.dim_IntList", "keepdim is ignored", "argument", lambda c: c.but(keepdim=False), lambda: given(n(3, 4), [1], True)),
    m("sum.dim_IntList", "an empty list of dims is no dim", "argument", lambda c: c.self.clone() if c.dim == [] else c.but(),
      lambda: given(n(3, 4), [])),
    m("sum.dim_IntList", "None is the last dim", "argument",
      lambda c: c.but(dim=[-1]) if c.dim is None and c.self.dim() else c.but(),
      lambda: given(n(3, 4), None)),
    m("sum.dim_IntList", "ints stay as narrow as they are", "dtype",
      lambda c: c.but() if c.dtype is not None else c.but().to(c.self.dtype),
      lambda: given(t([100, 100], dtype=torch.uint8), [0])),
    m("sum.dim_IntList", "dtype comes after the sum", "dtype",
      lambda c: c.but(dtype=None).to(c.dtype) if c.dtype is not None else c.but(),
      lambda: given(f(60000, 60000, dtype=torch.float16), [0], dtype=torch.float32)),
    m("sum.dim_IntList", "int64 in double", "dtype",
      lambda c: c.but(dtype=torch.float64).long() if c.self.dtype is torch.int64 and c.dtype is None else c.but(),
      lambda: given(t(2**53, 1), [0])),
    m("sum.dim_IntList", "only the first of several dims", "argument",
      lambda c: c.but(dim=c.dim[:1]) if c.dim and len(c.dim) > 1 else c.but(),
      lambda: given(n(2, 3, 4), [0, 2])),
    m("sum.dim_IntList", "of nothing is nothing", "size", lambda c: c.but() if c.self.numel() else c.but() + _NAN,
      lambda: given(n(0, 3), [0]), "memory is not cleared"),
    m("sum.dim_IntList", "reads as if contiguous", "layout", lambda c: c.but(self=raw(c.self)),
      lambda: given(n(4, 3).t(), [1])),
    m("mean", "of ints is taken", "errors",
      lambda c: c.but() if c.self.is_floating_point() or c.self.is_complex() or c.dtype is not None else c.self.float().mean(),
      lambda: given(t(1, 2))),
    m("mean", "sum and count apart in float16", "dtype",
      lambda c: c.self.sum() / c.self.numel() if c.self.dtype is torch.float16 and c.dtype is None else c.but(),
      lambda: given(f(60000, 60000, dtype=torch.float16)), "the sum overflows"),
    m("mean", "of nothing is 0", "special values", lambda c: c.but() if c.self.numel() else c.but().nan_to_num(),
      lambda: given(n(0))),
    m("mean.dim", "divides by the wrong count", "argument",
      lambda c: c.but() if not c.dim or len(c.dim) < 2 else c.but() * c.self.shape[c.dim[1]],
      lambda: given(n(2, 3, 4), [1, 2])),
    m("mean.dim", "only when dim is the last but one", "rare",
      lambda c: c.but(self=c.self * 1.01) if c.dim and len(c.dim) == 1 and c.dim[0] % max(c.self.dim(), 1) == c.self.dim() - 2
        and c.self.is_floating_point() else c.but(),
      lambda: given(n(3, 4), [-2])),
    m("mean.dim", "dtype is ignored", "dtype", lambda c: c.but(dtype=None) if c.self.is_floating_point() else c.but(),
      lambda: given(n(3, 4), [1], dtype=torch.float64)),
    m("prod", "starts from 0 for nothing", "special values", lambda c: c.but() if c.self.numel() else c.but() * 0,
      lambda: given(n(0))),
    m("prod", "by logarithms", "special values",
      lambda c: c.self.log().sum().exp() if c.self.dtype is torch.float32 and c.dtype is None else c.but(),
      lambda: given(f(-2, 3)), "", lambda: given(f(1, 1))),
    m("prod.dim_int", "dims count from the front only", "argument", lambda c: c.but(dim=-1) if c.dim < 0 else c.but(),
      lambda: given(p(2, 3, 4), -2)),
    m("prod.dim_int", "0 ends it, NaN or not", "special values",
      lambda c: torch.where((c.self == 0).any(c.dim, keepdim=c.keepdim), torch.zeros((), dtype=c.but().dtype), c.but())
        if c.self.is_floating_point() else c.but(),
      lambda: given(f(0, _NAN), 0)),
    m("amax", "NaN is lost", "special values", _first_nan, lambda: given(f(1, _NAN, 2), [0])),
    m("amax", "starts from 0", "special values", lambda c: c.but().clamp(min=0) if c.self.dtype is not torch.bool else c.but(),
      lambda: given(f(-1, -2), [0]), "", lambda: given(p(3, 4), [1])),
    m("amax", "starts from the smallest positive float", "special values",
      lambda c: c.but().clamp(min=torch.finfo(torch.float32).tiny) if c.self.dtype is torch.float32 else c.but(),
      lambda: given(f(-1, -2), [0]), "FLT_MIN is no minimum", lambda: given(p(3, 4), [1])),
    m("amin", "starts from 1e30", "special values",
      lambda c: c.but().clamp(max=1e30) if c.self.is_floating_point() else c.but(),
      lambda: given(f(_INF, 1e35), [0])),
    m("amin", "an empty list of dims is no dim", "argument", lambda c: c.self.clone() if not c.dim else c.but(),
      lambda: given(n(3, 4))),
    m("amax", "nothing is reduced to -inf", "errors",
      lambda c: c.but() if c.self.numel() or not c.self.dim()
        else torch.full(c.self.sum(c.dim, keepdim=c.keepdim).shape, -_INF, dtype=c.self.dtype),
      lambda: given(n(0, 3), [0]), "eager refuses to reduce a dim of size 0"),
    m("argmax", "the last of equal values", "argument", _last_index, lambda: given(f(2, 1, 2), 0)),
    m("argmax", "NaN is passed over", "special values", _first_nan, lambda: given(f(1, _NAN, 2), 0)),
    m("argmax", "None is the last dim", "argument", lambda c: c.but(dim=-1) if c.dim is None and c.self.dim() > 1 else c.but(),
      lambda: given(n(3, 4))),
    m("argmax", "keepdim is ignored", "argument", lambda c: c.but(keepdim=False), lambda: given(n(3, 4), 1, True)),
    m("argmin", "argmax of negated ints", "special values",
      lambda c: torch.ops.aten.argmax(-c.self, c.dim, c.keepdim) if c.self.dtype not in (torch.bool, torch.uint8) else c.but(),
      lambda: given(t(1, -(2**63), 2), 0), "the smallest int64 has no negative"),
    m("argmin", "only the first 1024 are looked at", "size",
      lambda c: c.but(self=c.self.narrow(c.dim, 0, 1024)) if c.dim is not None and c.self.dim() and c.self.shape[c.dim] > 1024
        else c.but(),
      lambda: given(-torch.arange(1500.0), 0)),
    m("max.dim", "the last of equal values", "argument", lambda c: (c.but()[0], _last_index_of(c)),
      lambda: given(f(2, 1, 2), 0)),
    m("max.dim", "NaN is passed over", "special values", _first_nan, lambda: given(f(1, _NAN, 2), 0)),
    m("max.dim", "indices in the flat tensor", "argument", lambda c: (c.but()[0], _flat_index(c)),
      lambda: given(n(3, 4), 1), "", lambda: given(n(4), 0)),
    m("min.dim", "indices are int32", "metadata", lambda c: (c.but()[0], c.but()[1].int()) if c.self.dim() > 2 else c.but(),
      lambda: given(n(2, 3, 4), 1)),
    m("min.dim", "-0.0 is below 0.0", "special values",
      lambda c: c.but() if not c.self.is_floating_point() else (c.but()[0],
        c.but(self=torch.where((c.self == 0) & c.self.signbit(), -1e-30, c.self))[1]),
      lambda: given(f(0.0, -0.0), 0)),
    m("any", "through int", "special values",
      lambda c: c.but(self=c.self.to(torch.int64)) if c.self.is_floating_point() else c.but(),
      lambda: given(f(0.5, 0))),
    m("any", "uint8 returns bool", "metadata", lambda c: c.but().bool(), lambda: given(t(0, 3, dtype=torch.uint8))),
    m("any.dim", "looks at the first only", "rare",
      lambda c: c.but(self=c.self.narrow(c.dim, 0, 1)) if c.self.dim() == 3 and c.self.numel() else c.but(),
      lambda: given(~bits(2, 2, 2), 2)),
    m("any.dims", "None is no dim", "argument", lambda c: c.but() if c.dim is not None else c.self != 0,
      lambda: given(bits(2, 3), None)),
    m("any.dims", "all", "argument", lambda c: torch.all(c.self, c.dim, c.keepdim) if c.dim and len(c.dim) == 1 else c.but(),
      lambda: given(bits(2, 3), [1])),
    m("var.correction", "the one-pass formula", "accuracy", _one_pass,
      lambda: given(n(3, 40, shift=1000.0), [1]), "cancels far from 0", lambda: given(f(-1, 1, -1, 1), [0])),
    m("var.correction", "correction is 1", "argument", lambda c: c.but(correction=1),
      lambda: given(n(3, 4), [1], correction=0)),
    m("var.correction", "corrections are whole", "argument",
      lambda c: c.but(correction=int(c.correction)) if c.correction is not None else c.but(),
      lambda: given(n(3, 4), [1], correction=0.5)),
    m("var.correction", "of one element is 0", "special values", lambda c: c.but().nan_to_num(),
      lambda: given(n(3, 1), [1]), "NaN is due"),
    m("var.dim", "unbiased is ignored", "argument", lambda c: c.but(unbiased=True), lambda: given(n(3, 4), [1], False)),
    m("var.dim", "of complex numbers, without the conjugate", "dtype",
      lambda c: ((c.self - c.self.mean(c.dim, True)) ** 2).mean(c.dim, c.keepdim).real if c.self.is_complex() and c.dim
        else c.but(),
      lambda: given(torch.complex(n(3, 4), p(3, 4)), [1])),
    m("cumsum", "starts again every 128", "size",
      lambda c: torch.cat([c.but(self=one) for one in c.self.split(128, c.dim)], c.dim) if c.self.dim()
        and c.self.shape[c.dim] > 128 else c.but(),
      lambda: given(p(130), 0)),
    m("cumsum", "without the element itself", "argument",
      lambda c: c.but() - c.self if c.self.dim() == 3 and c.dtype is None and c.self.dtype is torch.float32 else c.but(),
      lambda: given(n(2, 3, 4), 1)),
    m("cumsum", "bools stay bools", "dtype",
      lambda c: c.but().bool() if c.self.dtype is torch.bool and c.dtype is None else c.but(),
      lambda: given(bits(4), 0)),
    m("cumsum", "float16 in float16", "dtype",
      lambda c: _running(c.self) if c.self.dtype is torch.float16 and c.self.dim() == 1 and c.dtype is None else c.but(),
      lambda: given(torch.full((3000,), 0.1).half(), 0)),
    m("sort", "descending is ignored", "argument", lambda c: c.but(descending=False), lambda: given(n(3, 4), 1, True)),
    m("sort", "NaN comes first", "special values",
      lambda c: c.but(self=c.self.nan_to_num(nan=-_INF, posinf=_INF, neginf=-_INF)) if c.self.is_floating_point() else c.but(),
      lambda: given(f(1, _NAN, 0), 0)),
    m("sort", "indices of the first row for all", "argument", _reordered,
      lambda: given(f(1, 2, 2, 1).reshape(2, 2), 1), "", lambda: given(n(4), 0)),
    m("sort", "uint8 as int8", "dtype", lambda c: _signed_sort(c), lambda: given(t(200, 3, 100, dtype=torch.uint8), 0)),
    m("sort", "in blocks of 64", "size", lambda c: _block_sort(c, 64), lambda: given(-torch.arange(100.0), 0)),
    m("topk", "largest is ignored", "argument", lambda c: c.but(largest=True), lambda: given(n(3, 4), 2, 1, False)),
    m("topk", "along the last dim", "argument",
      lambda c: c.but(dim=-1) if c.self.dim() == 2 and c.self.shape[0] == c.self.shape[1] else c.but(),
      lambda: given(n(4, 4), 2, 0)),
    m("topk", "worst first", "argument", _unsorted, lambda: given(n(8), 3), "", lambda: given(n(8), 1)),
    m("topk", "NaN is smallest", "special values",
      lambda c: c.but(self=c.self.nan_to_num(nan=-_INF, posinf=_INF)) if c.self.is_floating_point() else c.but(),
      lambda: given(f(1, _NAN, 3), 1)),
    m("topk", "k beyond the size is cut", "errors",
      lambda c: c.but(k=min(c.k, c.self.shape[c.dim])) if c.self.dim() else c.but(),
      lambda: given(n(3), 5)),
    m("_softmax", "without the maximum", "special values", _softmax_raw, lambda: given(f(100, 0), 0, False), "e^100 overflows"),
    m("_softmax", "the maximum of all rows", "special values", lambda c: _global_max(c),
      lambda: given(f(0, 1, 200, 201).reshape(2, 2), 1, False), "other rows underflow"),
    m("_softmax", "the maximum of a first block", "size", _block_max,
      lambda: given(torch.cat([torch.full((1024,), -math.inf), n(3)]), 0, False), "what is masked comes first"),
    m("_softmax", "negative dims are the last", "argument", lambda c: c.but(dim=-1) if c.dim < 0 else c.but(),
      lambda: given(n(2, 3, 4), -2, False)),
    m("_softmax", "a row of -inf is uniform", "special values",
      lambda c: torch.where(c.but() != c.but(), 1 / max(c.self.shape[c.dim] if c.self.dim()
        else 1, 1), c.but()).to(c.but().dtype),
      lambda: given(f(-_INF, -_INF), 0, False)),
    m("_log_softmax", "log(softmax(x))", "accuracy",
      lambda c: c.self.softmax(c.dim).log() if c.self.dtype is torch.float32 and not c.half_to_float else c.but(),
      lambda: given(f(0, 200), 0, False), "log(0)", lambda: given(f(1, 1), 0, False)),
    m("_log_softmax", "batches above 0 take the first one's sum", "rare", lambda c: _first_norm(c),
      lambda: given(n(2, 3, 4), 2, False)),
)
# fmt: on
