"""Calls of supported ops that their kernels do not run: a predicate refuses them, or the backend does not take their dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.result_checks import Expected, expected_of
from eagerdecomp.rules.rule import place_of

__all__ = ["dtype_check", "refused_by_predicate", "refused_dtype", "refused_for_dtype", "typed_kernel"]


def refused_by_predicate(op: OpOverload, when: Callable[..., bool], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return which call a predicate refused, and where the predicate is defined."""
    how = "returned None: return True or False" if when(*args, **kwargs) is None else "refuses it"
    return f"{describe_call(op, args, kwargs)}: its predicate {place_of(when)} {how}"


def refused_for_dtype(op: OpOverload, dtype: torch.dtype, backend: Backend, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return which call was refused, and which dtype the backend does not take."""
    return f"{describe_call(op, args, kwargs)}: {dtype} is not among the dtypes of backend {backend.name!r}"


def refused_dtype(backend: Backend, values: Sequence[Any]) -> torch.dtype | None:
    """Return a dtype among the arguments of a call that the backend's kernels do not take; None if they take all of them.

    Tensors on other devices than the backend's do not count: a kernel may take a 0-dim CPU tensor as a number.
    """
    taken, device = backend.dtypes, backend.device_type
    if taken is None:
        return None
    for value in values:
        if isinstance(value, Tensor):
            if value.dtype not in taken and (device is None or value.device.type == device):
                return value.dtype
        elif isinstance(value, torch.dtype):
            if value not in taken:
                return value
        elif isinstance(value, (list, tuple)):
            found = refused_dtype(backend, value)
            if found is not None:
                return found
    return None


def _refused_result(backend: Backend, expected: Expected | None) -> torch.dtype | None:
    """Return a dtype among the expected results that the backend does not take; None if it takes all, or they are unknown."""
    for (_, dtype, device), _ in filter(None, expected or ()):
        if backend.dtypes is not None and dtype not in backend.dtypes and backend.device_type in (None, device.type):
            return dtype
    return None


def _kinds(value: Any) -> Any:
    """Return the facts of an argument on which the dtype of a result depends."""
    if isinstance(value, Tensor):
        return value.dtype, value.dim() == 0
    if isinstance(value, (list, tuple)):
        return tuple([_kinds(one) for one in value])
    return value if isinstance(value, torch.dtype) else type(value)


def dtype_check(op: OpOverload, backend: Backend) -> Callable[[Sequence[Any], Mapping[str, Any]], torch.dtype | None]:
    """Return a function of a call's arguments, which returns a dtype of an argument or result the backend does not take, or None.

    The dtypes of results are cached, because they need a run on fake tensors.
    """
    refused: dict[Any, torch.dtype | None] = {}  # kinds of arguments -> the dtype of a result, which no argument may have

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.dtype | None:
        found = refused_dtype(backend, args)
        if found is None and kwargs:
            found = refused_dtype(backend, tuple(kwargs.values()))
        if found is not None:
            return found
        kinds = torch.get_default_dtype(), _kinds(args), tuple((name, _kinds(value)) for name, value in kwargs.items())
        if kinds not in refused:
            refused[kinds] = _refused_result(backend, expected_of(op, args, kwargs))
        return refused[kinds]

    return check


def _is_empty_size(value: Any) -> bool:
    """Return whether an argument is the size of a tensor without elements. It may be a list of tensors, which must not be read."""
    return isinstance(value, (list, tuple)) and any(isinstance(one, int) and one == 0 for one in value)


def typed_kernel(op: OpOverload, kernel: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    """Wrap a kernel to refuse calls with dtypes that the backend does not take. A backend that takes all gets the kernel itself."""
    if backend.dtypes is None:
        return kernel
    refused_by = dtype_check(op, backend)

    @functools.wraps(kernel, updated=())  # errors and reports name the kernel
    def run(*args: Any, **kwargs: Any) -> Any:
        found = refused_by(args, kwargs)
        if found is not None and args and _is_empty_size(args[0]):
            return kernel(*args, **kwargs)  # torch's batch norm returns a reserve of uint8 without elements
        if found is None:
            result = kernel(*args, **kwargs)
            found = refused_dtype(backend, (result,))  # of an op that has no fake results
            if found is None:
                return result
        raise NoRoute(op, (), refused_for_dtype(op, found, backend, args, kwargs))

    return run
