"""Copies of a tensor, written through a view: `copy` and the functional ``*_scatter`` ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.eager.strides import is_dense, is_expanded, reach
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


@rule("aten.copy.default", recorded=True)
def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Any:
    """Copy to new memory with the strides of `self`; expanded elements get memory of their own."""
    if is_expanded(self):
        return aten.copy_.default(aten.clone.default(self), src)
    start, shape, strides = self.storage_offset(), list(self.shape), list(self.stride())
    memory = aten.empty.memory_format([start + reach(shape, strides)], dtype=self.dtype, device=self.device)
    return aten.copy_.default(aten.as_strided.default(memory, shape, strides, start), src)


@rule("aten.as_strided_scatter.default", recorded=True)
def _as_strided_scatter(
    self: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """Copy the storage up to the last element of `self` and of the written view, and write `src` there.

    If elements of `self` share memory, copy only its elements, to a contiguous tensor.
    """
    if list(src.shape) != list(size) or (not self.is_contiguous() and self.requires_grad):  # whose gradient would be wrong
        return NotImplemented
    own_start = self.storage_offset()
    start = own_start if storage_offset is None else storage_offset
    if is_expanded(self):
        memory = aten.clone.default(self, memory_format=torch.contiguous_format)
        aten.copy_.default(aten.as_strided.default(memory, list(size), list(stride), storage_offset or 0), src)
        return memory
    high = max(own_start + reach(self.shape, self.stride()), start + reach(size, stride))
    memory = aten.clone.default(aten.as_strided.default(self, [high], [1], 0))
    aten.copy_.default(aten.as_strided.default(memory, list(size), list(stride), start), src)
    return aten.as_strided.default(memory, list(self.shape), list(self.stride()), own_start)


def _scatter(view: OpOverload) -> Callable[..., Any]:
    """Return a rule that writes `src` to a view of a copy of `self`.

    The copy has the strides and the storage offset of `self`, unless elements of `self` share memory.
    """

    def scatter(self: Tensor, src: Tensor, *where: Any, **named: Any) -> Any:
        start = self.storage_offset()
        if is_expanded(self) or (not start and is_dense(self)):
            result = aten.clone.default(self)
        else:
            shape, strides = self.shape, self.stride()
            memory = aten.clone.default(aten.as_strided.default(self, [start + reach(shape, strides)], [1], 0))
            result = aten.as_strided.default(memory, shape, strides, start)
        place = view(result, *where, **named)
        if place.shape != src.shape:
            return NotImplemented
        aten.copy_.default(place, src)
        return result

    return scatter


rule("aten.diagonal_scatter.default")(_scatter(op_called("aten.diagonal.default")))
rule("aten.select_scatter.default")(_scatter(op_called("aten.select.int")))
rule("aten.slice_scatter.default")(_scatter(op_called("aten.slice.Tensor")))
