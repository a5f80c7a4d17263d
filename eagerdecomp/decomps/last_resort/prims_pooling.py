"""Average pooling for sets of prims, one dimension after the other.

A mask of shape [windows, elements] says which window contains which element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.one_hot_indexing import along, positions
from eagerdecomp.decomps.math.pool_windows import is_pooled, pool_counts, pool_windows
from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.eager.promotion import HALF, in_type, number_like
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _starts(count: int, step: int, first: int, like: Tensor) -> Tensor:
    return aten.add.Scalar(aten.mul.Scalar(positions(0, count, like), step), first)  # type: ignore[no-any-return]


def _summed(x: Tensor, dim: int, starts: Tensor, ends: Tensor, size: int, *, transposed: bool = False) -> Tensor:
    """Return the sum of each window along `dim`. Transposed: for each element, the sum over the windows that contain it."""
    place = aten.unsqueeze.default(positions(0, size, x), 0)
    held = aten.logical_and.default(
        aten.ge.Tensor(place, aten.unsqueeze.default(starts, 1)), aten.lt.Tensor(place, aten.unsqueeze.default(ends, 1))
    )
    if transposed:
        held = aten.permute.default(held, [1, 0])
    held = aten.view.default(
        aten.clone.default(held, memory_format=torch.contiguous_format), [*held.shape, *[1] * (x.dim() - 1 - dim)]
    )
    values = aten.where.self(held, aten.unsqueeze.default(x, dim), number_like(x, 0))
    whole = None if x.dtype.is_floating_point else x.dtype
    return aten.sum.dim_IntList(values, [dim + 1], dtype=whole)  # type: ignore[no-any-return]


class _AveragePool:
    """The windows of average pooling with fixed stride, per dimension. Creating one declines sizes that eager refuses."""

    def __init__(self, x: Tensor, options: Sequence[Sequence[int]], dims: int, ceil_mode: bool) -> None:
        self.first = x.dim() - dims
        self.sizes = list(x.shape[-dims:])
        kernel_size, stride, padding = options
        self.windows = pool_windows(dims, kernel_size, stride, padding, [1])
        smaller = dims == 3 and any(size < kernel for size, (kernel, *_) in zip(self.sizes, self.windows, strict=True))
        if smaller or not math.prod(x.shape[self.first - 1 :]):
            raise Declined
        self.counts = pool_counts(self.sizes, self.windows, ceil_mode)

    def bounds(self, at: int, like: Tensor) -> tuple[Tensor, Tensor]:
        kernel, step, pad, _ = self.windows[at]
        starts = _starts(self.counts[at], step, -pad, like)
        return starts, aten.add.Scalar(starts, kernel)

    def divided(self, x: Tensor, count_include_pad: bool, divisor: int | None) -> Tensor:
        """Divide by `divisor`, or by the number of elements that each window counts."""
        if divisor is not None:
            return _quotient(x, number_like(x, divisor))
        whole = number_like(x, 1)
        for at, (size, (_, _, pad, _)) in enumerate(zip(self.sizes, self.windows, strict=True)):
            starts, ends = self.bounds(at, x)
            least, most = (-pad, size + pad) if count_include_pad else (0, size)
            spans = aten.sub.Tensor(aten.clamp.default(ends, None, most), aten.clamp.default(starts, least))
            whole = aten.mul.Tensor(whole, along(aten._to_copy.default(spans, dtype=x.dtype), self.first + at, x.dim()))
        return _quotient(x, whole)


def _quotient(x: Tensor, divisor: Tensor) -> Tensor:
    rounding = None if x.dtype.is_floating_point else "trunc"
    return aten.div.Tensor_mode(x, divisor, rounding_mode=rounding)  # type: ignore[no-any-return]


def _average(dims: int) -> Callable[..., Any]:
    def run(
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        pool = _AveragePool(self, (kernel_size, stride, padding), dims, ceil_mode)
        if not self.numel():
            return aten.empty.memory_format([*self.shape[:-dims], *pool.counts], dtype=self.dtype, device=self.device)
        found = aten._to_copy.default(self, dtype=torch.float32) if self.dtype in HALF else self
        for at in range(dims):
            found = _summed(found, pool.first + at, *pool.bounds(at, self), self.size(pool.first + at))
        found = pool.divided(found, count_include_pad, divisor_override)
        return in_format_of(in_type(found, self.dtype), self if dims == 2 else None)

    return run


def _average_backward(grad_output: Tensor, self: Tensor, *rest: Any) -> Any:
    *options, ceil_mode, count_include_pad, divisor_override = rest
    pool = _AveragePool(self, options, 2, ceil_mode)
    if not is_pooled(grad_output, self, pool.windows, ceil_mode):
        return NotImplemented
    if not self.numel():
        return aten.full.default(list(self.shape), 0, dtype=self.dtype, device=self.device)
    grad = aten._to_copy.default(grad_output, dtype=torch.float32) if self.dtype in HALF else grad_output
    grad = pool.divided(grad, count_include_pad, divisor_override)
    for at in range(2):
        grad = _summed(grad, pool.first + at, *pool.bounds(at, self), self.size(pool.first + at), transposed=True)
    return in_format_of(in_type(grad, self.dtype), self)


def _adaptive(dims: int) -> Callable[..., Any]:
    def run(self: Tensor, output_size: Sequence[int]) -> Any:
        first, counts = self.dim() - dims, list(output_size)
        if not math.prod(self.shape[1:]):
            return NotImplemented
        if not self.numel() or not math.prod(counts):
            return aten.empty.memory_format([*self.shape[:first], *counts], dtype=self.dtype, device=self.device)
        found = aten._to_copy.default(self, dtype=torch.float32) if self.dtype in HALF else self
        for at, count in enumerate(counts):
            size = self.size(first + at)
            scaled = aten.mul.Scalar(positions(0, count, self), size)
            starts = aten.div.Scalar_mode(scaled, count, rounding_mode="floor")
            ends = aten.div.Scalar_mode(aten.add.Scalar(scaled, size + count - 1), count, rounding_mode="floor")
            spans = aten._to_copy.default(aten.sub.Tensor(ends, starts), dtype=found.dtype)
            found = _quotient(_summed(found, first + at, starts, ends, size), along(spans, first + at, self.dim()))
        return in_format_of(in_type(found, self.dtype), self if dims == 2 else None)

    return run


rule("aten.avg_pool2d.default", recorded=True, source="prims")(_average(2))
rule("aten.avg_pool3d.default", recorded=True, source="prims")(_average(3))
rule("aten.avg_pool2d_backward.default", recorded=True, source="prims")(_average_backward)
rule("aten._adaptive_avg_pool2d.default", recorded=True, source="prims")(_adaptive(2))
rule("aten._adaptive_avg_pool3d.default", recorded=True, source="prims")(_adaptive(3))
