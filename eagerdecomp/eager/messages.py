"""Names of dtypes and shapes in ATen's messages, and errors that many ATen kernels raise."""

from __future__ import annotations

from collections.abc import Iterable

import torch

__all__ = [
    "cpp_name",
    "dimension_error",
    "no_cast",
    "not_held",
    "not_implemented",
    "not_true",
    "scalar_type_name",
    "shape_text",
    "type_name",
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
    torch.complex32: "ComplexHalf",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def scalar_type_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in ATen's messages: ``Long``, ``ComplexFloat``."""
    return _SCALAR_TYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


_CPP_NAMES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.complex64: "c10::complex<float>",
    torch.complex128: "c10::complex<double>",
    torch.int64: "long int",
    torch.int32: "int",
    torch.int16: "short int",
    torch.int8: "signed char",
    torch.uint8: "unsigned char",
    torch.uint16: "short unsigned int",
    torch.uint32: "unsigned int",
    torch.uint64: "long unsigned int",
    torch.bool: "bool",
    torch.complex32: "c10::complex<c10::Half>",
}


def type_name(dtype: torch.dtype) -> str:
    """Return the name of the CPU's tensor type, ``torch.FloatTensor``, as older checks of ATen print it.

    Types that the legacy constructors lack have the name of their C++ type.
    """
    name = scalar_type_name(dtype)
    return f"torch.{name}Tensor" if hasattr(torch, f"{name}Tensor") else f"CPU{name}Type"


def cpp_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in C++: ``long int``, ``c10::Half``."""
    return _CPP_NAMES.get(dtype, scalar_type_name(dtype))


def no_cast(source: torch.dtype, target: torch.dtype) -> RuntimeError:
    """Return eager's error for writing a result into a tensor whose dtype it cannot be cast to."""
    found, wanted = scalar_type_name(source), scalar_type_name(target)
    return RuntimeError(f"result type {found} can't be cast to the desired output type {wanted}")


def not_held(dtype: torch.dtype) -> RuntimeError:
    """Return eager's error for a scalar that a dtype cannot represent. It uses C++ names of integers (``int``, ``int64_t``)."""
    if dtype.is_floating_point or dtype.is_complex:
        name = cpp_name(dtype)
    else:
        name = "int" if dtype is torch.int32 else f"{str(dtype).removeprefix('torch.')}_t"
    return RuntimeError(f"value cannot be converted to type {name} without overflow")


def not_implemented(kernel: str, dtype: torch.dtype) -> NotImplementedError:
    """Return the error of an ATen kernel that does not support a dtype."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type_name(dtype)}'")


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape as in ATen's messages: ``[2, 3]``."""
    return "[" + ", ".join(map(str, shape)) + "]"


def dimension_error(dim: int, rank: int) -> IndexError:
    """Return eager's error for a dimension that a tensor of this rank does not have."""
    most = max(1, rank)
    return IndexError(f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})")


def not_true(condition: str) -> RuntimeError:
    """Return ATen's error for a failed check without a message of its own."""
    return RuntimeError(
        f"Expected {condition} to be true, but got false.  "
        "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
    )
