"""Storages of the device made directly, as `copy.deepcopy`, `torch.load` and ``UntypedStorage(n, device="npu")`` make them.

torch would ask the device's allocator, which can be given in C++ alone, and crashes where there is none.
"""

from __future__ import annotations

from typing import Any

import torch

from npu.memory import new_storage

__all__ = ["patch"]


def patch() -> None:
    """Make `torch.UntypedStorage` ask us for storages on the device."""
    made_by_torch = torch.UntypedStorage.__new__

    def made(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != "npu":
            return made_by_torch(cls, *args, device=device, **kwargs)
        return new_storage(torch.UntypedStorage(*args, device="cpu", **kwargs))

    torch.UntypedStorage.__new__ = made  # type: ignore[assignment,method-assign]
