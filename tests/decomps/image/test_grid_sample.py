"""Sampling by a grid: what is asked for of its gradient, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check, kernel_calls

aten = torch.ops.aten
SAMPLERS = {2: aten.grid_sampler_2d, 3: aten.grid_sampler_3d}
LACKING = CORE - {aten.grid_sampler_2d}
BILINEAR, NEAREST, BICUBIC = 0, 1, 2


def arguments(dims: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An input and a grid of it that leaves it now and then."""
    torch.manual_seed(0)
    return torch.randn(2, 3, *(2, 4, 5)[-dims:]), torch.rand(2, *(2, 3, 4)[-dims:], dims) * 4 - 2


def gradients(x: torch.Tensor, grid: torch.Tensor, *options: Any) -> Any:
    x, grid = x.detach().requires_grad_(), grid.detach().requires_grad_()
    out = SAMPLERS[x.dim() - 2](x, grid, *options)
    return torch.autograd.grad(out, [x, grid], (torch.arange(out.numel()).view(out.shape) % 7 - 2.5).to(out.dtype))


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("mode", [BILINEAR, NEAREST])
def test_only_what_is_asked_for_is_computed(dims: int, mode: int) -> None:
    x, grid = arguments(dims)

    def one(which: int) -> torch.Tensor:
        leaves = [tensor.clone() for tensor in (x, grid)]
        out = SAMPLERS[dims](leaves[0].requires_grad_(which == 0), leaves[1].requires_grad_(which == 1), mode, 0, False)
        return torch.autograd.grad(out.sum(), leaves[which])[0]

    for which in (0, 1):
        check(one, which)


@pytest.mark.parametrize(
    ("dims", "mode", "forward", "both"),
    [(2, BILINEAR, 52, 90), (2, NEAREST, 30, 40), (2, BICUBIC, 64, 110), (3, BILINEAR, 66, 171), (3, NEAREST, 40, 84)],
)
def test_kernel_calls(dims: int, mode: int, forward: int, both: int) -> None:
    x, grid = arguments(dims)
    assert kernel_calls(lambda: SAMPLERS[dims](x, grid, mode, 0, False), LACKING) <= forward
    assert kernel_calls(lambda: gradients(x, grid, mode, 0, False)) <= both
