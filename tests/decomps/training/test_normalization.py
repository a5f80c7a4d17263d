"""Normalisation on sets with half of a pair, and of a large mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import CORE, check, on_core
from torch import Tensor, nn

aten = torch.ops.aten


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 3, 2, 5).to(dtype)


def backward(x: Tensor) -> Any:
    """The arguments of the backward op, of what eager itself saves."""
    torch.manual_seed(1)
    weight, mean, var = (torch.rand(3) + 0.5 for _ in range(3))
    dims = [0, *range(2, x.dim())]
    return torch.randn_like(x), x, weight, mean, var, x.mean(dims), (x.var(dims) + 0.1).rsqrt(), True, 1e-5, [True] * 3


def test_a_large_mean_costs_no_digits() -> None:
    check(aten.native_batch_norm_backward, *backward(images() + 1000))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch": lambda: nn.BatchNorm2d(3),
    "batch, untracked": lambda: nn.BatchNorm2d(3, track_running_stats=False),
    "instance, tracked": lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    "group": lambda: nn.GroupNorm(3, 3),
    "layer": lambda: nn.LayerNorm(5),
    "weight": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 2)),
}

#: What a backend may hold beside Core ATen, or not hold of it.
HELD: dict[str, Any] = {
    "core": CORE,
    "batch norm's backward": CORE | [aten.native_batch_norm_backward.default],
    "batch norm's forward": CORE | [aten.native_batch_norm.default],
    "no batch norm but its backward": CORE
    - [
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_no_training.default,
    ]
    | [aten.native_batch_norm_backward.default],
    "no backward": CORE - [aten.native_layer_norm_backward.default, aten.native_group_norm_backward.default],
    "no forward": CORE - [aten.native_layer_norm.default, aten.native_group_norm.default],
    "weight norm's forward": CORE | [aten._weight_norm_interface.default],
    "weight norm's backward": CORE | [aten._weight_norm_interface_backward.default],
}


def trained(name: str, x: Tensor, training: bool) -> list[Any]:
    torch.manual_seed(0)
    module = MODULES[name]().to(x.dtype).train(training)
    leaf = x.detach().requires_grad_()
    for _ in range(2):
        out = module(leaf)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).to(out.dtype).view(out.shape)
    leaves = [leaf, *module.parameters()]
    return [out.detach(), *torch.autograd.grad(out, leaves, weights), *module.buffers()]


@pytest.mark.full
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("name", ["batch", "batch, untracked", "instance, tracked", "group", "layer", "weight"])
def test_a_backend_may_have_one_of_two_kernels(name: str, held: str) -> None:
    check(lambda x: trained(name, x, True), images(), ops=HELD[held])
    check(lambda x: trained(name, x, False), images(), ops=HELD[held])
    half = images(dtype=torch.bfloat16)
    # Where the kernel is not held its parts round elsewhere: by as much as the input's own dtype does.
    got, want = on_core(lambda: trained(name, half, True), HELD[held]), trained(name, half, True)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.02)
