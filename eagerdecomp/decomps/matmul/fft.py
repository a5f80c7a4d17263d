"""Fourier transforms of complex signals as transforms of real signals, which Core ATen has.

The transform is linear, so ``F(a + ib) = F(a) + i F(b)``: one real transform of both parts at once, and one addition.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from eagerdecomp.eager.strides import inverse
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _by_stride(x: Tensor, dims: Sequence[int]) -> list[int]:
    strides = x.stride()
    return sorted(dims, key=lambda dim: -strides[dim])


def _permuted(x: Tensor, order: list[int]) -> Tensor:
    return x if order == sorted(order) else aten.permute.default(x, order)


def _order(x: Tensor, dim: Sequence[int], *, last_fixed: bool = False) -> list[int]:
    """Return the memory order of the kernel's result, outermost first: batch, then signal dimensions, each by stride.

    Transforms between real and complex signals keep the last entry of `dim` innermost (`last_fixed`).
    """
    signal = [d % x.dim() for d in dim]
    batch = [d for d in range(x.dim()) if d not in signal]
    moved = _by_stride(x, signal[:-1]) + signal[-1:] if last_fixed else _by_stride(x, signal)
    return _by_stride(x, batch) + moved


@rule("aten._fft_c2c.default", recorded=True)
def _c2c(self: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    if not dim:
        return aten.clone.default(self)  # type: ignore[no-any-return]
    order = _order(self, dim)
    parts = aten.view_as_real.default(_permuted(self, order))
    signal = list(range(self.dim() - len(dim), self.dim()))
    spectra = aten._fft_r2c.default(parts, signal, normalization, False)
    real, imaginary = aten.select.int(spectra, -1, 0), aten.select.int(spectra, -1, 1)
    if forward:
        out = aten.add.Tensor(real, imaginary, alpha=1j)
    else:
        # Exchanging real and imaginary parts before and after turns the forward transform into the backward one.
        turned = aten.view_as_real.default(aten.add.Tensor(imaginary, real, alpha=1j))
        out = aten.view_as_complex.default(aten.flip.default(turned, [-1]))
    return _permuted(out, inverse(order))
