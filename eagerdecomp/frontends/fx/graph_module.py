"""The result of a trace: a graph of kernel calls that runs on inputs like the traced ones, and rejects others."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.pytree import tree_flatten
from eagerdecomp._torch.sizes import SymbolicSizes
from eagerdecomp.errors import TraceError
from eagerdecomp.ops.call_text import tensor_text, value_text

__all__ = ["Trace", "as_traced", "input_text"]


class Trace(torch.fx.GraphModule):
    """A graph of kernel calls. It runs without autograd, because backward passes are part of the graph."""

    def recompile(self) -> Any:
        made = super().recompile()
        cls: Any = type(self)
        forward = cls.forward
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]

        @functools.wraps(forward)
        def checked(self: Trace, *args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                try:
                    _check_inputs(placeholders, tree_flatten((args, kwargs))[0], self.meta.get("sizes"))
                    return forward(self, *args, **kwargs)
                except ZeroDivisionError:
                    if self.meta.get("sizes") is None:
                        raise
                    raise TraceError(
                        "the graph divides by zero for these input sizes. Trace the function again with such inputs"
                    ) from None

        cls.forward = checked
        return made


def as_traced(value: Any, expected: Any) -> None:
    """Check that a value which a graph read from a tensor is the same as in the trace. Later calls of the graph depend on it.

    Raises:
        TraceError: if it is another value.
    """
    found = list(value.shape) if isinstance(value, Tensor) else value
    if found != expected and not (isinstance(found, float) and math.isnan(found) and math.isnan(expected)):
        raise TraceError(
            f"the traced function read {expected!r} from a tensor and branched on it; now the value is {found!r}. Trace the "
            "function again"
        )


def _check_inputs(placeholders: Sequence[Any], given: Sequence[Any], sizes: SymbolicSizes | None) -> None:
    """Raise `TraceError` if the inputs differ from the traced ones in more than their values."""
    if len(given) != len(placeholders):
        return  # the call itself raises an error that names the missing argument
    symbols: dict[Any, int] = {}
    names: dict[Any, str] = {}
    for node, value in zip(placeholders, given, strict=True):
        want = node.meta.get("val")
        if want is None:
            continue
        if isinstance(want, Tensor) and isinstance(value, Tensor):
            like = want.dtype is value.dtype and want.device == value.device and want.dim() == value.dim()
            ours, theirs = [*want.shape, *want.stride()], [*value.shape, *value.stride()]
            if like and sizes is None:
                like = ours == theirs
            elif like and sizes is not None:
                like = all(sizes.fits(one, other, symbols) for one, other in zip(ours, theirs, strict=True))
                for dim, one in enumerate(want.shape):
                    names.setdefault(sizes.symbol(one), f"{node.name}.shape[{dim}]")
        else:
            like = type(want) is type(value) and bool(want == value)
        if not like:
            traced, called = input_text(want), input_text(value)
            if traced == called:
                traced, called = input_text(want, strides=True), f"{input_text(value, strides=True)} (sizes, then strides)"
            raise TraceError(
                f"the graph was traced with {node.name} = {traced}, and was called with {called}. Trace the function again"
            )
        variant = node.meta.get("same_as")
        if variant is not None and value is not given[variant]:
            raise TraceError(
                f"the graph was traced with one tensor for both {placeholders[variant].name} and {node.name}, and was called with "
                "two. Trace the function again"
            )
    if sizes is not None and (broken := sizes.broken(symbols, names)):
        raise TraceError(f"the graph is valid only if {broken}, which is false here. Trace the function again with such inputs")


def input_text(value: Any, *, strides: bool = False) -> str:
    """Return an input as text."""
    return value_text(value, tensor=functools.partial(tensor_text, strides=strides))
