"""View tensors as NumPy arrays, and create result tensors: torch owns the memory, and NumPy computes in it.

torch allocates the memory of a result (`aten.empty_strided`), as it does on other devices. So a result can be resized and
shared and can have any strides. NumPy accesses the memory by its address, without a copy and without a torch op that a recorder
would see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.layouts import iterator_strides, keep_strides
from eagerdecomp.eager.messages import not_held
from eagerdecomp.eager.promotion import promoted
from eagerdecomp.eager.strides import in_order, is_dense, memory_order

__all__ = [
    "Array",
    "COMPUTED_IN",
    "Number",
    "alike",
    "allocate",
    "common",
    "compute",
    "floating",
    "formatted",
    "to_tensor",
    "is_floating",
    "memory",
    "read",
    "scalar",
    "store",
]

aten = torch.ops.aten

#: A NumPy array of any dtype, because kernels accept every dtype.
Array: TypeAlias = Any
Number: TypeAlias = Any

#: torch dtype -> NumPy dtype of its memory. NumPy has no bfloat16; `_from_bits` and `_to_bits` convert its bits.
_SEEN_AS: dict[torch.dtype, np.dtype[Any]] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(np.uint16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
}

_HALF = (torch.float16, torch.bfloat16)

#: torch dtype -> NumPy dtype of computations: float32 for float16 and bfloat16, rounded once at the end, as in eager.
COMPUTED_IN: dict[torch.dtype, np.dtype[Any]] = {
    **_SEEN_AS,
    torch.float16: np.dtype(np.float32),
    torch.bfloat16: np.dtype(np.float32),
}


class _Address:
    """The memory of a tensor in NumPy's array protocol. An array made from it keeps the tensor alive."""

    def __init__(self, tensor: Tensor, seen: np.dtype[Any]) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "typestr": seen.str,
            "strides": tuple(step * seen.itemsize for step in tensor.stride()),
        }


def memory(tensor: Tensor) -> Array:
    """View a tensor's memory as an array, without a copy; bfloat16 as its bits."""
    seen = _SEEN_AS.get(tensor.dtype)
    if seen is None or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise NotImplementedError(f"the numpy backend has no {tensor.dtype} on {tensor.device} ({tensor.layout})")
    if not tensor.numel():
        return np.empty(tuple(tensor.shape), seen)
    return np.asarray(_Address(tensor, seen))


def read(operand: Tensor | Number, dtype: torch.dtype | None = None) -> Array:
    """Return an operand's values in the dtype of the computation, converted to `dtype` if given; a view if possible."""
    if not isinstance(operand, Tensor):
        values = np.asarray(operand)
        return values if dtype is None else _promoted(values, dtype)
    values = memory(operand)
    if operand.dtype is torch.bfloat16:
        values = _from_bits(values)
    elif operand.dtype is torch.float16:
        values = values.astype(np.float32)
    if operand.is_conj():
        values = values.conj()
    if operand.is_neg():
        values = np.negative(values)
    if dtype is None or dtype is operand.dtype:
        return values
    return _promoted(values, dtype)


def _promoted(values: Array, dtype: torch.dtype) -> Array:
    """Convert values to the dtype of an operand: integers wrap, and float16 and bfloat16 values are rounded."""
    values = _converted(values, COMPUTED_IN[dtype])
    return read(to_tensor(values, dtype)) if dtype in _HALF else values


def scalar(value: Number, dtype: torch.dtype) -> Array:
    """Convert a scalar argument to a dtype, as eager's ``Scalar::to`` does.

    Raises:
        RuntimeError: for a number too large for the dtype, or a complex one for a real dtype.
    """
    if not _fits(value, dtype):
        raise not_held(dtype)
    if isinstance(value, complex) and not dtype.is_complex and dtype is not torch.bool:
        value = value.real
    if isinstance(value, float) and not is_floating(dtype) and dtype is not torch.bool:
        value = int(value)
    return _promoted(np.asarray(value), dtype)


def _fits(value: Number, dtype: torch.dtype) -> bool:
    if dtype is torch.bool or isinstance(value, bool):
        return True
    if dtype.is_complex:
        return _fits(value.real, dtype.to_real()) and _fits(value.imag, dtype.to_real())
    if isinstance(value, complex):
        return value.imag == 0 and _fits(value.real, dtype)
    if dtype.is_floating_point:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    most = int(torch.iinfo(dtype).max)
    least = int(torch.iinfo(dtype).min)
    if not least and isinstance(value, int):
        least = -most  # uint8 accepts -1 as 255
    return bool(least <= value <= most)


