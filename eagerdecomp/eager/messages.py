"""Names of dtypes and shapes in ATen's messages, and errors that many ATen kernels raise."""

from __future__ import annotations

import torch

__all__ = [
    "not_held",
    "not_implemented",
    "not_true",
    "scalar_type_name",
]


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
    torch.float8_e8m0fnu: "Float8_e8m0fnu",
    torch.complex32: "ComplexHalf",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def scalar_type_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in ATen's messages: ``Long``, ``ComplexFloat``."""
    return _SCALAR_TYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def not_held(dtype: torch.dtype) -> RuntimeError:
    """Return the error for a scalar that a dtype cannot represent."""
    return RuntimeError(f"value cannot be converted to type {dtype} without overflow")


def not_implemented(kernel: str, dtype: torch.dtype) -> NotImplementedError:
    """Return the error of an ATen kernel that does not support a dtype."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type_name(dtype)}'")


def not_true(condition: str) -> RuntimeError:
    """Return ATen's error for a failed check without a message of its own."""
    return RuntimeError(
        f"Expected {condition} to be true, but got false.  "
        "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
    )
