"""Products of 8-bit floats with scales, off the CPU."""

from __future__ import annotations

import torch

import eagerdecomp as ed


def test_off_the_cpu_a_product_in_float8_saturates() -> None:
    """CUDA's kernel does; the CPU's overflows to NaN."""
    left = torch.empty(16, 32, device="meta", dtype=torch.float8_e4m3fn)
    right, scale = torch.empty(32, 16, device="meta", dtype=torch.float8_e4m3fn), torch.empty((), device="meta")
    for device, clamps in (("meta", 1), ("cpu", 0)):
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.core_aten()):
            torch._scaled_mm(*(torch.zeros_like(one, device=device) for one in (left, right, scale, scale)), out_dtype=left.dtype)
        assert seen.ops[torch.ops.aten.clamp.default] == clamps
