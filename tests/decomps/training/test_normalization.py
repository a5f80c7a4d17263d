"""Gradients of normalization of a large mean."""

from __future__ import annotations

import torch
from on_core import check


def test_a_large_mean_costs_no_digits() -> None:
    """The statistics are those that eager itself saves."""
    x = torch.randn(4, 3, 2, 5) + 1000
    weight, mean, var = (torch.rand(3) + 0.5 for _ in range(3))
    saved = x.mean([0, 2, 3]), (x.var([0, 2, 3]) + 0.1).rsqrt()
    given = torch.randn_like(x), x, weight, mean, var, *saved
    check(torch.ops.aten.native_batch_norm_backward, *given, True, 1e-5, [True] * 3)
