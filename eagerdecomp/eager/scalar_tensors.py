"""Scalars that arrive in place of tensors, and the tensors they are converted to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import accepts_scalars
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.promotion import computed_in, promote_types
from eagerdecomp.ops.schema import facts_of

__all__ = ["SCALAR_TYPES", "accepting_scalars", "scalar_positions", "scalars_to_tensors", "tensor_positions"]

SCALAR_TYPES = frozenset({bool, int, float, complex})

#: Integer dtypes narrower than int64 -> number of bits.
_BITS = {dtype: torch.iinfo(dtype).bits for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32)}

#: Types of scalars -> their dtype in C++. A bool is an int, too.
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}

#: Cache of `_dtype_of`: (type of the scalar, default dtype, for each tensor its dtype and whether it has dimensions) -> dtype.
_dtypes: dict[Any, torch.dtype] = {}


@functools.cache
def tensor_positions(op: OpOverload) -> tuple[int, ...]:
    """Return the positions of an op's positional tensor arguments, without lists of tensors."""
    arguments = facts_of(op).arguments
    return tuple(number for number, one in enumerate(arguments) if one.kind == "Tensor" and not (one.is_list or one.kwarg_only))


@functools.cache
def scalar_positions(op: OpOverload, *, kernel: bool, of_user: bool) -> tuple[int, ...]:
    """Return the positions of tensor arguments at which a handler must convert Python scalars to tensors.

    A wrapped number reaches a mode as a Python scalar. torch's kernels accept it. Rules of the library accept it too, except as
    their first operand. The user's kernels and rules may accept only tensors.

    Args:
        op: the overload.
        kernel: whether a kernel runs the op, not rules.
        of_user: whether the kernel, or a rule, is the user's.
    """
    if not accepts_scalars(op):
        return facts_of(op).vmap_scalars
    written = facts_of(op).mutated  # a scalar cannot be written
    places = tuple(place for place in tensor_positions(op) if place not in written)
    # prims accept scalars for each argument, but 0-dim tensors only of the dtype of the other tensor
    takes_all = kernel or op.namespace == "prims"
    return places if of_user else () if takes_all else tuple(place for place in places if place == 0)


def accepting_scalars(run: Callable[..., Any], places: tuple[int, ...], make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler to convert scalars at these positions to tensors.

    Args:
        run: the handler.
        places: positions of tensor arguments.
        make: converts a scalar to a tensor: the backend's handler of `aten.scalar_tensor`.
    """
    if not places:
        return run
    count = places[-1] + 1

    def handler(*args: Any, **kwargs: Any) -> Any:
        for one in args[:count]:
            if one.__class__ in SCALAR_TYPES:
                return run(*scalars_to_tensors(places, args, make), **kwargs)
        return run(*args, **kwargs)

    return handler


def scalars_to_tensors(
    places: Sequence[int], args: tuple[Any, ...], make: Callable[..., Any] = torch.scalar_tensor
) -> tuple[Any, ...]:
    """Return the arguments with scalars at these positions converted to tensors.

    C++ passes a wrapped number as a tensor, and the dispatcher converts it to a Python scalar for Python kernels.
    """
    for place in places:
        if place < len(args) and isinstance(args[place], (int, float, complex)):
            return tuple([_tensor_of(one, args, make) if number in places else one for number, one in enumerate(args)])
    return args


def _tensor_of(value: Any, args: Sequence[Any], make: Callable[..., Any]) -> Any:
    """Convert a scalar to a tensor of a dtype that promotes the other operands as the scalar would."""
    if isinstance(value, Tensor) or value is None:
        return value
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        value = float(value)  # as C++ does
    tensors = [one for one in args if isinstance(one, Tensor)]
    cache_key = value.__class__, torch.get_default_dtype(), *[(one.dtype, bool(one.dim())) for one in tensors]
    dtype = _dtypes.get(cache_key)
    if dtype is None:
        dtype = _dtypes[cache_key] = _dtype_of(value, tensors)
    if dtype in _BITS and isinstance(value, int):  # out of range, it wraps around as in a cast from int64
        low = torch.iinfo(dtype).min
        value = (value - low) % (1 << _BITS[dtype]) + low
    return make(value, dtype=dtype)


def _dtype_of(value: Any, tensors: Sequence[Tensor]) -> torch.dtype:
    wide = next(dtype for kind, dtype in _DTYPES.items() if isinstance(value, kind))
    if wide is torch.bool:  # it promotes nothing, and `sub` rejects it
        return wide
    if not tensors:
        return torch.result_type(value, value)
    common = functools.reduce(promote_types, filter(None, [computed_in([one, value]) for one in tensors]))
    if wide is torch.int64:  # in the dtype that eager casts it to: a backend may lack int64
        wide = torch.float64 if common.is_floating_point or common.is_complex else common
    if common not in (torch.float64, torch.complex128):  # eager computes with the scalar in float32, and a device may lack float64
        wide = _SINGLE.get(wide, wide)
    has_common_dtype = any(one.dim() and one.dtype is common for one in tensors)
    return wide if has_common_dtype and _category(wide) <= _category(common) else common


def _category(dtype: torch.dtype) -> int:
    """Return the rank of a dtype's category in type promotion: bool, integer, floating point, complex.

    A 0-dim tensor promotes another tensor only if its category is higher.
    """
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1
