"""Private API to run a whole program under a mode, with higher-order ops (`torch.cond`, `flex_attention`) and compiled regions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from eagerdecomp._torch.modes import DispatchMode, mode_stack
from eagerdecomp._torch.ops import HigherOrderOperator

__all__ = ["AmbientMode", "run_higher_order"]


class AmbientMode(DispatchMode):
    """A mode for a user's program: it also sees higher-order ops, and Dynamo compiles regions while it is active."""

    supports_higher_order_operators = True

    # Without this, Dynamo never compiles a function that it first saw under the mode. With it, Dynamo compiles with the mode off
    # and runs the compiled code with the mode on.
    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


def run_higher_order(mode: Any, op: HigherOrderOperator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a higher-order op, and let the mode whose handler is running see each op that it calls.

    torch runs the body of such an op outside all modes, so the mode would not see what it computes. Here the body runs in the mode.
    If another mode or a tensor subclass handles the op itself, as tracing modes do, the op is passed on to that mode or subclass,
    and the function arguments of the op run in our mode.
    """
    dense = _body(op)
    if (
        dense is not None
        and not any(type(other) in op.python_key_table for other in mode_stack())
        and not _subclasses(args, kwargs)
    ):
        with mode:
            return dense(*args, **kwargs)

    def under_mode(value: Any) -> Any:
        return _entering(mode, value) if callable(value) and not isinstance(value, torch.Tensor) else value

    return op(*map(under_mode, args), **{name: under_mode(value) for name, value in kwargs.items()})


def _entering(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def entered(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return function(*args, **kwargs)

    return entered


def _subclasses(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    given = [*args, *kwargs.values()]
    lists = [one for one in given if isinstance(one, (list, tuple))]
    return any(
        isinstance(one, torch.Tensor) and torch._C._dispatch_keys(one).has("Python") for one in itertools.chain(given, *lists)
    )


def _body(op: HigherOrderOperator) -> Callable[..., Any] | None:
    """Return the function that runs an op on plain tensors, or None.

    `_BODIES` replaces functions of torch that reject modes.
    """
    from torch._higher_order_ops.base_hop import BaseHOP

    name = op.name()  # type: ignore[no-untyped-call]
    found: Callable[..., Any] | None = _BODIES.get(name)
    if found is None and isinstance(op, BaseHOP):
        found = _call_subgraph
    return found if found is not None else op.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any]) -> Any:
    return (true_fn if pred else false_fn)(*operands)


def _scan(combine_fn: Callable[..., Any], init: Any, xs: Any, additional_inputs: Any) -> Any:
    from torch._higher_order_ops.scan import generic_scan

    return generic_scan(combine_fn, init, xs, additional_inputs=additional_inputs)  # type: ignore[no-untyped-call]


def _call_subgraph(subgraph: Callable[..., Any], *operands: Any, **_: Any) -> Any:
    return subgraph(list(operands)) if getattr(subgraph, "_boxed_call", False) else subgraph(*operands)


_BODIES: Mapping[str, Callable[..., Any]] = {
    "cond": _cond,
    "scan": _scan,
    "invoke_subgraph": lambda subgraph, _, *operands: _call_subgraph(subgraph, *operands),
    "strict_mode": lambda function, operands: function(*operands),
}
