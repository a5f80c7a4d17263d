"""torch's own decompositions: the whole table, the Core ATen part, and the references."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from inspect import isfunction
from types import CellType, FunctionType
from typing import Any

from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp._torch.private import is_missing, private

__all__ = [
    "core_entry",
    "core_table",
    "full_table",
    "is_python_composite",
    "meta_is_decomposition",
    "reference",
    "without_disabling",
]

_DispatchKey = private("torch._C.DispatchKey", "torch's decompositions")


@functools.cache
def full_table() -> Mapping[Any, Callable[..., Any]]:
    """Return torch's whole decomposition table, including references."""
    from torch._decomp import decomposition_table

    return decomposition_table


def is_python_composite(op: OpOverload) -> bool:
    """Return whether torch has a composite of the op in Python, but none in C++."""
    return _DispatchKey.CompositeImplicitAutograd in op.py_kernels and not has_kernel(op, "CompositeImplicitAutograd")


def meta_is_decomposition(op: OpOverload) -> bool:
    """Return whether the op's kernel for fake and meta tensors is a decomposition, not a function of only metadata."""
    from torch._decomp import global_decomposition_table

    return op not in global_decomposition_table["meta"] and op in full_table() and _DispatchKey.Meta in op.py_kernels


_disable_dynamo = private("torch._compile._disable_dynamo", "torch's references")
#: The code of every wrapper that `torch._disable_dynamo` makes.
_DISABLING = None if is_missing(_disable_dynamo) else _disable_dynamo(lambda: None).__code__


@functools.cache
def without_disabling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function without the wrapper of `torch._disable_dynamo`, also inside its other decorators.

    Nearly every reference has this wrapper, and its first call imports `torch._dynamo`, which takes a second. The wrapper is not
    needed, because Dynamo skips our modes and what they call.
    """
    if not isinstance(function, FunctionType) or function.__closure__ is None:
        return function
    held = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
    if function.__code__ is _DISABLING:
        return without_disabling(held["fn"].cell_contents)
    if not hasattr(function, "__wrapped__"):  # not decorated
        return function
    inside = {name: without_disabling(cell.cell_contents) for name, cell in held.items() if isfunction(cell.cell_contents)}
    if all(found is held[name].cell_contents for name, found in inside.items()):
        return function
    cells = tuple([CellType(inside[name]) if name in inside else cell for name, cell in held.items()])
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copy, function)


def reference(name: str) -> Callable[..., Any]:
    """Return a function of `torch._refs`, which decomposes an op into prims."""
    import torch._refs

    found: Callable[..., Any] = getattr(torch._refs, name)
    return found


@functools.cache
def core_table() -> Mapping[Any, Callable[..., Any]]:
    """Return torch's Core ATen decompositions that are Python functions."""
    from torch._decomp import _core_aten_decompositions_post_autograd

    return _core_aten_decompositions_post_autograd()


def core_entry(op: OpOverload) -> Callable[..., Any] | None:
    """Return the entry of torch's Core ATen decompositions for an op, if it is a Python function.

    The other half of `torch._decomp.core_aten_decompositions` is the C++ kernels of composite ops, which `call_at_key` runs. That
    table takes 80 ms to make, and its ``get`` always returns None.
    """
    found = core_table().get(op)
    if found is None and _DispatchKey.CompositeImplicitAutograd in op.py_kernels:
        from torch._export.utils import _is_preservable_cia_op
        from torch.export.decomp_utils import PRESERVED_ATEN_CIA_OPS

        kernel = op.py_kernels[_DispatchKey.CompositeImplicitAutograd]
        if callable(kernel) and _is_preservable_cia_op(op) and op not in PRESERVED_ATEN_CIA_OPS:
            found = kernel
    return found