def store(tensor: Tensor, values: Array | Number) -> Tensor:
    """Write values to the tensor's memory, converted to its dtype."""
    values = np.asarray(values)
    if tensor.is_conj():
        values = values.conj()
    if tensor.is_neg():
        values = np.negative(values)
    if tensor.dtype is torch.bfloat16:
        values = _to_bits(_converted(values, np.dtype(np.float32)))
    elif tensor.dtype is torch.float16 and values.dtype.kind not in "b":
        values = _converted(values, np.dtype(np.float32))
    room = memory(tensor)
    room[...] = np.broadcast_to(_converted(values, room.dtype), room.shape)  # NumPy alone would drop leading dimensions of size 1
    return tensor


def _converted(values: Array, dtype: np.dtype[Any]) -> Array:
    if values.dtype == dtype:
        return values
    if values.dtype.kind == "c" and dtype.kind != "c":
        values = values != 0 if dtype.kind == "b" else values.real
    if values.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize < 4:
        values = values.astype(np.int64)  # through int64, as in torch's C++: -1.0 becomes 255 as uint8
    return values.astype(dtype)


def _from_bits(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_bits(values: Array) -> Array:
    """Round float32 to bfloat16, to nearest even."""
    bits = np.ascontiguousarray(values).view(np.uint32).reshape(values.shape)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


# -- results ------------------------------------------------------------------------------------------------------


def allocate(shape: Sequence[int], dtype: torch.dtype, order: Sequence[int] | None = None) -> Tensor:
    """Allocate an uninitialized tensor: contiguous, or with the memory order of dimensions in `order`, outermost first."""
    return _empty(shape, dtype, in_order(shape, range(len(shape)) if order is None else order))


def _empty(shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int]) -> Tensor:
    made: Tensor = aten.empty_strided.default(list(shape), list(strides), dtype=dtype, device="cpu")
    return made


def alike(x: Tensor, dtype: torch.dtype, memory_format: torch.memory_format | None = None) -> Tensor:
    """Allocate a tensor with the strides of ``empty_like``."""
    preserving = memory_format in (None, torch.preserve_format)
    ranks = {torch.channels_last: 4, torch.channels_last_3d: 5}
    if memory_format in ranks and x.dim() != ranks[memory_format]:
        raise RuntimeError(f"required rank {ranks[memory_format]} tensor to use {str(memory_format).removeprefix('torch.')} format")
    if preserving and is_dense(x):
        return _empty(x.shape, dtype, x.stride())
    return allocate(x.shape, dtype, memory_order(x, None if preserving else memory_format))


def to_tensor(values: Array | Number, dtype: torch.dtype, operands: Sequence[Any] = ()) -> Tensor:
    """Return a new tensor of these values: contiguous, or with the strides of an elementwise op of the operands."""
    values = np.asarray(values)
    if keep_strides(operands):
        return store(allocate(values.shape, dtype), values)
    return store(_empty(values.shape, dtype, iterator_strides(values.shape, operands)), values)


def formatted(values: Array, dtype: torch.dtype, *givers: Tensor) -> Tensor:
    """Return a new tensor of these values: channels last if one of the tensors `givers` is, else contiguous."""
    last = (torch.channels_last, torch.channels_last_3d)
    if not any(one.dim() == values.ndim and suggested_memory_format(one) in last for one in givers):
        return to_tensor(values, dtype)
    return store(allocate(values.shape, dtype, [0, *range(2, values.ndim), 1]), values)


def compute(function: Callable[..., Any], operands: Sequence[Any], dtype: torch.dtype, given: torch.dtype | None = None) -> Tensor:
    """Compute an elementwise function of tensors and scalars in `dtype`; the result has the dtype `given`, or `dtype`."""
    return to_tensor(function(*(read(operand, dtype) for operand in operands)), given or dtype, operands)


# -- dtypes -------------------------------------------------------------------------------------------------------


def is_floating(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def floating(dtype: torch.dtype) -> torch.dtype:
    """Return the result dtype of real functions: the default dtype for integers."""
    return dtype if is_floating(dtype) else torch.get_default_dtype()


def common(*operands: Tensor | Number) -> torch.dtype:
    """Return the dtype that operands promote to: that of the tensors, unless a scalar is of a higher kind (as float over int)."""
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    found = promoted(tensors) if tensors else torch.bool
    for operand in operands:
        if isinstance(operand, Tensor):
            continue
        if isinstance(operand, complex) and not found.is_complex:
            found = torch.complex128 if floating(found) is torch.float64 else torch.complex64
        elif isinstance(operand, float) and not is_floating(found):
            found = torch.get_default_dtype()
        elif isinstance(operand, int) and not isinstance(operand, bool) and found is torch.bool:
            found = torch.int64
    return found
