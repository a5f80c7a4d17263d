"""Means over windows on prims, and pools by places, which lean on picking."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from on_core import check

import eagerdecomp as ed

PRIMS = ed.prims()


def gradient(run: object, x: torch.Tensor) -> torch.Tensor:
    x = x.requires_grad_()
    made = run(x)  # type: ignore[operator]
    return torch.autograd.grad(made, x, torch.linspace(0.5, 1.5, made.numel(), dtype=made.dtype).view(made.shape))[0]


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_averages_over_windows_and_their_gradients(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 6).to(dtype)
    last = x.to(memory_format=torch.channels_last)
    check(F.avg_pool2d, x, 3, 2, ops=PRIMS)
    check(F.avg_pool2d, last, (3, 2), 2, 1, ops=PRIMS)
    for options in ({}, {"count_include_pad": False}, {"divisor_override": 3}):
        run = lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, **options)  # noqa: B023, E731
        check(run, x, ops=PRIMS)
        check(lambda x: gradient(run, x), x, ops=PRIMS)  # noqa: B023
    check(lambda x: gradient(lambda x: F.avg_pool3d(x, 2), x), x, ops=PRIMS)
    check(F.avg_pool2d, torch.arange(24).view(1, 4, 6), 3, 2, 1, ops=PRIMS)
    check(F.avg_pool2d, x, 3, 2, 2, ops=PRIMS)
    check(F.avg_pool2d, x, 9, ops=PRIMS)


@pytest.mark.full
def test_adaptive_averages_and_their_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 5)
    check(lambda x: gradient(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), x), x, ops=PRIMS)
    check(lambda x: gradient(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 8)), x), x, ops=PRIMS)
    check(F.adaptive_avg_pool2d, x.to(memory_format=torch.channels_last), (3, 4), ops=PRIMS)


@pytest.mark.full
def test_greatest_of_windows_and_images_resized() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 5, 4)
    check(lambda x: gradient(lambda x: F.max_pool2d(x, 3, 2, 1), x), x, ops=PRIMS)
    check(lambda x: gradient(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x), x, ops=PRIMS)
    check(lambda x: gradient(lambda x: F.pad(x, (1, 2), mode="reflect"), x), x, ops=PRIMS)
