"""Factories: tensors of one number, and of nothing, in any size.

Sizes differ from step to step, so all are linked. What a call leaves open is what eager takes: the default dtype, or the type and
the device of the tensor that the new one is made after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import OpOverload
from eagerdecomp.rules import Call, Rule, linked
from eagerdecomp.strides import in_order, memory_order

__all__ = ["RULES"]

aten = torch.ops.aten


def _filled(op: OpOverload, value: int) -> Rule:
    def link(call: Call) -> Callable[..., Any]:
        full, others = call(aten.full.default), call(op)

        def run(size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
            if layout not in (None, torch.strided):
                return others(size, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)
            dtype = torch.get_default_dtype() if dtype is None else dtype
            return full(size, value, dtype=dtype, device=device, pin_memory=pin_memory)

        return run

    return linked(op, link)


def _after(op: OpOverload, factory: OpOverload, *values: int) -> Rule:
    """A new tensor after another, by the factory that takes the same arguments and these values behind them."""

    def link(call: Call) -> Callable[..., Any]:
        make, others = call(factory), call(op)

        def run(
            self: Tensor, *given: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
        ) -> Any:
            if self.layout is not torch.strided or layout not in (None, torch.strided):
                return others(self, *given, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)
            dtype, device = self.dtype if dtype is None else dtype, self.device if device is None else device
            return make(*given, *values, dtype=dtype, device=device, pin_memory=pin_memory)

        return run

    return linked(op, link)


def _filled_like(op: OpOverload, value: int) -> Rule:
    """`zeros_like` and `ones_like`."""

    def link(call: Call) -> Callable[..., Any]:
        full_like, others = call(aten.full_like.default), call(op)

        def run(self: Tensor, **options: Any) -> Any:
            if self.layout is torch.strided and options.get("layout") in (None, torch.strided):
                return full_like(self, value, **options)
            return others(self, **options)

        return run

    return linked(op, link)


_KEEPS = (None, torch.preserve_format)


def _empty_like(call: Call) -> Callable[..., Any]:
    empty, strided, others = call(aten.empty.memory_format), call(aten.empty_strided.default), call(aten.empty_like.default)

    def run(
        self: Tensor,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
        memory_format: Any = None,
    ) -> Any:
        keeps = memory_format in _KEEPS
        if (keeps or memory_format is torch.contiguous_format) and self.layout is torch.strided and layout in (None, torch.strided):
            shape = list(self.shape)
            dtype, device = self.dtype if dtype is None else dtype, self.device if device is None else device
            if not keeps or self.is_contiguous():
                return empty(shape, dtype=dtype, device=device, pin_memory=pin_memory)
            return strided(shape, in_order(shape, memory_order(self)), dtype=dtype, device=device, pin_memory=pin_memory)
        return others(self, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory, memory_format=memory_format)

    return run


RULES: tuple[Rule, ...] = (
    _filled_like(aten.zeros_like.default, 0),
    _filled_like(aten.ones_like.default, 1),
    linked(aten.empty_like.default, _empty_like),
    _filled(aten.zeros.default, 0),
    _filled(aten.ones.default, 1),
    _after(aten.new_zeros.default, aten.full.default, 0),
    _after(aten.new_ones.default, aten.full.default, 1),
    _after(aten.new_full.default, aten.full.default),
    _after(aten.new_empty.default, aten.empty.memory_format),
    _after(aten.new_empty_strided.default, aten.empty_strided.default),
)
