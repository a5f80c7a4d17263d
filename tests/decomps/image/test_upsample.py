"""The memory of upsampling's gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatch_recorders import SizeRecorder
from on_core import check, on_core


def gradient(x: torch.Tensor, **options: Any) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    out = F.interpolate(leaf, **options)
    return torch.autograd.grad(out, leaf, torch.arange(1.0, out.numel() + 1).view(out.shape) / out.numel())[0]


@pytest.mark.parametrize("size", [(32, 2, 2), (2, 32, 32)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "trilinear"])
def test_no_intermediate_is_larger_than_both_ends(mode: str, size: tuple[int, ...]) -> None:
    """Where one dimension shrinks and another grows, the first to change is the one that becomes smaller."""
    x = torch.linspace(-1, 1, 64**3 // math.prod(size)).view(1, 1, *(64 // count for count in size))
    check(gradient, x, size=size, mode=mode)
    with SizeRecorder() as sizes:
        on_core(lambda: gradient(x, size=size, mode=mode))
    assert max(sizes.sizes) <= 2 * max(x.numel(), math.prod(size))  # of two taps
