"""Joins of tensors: stacks, and block-diagonal matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


@rule("aten.stack.default")
def _stack(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    shape = tensors[0].shape if tensors else torch.Size()
    rank, rows = len(shape), True
    for one in tensors:
        if one.shape != shape:
            return NotImplemented
        if not one.is_contiguous():
            rows = False
    if not tensors or not -rank <= dim + 1 <= rank + 1 or not (rows or rank < 4 or _any_contiguous(tensors)):
        return NotImplemented
    if dim < 0:
        dim += rank + 1
    if dim == rank or not rows:
        return aten.cat.default([aten.unsqueeze.default(one, dim) for one in tensors], dim)
    count = len(tensors)
    return aten.view.default(aten.cat.default(tensors, dim), [*shape[:dim], count, *shape[dim:]] if dim else [count, *shape])


def _any_contiguous(tensors: Sequence[Tensor]) -> bool:
    """Return whether any tensor is contiguous by `suggest_memory_format`. Then eager does not stack into channels last."""
    return any(suggested_memory_format(one) is torch.contiguous_format for one in tensors)


@rule("aten.block_diag.default")
def _block_diag(tensors: Sequence[Tensor]) -> Any:
    """Return rows of blocks, each block with zeros on both sides."""
    first = tensors[0] if tensors else None
    if first is None or not all(
        one.dim() == 2 and one.dtype is first.dtype and one.device == first.device and one.is_contiguous() for one in tensors
    ):
        return NotImplemented
    whole, before, rows = sum(one.size(1) for one in tensors), 0, []
    for one in tensors:
        rows.append(aten.constant_pad_nd.default(one, [before, whole - before - one.size(1)]))
        before += one.size(1)
    return aten.cat.default(rows, 0)
