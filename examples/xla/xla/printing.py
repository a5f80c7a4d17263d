"""Printing: torch turns modes off for it, and asks the device for ops that Core ATen has not. The CPU prints a copy instead."""

from __future__ import annotations

from typing import Any

from torch import Tensor, _tensor_str

from xla.device import NAME

__all__ = ["patch"]


def patch() -> None:
    """Make torch write the numbers of a tensor of the device from a copy on the CPU; what it says of the tensor stays."""
    written: Any = _tensor_str._tensor_str

    def write(self: Tensor, indent: int) -> Any:
        return written(self.cpu() if self.device.type == NAME else self, indent)

    _tensor_str._tensor_str = write
