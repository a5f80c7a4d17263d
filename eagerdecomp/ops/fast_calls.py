"""Direct functions: torch's own functions in place of boxed calls of overloads, where they are proven to reach the same overload.

``torch.add(x, y)`` reaches ``aten.add.Tensor`` 0.3 to 1.4 us sooner than the overload itself, whose arguments are boxed one by one;
but torch's argument parser chooses the overload then. ``tools/prove_direct.py`` calls both on arguments of every kind and writes
``fast_calls.json``: per overload its function and the kinds of arguments with which exactly that overload, and no other, arrives
with exactly those arguments (but ``pin_memory=False`` may be given, which is the default). Kinds are letters:

``t`` tensor, of any number of dimensions · ``b i f c`` Python bool, int, float, complex · ``x`` symbolic number · ``n`` None ·
``l`` list of numbers · ``X`` list with symbolic ones · ``L`` list of tensors · ``o`` list of tensors and None · ``e`` empty list ·
``d`` dtype · ``v`` device · ``y`` layout · ``m`` memory format · ``g`` generator · ``s`` string · ``-`` left out

Handlers of ``__torch_function__`` are called as often as for boxed calls, and get the function instead of the overload.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch

from eagerdecomp._torch.ops import FUNCTION_PLACES, OpOverload, builtin
from eagerdecomp.ops.schema import Argument
from eagerdecomp.ops.shipped_data import shipped_data

__all__ = ["ABSENT", "ANY", "direct_function", "function_at", "kind_of", "load_direct", "native", "path_of"]

#: The kind of an argument that is not given.
ABSENT = "-"

#: In place of kinds: whatever may arrive at a mode, where only keyword-only arguments are given by name.
ANY = "*"

_KINDS: dict[type, str] = {
    bool: "b",
    int: "i",
    float: "f",
    complex: "c",
    type(None): "n",
    torch.dtype: "d",
    torch.device: "v",
    torch.layout: "y",
    torch.memory_format: "m",
    torch.Generator: "g",
    str: "s",
}


def function_at(path: str) -> Callable[..., Any] | None:
    """Return the C function behind ``"torch.add"``, ``"Tensor.add"``, ``"nn.gelu"``; None where there is none, or one in Python."""
    place, _, name = path.partition(".")
    function = getattr(FUNCTION_PLACES[place], name, None)
    return function if isinstance(function, (BuiltinFunctionType, MethodDescriptorType)) else None


#: overload -> the path of its function, where that may be called with all that the overload takes; else what is proven: paths, each
#: followed by the kinds of each argument, or by `ANY` where arguments given by name instead of by position might lead elsewhere.
Table = Mapping[str, "str | Sequence[Sequence[str]]"]


@functools.cache
def load_direct() -> Table:
    """Return the shipped table; empty on another torch release than the one it was proven on."""
    text = shipped_data("fast_calls.json")
    functions: Table = {} if text is None else json.loads(text)["functions"]
    return functions


@functools.cache
def native(op: OpOverload) -> Callable[..., Any]:
    """Return the quickest way to torch's own kernel of an op for every call that may arrive at a mode, with keyword-only arguments
    alone given by name, as linked rules give them too: direct function or builtin."""
    proven = load_direct().get(str(op), ())
    if isinstance(proven, str):
        return function_at(proven) or builtin(op)
    paths = [path for path, *kinds in proven if kinds == [ANY]]
    return (function_at(paths[0]) if paths else None) or builtin(op)


def direct_function(op: OpOverload, kinds: Sequence[str]) -> Callable[..., Any] | None:
    """Return the direct function of an op for calls with these kinds of arguments, in schema order; None where none is proven."""
    proven = load_direct().get(str(op), ())
    if isinstance(proven, str):
        return function_at(proven)
    for path, *allowed in proven:
        if allowed == [ANY] or all(kind in kinds_here for kind, kinds_here in zip(kinds, allowed, strict=True)):
            return function_at(path)
    return None


def path_of(op: OpOverload) -> str:
    """The direct function of an op by its path (``"torch.add"``), with whatever arguments it is proven; "" where there is none."""
    proven = load_direct().get(str(op), ())
    return proven if isinstance(proven, str) else next((path for path, *_ in proven), "")


def kind_of(argument: Argument, value: Any) -> str:
    """Return the kind of a plain value that an argument is given; "?", which nothing is proven for, where it has none."""
    if argument.is_list and isinstance(value, (list, tuple)):
        if not value:
            return "e"
        return "l" if all(type(item) in (bool, int, float, complex) for item in value) else "?"
    return _KINDS.get(type(value), "?")
