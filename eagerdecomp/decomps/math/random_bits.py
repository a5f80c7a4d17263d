"""Random integers and fine uniform numbers from float32 samples, for backends without float64.

A float32 sample of `rand` is a multiple of 2**-24. This is too coarse for a range of integers, for small probabilities and for the
tails of a distribution, so several samples are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules.link import link_on_call

__all__ = ["coin", "fine_uniform", "random_bits"]

aten = torch.ops.aten

#: Bits of one sample, and samples of one integer: 60 bits, so that a remainder by up to 2**32 is uniform up to 2**-28.
_BITS, _PARTS = 15, 4
_STEP = 2.0**-24


@link_on_call
def random_bits(shape: Sequence[int], device: Any) -> Tensor:
    """Return int64 numbers of 60 random bits."""
    drawn = aten.rand.default([_PARTS, *shape], dtype=torch.float32, device=device)
    parts = aten._to_copy.default(aten.mul.Scalar(drawn, float(2**_BITS)), dtype=torch.int64)
    bits = aten.select.int(parts, 0, 0)
    for part in range(1, _PARTS):
        bits = aten.add.Tensor(aten.mul.Scalar(bits, 2**_BITS), aten.select.int(parts, 0, part))
    return bits  # type: ignore[no-any-return]


@link_on_call
def fine_uniform(shape: Sequence[int], device: Any) -> Tensor:
    """Return float32 numbers in (0, 1), in steps of 2**-24 near 1 and of 2**-48 near 0."""
    coarse = aten.rand.default(shape, dtype=torch.float32, device=device)
    fine = aten.clamp.default(aten.rand.default(shape, dtype=torch.float32, device=device), _STEP)
    return aten.clamp.default(aten.add.Tensor(coarse, fine, alpha=_STEP), None, 1 - _STEP)  # type: ignore[no-any-return]


@link_on_call
def coin(shape: Sequence[int], device: Any, p: float) -> Tensor:
    """Return bools that are True with a probability `p`, which may be far below the step of a float32 sample.

    One sample is below a power of 2, and another one below the rest of the probability.
    """
    small = min(p, 1 - p)
    power = 1.0
    while power * 0.5 > max(small, _STEP):
        power *= 0.5
    hit = aten.lt.Scalar(aten.rand.default(shape, dtype=torch.float32, device=device), power)
    other = aten.lt.Scalar(aten.rand.default(shape, dtype=torch.float32, device=device), small / power)
    hit = aten.logical_and.default(hit, other)
    return hit if small == p else aten.logical_not.default(hit)  # type: ignore[no-any-return]
