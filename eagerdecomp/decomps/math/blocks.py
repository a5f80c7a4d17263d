"""Run formulas of many kernels on large tensors block by block, so that temporaries fit in the processor's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp.rules.link import Call, Linkable, link
from eagerdecomp.rules.rule import has_kernels

__all__ = ["by_blocks"]

aten = torch.ops.aten

#: Elements of a block per thread. For temporaries of the full size, the system would allocate new memory pages, which takes up to
#: five times as long as a kernel.
_BLOCK = 1 << 14


def by_blocks(name: str) -> Linkable:
    """Make the rule of an elementwise op of one dtype that runs the op's next rule block by block.

    The rule runs only on CPUs and only if it is linked: other devices need few large kernels, and a recorded program would contain
    every block.
    """
    op = op_called(name)

    def blocks(self: Tensor, *others: Tensor) -> Any:
        size = _BLOCK * torch.get_num_threads()
        if self.numel() < 2 * size or not all(_alike(self, one) for one in (self, *others)):
            return NotImplemented
        sizes = [size] * (self.numel() // size)
        sizes[-1] += self.numel() % size
        flat = [aten.split_with_sizes.default(aten.view.default(one, [-1]), sizes) for one in (self, *others)]
        return aten.view.default(aten.cat.default([op(*row) for row in zip(*flat, strict=True)]), list(self.shape))

    def bind(call: Call) -> Callable[..., Any]:
        linked = has_kernels(call, aten.split_with_sizes.default, aten.cat.default, aten.view.default)
        return link(blocks, call) if linked else _declined

    return Linkable(bind)


def _declined(*args: Tensor) -> Any:
    return NotImplemented


def _alike(self: Tensor, other: Tensor) -> bool:
    return other.is_cpu and other.is_contiguous() and other.shape == self.shape and other.dtype is self.dtype
