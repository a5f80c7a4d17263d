"""Sobol sequences: the ops of `torch.quasirandom.SobolEngine`.

The numbers of a sequence are the exclusive or of direction numbers: number ``m`` of a dimension is that of the direction numbers
``v[l]`` for which bit ``l`` of the Gray code ``m ^ (m >> 1)`` is set (Antonov and Saleev, 1979). PyTorch's C++ code makes one
number after the other, and writes memory without an op.
"""

from __future__ import annotations

import torch
from torch import Tensor

from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import call_at_key
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: The value of one unit of the integers of a sequence, which have 30 bits.
_UNIT = 2.0**-30


@rule("aten._sobol_engine_draw.default", recorded=True)
def _draw(
    quasi: Tensor, n: int, sobolstate: Tensor, dimension: int, num_generated: int, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Return the next ``n`` numbers, ``[n, dimension]`` in [0, 1), and the last of them as integers."""
    dtype = torch.float32 if dtype is None else dtype
    if not n:
        return quasi.new_empty((0, dimension), dtype=dtype), quasi.clone()
    index = torch.arange(num_generated + 1, num_generated + n + 1, device=quasi.device)
    changed = index ^ (index // 2) ^ (num_generated ^ (num_generated >> 1))
    numbers = quasi.expand(n, dimension)
    for bit in range(sobolstate.shape[1]):
        numbers = numbers ^ ((changed // (1 << bit)) & 1).unsqueeze(1) * sobolstate[:, bit]
    return numbers.to(dtype) * _UNIT, numbers[-1].clone()


@rule("aten._sobol_engine_ff_.default", recorded=True)
def _fast_forward(self: Tensor, n: int, sobolstate: Tensor, dimension: int, num_generated: int) -> Tensor:
    """Skip ``n`` numbers."""
    last = num_generated + n
    changed = last ^ (last >> 1) ^ num_generated ^ (num_generated >> 1)
    skipped = self
    for bit in range(sobolstate.shape[1]):
        if changed >> bit & 1:
            skipped = skipped ^ sobolstate[:, bit]
    return self.copy_(skipped)


@rule("aten._sobol_engine_initialize_state_.default", recorded=True)
def _initialize_state(self: Tensor, dimension: int) -> Tensor:
    """Write the direction numbers. Torch has a table of them, which only the op's C++ code can read; no tensor is read."""
    with no_current_modes():
        table = torch.zeros(self.shape, dtype=self.dtype, device="cpu")
        call_at_key(aten._sobol_engine_initialize_state_.default, "CompositeImplicitAutograd")(table, dimension)
    return self.copy_(table)


@rule("aten._sobol_engine_scramble_.default", recorded=True)
def _scramble(self: Tensor, ltm: Tensor, dimension: int) -> Tensor:
    """Multiply the bits of each direction number by the dimension's lower triangular matrix of bits (Owen, Matousek), modulo 2."""
    bits = ltm.shape[-1]
    weights = torch.tensor([1 << (bits - 1 - place) for place in range(bits)], device=self.device)
    rows = (ltm.tril(-1) * weights).sum(-1) + weights  # each row as an integer; the diagonal counts as ones
    common = self.unsqueeze(2) & rows.unsqueeze(1)
    for distance in (16, 8, 4, 2, 1):  # the parity of the bits ends in the last one
        common = common ^ (common // (1 << distance))
    return self.copy_(((common & 1) * weights).sum(-1))
