"""Stacks have eager's layouts, for any layouts of the tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from on_core import CORE, check, on

PLACED: dict[str, Callable[[], torch.Tensor]] = {
    "row major": lambda: torch.randn(2, 3, 4, 5),
    "channels last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(2, 4, 3, 5).transpose(1, 2),
    "expanded": lambda: torch.randn(3, 4, 5).expand(2, 3, 4, 5),
    "gapped": lambda: torch.randn(2, 3, 4, 10)[..., ::2],
}


@pytest.mark.parametrize("first", PLACED)
@pytest.mark.parametrize("second", PLACED)
def test_stacked_layouts_are_eagers(first: str, second: str) -> None:
    x, y = PLACED[first](), PLACED[second]()
    for dim in range(-5, 5):
        check(torch.stack, [x, y], dim)


def test_stacking_leaves_no_program_for_each_size() -> None:
    with on(CORE) as (mode, _):
        for length in range(3, 9):
            torch.stack([torch.randn(2, length, 3).transpose(1, 2)] * 3)
    assert mode.stats()["aten.stack.default"].misses == 0
