"""Gradients of distances in blocks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from on_core import on_core
from torch.testing import assert_close

aten = torch.ops.aten


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("shapes", [((300, 2), (260, 2)), ((2, 90, 9), (80, 9))], ids=str)
def test_gradients_by_blocks(p: float, shapes: Any) -> None:
    """More pairs than one block holds, and more coordinates."""
    x, y = (torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) for shape in shapes)
    between = torch.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(on_core(lambda: aten._cdist_backward(between, x, y, p, between)), aten._cdist_backward(between, x, y, p, between))
    x = x.flatten(0, -2)
    within = torch.pdist(x, p)
    assert_close(on_core(lambda: aten._pdist_backward(within, x, p, within)), aten._pdist_backward(within, x, p, within))
