"""Separate sparse calls from dense ones, for ops that eager supports on sparse tensors.

A kernel of the set takes dense tensors. So the layouts of tensors are checked at each call: even if no rule makes sparse tensors,
the user's program may have made one before it entered the mode. The mode itself checks positional arguments, which costs no frame;
`by_name` checks the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import has_computed_kernel
from eagerdecomp._torch.ops import OpOverload, builtin, dispatcher_name, has_kernel
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.ops.schema import tensors_in
from eagerdecomp.rules.no_route import NoRoute

__all__ = [
    "LAYOUT_FACTORIES",
    "SPARSE_LAYOUTS",
    "any_sparse",
    "by_name",
    "raise_if_no_sparse_kernel",
    "sparse_handler",
    "takes_sparse",
]

_Handler: TypeAlias = Callable[..., Any]

_COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
SPARSE_LAYOUTS = _COMPRESSED | {torch.sparse_coo}

_KEYS = ("SparseCPU", "SparseCsrCPU")

#: Factories: their argument `layout` decides whether the result is sparse.
LAYOUT_FACTORIES = frozenset({"aten.empty.memory_format", "aten.zeros.default"})


def any_sparse(values: Iterable[Any]) -> bool:
    """Return whether a tensor among the values, or in a list of them, is sparse."""
    for value in values:
        if isinstance(value, Tensor):
            if value.layout in SPARSE_LAYOUTS:
                return True
        elif isinstance(value, (list, tuple)) and any_sparse(value):
            return True
    return False


def takes_sparse(op: OpOverload) -> bool:
    """Return whether eager has kernels of the op both for sparse and for dense tensors."""
    if op.namespace != "aten" or not any(has_kernel(op, key) for key in _KEYS):
        return False
    return has_computed_kernel(dispatcher_name(op), "CPU")


def by_name(op: OpOverload, run: _Handler, sparse: _Handler) -> _Handler:
    """Wrap a handler to run `sparse` for calls that are sparse by an argument which is passed by name: a tensor, or the layout."""
    if str(op) in LAYOUT_FACTORIES:
        return lambda *args, **kwargs: (sparse if kwargs.get("layout") in SPARSE_LAYOUTS else run)(*args, **kwargs)
    return lambda *args, **kwargs: (sparse if any_sparse(kwargs.values()) else run)(*args, **kwargs)


def _has_sparse_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether eager has a kernel, or a composition, that may take the sparse tensors of a call."""
    layouts = {one.layout for one in tensors_in([*args, *kwargs.values()])}
    keys = ["SparseCPU"] * (torch.sparse_coo in layouts) + ["SparseCsrCPU"] * bool(layouts & _COMPRESSED)
    return not keys or any(has_kernel(op, key) for key in (*keys, "CompositeExplicitAutograd", "CompositeImplicitAutograd"))


def raise_if_no_sparse_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise eager's error if it has no kernel for the sparse tensors of a call; else do nothing."""
    if op.namespace == "aten" and not _has_sparse_kernel(op, args, kwargs):
        builtin(op)(*args, **kwargs)


def sparse_handler(op: OpOverload, rule: _Handler | None) -> _Handler:
    """Return the handler of an op's sparse calls: run the op's sparse rule, or raise if it has none."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        if rule is not None:
            try:
                found = rule(*args, **kwargs)
            except Declined:
                found = NotImplemented
            if found is not NotImplemented:
                return found
        raise_if_no_sparse_kernel(op, args, kwargs)
        raise NoRoute(op)

    return handler
