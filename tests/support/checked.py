"""Shared code of the tests of `verify=`: a mode that checks, and kernels that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed

ALL = ed.Verify(every=1)
RECORD = ed.Verify(every=1, on_difference="record")


def mode_of(kernels: dict[str, Callable[..., Any]], verify: Any = ALL, **options: Any) -> ed.EagerDecompMode:
    backend = ed.Backend("wrong", ed.core_aten(), dict(kernels.items()))
    return ed.EagerDecompMode(backend, verify=verify, **options)


def slightly_off(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * 1.001


class WrongFrom:
    """A kernel that is wrong from one of its calls on, up to another."""

    def __init__(self, first: int, last: int) -> None:
        self.calls, self.first, self.last = 0, first, last

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.exp(x) + (self.first <= self.calls <= self.last)


def silu() -> None:
    F.silu(torch.randn(3, 4))
