"""Sobol sequences: every op of `torch.quasirandom.SobolEngine`, which are written by C++ code without an op in eager."""

from __future__ import annotations

import pytest
import torch
from on_core import on_core
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten


def state(dimension: int) -> Tensor:
    return aten._sobol_engine_initialize_state_(torch.zeros(dimension, 30, dtype=torch.int64), dimension)


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


def test_a_scrambled_state_is_eagers() -> None:
    ltm = torch.randint(0, 2, (4, 30, 30), generator=torch.Generator().manual_seed(0)).tril()
    want, got = state(4), state(4)
    aten._sobol_engine_scramble_(want, ltm, 4)
    assert on_core(lambda: aten._sobol_engine_scramble_(got, ltm, 4)) is got
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_half_is_refused_as_in_eager() -> None:
    call = (torch.zeros(2, dtype=torch.int64), 3, state(2), 2, 0, torch.float16)
    with pytest.raises(NotImplementedError, match=r"not implemented for 'Half'") as refused:
        aten._sobol_engine_draw(*call)
    with pytest.raises(NotImplementedError, match=str(refused.value)), ed.EagerDecompMode(ed.core_aten()):
        aten._sobol_engine_draw(*call)
