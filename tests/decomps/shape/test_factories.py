"""Factories by the default type of the moment, and what reaches prims."""

from __future__ import annotations

from typing import Any

import torch
from on_core import CORE, on
from torch.utils._python_dispatch import TorchDispatchMode

import eagerdecomp as ed

PRIMS = ed.prims()


def test_a_bool_reaches_prims_fill_as_one() -> None:
    filled: list[Any] = []

    class Numbers(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.prims.fill.default:
                filled.append(args[1])
            return func(*args, **(kwargs or {}))

    with Numbers(), on(PRIMS):
        torch.ones(2, dtype=torch.bool)
    assert [value is True for value in filled] == [True]


def test_the_default_type_is_asked_at_every_call() -> None:
    with on(CORE):
        assert torch.zeros(2).dtype is torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.zeros(2).dtype is torch.ones(2).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
