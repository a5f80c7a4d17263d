"""Checks that eager makes of `topk`."""

from __future__ import annotations

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import WIDE_UNSIGNED
from eagerdecomp.eager.verdict import Declined

__all__ = ["check_topk"]


def check_topk(self: Tensor, k: int, dim: int) -> None:
    """Decline what eager's kernel refuses, for rules that replace `topk` although Core ATen contains it."""
    refused = self.dtype is torch.bool or self.is_complex() or self.dtype in WIDE_UNSIGNED
    if refused or not 0 <= k <= (self.size(dim) if self.dim() else 1):
        raise Declined
