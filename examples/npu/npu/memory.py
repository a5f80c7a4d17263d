"""Memory: a tensor of the device is one for torch alone; its storage carries CPU memory that the kernels work on.

torch makes one object for a storage in C++, and one Python object for that, which lives as long: what hangs on it is shared by all
views, and survives `detach`, `.data` and what autograd saves. On the tensor it would not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from npu.device import NAME

__all__ = ["lay", "memory_of", "new_storage", "on_cpu", "on_meta", "place", "view", "wrap"]

aten = torch.ops.aten
_META, _CPU_KEY = torch._C.DispatchKey.Meta, torch._C.DispatchKey.CPU
_empty = torch._C._acc.create_empty_tensor
# These kernels set sizes, strides and offsets, and look at no data.
_set = aten.set_.source_Storage_storage_offset._op_dk
_storage_at: Any = torch._C._construct_storage_from_data_pointer
_CPU = torch.device("cpu")


def new_storage(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of the device over CPU memory. It has its address, but neither owns nor resizes it."""
    storage: torch.UntypedStorage = _storage_at(memory.data_ptr(), torch.device(NAME, 0), memory.nbytes())
    storage.memory = memory  # type: ignore[attr-defined]
    return storage


def memory_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The CPU memory of a storage.

    Raises:
        RuntimeError: where it has none.
    """
    memory: torch.UntypedStorage | None = getattr(storage, "memory", None)
    if memory is None:
        if not storage.data_ptr() and storage.nbytes():
            raise RuntimeError(f"a storage of {storage.nbytes()} bytes on {storage.device} without memory: no kernel here made it")
        # Made by torch of one of ours, whose memory it keeps alive: a slice, or what comes out of a file.
        memory = _storage_at(storage.data_ptr(), _CPU, storage.nbytes())
        storage.memory = memory  # type: ignore[attr-defined]
    return memory


def place(dtype: torch.dtype, storage: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """A tensor of the device in a storage."""
    made: Tensor = _set(_CPU_KEY, _empty((0,), dtype), storage, offset, size, stride)
    return made


def wrap(made: Tensor) -> Tensor:
    """A tensor of the device with the memory of a CPU tensor."""
    if made.is_conj() or made.is_neg():
        made = made.resolve_conj().resolve_neg()
    return place(made.dtype, new_storage(made.untyped_storage()), int(made.storage_offset()), made.shape, made.stride())


def on_cpu(tensor: Tensor) -> Tensor:
    """A CPU tensor over the memory of a tensor of the device."""
    memory = memory_of(tensor.untyped_storage())
    made = torch.empty(0, dtype=tensor.dtype, device=_CPU)
    made.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.is_conj():
        made = made.conj()
    return torch._neg_view(made) if tensor.is_neg() else made


def lay(tensor: Tensor, storage: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Lay a tensor of the device again, in this storage, or in a larger copy of it where that has no room."""
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    needed = (last + 1) * tensor.element_size() if 0 not in size else 0
    if needed > storage.nbytes():
        memory = torch.UntypedStorage(needed, device="cpu")
        on_cpu(place(torch.uint8, new_storage(memory), 0, [storage.nbytes()], [1])).copy_(
            on_cpu(place(torch.uint8, storage, 0, [storage.nbytes()], [1]))
        )
        storage = new_storage(memory)
    _set(_CPU_KEY, tensor, storage, offset, size, stride)
    return tensor


def on_meta(op: Any) -> Callable[..., Any]:
    """An op's Meta kernel, to be called with tensors of the device."""
    return functools.partial(op._op_dk, _META)


_as_strided = on_meta(aten.as_strided.default)


def view(base: Tensor, like: Tensor) -> Tensor:
    """A view of the storage of `base` with the sizes, strides and offset of a CPU view of its memory."""
    made: Tensor = _as_strided(base, like.shape, like.stride(), like.storage_offset())
    return made
