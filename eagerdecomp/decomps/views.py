"""Ops that change a tensor's own metadata in place: the view, then `set_` of the same storage to the view's shape and strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import OpOverload
from eagerdecomp.rules import Call, Rule, linked

__all__ = ["RULES"]

aten = torch.ops.aten


def _restrided(view: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """The rule of an in-place view op whose functional op is `view`."""

    def link(call: Call) -> Callable[..., Any]:
        look, set_ = call(view), call(aten.set_.source_Storage_storage_offset)

        def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            seen = look(self, *args, **kwargs)
            set_(self, self.untyped_storage(), seen.storage_offset(), list(seen.shape), list(seen.stride()))
            return self

        return run

    return link


RULES: tuple[Rule, ...] = tuple(
    linked(op, _restrided(view), keeps_lazy_bits=True)
    for op, view in (
        (aten.t_.default, aten.t.default),
        (aten.transpose_.default, aten.transpose.int),
        (aten.squeeze_.default, aten.squeeze.default),
        (aten.squeeze_.dim, aten.squeeze.dim),
        (aten.squeeze_.dims, aten.squeeze.dims),
        (aten.unsqueeze_.default, aten.unsqueeze.default),
        (aten.as_strided_.default, aten.as_strided.default),
    )
)
