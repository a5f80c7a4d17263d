"""In-place view ops on Core ATen: the caller's own tensor with eager's shape and strides, its storage and gradient kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import check, on_core
from torch import Tensor

BASE = torch.arange(24.0)

CALLS: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
    "t_": (lambda x: x.t_(), BASE[:6].view(2, 3)),
    "t_ of a vector": (lambda x: x.t_(), BASE[:6]),
    "transpose_": (lambda x: x.transpose_(0, -1), BASE.view(2, 3, 4)),
    "swapaxes_": (lambda x: x.swapaxes_(1, 2), BASE.view(2, 3, 4)),
    "squeeze_": (lambda x: x.squeeze_(), BASE.view(1, 24, 1)),
    "squeeze_ one": (lambda x: x.squeeze_(0), BASE.view(1, 24, 1)),
    "squeeze_ two": (lambda x: torch.ops.aten.squeeze_.dims(x, [0, 2]), BASE.view(1, 24, 1)),
    "unsqueeze_": (lambda x: x.unsqueeze_(1), BASE.view(2, 12)),
    "as_strided_": (lambda x: x.as_strided_((2, 2), (1, 3), 1), BASE),
    "as_strided_ at its own offset": (lambda x: x.as_strided_((2, 2), (1, 3)), BASE[4:]),
    "of a part": (lambda x: x.t_(), BASE.view(4, 6)[1:3, ::2]),
    "of an empty tensor": (lambda x: x.t_(), torch.zeros(0, 3)),
    "of a conjugate": (lambda x: x.t_(), torch.randn(2, 3, dtype=torch.complex64).conj()),
    "dimension out of range": (lambda x: x.transpose_(0, 5), BASE.view(2, 12)),
    "too many dimensions": (lambda x: x.t_(), BASE.view(2, 3, 4)),
}


TRANSPOSES: dict[str, Callable[[Tensor], Any]] = {
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, -1),
    "transpose inner": lambda x: x.transpose(-2, -1),
    "transpose in place": lambda x: x.transpose(0, 0),
    "first out of range": lambda x: x.transpose(7, 0),
    "second out of range": lambda x: x.transpose(0, -7),
    "matmul's reshaping": lambda x: torch.ops.aten._unsafe_view(x, [x.numel()]),
}


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor(1.0),
        BASE,
        BASE.view(2, 12),
        BASE.view(4, 6)[1:3],
        BASE.view(2, 3, 4),
        torch.zeros(0, 3),
        torch.randn(2, 3, dtype=torch.complex64).conj(),
        torch._neg_view(BASE.view(2, 12)),
    ],
    ids=["scalar", "vector", "matrix", "part", "three dimensions", "empty", "conjugate", "negative"],
)
@pytest.mark.parametrize("name", TRANSPOSES)
def test_transposes(name: str, x: Tensor) -> None:
    check(TRANSPOSES[name], x)


@pytest.mark.parametrize("name", CALLS)
def test_the_tensor_itself_is_restrided(name: str) -> None:
    run, x = CALLS[name]
    check(run, x)


def test_a_view_of_the_same_memory() -> None:
    def step(x: Tensor) -> Any:
        part = x[1:]
        same = part.t_()
        same[0, 0] = -1.0
        return x, same is part, part

    check(step, BASE.view(4, 6))


def test_gradients_pass() -> None:
    def step(x: Tensor) -> Any:
        leaf = x.clone().requires_grad_()
        middle = leaf * 2
        middle.t_().unsqueeze_(0).squeeze_()
        (middle * torch.arange(12.0).view(4, 3)).sum().backward()
        return leaf.grad

    check(step, BASE[:12].view(3, 4))


def test_saved_tensors_notice_the_change() -> None:
    def step() -> None:
        leaf = torch.ones(2, 3, requires_grad=True)
        middle = leaf * 2
        product = middle * middle
        middle.t_()
        product.sum().backward()

    kinds = []
    for run in (step, lambda: on_core(step)):
        try:
            run()
            kinds.append("fine")
        except RuntimeError as error:
            kinds.append(str(error)[:40])
    assert kinds[0] == kinds[1]
