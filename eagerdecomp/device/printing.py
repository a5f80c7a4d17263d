"""Print tensors from a copy on the CPU. While torch prints, it disables modes and calls ops outside Core ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from eagerdecomp._torch.python_device import wrap_printing

__all__ = ["print_from_cpu"]


def print_from_cpu(name: str) -> None:
    """Make torch print the elements of tensors of the device from a copy on the CPU."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def elements_as_text(self: Tensor, indent: int) -> Any:
            return original(self.cpu() if self.device.type == name else self, indent)

        return elements_as_text

    wrap_printing(make)
