"""Fake quantization with one of two kernels."""

from __future__ import annotations

from typing import Any

import torch
from on_core import check

import eagerdecomp as ed

aten = torch.ops.aten


def _learned(op: Any, x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, *options: Any) -> tuple[torch.Tensor, ...]:
    leaves = [tensor.detach().requires_grad_() for tensor in (x, scale, zero)]
    out = op(*leaves, *options)
    weights = (torch.arange(out.numel()).view(out.shape) % 7 - 3.0).to(out.dtype)
    return out.detach(), *torch.autograd.grad(out, leaves, weights)


def test_forward_or_backward_alone_may_be_native() -> None:
    ops = [
        aten._fake_quantize_learnable_per_tensor_affine.default,
        aten._fake_quantize_learnable_per_tensor_affine_backward.default,
    ]
    given = torch.randn(4, 3), torch.tensor([0.3]), torch.tensor([2.0]), -8, 7, 0.5
    for op in ops:
        check(_learned, torch._fake_quantize_learnable_per_tensor_affine, *given, ops=ed.core_aten() | {op})
