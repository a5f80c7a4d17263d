"""What tests of files of programs share: calls whose programs are saved."""

from __future__ import annotations

from typing import Any

import torch
from opaque import OPAQUE, by_shape

import eagerdecomp as ed
from eagerdecomp.runtime.cache import ProgramCache

aten = torch.ops.aten


def calls(cache: ProgramCache, *sizes: int, rules: Any = (by_shape,), ops: Any = None) -> Any:
    """Counts of a mode in which an op that is recorded for each shape is called with these sizes."""
    with ed.EagerDecompMode(ops or ed.core_aten(), cache=cache, rules=rules) as mode:
        for size in sizes:
            x = torch.arange(float(size))
            assert torch.equal(OPAQUE(x), x)
            grad = torch.ones(1, 2, 2 * size, 4)
            aten.reflection_pad2d_backward(grad, torch.ones(1, 2, 2 * size - 2, 2), [1, 1, 1, 1])
    return mode.stats().total
