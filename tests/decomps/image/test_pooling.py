"""Pooling where a backend has one of two kernels, and what it reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check

import eagerdecomp as ed

aten = torch.ops.aten
SPATIAL = {2: (5, 7), 3: (3, 5, 4)}


def sample(dims: int) -> torch.Tensor:
    """Few distinct values, so that windows tie."""
    torch.manual_seed(0)
    return torch.randint(-4, 5, (2, 3, *SPATIAL[dims])).float()


def gradient(x: torch.Tensor, pool: Any, *args: Any) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    out = pool(leaf, *args)[0]
    return torch.autograd.grad(out, leaf, torch.arange(1.0, out.numel() + 1).view(out.shape) / 8)[0]


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("held", ["forward", "backward"])
def test_forward_and_backward_share_their_indices(dims: int, held: str) -> None:
    for op, back, args in (
        (f"adaptive_max_pool{dims}d", f"adaptive_max_pool{dims}d_backward", ([2, 3, 3][:dims],)),
        (f"max_pool{dims}d_with_indices", f"max_pool{dims}d_with_indices_backward", ([3] * dims, [1] * dims, [1] * dims)),
    ):
        ops = CORE - {getattr(aten, op), getattr(aten, back)} | {getattr(aten, op if held == "forward" else back)}
        check(gradient, sample(dims), getattr(aten, op), *args, ops=ops)


def test_the_rules_leave_no_index_to_read() -> None:
    x, samples = sample(2), torch.rand(2, 3, 2)
    with ed.EagerDecompMode(CORE) as mode:
        for _ in range(3):
            aten.fractional_max_pool2d(x, [2, 2], [2, 2], samples)
    assert mode.stats().total.bypassed == 0
