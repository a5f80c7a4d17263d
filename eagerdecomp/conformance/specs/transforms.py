"""Specs of Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import FAITHFUL, WIDE_FLOATS, in_layout, tensor
from eagerdecomp.conformance.spec import Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import wrong

__all__ = ["SPECS"]

_aten = torch.ops.aten

# Each value is a sum over all inputs, so small values have the same absolute error as large ones.
_NEAR = Near(24.0, "largest", zeros=False)
_LENGTHS = (4, 3, 1, 2, 5, 6, 8, 9, 16, 17, 64, 65, 127, 128, 1024, 1031)
_DIMS = ((-1,), (0,), (-2, -1), (-1, -2), (0, 1), (1, 0, 2), (0, 2), (2, 0))


def _signal(draw: Draw) -> tuple[torch.dtype, list[int], list[int]]:
    """Draw the dtype and sizes of a signal, and the dimensions to transform; the last of them is halved."""
    dtype = draw.pick("dtype", WIDE_FLOATS)
    chosen = draw.pick("dim", _DIMS)
    least = max(max(chosen) + 1, -min(chosen))
    rank = draw.pick("rank", [rank for rank in (2, 1, 3, 4) if rank >= least])
    dims = [dim % rank for dim in chosen]  # eager's functions normalize negative dims before they call this op
    sizes = [draw.pick("size", (3, 2, 1, 4, 5)) for _ in range(rank)]
    sizes[dims[-1]] = draw.pick("length", _LENGTHS)
    while math.prod(sizes) > 6000:
        sizes = [size if dim == dims[-1] else max(1, size - 1) for dim, size in enumerate(sizes)]
    return dtype, sizes, dims


def _r2c(draw: Draw) -> Call:
    dtype, sizes, dims = _signal(draw)
    normalization, onesided = draw.pick("normalization", (0, 1, 2)), not draw.flag("both sides")
    given = tensor(draw, "self", dtype, sizes, ("normal", "lattice", "uniform", "ones", "thousands", "small"))
    return Call([given, dims, normalization, onesided])


def _c2r(draw: Draw) -> Call:
    dtype, sizes, dims = _signal(draw)
    normalization = draw.pick("normalization", (0, 1, 2))
    # Use the spectrum of a real signal. For other half spectra the result depends on the algorithm.
    signal = tensor(draw, "signal", dtype, sizes, ("normal", "lattice", "uniform", "thousands"), ("contiguous",))
    spectrum = _aten._fft_r2c(signal, dims, draw.pick("of", (1, 0, 2)), True).contiguous()
    layout = draw.pick("self.layout", FAITHFUL)
    return Call([in_layout(spectrum.flatten(), spectrum.shape, layout), dims, normalization, sizes[dims[-1]]])


def _refused_r2c(draw: Draw) -> Call:
    return Call([torch.ones(4, 4, dtype=draw.pick("dtype", (torch.int64, torch.complex64, torch.bool))), [1], 0, True])


def _wrong_spectra() -> Sequence[Sequence[Any]]:
    given = torch.ones(4, 3, dtype=torch.complex64)
    return [given.real.clone(), [1], 0, 4], [given.real.long(), [1], 0, 4], [given, [1], 0, 0]


SPECS: dict[str, Spec] = {
    "aten._fft_r2c.default": Spec(_r2c, _NEAR, refused=_refused_r2c),
    "aten._fft_c2r.default": Spec(_c2r, _NEAR, refused=wrong(_wrong_spectra)),
}
