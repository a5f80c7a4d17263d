"""Uses of torch's private API for devices in Python. A red line here says what a new torch changed.

`tests/device` has the tests that need a device: they run in processes of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from eagerdecomp._torch.python_device import current_node, device_name, nodes_of, storage_at


def test_privateuse1_has_no_name_until_a_device_gives_it_one() -> None:
    assert device_name() == "privateuseone"


def test_a_storage_has_the_address_and_the_size_that_it_is_given() -> None:
    storage = storage_at(4096, 24)
    assert (storage.device, storage.data_ptr(), storage.nbytes()) == (torch.device("privateuseone", 0), 4096, 24)


def test_the_node_that_runs_is_one_of_the_nodes_of_its_pass() -> None:
    seen: list[Any] = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            seen.append(current_node())
            return gradient

    x = torch.ones(2, requires_grad=True)
    out = Watched.apply(x.exp()).sum()
    other = x.sum()
    for roots in ([out], [other, get_gradient_edge(out)]):
        torch.autograd.backward(roots, retain_graph=True)
        assert seen.pop() in nodes_of(roots)
    assert nodes_of([other]) < nodes_of([other, out])
    assert nodes_of([other]).isdisjoint({out.grad_fn})
    assert current_node() is None
