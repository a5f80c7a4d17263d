"""Separate sparse calls from dense ones, for ops that eager supports on sparse tensors.

A kernel of the set takes dense tensors. So the handlers of these ops check the layout at each call: even if no rule makes sparse
tensors, the user's program may have made one before it entered the mode.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, builtin, has_kernel
from eagerdecomp.dispatcher.device_kernels import SCALAR_TYPES, accepting_scalars
from eagerdecomp.ops.schema import facts_of, tensors_in
from eagerdecomp.rules.rule import NoRoute
from eagerdecomp.runtime.entry import Handler, OnError

__all__ = ["SPARSE_LAYOUTS", "any_sparse", "by_layout", "raise_if_no_sparse_kernel", "sparse_handler", "takes_sparse"]

_COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
SPARSE_LAYOUTS = _COMPRESSED | {torch.sparse_coo}

_KEYS = ("SparseCPU", "SparseCsrCPU")

#: Factories: their argument `layout` decides whether the result is sparse.
_FACTORIES = frozenset({"aten.empty.memory_format", "aten.zeros.default"})

_strided = torch.strided

#: The parts of a linked rule's handler: the rule, the rules after it, and the error handler.
_Parts: TypeAlias = tuple[Handler, Handler, OnError]


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
    """Return whether eager has a kernel of the op for sparse tensors."""
    return op.namespace == "aten" and any(has_kernel(op, key) for key in _KEYS)


def by_layout(op: OpOverload, run: Handler, sparse: Handler, places: tuple[int, ...] = (), make: Handler | None = None) -> Handler:
    """Return a handler that runs `sparse` for calls with a sparse tensor, and `run` for all others.

    It must be called as the dispatcher calls: arguments that are not keyword-only come by position.

    Args:
        op: the overload.
        run: the handler for dense tensors.
        sparse: the handler for sparse tensors.
        places: positions of tensor arguments at which `make` converts scalars to tensors. A caller that learns them later calls
            the result's attribute `with_scalars(places, make)`, which returns such a handler without another frame.
        make: converts a scalar to a tensor.
    """
    handler = _by_layout(op, run, sparse, places, make)
    handler.with_scalars = functools.partial(by_layout, op, run, sparse)  # type: ignore[attr-defined]
    return handler


def _by_layout(op: OpOverload, run: Handler, sparse: Handler, places: tuple[int, ...], make: Handler | None) -> Handler:
    facts = facts_of(op)
    if str(op) in _FACTORIES:

        def factory(*args: Any, **kwargs: Any) -> Any:
            return sparse(*args, **kwargs) if kwargs.get("layout") in SPARSE_LAYOUTS else run(*args, **kwargs)

        return factory

    def any_layout(*args: Any, **kwargs: Any) -> Any:
        if any_sparse(args) or any_sparse(kwargs.values()):
            return sparse(*args, **kwargs)
        return run(*args, **kwargs)

    any_argument = any_layout if make is None else accepting_scalars(any_layout, places, make)
    # The most common signatures have handlers without a loop over the arguments, which save 0.1 us per call.
    by_position = [one for one in facts.arguments if not one.kwarg_only]
    tensors = [number for number, one in enumerate(facts.arguments) if one.holds_tensors]
    if any(facts.arguments[number].optional or facts.arguments[number].is_list for number in tensors):
        return any_argument
    parts: _Parts | None = getattr(run, "parts", None)
    if tensors == [0] and len(by_position) == 1:
        return _of_one(run, any_argument) if parts is None else _rule_of_one(parts, any_argument)
    if tensors == [0]:
        return _of_first(run, any_argument) if parts is None else _rule_of_first(parts, any_argument)
    if tensors == [0, 1] and len(by_position) == 2:
        numbers = frozenset() if 1 in places else SCALAR_TYPES
        return _of_two(run, numbers, any_argument) if parts is None else _rule_of_two(parts, numbers, any_argument)
    return any_argument


# `AttributeError` means that the first argument is a scalar. The `_rule_` variants include the frame that `handlers.linked_rule`
# puts around a rule: they run `next_rules` if it returns NotImplemented, and `on_error` if it raises.


def _of_one(run: Handler, any_argument: Handler) -> Handler:
    def of_one(self: Any, **kwargs: Any) -> Any:
        try:
            dense = self.layout is _strided
        except AttributeError:
            dense = False
        if dense:
            return run(self, **kwargs) if kwargs else run(self)
        return any_argument(self, **kwargs)

    return of_one


def _of_first(run: Handler, any_argument: Handler) -> Handler:
    def of_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            dense = self.layout is _strided
        except AttributeError:
            dense = False
        return run(self, *args, **kwargs) if dense else any_argument(self, *args, **kwargs)

    return of_first


def _of_two(run: Handler, numbers: frozenset[type], any_argument: Handler) -> Handler:
    def of_two(self: Any, other: Any, **kwargs: Any) -> Any:
        try:
            dense = self.layout is _strided and (other.__class__ in numbers or other.layout is _strided)
        except AttributeError:
            dense = False
        if dense:
            return run(self, other, **kwargs) if kwargs else run(self, other)
        return any_argument(self, other, **kwargs)

    return of_two


def _rule_of_one(parts: _Parts, any_argument: Handler) -> Handler:
    run, next_rules, on_error = parts

    def of_one(self: Any, **kwargs: Any) -> Any:
        try:
            dense = self.layout is _strided
        except AttributeError:
            dense = False
        if not dense:
            return any_argument(self, **kwargs)
        try:
            result = run(self, **kwargs) if kwargs else run(self)
            return result if result is not NotImplemented else next_rules(self, **kwargs)
        except Exception as error:
            return on_error(error, (self,), kwargs)

    return of_one


def _rule_of_first(parts: _Parts, any_argument: Handler) -> Handler:
    run, next_rules, on_error = parts

    def of_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            dense = self.layout is _strided
        except AttributeError:
            dense = False
        if not dense:
            return any_argument(self, *args, **kwargs)
        try:
            result = run(self, *args, **kwargs) if kwargs else run(self, *args)
            return result if result is not NotImplemented else next_rules(self, *args, **kwargs)
        except Exception as error:
            return on_error(error, (self, *args), kwargs)

    return of_first


def _rule_of_two(parts: _Parts, numbers: frozenset[type], any_argument: Handler) -> Handler:
    run, next_rules, on_error = parts

    def of_two(self: Any, other: Any, **kwargs: Any) -> Any:
        try:
            dense = self.layout is _strided and (other.__class__ in numbers or other.layout is _strided)
        except AttributeError:
            dense = False
        if not dense:
            return any_argument(self, other, **kwargs)
        try:
            result = run(self, other, **kwargs) if kwargs else run(self, other)
            return result if result is not NotImplemented else next_rules(self, other, **kwargs)
        except Exception as error:
            return on_error(error, (self, other), kwargs)

    return of_two


def _has_sparse_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether eager has a kernel, or a composition, that may take the sparse tensors of a call."""
    layouts = {one.layout for one in tensors_in([*args, *kwargs.values()])}
    keys = ["SparseCPU"] * (torch.sparse_coo in layouts) + ["SparseCsrCPU"] * bool(layouts & _COMPRESSED)
    return not keys or any(has_kernel(op, key) for key in (*keys, "CompositeExplicitAutograd", "CompositeImplicitAutograd"))


def raise_if_no_sparse_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise eager's error if it has no kernel for the sparse tensors of a call; else do nothing."""
    if op.namespace == "aten" and not _has_sparse_kernel(op, args, kwargs):
        builtin(op)(*args, **kwargs)


def sparse_handler(op: OpOverload, rule: Handler | None) -> Handler:
    """Return the handler of an op's sparse calls: run the op's sparse rule, or raise if it has none."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        if rule is not None:
            found = rule(*args, **kwargs)
            if found is not NotImplemented:
                return found
        raise_if_no_sparse_kernel(op, args, kwargs)
        raise NoRoute(op)

    return handler
