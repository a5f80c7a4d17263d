"""Storages that torch creates, pickles or sends to another process without calling a kernel.

`copy.deepcopy`, `torch.load` and ``UntypedStorage(n, device=...)`` call the device's allocator. It can be registered only in C++,
and without it torch crashes. Workers of a `DataLoader` send storages as file descriptors, which only CPU storages have.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from eagerdecomp._torch.python_device import load_pickled_storage, reduce_storage
from eagerdecomp.device.module import DeviceModule
from eagerdecomp.errors import InstallError

__all__ = ["NewStorage", "replace_storages"]

#: Returns a storage of the device with the bytes of a storage of the CPU.
NewStorage = Callable[[torch.UntypedStorage], torch.UntypedStorage]


#: Device -> the function that `make_device` got for it.
_new_storage: dict[str, NewStorage | None] = {}


def replace_storages(module: DeviceModule, new_storage: NewStorage | None) -> None:
    """Make torch allocate storages of the device by `new_storage`, and send them between processes as copies on the CPU."""
    name = module.device_type
    _new_storage[name] = new_storage
    # In a process that was started by spawn, the import of this module makes the device.
    module_name = getattr(new_storage, "__module__", None)
    original: Any = torch.UntypedStorage.__new__
    original_new: Any = torch.UntypedStorage.new

    def create(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != name:
            return original(cls, *args, device=device, **kwargs)
        module.check_index(device)
        memory = torch.UntypedStorage(*args, device="cpu", **kwargs)  # type: ignore[no-untyped-call]
        return _allocate(name, memory)

    def new(self: torch.UntypedStorage) -> Any:
        return create(type(self), device=self.device) if self.device.type == name else original_new(self)

    def reduce_for_process(storage: torch.UntypedStorage) -> Any:
        if storage.device.type != name:
            return reduce_storage(storage)
        return _rebuild, (name, module_name, storage.cpu())  # type: ignore[no-untyped-call]

    torch.UntypedStorage.__new__ = create  # type: ignore[method-assign]
    torch.UntypedStorage.new = new  # type: ignore[assignment,method-assign]
    for pickled in (torch.UntypedStorage, torch.TypedStorage):
        _pickle_as_saved(pickled, name)
    ForkingPickler.register(torch.UntypedStorage, reduce_for_process)


def _allocate(name: str, memory: torch.UntypedStorage) -> torch.UntypedStorage:
    new_storage = _new_storage[name]
    if new_storage is None:
        raise NotImplementedError(
            f"torch cannot allocate memory of {name!r} without a kernel, since its package passes no new_storage to make_device. "
            "Use clone(), or copy the tensor to the CPU first"
        )
    return new_storage(memory)


def _rebuild(name: str, module_name: str | None, memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return the storage that another process has sent."""
    if name not in _new_storage and module_name is not None:
        importlib.import_module(module_name)
    if name not in _new_storage:
        raise InstallError(f"this process has no device {name!r}: import the package that makes it, in each process")
    return _allocate(name, memory)


def _pickle_as_saved(kind: Any, name: str) -> None:
    """Make `pickle` write a storage of the device as `torch.save` does. Its older format reads the address of the storage."""
    original = kind.__reduce__

    def reduce(self: Any) -> Any:
        if getattr(self, "_untyped_storage", self).device.type != name:
            return original(self)
        file = io.BytesIO()
        torch.save(self, file)
        return load_pickled_storage, (file.getvalue(),)

    kind.__reduce__ = reduce
