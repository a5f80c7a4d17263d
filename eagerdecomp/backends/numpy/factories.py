"""Kernels of factories and copies: fills, ranges, copies, conversions, and `item`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.backends.numpy.arrays import Array, Number, alike, allocate, common, formatted, read, scalar, store, to_tensor
from eagerdecomp.backends.numpy.reductions import axes, axis
from eagerdecomp.eager.strides import is_dense

__all__ = ["KERNELS"]

aten = torch.ops.aten


def _dtype_of(value: Number) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int):
        return torch.int64
    if isinstance(value, complex):
        return torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    return torch.get_default_dtype()


def _here(device: Any) -> None:
    if device is not None and torch.device(device).type != "cpu":
        raise NotImplementedError(f"the numpy backend makes no tensor on {device}")


def _full(size: Sequence[int], value: Number, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    _here(device)
    dtype = dtype or _dtype_of(value)
    return store(allocate(size, dtype), _filling(value, dtype, math.prod(size)))


def _scalar_tensor(value: Number, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    return _full([], value, dtype=dtype or torch.get_default_dtype(), device=device)


def _full_like(
    x: Tensor,
    value: Number,
    *,
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format | None = None,
    device: Any = None,
    **_: Any,
) -> Tensor:
    _here(device)
    dtype = dtype or x.dtype
    return store(alike(x, dtype, memory_format), _filling(value, dtype, x.numel()))


def _filling(value: Number, dtype: torch.dtype, count: int) -> Array:
    # Eager fills a single element differently: numbers too large for float16 and bfloat16 become infinite.
    half = dtype in (torch.float16, torch.bfloat16)
    return read(value, dtype) if half and count == 1 and not isinstance(value, complex) else scalar(value, dtype)


def _fill(x: Tensor, value: Number) -> Tensor:
    return _full_like(x, value)


def _clone(x: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    return store(alike(x, x.dtype, memory_format), read(x))


def _to_copy(
    x: Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    memory_format: torch.memory_format | None = None,
    **others: Any,
) -> Tensor:
    if (device is not None and torch.device(device).type != "cpu") or x.device.type != "cpu":
        made: Tensor = aten._to_copy.default(x, dtype=dtype, device=device, memory_format=memory_format, **others)
        return made  # between devices, torch copies
    return store(alike(x, dtype or x.dtype, memory_format), read(x))


def _copied_into(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    if (target.device.type, source.device.type) != ("cpu", "cpu"):
        made: Tensor = aten.copy_.default(target, source, non_blocking)
        return made
    if any(size > 1 and not step for size, step in zip(target.shape, target.stride(), strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    if _partly_one(target, source):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    return store(target, read(source))  # NumPy handles overlapping memory


def _partly_one(x: Tensor, y: Tensor) -> bool:
    """Return whether two dense tensors overlap partially."""
    if not (x.numel() and y.numel() and is_dense(x) and is_dense(y)):
        return False
    (first, end), (other, stop) = ((one.data_ptr(), one.data_ptr() + one.numel() * one.itemsize) for one in (x, y))
    if (first, end) == (other, stop):
        return x.stride() != y.stride()
    return first < stop and other < end


def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return store(alike(x, x.dtype), read(source))


def _arange(
    start: Number, end: Number, step: Number = 1, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> Tensor:
    _here(device)
    whole = all(isinstance(one, int) for one in (start, end, step))
    dtype = dtype or (torch.int64 if whole else torch.get_default_dtype())
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if not all(math.isfinite(one) for one in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if dtype is torch.int64:
        first, last, by = int(start), int(end), int(step)
        return to_tensor(first + by * np.arange(-(-(last - first) // by), dtype=np.int64), dtype)
    count = math.ceil((float(end) - float(start)) / float(step))
    if count >= 2**62:
        raise RuntimeError(f"invalid size, possible overflow: {count} numbers")
    if not dtype.is_floating_point:
        return to_tensor(int(start) + int(step) * np.arange(count, dtype=np.int64), dtype)
    return to_tensor(start + step * np.arange(count, dtype=np.float64), dtype)


def _item(x: Tensor) -> Number:
    found: Number = read(x).flat[0].item()
    return found


def _flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    return store(alike(x, x.dtype), np.flip(read(x), axes(list(dims), x.dim(), none_is_all=False)))


def _repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    if len(repeats) < x.dim():
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    return to_tensor(np.tile(read(x), tuple(repeats)), x.dtype)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    if not tensors:
        raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
    dtype = common(*tensors)
    joined = [one for one in tensors if one.dim() != 1 or one.shape[0]]  # legacy: an empty vector can be concatenated with anything
    if not joined:
        return to_tensor(np.empty(0), dtype)
    if not joined[0].dim():
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    values = np.concatenate([read(one, dtype) for one in joined], axis=axis(dim, joined[0].dim()))
    formats = {suggested_memory_format(one) for one in joined}
    return formatted(values, dtype, joined[0]) if len(formats) == 1 else to_tensor(values, dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "_local_scalar_dense": _item,
    "_to_copy": _to_copy,
    "arange.start_step": _arange,
    "cat": _cat,
    "clone": _clone,
    "copy": _copy,
    "copy_": _copied_into,
    "fill.Scalar": _fill,
    "flip": _flip,
    "full": _full,
    "full_like": _full_like,
    "repeat": _repeat,
    "scalar_tensor": _scalar_tensor,
}
