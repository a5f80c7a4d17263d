"""Find torch's own function for an overload, which is faster than the overload itself.

``torch.add(x, y)`` reaches ``aten.add.Tensor`` 0.3 to 1.4 us sooner than a call of the overload, which boxes each argument. But
torch's argument parser then chooses the overload. ``tools/prove_direct.py`` calls both with arguments of every kind and writes
``data/fast_calls.json``. For each overload, this file has its function, and the kinds of arguments for which the function calls
exactly this overload with exactly these arguments (it may add ``pin_memory=False``, the default). Kinds are letters:

``t`` tensor, of any number of dimensions · ``b i f c`` Python bool, int, float, complex · ``x`` symbolic number · ``n`` None ·
``l`` list of numbers · ``X`` list with symbolic numbers · ``L`` list of tensors · ``o`` list of tensors and None · ``e`` empty
list · ``d`` dtype · ``v`` device · ``y`` layout · ``m`` memory format · ``g`` generator · ``s`` string · ``-`` argument omitted

Handlers of ``__torch_function__`` get the function instead of the overload. The number of their calls does not change.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch

from eagerdecomp._torch.ops import FUNCTION_PLACES, OpOverload, builtin, torch_release
from eagerdecomp.ops.schema import Argument
from eagerdecomp.ops.shipped_data import shipped_text

__all__ = ["ABSENT", "ANY", "direct_function", "function_at", "kind_of", "load_direct", "native", "path_of", "table_of"]

#: The kind of an omitted argument.
ABSENT = "-"

#: All kinds that may arrive at a mode. There, only keyword-only arguments are passed by name.
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
    """Return the C function at a path such as ``"torch.add"``, ``"Tensor.add"`` or ``"nn.gelu"``; None if there is none."""
    place, _, name = path.partition(".")
    function = getattr(FUNCTION_PLACES[place], name, None)
    return function if isinstance(function, (BuiltinFunctionType, MethodDescriptorType)) else None


#: overload -> the path of its function, if the function takes all calls of the overload. Otherwise a list of proven cases: each
#: is a path, followed by the allowed kinds of each argument, or by `ANY` if the case allows all kinds that may arrive at a mode.
Table = Mapping[str, "str | Sequence[Sequence[str]]"]


#: What the file holds: ``base``, the table of one release, and for each release its entries that differ; None if it lacks one.
Tables = Mapping[str, dict[str, Any]]


def table_of(tables: Tables, release: str) -> Table:
    """Return the table of a torch release; empty if it has none."""
    entries = tables["base"] | tables[release] if release in tables else {}
    return {op: found for op, found in entries.items() if found is not None}


@functools.cache
def load_direct() -> Table:
    """Return the shipped table of the installed torch release."""
    return table_of(json.loads(shipped_text("fast_calls.json") or ""), torch_release())


@functools.cache
def native(op: OpOverload) -> Callable[..., Any]:
    """Return the fastest function that runs torch's own kernel of an op: its direct function if one is proven for all calls, else
    the builtin.

    Only keyword-only arguments may be passed by name, as they arrive at a mode.
    """
    proven = load_direct().get(str(op), ())
    if isinstance(proven, str):
        return function_at(proven) or builtin(op)
    paths = [path for path, *kinds in proven if kinds == [ANY]]
    return (function_at(paths[0]) if paths else None) or builtin(op)


def direct_function(op: OpOverload, kinds: Sequence[str]) -> Callable[..., Any] | None:
    """Return the direct function of an op for these kinds of arguments, in schema order; None if none is proven."""
    proven = load_direct().get(str(op), ())
    if isinstance(proven, str):
        return function_at(proven)
    for path, *allowed in proven:
        if allowed == [ANY] or all(kind in kinds_here for kind, kinds_here in zip(kinds, allowed, strict=True)):
            return function_at(path)
    return None


def path_of(op: OpOverload) -> str:
    """Return the path of an op's direct function (``"torch.add"``), for any kinds of arguments; "" if there is none."""
    proven = load_direct().get(str(op), ())
    return proven if isinstance(proven, str) else next((path for path, *_ in proven), "")


def kind_of(argument: Argument, value: Any) -> str:
    """Return the kind of an argument's value; "?" for a value without a kind, for which nothing is proven."""
    if argument.is_list and isinstance(value, (list, tuple)):
        if not value:
            return "e"
        return "l" if all(type(item) in (bool, int, float, complex) for item in value) else "?"
    return _KINDS.get(type(value), "?")
