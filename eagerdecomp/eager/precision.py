"""Half types: eager's kernels take them to float32, compute there, and round once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["HALF", "in_type", "wide_type", "widened"]

aten = torch.ops.aten

HALF = frozenset({torch.float16, torch.bfloat16})


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """The type that eager computes a dtype in."""
    return torch.float32 if dtype in HALF else dtype


def widened(tensor: Tensor) -> Tensor:
    """The tensor in the type that eager computes it in."""
    return in_type(tensor, wide_type(tensor.dtype))


def in_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in this dtype; itself where it has it."""
    return tensor if tensor.dtype is dtype else aten._to_copy.default(tensor, dtype=dtype)
