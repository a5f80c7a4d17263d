"""Sobol sequences: every op of `torch.quasirandom.SobolEngine`, which are written by C++ code without an op in eager."""

from __future__ import annotations

import pytest
import torch
from on_core import on_core
from torch import Tensor


def engine_run(dimension: int, dtype: torch.dtype) -> list[Tensor]:
    engine = torch.quasirandom.SobolEngine(dimension)
    found = [engine.draw(count, dtype=dtype) for count in (7, 1, 0)]
    engine.fast_forward(13)
    found.append(engine.draw(4, dtype=dtype))
    engine.reset()
    return [*found, engine.draw(300, dtype=dtype), engine.sobolstate, engine.quasi]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dimension", [1, 5])
def test_an_engine_draws_and_skips_as_in_eager(dimension: int, dtype: torch.dtype) -> None:
    for got, want in zip(on_core(lambda: engine_run(dimension, dtype)), engine_run(dimension, dtype), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        assert got.stride() == want.stride()
