"""Ops of a number and a tensor, in that order: what Python makes of ``2 % x`` and ``2 & x``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _swapped(op: OpOverload) -> Callable[..., Any]:
    """Swap the arguments: the op is commutative."""

    def swapped(self: Tensor, other: Tensor) -> Any:
        return op(other, self)

    return swapped


@rule("aten.remainder.Scalar_Tensor", recorded=True)
def _remainder(self: Any, other: Tensor) -> Any:
    number = aten.full.default([], self, dtype=torch.result_type(other, self), device=other.device)
    return aten.remainder.Tensor(number, other)


rule("aten.bitwise_and.Scalar_Tensor")(_swapped(op_called("aten.bitwise_and.Scalar")))
rule("aten.bitwise_or.Scalar_Tensor")(_swapped(op_called("aten.bitwise_or.Scalar")))
rule("aten.bitwise_xor.Scalar_Tensor")(_swapped(op_called("aten.bitwise_xor.Scalar")))
