"""How ATen's messages spell dtypes and shapes, and the refusal that all its kernels share."""

from __future__ import annotations

from collections.abc import Iterable

import torch

__all__ = ["not_implemented", "scalar_type_name", "shape_text"]

_SCALAR_TYPE_NAMES = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.uint16: "UInt16",
    torch.uint32: "UInt32",
    torch.uint64: "UInt64",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float16: "Half",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.bfloat16: "BFloat16",
    torch.float8_e4m3fn: "Float8_e4m3fn",
    torch.float8_e4m3fnuz: "Float8_e4m3fnuz",
    torch.float8_e5m2: "Float8_e5m2",
    torch.float8_e5m2fnuz: "Float8_e5m2fnuz",
    torch.complex32: "ComplexHalf",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def scalar_type_name(dtype: torch.dtype) -> str:
    """A dtype as ATen's messages spell it: ``Long``, ``ComplexFloat``."""
    return _SCALAR_TYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def not_implemented(kernel: str, dtype: torch.dtype) -> NotImplementedError:
    """The error by which a kernel of ATen's refuses a dtype."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type_name(dtype)}'")


def shape_text(shape: Iterable[int]) -> str:
    """A shape as ATen's messages spell it: ``[2, 3]``."""
    return "[" + ", ".join(map(str, shape)) + "]"
