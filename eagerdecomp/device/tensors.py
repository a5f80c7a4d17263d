"""Tensors and storages of the device, for kernels that allocate, resize and make views. None of these functions reads memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp._torch.python_device import call_at_cpu, call_at_meta, empty_tensor, storage_at

__all__ = ["meta_kernel", "set_layout", "storage_at", "tensor_in"]

_set: OpOverload = op_called("aten.set_.source_Storage_storage_offset")


def set_layout(tensor: Tensor, storage: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Change the storage, offset, size and stride of a tensor of the device, and return it.

    Args:
        tensor: the tensor.
        storage: a storage of the device, which must be large enough.
        offset: where the first element is, counted in elements.
        size: the sizes.
        stride: the strides, counted in elements.

    Returns:
        The same tensor.
    """
    call_at_cpu(_set, tensor, storage, offset, size, stride)
    return tensor


def tensor_in(storage: torch.UntypedStorage, dtype: torch.dtype, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Return a new tensor of the device in a storage.

    The Python object of a storage lives as long as the storage in C++, and all views share it. So an attribute of it can hold the
    memory of the device. An attribute of a tensor would be lost by `detach` and in autograd's saved tensors.

    Args:
        storage: a storage of the device, such as `storage_at` returns.
        dtype: the dtype of the elements.
        offset: where the first element is, counted in elements.
        size: the sizes.
        stride: the strides, counted in elements.

    Returns:
        The tensor.

    Examples:
        >>> storage = storage_at(buffer.address, 4 * 6)
        >>> storage.buffer = buffer
        >>> tensor_in(storage, torch.float32, 0, (2, 3), (3, 1))
    """
    return set_layout(empty_tensor((0,), dtype), storage, offset, size, stride)


def meta_kernel(op: OpOverload) -> Callable[..., Any]:
    """Return torch's Meta kernel of an op, as a function for tensors of the device.

    For an op that makes a view, it is a complete kernel: the view has the storage of its base.

    Args:
        op: an overload whose Meta kernel makes a view, such as ``torch.ops.aten.as_strided.default``.

    Returns:
        The function.
    """
    return functools.partial(call_at_meta, op)
