"""Ops of a scalar and a tensor, mostly in that order, as in ``2 % x`` and ``2 & x``, and shifts by a scalar."""

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


def _number(value: Any, beside: Tensor) -> Any:
    """Return a scalar as a tensor of the promoted dtype. For integer dtypes it wraps around."""
    dtype = torch.result_type(beside, value)
    if not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool):
        low, span = torch.iinfo(dtype).min, 1 << torch.iinfo(dtype).bits
        value = (int(value) - low) % span + low
    return aten.full.default([], value, dtype=dtype, device=beside.device)


def _of_number(op: OpOverload) -> Callable[..., Any]:
    def run(self: Any, other: Tensor) -> Any:
        return op(_number(self, other), other)

    return run


def _by_number(op: OpOverload) -> Callable[..., Any]:
    def run(self: Tensor, other: Any) -> Any:
        return op(self, _number(other, self))

    return run


for _name in ("aten.bitwise_left_shift", "aten.bitwise_right_shift"):
    rule(f"{_name}.Scalar_Tensor", recorded=True)(_of_number(op_called(f"{_name}.Tensor")))
    rule(f"{_name}.Tensor_Scalar", recorded=True)(_by_number(op_called(f"{_name}.Tensor")))
