"""Ops of a scalar and a tensor, the number first, and what tracers make of tensor constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import on_core
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

INTEGERS, FLOATS = torch.arange(-2, 3), torch.tensor([1.0, -2.0, 3.0, 0.5])


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.bitwise_and(6, INTEGERS),
        lambda: torch.bitwise_or(6, INTEGERS),
        lambda: torch.bitwise_xor(True, INTEGERS > 0),
        lambda: torch.bitwise_xor(2, INTEGERS > 0),
        lambda: 2 % FLOATS,
        lambda: torch.remainder(-7, INTEGERS + 10),
        lambda: torch.remainder(2.5, INTEGERS + 10),
        lambda: torch.remainder(2, FLOATS.half()),
        lambda: torch.remainder(3, torch.tensor(2)),
        lambda: make_fx(lambda x: x + torch.tensor([0.0, 1.0, 2.0, 3.0]))(FLOATS)(FLOATS),
        lambda: torch.ops.aten.lift_fresh_copy(FLOATS[::2]),
    ],
)
def test_it_is_as_in_eager(call: Callable[[], Any]) -> None:
    want: Tensor = call()
    got = on_core(call)
    assert (got.dtype, got.stride()) == (want.dtype, want.stride())
    torch.testing.assert_close(got, want)
