"""Helpers of the tests of `verify=`: a verifying mode, and wrong kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed

EVERY_CALL = ed.Verify(every=1)
RECORD_EVERY_CALL = ed.Verify(every=1, on_difference="record")


def verifying_mode(kernels: dict[str, Callable[..., Any]], verify: Any = EVERY_CALL, **options: Any) -> ed.EagerDecompMode:
    """Return a mode on Core ATen in which these kernels replace torch's."""
    backend = ed.Backend("wrong", ed.core_aten(), dict(kernels.items()))
    return ed.EagerDecompMode(backend, verify=verify, **options)


def inexact_sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * 1.001


class WrongBetween:
    """A kernel of `exp` that is wrong from its call number ``first`` to its call number ``last``."""

    def __init__(self, first: int, last: int) -> None:
        self.calls, self.first, self.last = 0, first, last

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.exp(x) + (self.first <= self.calls <= self.last)


def run_silu() -> None:
    F.silu(torch.randn(3, 4))
