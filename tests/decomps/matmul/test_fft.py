"""Fourier transforms that are composite: whole in inference mode."""

from __future__ import annotations

import pytest
import torch
from on_core import check
from torch import Tensor

aten = torch.ops.aten


@pytest.mark.parametrize("name", ["fft_fftn", "fft_ifft2", "fft_hfft", "fft_rfft"])
def test_not_decomposed_in_inference_mode(name: str) -> None:
    def run(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return getattr(aten, name).default(x)

    check(run, torch.randn(3, 6))


def test_out_of_ihfft_has_the_strides_of_the_transform() -> None:
    whole = torch.inference_mode()(lambda x, out: torch.fft.ihfft(x, dim=1, out=out))
    check(whole, torch.randn(5, 6, 7), torch.empty(0, dtype=torch.complex64))
