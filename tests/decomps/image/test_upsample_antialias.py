"""Antialiased upsampling: pictures of bytes, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import check, kernel_calls

aten = torch.ops.aten

NAMES = [f"_upsample_{way}2d_aa" for way in ("bilinear", "bicubic", "lanczos")]
ANTIALIASED = [getattr(aten, name) for name in NAMES if hasattr(aten, name)]  # torch 2.11 has no Lanczos


def backward_of(op: Any) -> Any:
    return getattr(aten, f"{op.__name__}_backward")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(64, 96), (224, 224), (3, 300)])
def test_pictures_of_bytes(mode: str, size: tuple[int, int]) -> None:
    x = torch.randint(0, 256, (1, 3, 187, 211), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    check(F.interpolate, x, size=size, mode=mode, antialias=True, exact=True)


@pytest.mark.parametrize(("op", "calls"), list(zip(ANTIALIASED, ((57, 69, 66), (75, 87, 84), (77, 87, 86)), strict=False)))
def test_kernel_calls(op: Any, calls: tuple[int, int, int]) -> None:
    x, grad = torch.randn(1, 2, 8, 9), torch.randn(1, 2, 4, 5)
    assert kernel_calls(lambda: op(x, [4, 5], False)) <= calls[0]
    assert kernel_calls(lambda: op(x.to(torch.uint8), [4, 5], False)) <= calls[1]
    assert kernel_calls(lambda: backward_of(op)(grad, [4, 5], [1, 2, 8, 9], False)) <= calls[2]
