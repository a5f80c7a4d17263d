"""Backends without float64, declared in two ways, and a recorder of kernel calls with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import eagerdecomp as ed
from eagerdecomp._torch.modes import DispatchMode

WIDE = (torch.float64, torch.complex128)

#: All dtypes that ATen's ops return, except float64 and complex128.
DTYPES = frozenset(
    {
        *(torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex32, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint64),
    }
)


def is_wide(*values: Any) -> bool:
    """Return whether a tensor or a dtype among nested values is float64 or complex128."""
    return any((one.dtype if isinstance(one, Tensor) else one) in WIDE for one in tree_leaves(values) if isinstance(one, KINDS))


KINDS = (Tensor, torch.dtype)


def takes(*args: Any, **kwargs: Any) -> bool:
    """Be a predicate that refuses float64."""
    return not is_wide(args, kwargs)


def by_dtypes(ops: ed.OpSet) -> ed.Backend:
    """Return a backend that declares its dtypes."""
    return ed.Backend("narrow", ops, dtypes=DTYPES)


def by_predicates(ops: ed.OpSet) -> ed.Backend:
    """Return a backend each op of which has a predicate that refuses float64."""
    for op in ops:
        ops = ops.with_predicate(op, takes)
    return ed.Backend("narrow", ops)


class WideCalls(DispatchMode):
    """A mode that records the calls with float64 tensors. Enter it outside the library's mode."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_wide(args, kwargs or {}, result):
            self.ops.append(str(func))
        return result
