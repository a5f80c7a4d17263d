"""The recorder around a backend: whether kernels, or what they call, are counted."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten


def square(x: Tensor) -> Tensor:
    """A kernel that asks torch for a shape, and computes by torch's kernels."""
    return aten.mul.Tensor(x, x).view(aten.abs.default(x.to("meta")).shape)


def test_kernels_are_counted_and_what_they_call_is_not() -> None:
    mine = ed.Backend("mine", ed.infra() | ["aten.square", "aten.mul.Tensor"], {"aten.square": square})
    x, seen, inner = torch.ones(2), ed.BackendRecorder(), ed.BackendRecorder()
    with seen, ed.EagerDecompMode(seen.counting(mine)):
        for _ in range(3):
            x = torch.square(x) * x
    assert seen.ops == Counter({aten.square.default: 3, aten.mul.Tensor: 3})
    assert seen.outside(mine) == Counter()
    assert seen.in_kernels[aten.abs.default] == seen.in_kernels[aten.mul.Tensor] == 3
    with inner, ed.EagerDecompMode(mine):
        torch.square(x)
    assert aten.square.default not in inner.ops
    assert inner.ops[aten.abs.default] == 1, "as it is, a recorder sees what a kernel calls"
