"""ATen's type promotion, without calling operators, which would reach the backend."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.messages import scalar_type_name

__all__ = [
    "FLOAT8",
    "HALF",
    "RARE",
    "WIDE_UNSIGNED",
    "can_cast",
    "computed_in",
    "floating",
    "in_type",
    "number_like",
    "promote_types",
    "promoted",
    "wide_type",
    "widened",
]


#: Unsigned integers for which eager has few kernels, and which promote only with floats and with themselves.
WIDE_UNSIGNED = frozenset({torch.uint16, torch.uint32, torch.uint64})

FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu})

#: Dtypes that few of eager's kernels support.
RARE = FLOAT8 | {torch.uint16, torch.uint32, torch.uint64, torch.complex32}


def promoted(operands: Sequence[Tensor]) -> torch.dtype:
    """Return the dtype to which operands promote: tensors with dimensions decide, unless a 0-dim tensor has a higher category."""
    with_dims = [x.dtype for x in operands if x.dim()]
    without = [x.dtype for x in operands if not x.dim()]
    if not with_dims or not without:
        return functools.reduce(promote_types, with_dims or without)
    higher, lower = functools.reduce(promote_types, with_dims), functools.reduce(promote_types, without)
    if _kind(higher) >= _kind(lower) and _kind(higher):
        return higher
    if _kind(higher) == 2:
        return higher.to_complex()  # a complex number beside floats keeps their precision
    return lower if _kind(lower) > 1 and lower not in FLOAT8 else promote_types(higher, lower)


def computed_in(operands: Iterable[Any]) -> torch.dtype | None:
    """Return the dtype to which tensors and Python scalars promote; other values are ignored. Return None without a tensor."""
    given = list(operands)
    tensors = [x for x in given if isinstance(x, Tensor)]
    if not tensors:
        return None
    dtype = promoted(tensors)
    for x in given:
        kind = 3 if isinstance(x, complex) else 2 if isinstance(x, float) else 1 if isinstance(x, int) and x is not True else 0
        if kind > _kind(dtype) and x is not False:
            whole = torch.int64 if kind == 1 else torch.get_default_dtype()
            dtype = whole if kind < 3 else (dtype if dtype.is_floating_point else whole).to_complex()
    return dtype


def floating(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a real function's result: the default dtype for integers."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def _kind(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1 if dtype is not torch.bool else 0


@functools.cache
def can_cast(source: torch.dtype, target: torch.dtype) -> bool:
    """Return `torch.can_cast` from a table, because the original is an operator and would reach the backend."""
    if source.is_complex and not target.is_complex:
        return False
    if source.is_floating_point and not (target.is_floating_point or target.is_complex):
        return False
    return source is torch.bool or target is not torch.bool


@functools.cache
def promote_types(left: torch.dtype, right: torch.dtype) -> torch.dtype:
    """Return `torch.promote_types` without calling it, because it is an operator."""
    if left is not right and (left in FLOAT8 or right in FLOAT8):
        names = f"{scalar_type_name(left)} and {scalar_type_name(right)}"
        raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {names}")
    if left is not right and (left in WIDE_UNSIGNED or right in WIDE_UNSIGNED) and 2 not in (_kind(left), _kind(right)):
        raise RuntimeError(
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            f"{scalar_type_name(left)} and {scalar_type_name(right)}"
        )
    if _kind(left) < _kind(right):
        left, right = right, left
    if left is right or _kind(right) == 0:
        return left
    if _kind(left) == 3:
        if torch.float64 in (left, right) or torch.complex128 in (left, right):
            return torch.complex128
        single = torch.complex64 in (left, right) or right in (torch.float32, torch.bfloat16)
        return torch.complex64 if single else torch.complex32
    if _kind(left) > _kind(right):
        return left
    if left.itemsize == right.itemsize:  # float16 and bfloat16; uint8 and int8
        return torch.float32 if _kind(left) == 2 else torch.int16
    return left if left.itemsize > right.itemsize else right


def number_like(like: Tensor, value: complex) -> Tensor:
    """Return a scalar as a 0-dim tensor of the dtype and device of `like`, so that nothing is promoted."""
    return torch.ops.aten.full.default([], value, dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]


aten = torch.ops.aten

HALF = frozenset({torch.float16, torch.bfloat16})


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which eager computes a dtype: float32 for float16 and bfloat16."""
    return torch.float32 if dtype in HALF else dtype


def widened(tensor: Tensor) -> Tensor:
    """Return the tensor in the dtype in which eager computes it."""
    return in_type(tensor, wide_type(tensor.dtype))


def in_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor in this dtype; the tensor itself if it has the dtype."""
    return tensor if tensor.dtype is dtype else aten._to_copy.default(tensor, dtype=dtype)
