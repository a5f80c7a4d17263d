"""The op sets of the PyTorch 2 tutorials: one model reaches the backend as ATen, as Core ATen and as prims.

A recorder outside the mode records the ops in order. The first, second and third call (recorded, replayed, compiled) must agree
with each other and with eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import eagerdecomp as ed
from eagerdecomp._torch.modes import DispatchMode

CORE = ed.core_aten()


class Order(DispatchMode):
    """Notes every op that comes out of the mode entered after it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ops.append(func)
        return func(*args, **(kwargs or {}))

    def taken(self) -> list[str]:
        """The names noted so far, without namespace and overload; forgets them."""
        names = [str(op).split(".")[1] for op in self.ops]
        self.ops.clear()
        return names


torch.manual_seed(0)
LINEAR = nn.Linear(32, 64)
INPUT = torch.randn(5, 32)

WHOLE = ["permute", "addmm", "gelu"]
IN_PARTS = ["permute", "addmm", "mul", "mul", "erf", "add", "mul"]


def run(mlp: nn.Module) -> list[torch.Tensor]:
    """Forward and backward: the value and every gradient."""
    mlp.zero_grad()
    x = INPUT.clone().requires_grad_()
    value = F.gelu(mlp(x))
    value.sum().backward()
    assert x.grad is not None
    return [value.detach(), x.grad, *(p.grad for p in mlp.parameters())]


@pytest.mark.parametrize(
    ("op_set", "forward"),
    [(CORE, WHOLE), (CORE - ["aten.gelu"], IN_PARTS)],
    ids=["core aten", "core aten without gelu"],
)
def test_an_mlp_and_its_backward_reach_the_backend_as_ops_of_the_set(op_set: ed.OpSet, forward: list[str]) -> None:
    want = run(LINEAR)
    backward: list[list[str]] = []
    for _ in range(3):
        LINEAR.zero_grad()
        x = INPUT.clone().requires_grad_()
        with Order() as order, ed.EagerDecompMode(op_set):
            value = F.gelu(LINEAR(x))
            assert order.taken() == forward
            value.sum().backward()
            assert {op for op in order.ops if op not in op_set} == set()
            backward.append(order.taken())
        assert x.grad is not None
        got = [value.detach(), x.grad, *(p.grad for p in LINEAR.parameters())]
        torch.testing.assert_close(got, want)
    assert backward[0] == backward[1] == backward[2]
    assert "gelu_backward" not in backward[0]
    assert "mm" in backward[0]


def test_removing_an_op_from_the_set_changes_only_this_op() -> None:
    at = WHOLE.index("gelu")
    assert IN_PARTS[:at] == WHOLE[:at]
    with Order() as order, ed.EagerDecompMode(CORE - ["aten.addmm"]):
        for _ in range(3):
            value = F.gelu(LINEAR(INPUT))
            names = order.taken()
            assert names[0] == "permute"
            assert names[-1] == "gelu"
            assert "addmm" not in names
            assert "mm" in names
    torch.testing.assert_close(value, F.gelu(LINEAR(INPUT)))


def test_on_prims_an_addition_is_type_promotion_broadcast_and_addition() -> None:
    left, right = torch.tensor([1.0, 2.0, 3.0]), torch.arange(9, dtype=torch.float16).view(3, 3)
    want = left + right
    with Order() as order, ed.EagerDecompMode(ed.prims()):
        for _ in range(3):
            got = left + right
            ops = list(order.ops)
            promoted, *rest = map(str, ops)
            assert promoted in ("prims.convert_element_type.default", "aten._to_copy.default")  # infra has the latter
            assert rest == ["prims.broadcast_in_dim.default", "prims.add.default"]
            assert {op for op in ops if op not in ed.prims()} == set()
            order.ops.clear()
    torch.testing.assert_close(got, want)
    assert got.dtype is torch.float32


def test_on_prims_the_mlp_calls_no_aten_op_except_infra() -> None:
    want = F.gelu(LINEAR(INPUT))
    with Order() as order, ed.EagerDecompMode(ed.prims() | ["aten.addmm.default"]):
        for _ in range(3):
            got = F.gelu(LINEAR(INPUT))
            outside = {str(op) for op in order.ops if op.namespace == "aten" and op not in ed.infra()}
            assert outside == {"aten.addmm.default"}
            order.ops.clear()
    torch.testing.assert_close(got, want)
