"""ZeroTensors, which autograd creates for missing tangents: sums and products under the mode drop them as eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import CORE, on
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

import eagerdecomp as ed
from eagerdecomp.backends.numpy import BACKEND
from eagerdecomp.runtime.zero_tangents import Zeros

aten = torch.ops.aten

INF = float("inf")
ODD = torch.tensor([-0.0, INF, float("nan"), -2.0])


def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch._efficientzerotensor(sizes, dtype=dtype)


CALLS: dict[str, Callable[[], Any]] = {
    "a product": lambda: (zeros(4) * ODD, ODD * zeros(4), zeros(4) * zeros(4)),
    "a product by a number": lambda: (zeros(4) * INF, aten.mul.Scalar(zeros(4), INF)),
    "a product of shapes": lambda: zeros(4, 1) * ODD,
    "a product of a view": lambda: zeros(2, 2).t().reshape(4)[None].expand(3, 4) * ODD,
    "a product of a copy": lambda: (zeros(4).clone() * ODD, zeros(4).double() * ODD, -zeros(4) * ODD),
    "a sum": lambda: (zeros(4) + ODD, ODD + zeros(4), zeros(4) + zeros(4)),
    "a sum with a factor": lambda: (torch.add(zeros(4), ODD, alpha=-2), torch.add(ODD, zeros(4), alpha=INF)),
    "a difference": lambda: (zeros(4) - ODD, ODD - zeros(4), torch.sub(zeros(4), ODD, alpha=2), ODD[0] - zeros(4)),
    "a quotient": lambda: (zeros(4) / torch.zeros(4), ODD / zeros(4), zeros(4) / zeros(4), zeros(4) / 0.0),
    "a cross product": lambda: (torch.linalg.cross(zeros(3), ODD[:3]), torch.linalg.cross(ODD[:3], zeros(3))),
}


def same(got: Any, want: Any) -> None:
    for one, other in zip(tree_leaves(got), tree_leaves(want), strict=True):
        other = other.clone()  # a ZeroTensor has no memory, its clone has
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(one.isnan() | one.signbit(), other.isnan() | other.signbit()), f"{one} for {other}"


@pytest.mark.parametrize("name", CALLS)
def test_zero_tensors_are_dropped_as_in_eager(name: str) -> None:
    want = CALLS[name]()
    for _ in range(2):
        with on(CORE):
            for _ in range(3):
                got = CALLS[name]()
        same(got, want)


def tangent(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    with forward_ad.dual_level():
        first = forward_ad.make_dual(given[0], torch.ones_like(given[0]))
        found = forward_ad.unpack_dual(function(first, *given[1:])).tangent
        assert found is not None
        return found


FORWARD: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "a mean": (lambda x: torch.masked.mean(x, mask=None), (torch.tensor([INF, 1.0]),)),
    "a quotient by a number": (lambda x: x / 2, (ODD,)),
    "a product": (torch.mul, (torch.ones(4), ODD)),
    "a likelihood": (
        lambda x, y, z: torch.nn.functional.gaussian_nll_loss(x, y, z, reduction="none"),
        (torch.tensor([1.0, -INF]), torch.tensor([INF, 1.0]), torch.tensor([1.0, INF])),
    ),
}


@pytest.mark.parametrize("backend", [CORE, BACKEND, ed.prims()], ids=["core", "numpy", "prims"])
@pytest.mark.parametrize("name", FORWARD)
def test_tangents_of_infinite_values_equal_eager(name: str, backend: Any) -> None:
    function, given = FORWARD[name]
    want = tangent(function, *given)
    with ed.EagerDecompMode(backend, cache=ed.ProgramCache()):
        for _ in range(3):
            got = tangent(function, *given)
    same(got, want)


def test_a_zero_that_autograd_did_not_create_is_not_dropped() -> None:
    with ed.EagerDecompMode(CORE):
        tangent(lambda x: x * 0.5, ODD)
        torch.neg(ODD)
        made = [torch.mul(0.0, ODD) for _ in range(3)]
    assert made[-1].isnan().any(), "0.0 was taken for zeros that torch drops"


def test_a_zero_tensor_that_was_written_is_not_dropped() -> None:
    known = Zeros(lambda op, around: None, lambda op: op)
    made = known.noted(torch.zeros(4))
    assert known.holds(made.view(2, 2))
    assert not known.holds(made.clone())
    made.view(2, 2)[0].fill_(1)
    assert not known.holds(made)


def test_freed_zero_tensors_are_forgotten() -> None:
    known = Zeros(lambda op, around: None, lambda op: op)
    known.noted(torch.zeros(4))
    assert not known.holds(torch.zeros(4))
