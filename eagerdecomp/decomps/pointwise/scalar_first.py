"""Ops of a number and a tensor, in that order: what Python makes of ``2 % x`` and ``2 & x``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.rules.rule import Call, Rule, linked, own

__all__ = ["RULES"]

aten = torch.ops.aten


def _swapped(op: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """By an op to which the order says nothing."""

    def bind(call: Call) -> Callable[..., Any]:
        bound = call(op)
        return lambda self, other: bound(other, self)

    return bind


def _remainder(self: Any, other: Tensor) -> Any:
    number = aten.full.default([], self, dtype=torch.result_type(other, self), device=other.device)
    return aten.remainder.Tensor(number, other)


RULES: tuple[Rule, ...] = (
    linked(aten.bitwise_and.Scalar_Tensor, _swapped(aten.bitwise_and.Scalar)),
    linked(aten.bitwise_or.Scalar_Tensor, _swapped(aten.bitwise_or.Scalar)),
    linked(aten.bitwise_xor.Scalar_Tensor, _swapped(aten.bitwise_xor.Scalar)),
    own(aten.remainder.Scalar_Tensor, _remainder),
)
