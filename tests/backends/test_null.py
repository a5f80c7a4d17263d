"""The null backend computes nothing and returns what fits."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import eagerdecomp as ed
from eagerdecomp.backends.null import null_backend


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 10),
        nn.Dropout(),
        nn.LayerNorm(10),
    )


def train(model: nn.Module, steps: int = 2) -> torch.Tensor:
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        loss = nn.functional.cross_entropy(model(x), torch.arange(4))
        loss.backward()
        optimizer.step()
    return loss


@pytest.mark.full
def test_null_kernels_return_right_shapes_and_count_their_calls() -> None:
    backend, calls = null_backend()
    with ed.EagerDecompMode(backend):
        model = network()
        loss = train(model)
    assert loss.dtype is torch.float32
    assert loss.shape == ()
    assert all(parameter.grad is not None and parameter.grad.shape == parameter.shape for parameter in model.parameters())
    assert set(calls) <= {str(op) for op in ed.core_aten()}
    assert calls["aten.convolution.default"] == 2
    assert calls["aten.convolution_backward.default"] == 2


def test_null_computes_nothing() -> None:
    backend, calls = null_backend()
    x = torch.tensor([1.0, 2.0])
    with ed.EagerDecompMode(backend):
        y = torch.exp(x) + 1
        x.mul_(3)
        found = torch.nonzero(x)
    assert y.tolist() == [1.0, 1.0]
    assert x.tolist() == [1.0, 2.0]
    assert list(found.shape) == [0, 1]
    assert calls["aten.exp.default"] == 1
