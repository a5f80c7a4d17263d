"""Calls in which a tensor is sparse, of ops that dense tensors have a kernel or rules for.

A kernel of the set takes dense tensors. So the handler of an op that eager also has for sparse ones is asked first, at each call,
whether a tensor is: a tensor that a program made before the mode was entered may arrive at any op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, builtin, has_kernel
from eagerdecomp.ops.schema import facts_of, tensors_in
from eagerdecomp.rules.rule import NoRoute
from eagerdecomp.runtime.entry import Handler

__all__ = ["SPARSE_LAYOUTS", "any_sparse", "by_layout", "raise_of_eager", "sparse_handler", "takes_sparse"]

_COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
SPARSE_LAYOUTS = _COMPRESSED | {torch.sparse_coo}

_KEYS = ("SparseCPU", "SparseCsrCPU")

#: Factories: their layout says what they make.
_MAKERS = frozenset({"aten.empty.memory_format", "aten.zeros.default"})

_strided = torch.strided


def any_sparse(values: Iterable[Any]) -> bool:
    """Whether a tensor among the values, or in a list of them, is sparse."""
    for value in values:
        if isinstance(value, Tensor):
            if value.layout in SPARSE_LAYOUTS:
                return True
        elif isinstance(value, (list, tuple)) and any_sparse(value):
            return True
    return False


def takes_sparse(op: OpOverload) -> bool:
    """Whether eager has a kernel of the op for sparse tensors."""
    return op.namespace == "aten" and any(has_kernel(op, key) for key in _KEYS)


def by_layout(op: OpOverload, run: Handler, sparse: Handler) -> Handler:
    """The handler of an op: `sparse` for calls in which a tensor is, `run` for all others. It is called as the dispatcher calls,
    with what is not keyword-only by position."""
    facts = facts_of(op)
    if str(op) in _MAKERS:

        def made(*args: Any, **kwargs: Any) -> Any:
            return sparse(*args, **kwargs) if kwargs.get("layout") in SPARSE_LAYOUTS else run(*args, **kwargs)

        return made

    def any_argument(*args: Any, **kwargs: Any) -> Any:
        if any_sparse(args) or any_sparse(kwargs.values()):
            return sparse(*args, **kwargs)
        return run(*args, **kwargs)

    # For the usual signatures, of which a call costs a tenth of a microsecond more by a loop.
    by_position = [one for one in facts.arguments if not one.kwarg_only]
    tensors = [number for number, one in enumerate(facts.arguments) if one.holds_tensors]
    if any(facts.arguments[number].optional or facts.arguments[number].is_list for number in tensors):
        return any_argument
    if tensors == [0] and len(by_position) == 1:

        def of_one(self: Any, **kwargs: Any) -> Any:
            try:
                dense = self.layout is _strided
            except AttributeError:  # a number in a tensor's place
                dense = False
            if dense:
                return run(self, **kwargs) if kwargs else run(self)
            return any_argument(self, **kwargs)

        return of_one
    if tensors == [0]:

        def of_first(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                dense = self.layout is _strided
            except AttributeError:
                dense = False
            return run(self, *args, **kwargs) if dense else any_argument(self, *args, **kwargs)

        return of_first
    if tensors == [0, 1] and len(by_position) == 2:

        def of_two(self: Any, other: Any, **kwargs: Any) -> Any:
            try:
                dense = self.layout is _strided and other.layout is _strided
            except AttributeError:  # a number in a tensor's place
                dense = False
            if dense:
                return run(self, other, **kwargs) if kwargs else run(self, other)
            return any_argument(self, other, **kwargs)

        return of_two
    return any_argument


def _has_sparse_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager has a kernel, or a composition, that may take the sparse tensors of a call."""
    layouts = {one.layout for one in tensors_in([*args, *kwargs.values()])}
    keys = ["SparseCPU"] * (torch.sparse_coo in layouts) + ["SparseCsrCPU"] * bool(layouts & _COMPRESSED)
    return not keys or any(has_kernel(op, key) for key in (*keys, "CompositeExplicitAutograd", "CompositeImplicitAutograd"))


def raise_of_eager(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """For a call in which a tensor is sparse and that eager has no kernel for: torch's own op, which raises what eager raises."""
    if op.namespace == "aten" and not _has_sparse_kernel(op, args, kwargs):
        builtin(op)(*args, **kwargs)


def sparse_handler(op: OpOverload, rule: Handler | None) -> Handler:
    """What runs the sparse calls of an op: our rule for them."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        if rule is not None:
            found = rule(*args, **kwargs)
            if found is not NotImplemented:
                return found
        raise_of_eager(op, args, kwargs)
        raise NoRoute(op)

    return handler
