"""Gradients of every upsampling mode against eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import check, on_core

MODES = [
    *((dims, "nearest", None) for dims in (1, 2, 3)),
    *((dims, "nearest-exact", None) for dims in (1, 2, 3)),
    *(
        (dims, mode, corners)
        for dims, mode in ((1, "linear"), (2, "bilinear"), (3, "trilinear"), (2, "bicubic"))
        for corners in (False, True)
    ),
]


def gradient(x: torch.Tensor, **options: Any) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    out = F.interpolate(leaf, **options)
    weights = torch.arange(1.0, out.numel() + 1, dtype=torch.float64).view(out.shape).to(out.dtype) / out.numel()
    if out.is_contiguous(memory_format=torch.channels_last) if out.dim() == 4 else False:
        weights = weights.contiguous(memory_format=torch.channels_last)
    return torch.autograd.grad(out, leaf, weights)[0]


@pytest.mark.parametrize("target", ["larger", "smaller", "same", "factor"])
@pytest.mark.parametrize(("dims", "mode", "corners"), MODES)
def test_gradient(dims: int, mode: str, corners: bool | None, target: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *(5, 4, 3)[:dims])
    sizes = {"larger": (9, 8, 7), "smaller": (2, 3, 2), "same": (5, 4, 3)}
    options: dict[str, Any] = {"mode": mode, "align_corners": corners}
    options |= {"scale_factor": 1.7} if target == "factor" else {"size": sizes[target][:dims]}
    check(gradient, x, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_gradient_in_other_types(mode: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(gradient, torch.randn(1, 2, 4, 5).to(dtype), size=(7, 3), mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_gradient_of_channels_last_images_is_channels_last(mode: str) -> None:
    torch.manual_seed(0)
    check(gradient, torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), size=(8, 6), mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_second_derivative(mode: str) -> None:
    def run() -> torch.Tensor:
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 16, dtype=torch.float64).view(1, 1, 4, 4).requires_grad_()
        (first,) = torch.autograd.grad((F.interpolate(x, size=(6, 6), mode=mode) ** 3).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    want = run()
    for _ in range(3):
        torch.testing.assert_close(on_core(run), want)
