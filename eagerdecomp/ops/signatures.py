"""Check when a backend or a set is made that its kernels and predicates can be called with the arguments of their ops."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.schema import facts_of

__all__ = ["misfit"]


def misfit(op: OpOverload, kind: str, function: Callable[..., Any], *, may_require_more: bool = False) -> str:
    """Return why a function cannot be called with the required arguments of an op; "" if it can, or if nothing is known of it.

    An error at the call would be too late, because methods such as `Tensor.__mul__` turn a `TypeError` into ``NotImplemented``.

    Args:
        op: the op.
        kind: ``"kernel"`` or ``"predicate"``.
        function: the kernel or predicate.
        may_require_more: whether it may require optional arguments of the op, because a predicate selects the calls that have them.
    """
    needed = [one for one in facts_of(op).arguments if not one.has_default]
    positional = sum(not one.kwarg_only for one in needed)
    named = [one.name for one in needed if one.kwarg_only]
    if not named and _takes_positional(function, positional):
        return ""
    signature = _signature(function)
    if signature is None:
        return ""
    try:
        bind = signature.bind_partial if may_require_more else signature.bind
        bind(*[None] * positional, **dict.fromkeys(named))
    except TypeError as error:
        return (
            f"the {kind} for {op} cannot take its arguments: {error}\n"
            f"  the op is {op._schema}\n"
            f"  the {kind} is {getattr(function, '__qualname__', repr(function))}{signature}\n"
            f"  what to do: give the {kind} the op's arguments and defaults. torch omits arguments that have their default value"
        )
    return ""


def _takes_positional(function: Callable[..., Any], positional: int) -> bool:
    """Return whether a plain function takes this many arguments. This is a hundred times faster than `_signature`."""
    if not isinstance(function, FunctionType) or function.__code__.co_kwonlyargcount:
        return False
    most = function.__code__.co_argcount
    return most - len(function.__defaults__ or ()) <= positional <= most


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; None if it has none."""
    if isinstance(function, (BuiltinFunctionType, OpOverload)):
        return None
    try:
        return inspect.signature(function, follow_wrapped=False)  # the arguments of the wrapper, not of the wrapped function
    except (TypeError, ValueError):
        return None
