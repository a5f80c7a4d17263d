"""`torch.func.linearize` in the mode: its graph is traced below the mode, and must not contain a constant that calls write to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from on_core import CORE
from torch import Tensor
from torch.func import linearize, vmap

import eagerdecomp as ed


def in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.mul_(2)
    y[0] = x[1]
    return y


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda x: x.view(3, 2),
    "sum": lambda x: x.sum(0),
    "in place": in_place,
    "indices": lambda x: x[:, [0, 2]],
    "filled": lambda x: x.index_fill(0, torch.tensor([0]), 0.0),
}

PRIMALS = {
    "contiguous": torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]),
    "with gaps": torch.arange(12.0).view(2, 6)[:, ::2],
    "transposed": torch.arange(6.0).view(3, 2).t(),
}
TANGENTS = torch.arange(24.0).view(4, 2, 3).sin()


@pytest.mark.full
@pytest.mark.parametrize(("traced", "called"), [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("primal", PRIMALS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_every_call_of_a_linearized_function_returns_a_new_result(name: str, primal: str, traced: bool, called: bool) -> None:
    function, x = FUNCTIONS[name], PRIMALS[primal]
    if name == "view" and not x.is_contiguous():
        return  # no view of it has that shape
    plain = linearize(function, x)[1]
    with ed.EagerDecompMode(CORE) if traced else nullcontext():
        linear = linearize(function, x)[1]
    with ed.EagerDecompMode(CORE) if called else nullcontext():
        first = linear(TANGENTS[0])
        kept = first.clone()
        second = linear(TANGENTS[1].t().contiguous().t())
        many = vmap(linear)(TANGENTS)
    assert torch.equal(first, kept), "the second call wrote to the result of the first"
    for got, want in ((first, plain(TANGENTS[0])), (second, plain(TANGENTS[1])), (many, vmap(plain)(TANGENTS))):
        torch.testing.assert_close(got, want)
