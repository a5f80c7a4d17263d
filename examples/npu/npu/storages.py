"""Storages, which torch handles directly: making them, pickling them, and sending them to another process.

`copy.deepcopy`, `torch.load` and ``UntypedStorage(n, device=...)`` make some, and torch asks the device's allocator, which can be
given in C++ alone, and crashes without one. A `DataLoader`'s workers send some, by file descriptors, and only the CPU has those.
"""

from __future__ import annotations

import io
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor
from torch.nn import Parameter
from torch.storage import _load_from_bytes

from npu.device import NAME, check_index
from npu.memory import new_storage

__all__ = ["patch"]


def patch() -> None:
    """Make `torch.UntypedStorage` ask us for storages on the device, and send tensors between processes by way of the CPU."""
    made_by_torch: Any = torch.UntypedStorage.__new__

    def made(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != NAME:
            return made_by_torch(cls, *args, device=device, **kwargs)
        check_index(device)
        return new_storage(torch.UntypedStorage(*args, device="cpu", **kwargs))

    torch.UntypedStorage.__new__ = made  # type: ignore[method-assign]
    for pickled in (torch.UntypedStorage, torch.TypedStorage):
        _pickle_as_saved(pickled)
    for kind in (Tensor, Parameter):
        ForkingPickler.register(kind, _sent)


def _pickle_as_saved(kind: Any) -> None:
    """Have `pickle` write a storage of the device as `torch.save` does. Its older format reads the address of the storage."""
    made_by_torch = kind.__reduce__

    def reduced(self: Any) -> Any:
        if getattr(self, "_untyped_storage", self).device.type != NAME:
            return made_by_torch(self)
        file = io.BytesIO()
        torch.save(self, file)
        return _load_from_bytes, (file.getvalue(),)

    kind.__reduce__ = reduced


def _sent(tensor: Tensor) -> Any:
    if tensor.device.type != NAME:
        return reduce_tensor(tensor)
    return _received, (tensor.detach().cpu(), isinstance(tensor, Parameter), tensor.requires_grad)


def _received(tensor: Tensor, is_parameter: bool, requires_grad: bool) -> Tensor:
    made = tensor.to(NAME)
    return Parameter(made, requires_grad) if is_parameter else made.requires_grad_(requires_grad)
