"""Activations: a backend with one of two kernels, and a gradient's tail."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check, on_core
from torch import Tensor

aten = torch.ops.aten

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SPECIAL = [0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 2.5, -2.5, 6.0, -6.5, 19.0, 21.0, -40.0, 40.0, 1e-5]


@pytest.mark.parametrize(
    "held",
    [CORE, CORE | [aten.log_sigmoid_forward.default], CORE | [aten.log_sigmoid_backward.default]],
    ids=["neither", "forward", "backward"],
)
def test_a_backend_may_have_one_of_two_kernels_of_log_sigmoid(held: Any) -> None:
    def run(x: Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        out = F.logsigmoid(leaf)
        return out.detach(), torch.autograd.grad(out, leaf, torch.ones_like(out))[0]

    for dtype in FLOATS:
        check(run, torch.tensor(SPECIAL, dtype=torch.float64).to(dtype), ops=held)


def test_the_gradient_of_gelu_by_tanh_is_as_near_as_eagers_in_its_tail() -> None:
    x = torch.cat([torch.linspace(1, 12, 2000), torch.linspace(-6, -1, 2000), torch.tensor([1e13, 1e18, -1e15])])
    ones = torch.ones_like(x)
    want = aten.gelu_backward(ones.double(), x.double(), approximate="tanh")
    ours, eagers = (
        (run(lambda: aten.gelu_backward(ones, x, approximate="tanh")) - want).abs().max() for run in (on_core, lambda call: call())
    )
    assert ours <= eagers
    assert ours < 3e-7
