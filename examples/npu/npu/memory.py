"""Tensors of the device. The Python object of their storage has an attribute with the CPU memory that kernels use.

A storage has one Python object, which lives as long as the storage in C++. So all views share the attribute, and `detach`, `.data`
and autograd's saved tensors keep it. An attribute of the tensor would be lost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from npu.device import NAME

__all__ = ["memory_of", "new_storage", "on_cpu", "on_meta", "set_layout", "view", "with_layout", "wrap"]

aten = torch.ops.aten
_META, _CPU_KEY = torch._C.DispatchKey.Meta, torch._C.DispatchKey.CPU
_empty = torch._C._acc.create_empty_tensor
# These kernels only set sizes, strides and offsets.
_set = aten.set_.source_Storage_storage_offset._op_dk
_storage_at: Any = torch._C._construct_storage_from_data_pointer
_CPU = torch.device("cpu")


def new_storage(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return a storage of the device with the address of CPU memory. It neither owns nor resizes the memory."""
    storage: torch.UntypedStorage = _storage_at(memory.data_ptr(), torch.device(NAME, 0), memory.nbytes())
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
        memory = _storage_at(storage.data_ptr(), _CPU, storage.nbytes())
        storage.memory = memory  # type: ignore[attr-defined]
    return memory


def with_layout(
    dtype: torch.dtype, storage: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """Return a tensor of the device with this storage, offset, size and stride."""
    tensor: Tensor = _set(_CPU_KEY, _empty((0,), dtype), storage, offset, size, stride)
    return tensor


def wrap(tensor: Tensor) -> Tensor:
    """Return a tensor of the device with the memory of a CPU tensor."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    storage = new_storage(tensor.untyped_storage())
    return with_layout(tensor.dtype, storage, int(tensor.storage_offset()), tensor.shape, tensor.stride())


def on_cpu(tensor: Tensor) -> Tensor:
    """Return a CPU tensor that shares the memory of a tensor of the device."""
    memory = memory_of(tensor.untyped_storage())
    shared = torch.empty(0, dtype=tensor.dtype, device=_CPU)
    shared.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.is_conj():
        shared = shared.conj()
    return torch._neg_view(shared) if tensor.is_neg() else shared


def set_layout(tensor: Tensor, storage: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Change the storage, offset, size and stride of a tensor. If the storage is too small, use a larger copy of it."""
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    needed = (last + 1) * tensor.element_size() if 0 not in size else 0
    if needed > storage.nbytes():
        memory = torch.UntypedStorage(needed, device="cpu")
        on_cpu(with_layout(torch.uint8, new_storage(memory), 0, [storage.nbytes()], [1])).copy_(
            on_cpu(with_layout(torch.uint8, storage, 0, [storage.nbytes()], [1]))
        )
        storage = new_storage(memory)
    _set(_CPU_KEY, tensor, storage, offset, size, stride)
    return tensor


def on_meta(op: Any) -> Callable[..., Any]:
    """Return an op's Meta kernel as a function for tensors of the device."""
    return functools.partial(op._op_dk, _META)


_as_strided = on_meta(aten.as_strided.default)


def view(base: Tensor, like: Tensor) -> Tensor:
    """Return a view of `base` with the sizes, strides and offset of `like`, a CPU view of the same memory."""
    result: Tensor = _as_strided(base, like.shape, like.stride(), like.storage_offset())
    return result
