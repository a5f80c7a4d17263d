"""Views: the transposes that every linear layer takes, and ops that change a tensor's own metadata in place.

The in-place ones take the view, then `set_` the tensor to the same storage with the view's shape and strides.
"""

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


def _transpose(call: Call) -> Callable[..., Any]:
    permute, alias = call(aten.permute.default), call(aten.alias.default)

    def run(self: Tensor, dim0: int, dim1: int) -> Any:
        rank = self.dim()
        dim0, dim1 = _wrapped(dim0, rank), _wrapped(dim1, rank)
        if dim0 == dim1:
            return alias(self)
        order = list(range(rank))
        order[dim0], order[dim1] = dim1, dim0
        return permute(self, order)

    return run


def _t(call: Call) -> Callable[..., Any]:
    permute, alias = call(aten.permute.default), call(aten.alias.default)

    def run(self: Tensor) -> Any:
        rank = self.dim()
        if rank > 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
        return permute(self, [1, 0]) if rank == 2 else alias(self)

    return run


def _wrapped(dim: int, rank: int) -> int:
    """A dimension counted from the front. Raises ATen's error for one out of range; a scalar counts as of one dimension."""
    count = rank or 1
    if not -count <= dim < count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})")
    return dim + count if dim < 0 else dim


RULES: tuple[Rule, ...] = (
    linked(aten.t.default, _t, keeps_lazy_bits=True),
    linked(aten.transpose.int, _transpose, keeps_lazy_bits=True),
    linked(aten._unsafe_view.default, lambda call: call(aten.view.default), keeps_lazy_bits=True),
    *tuple(
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
    ),
)
