"""Tensors of the device. The Python object of their storage has an attribute with the CPU memory that kernels use.

A storage has one Python object, which lives as long as the storage in C++. So all views share the attribute, and `detach`, `.data`
and autograd's saved tensors keep it. An attribute of the tensor would be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.device import meta_kernel, set_layout, storage_at, tensor_in

__all__ = ["memory_of", "new_storage", "on_cpu", "resize", "view", "wrap"]

_CPU = torch.device("cpu")
_cpu_storage_at: Any = torch._C._construct_storage_from_data_pointer


def new_storage(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return a storage of the device with the address of CPU memory. It neither owns nor resizes the memory."""
    storage = storage_at(memory.data_ptr(), memory.nbytes())
    storage.memory = memory  # type: ignore[attr-defined]
    return storage


def memory_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return the CPU memory of a storage.

    Raises:
        RuntimeError: if it has none.
    """
    memory: torch.UntypedStorage | None = getattr(storage, "memory", None)
    if memory is None:
        if not storage.data_ptr() and storage.nbytes():
            raise RuntimeError(
                f"a storage of {storage.nbytes()} bytes on {storage.device} has no memory: no kernel here created it"
            )
        # torch made this storage from one of ours and keeps that alive: a slice, or a storage that was loaded from a file.
        memory = _cpu_storage_at(storage.data_ptr(), _CPU, storage.nbytes())
        storage.memory = memory  # type: ignore[attr-defined]
    return memory


def wrap(tensor: Tensor) -> Tensor:
    """Return a tensor of the device with the memory of a CPU tensor."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    storage = new_storage(tensor.untyped_storage())
    return tensor_in(storage, tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride())


def on_cpu(tensor: Tensor) -> Tensor:
    """Return a CPU tensor that shares the memory of a tensor of the device."""
    memory = memory_of(tensor.untyped_storage())
    shared = torch.empty(0, dtype=tensor.dtype, device=_CPU)
    shared.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.is_conj():
        shared = shared.conj()
    return torch._neg_view(shared) if tensor.is_neg() else shared


def resize(tensor: Tensor, storage: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Change the storage, offset, size and stride of a tensor. If the storage is too small, use a larger copy of it."""
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    needed = (last + 1) * tensor.element_size() if 0 not in size else 0
    if needed > storage.nbytes():
        memory = torch.UntypedStorage(needed, device="cpu")
        memory[: storage.nbytes()].copy_(memory_of(storage))
        storage = new_storage(memory)
    return set_layout(tensor, storage, offset, size, stride)


_as_strided = meta_kernel(torch.ops.aten.as_strided.default)


def view(base: Tensor, like: Tensor) -> Tensor:
    """Return a view of `base` with the sizes, strides and offset of `like`, a CPU view of the same memory."""
    result: Tensor = _as_strided(base, like.shape, like.stride(), like.storage_offset())
    return result
