"""Storages that torch creates, pickles or sends to another process without calling a kernel.

`copy.deepcopy`, `torch.load` and ``UntypedStorage(n, device=...)`` call the device's allocator. It can be registered only in C++,
and without it torch crashes. Workers of a `DataLoader` send storages as file descriptors, which only CPU storages have.
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

from xla.device import NAME, check_index
from xla.memory import new_storage

__all__ = ["patch"]


def patch() -> None:
    """Make `torch.UntypedStorage` create storages of the device, and send tensors between processes as CPU copies."""
    original: Any = torch.UntypedStorage.__new__

    def create(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != NAME:
            return original(cls, *args, device=device, **kwargs)
        check_index(device)
        return new_storage(torch.UntypedStorage(*args, device="cpu", **kwargs))

    torch.UntypedStorage.__new__ = create  # type: ignore[method-assign]
    for pickled in (torch.UntypedStorage, torch.TypedStorage):
        _pickle_as_saved(pickled)
    for kind in (Tensor, Parameter):
        ForkingPickler.register(kind, _reduce)


def _pickle_as_saved(kind: Any) -> None:
    """Make `pickle` write a storage of the device as `torch.save` does. Its older format reads the address of the storage."""
    original = kind.__reduce__

    def reduce(self: Any) -> Any:
        if getattr(self, "_untyped_storage", self).device.type != NAME:
            return original(self)
        file = io.BytesIO()
        torch.save(self, file)
        return _load_from_bytes, (file.getvalue(),)

    kind.__reduce__ = reduce


def _reduce(tensor: Tensor) -> Any:
    if tensor.device.type != NAME:
        return reduce_tensor(tensor)
    return _rebuild, (tensor.detach().cpu(), isinstance(tensor, Parameter), tensor.requires_grad)


def _rebuild(tensor: Tensor, is_parameter: bool, requires_grad: bool) -> Tensor:
    on_device = tensor.to(NAME)
    return Parameter(on_device, requires_grad) if is_parameter else on_device.requires_grad_(requires_grad)
