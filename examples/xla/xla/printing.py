"""Print tensors from a copy on the CPU. While torch prints, it disables modes and calls ops outside Core ATen."""

from __future__ import annotations

from typing import Any

from torch import Tensor, _tensor_str

from xla.device import NAME

__all__ = ["patch"]


def patch() -> None:
    """Make torch print the values of a tensor of the device from a copy on the CPU."""
    original: Any = _tensor_str._tensor_str

    def print_on_cpu(self: Tensor, indent: int) -> Any:
        return original(self.cpu() if self.device.type == NAME else self, indent)

    _tensor_str._tensor_str = print_on_cpu
