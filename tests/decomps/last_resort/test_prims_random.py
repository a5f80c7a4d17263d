"""Random numbers and Fourier transforms on prims."""

from __future__ import annotations

import pytest
import torch
from on_core import check, on_core

import eagerdecomp as ed

PRIMS = ed.prims()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_uniform_numbers_are_those_of_eagers_own_stream(dtype: torch.dtype) -> None:
    def draw() -> list[torch.Tensor]:
        torch.manual_seed(5)
        return [torch.rand(3, 4, dtype=dtype), torch.rand(2, dtype=dtype)]

    for ours, theirs in zip(on_core(draw, PRIMS), draw(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_of_real_and_complex_signals(norm: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5)
    check(torch.fft.rfftn, x, dim=(0, 2), norm=norm, ops=PRIMS)
    check(torch.fft.fft2, x, norm=norm, ops=PRIMS)
    check(torch.fft.ifft, torch.randn(3, 6, dtype=torch.complex64), norm=norm, ops=PRIMS)
    check(torch.fft.irfft, torch.randn(3, 4, dtype=torch.complex64), n=5, norm=norm, ops=PRIMS)
    check(torch.fft.hfft, torch.randn(3, 4, dtype=torch.complex64), norm=norm, ops=PRIMS)
