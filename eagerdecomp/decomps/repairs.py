"""Repairs: ops whose shipped rule is wrong or fails on calls that eager takes, and that belong to no family of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import full_table, same_storage, suggested_memory_format
from eagerdecomp.rules import Rule, own

__all__ = ["RULES"]

aten = torch.ops.aten


def _take(self: Tensor, index: Tensor) -> Any:
    """The shipped entry answers a view for an index without dimensions."""
    if index.dtype is not torch.int64:
        return NotImplemented
    return aten.index.Tensor(aten.reshape.default(self, [-1]), [index])


def _view_copy(self: Tensor, size: list[int]) -> Tensor:
    """Unlike `view`, eager's `view_copy` takes strides that no view has; the shipped entries do not."""
    shaped: Tensor = aten.reshape.default(self, size)
    return aten.clone.default(shaped, memory_format=torch.contiguous_format) if same_storage(shaped, self) else shaped


def _adaptive_max_pool3d(self: Tensor, output_size: list[int]) -> Any:
    """The shipped entry hands its input to `max_pool3d_with_indices`, which takes row-major and channels-last tensors only."""
    if not self.is_contiguous() and suggested_memory_format(self) is not torch.channels_last_3d:
        self = aten.clone.default(self, memory_format=torch.contiguous_format)
    return full_table()[aten.adaptive_max_pool3d.default](self, output_size)


RULES: tuple[Rule, ...] = (
    own(aten.take.default, _take),
    own(aten.view_copy.default, _view_copy),
    own(aten.adaptive_max_pool3d.default, _adaptive_max_pool3d),
)
