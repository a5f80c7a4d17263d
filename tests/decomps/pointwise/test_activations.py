"""The tail of an activation's gradient."""

from __future__ import annotations

import torch
from on_core import on_core

aten = torch.ops.aten


def test_the_gradient_of_gelu_by_tanh_is_as_near_as_eagers_in_its_tail() -> None:
    x = torch.cat([torch.linspace(1, 12, 2000), torch.linspace(-6, -1, 2000), torch.tensor([1e13, 1e18, -1e15])])
    ones = torch.ones_like(x)
    want = aten.gelu_backward(ones.double(), x.double(), approximate="tanh")
    ours, eagers = (
        (run(lambda: aten.gelu_backward(ones, x, approximate="tanh")) - want).abs().max() for run in (on_core, lambda call: call())
    )
    assert ours <= eagers
    assert ours < 3e-7
