"""Names of graph nodes, from a function's arguments and the tensors that it uses."""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["argument_names", "names_held", "safe"]


def argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Return names for this many positional arguments: those of the function's parameters."""
    names: list[str] = []
    try:
        parameters = list(inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        parameters = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names.extend(f"{parameter.name}_{number}" for number in range(count - len(names)))
        elif parameter.kind is not parameter.KEYWORD_ONLY and parameter.kind is not parameter.VAR_KEYWORD:
            names.append(parameter.name)
    return [names[number] if number < len(names) else f"arg{number}" for number in range(count)]


def safe(name: str) -> str:
    """Return a name that fx accepts for a placeholder."""
    # fx treats a placeholder "self" as the module, and renames one with the name of a builtin or keyword.
    return f"{name}_" if name == "self" or hasattr(builtins, name) or keyword.iskeyword(name) else name


def names_held(fn: Callable[..., Any]) -> dict[int, str]:
    """Return names for the tensors that a function uses: id -> the path to the tensor, with underscores for dots."""
    names: dict[int, str] = {}
    for name, value in _holders(fn):
        if isinstance(value, torch.nn.Module):
            for path, tensor in (*value.named_parameters(), *value.named_buffers()):
                names.setdefault(id(tensor), _attribute_name(f"{name}.{path}" if name else path))
        elif isinstance(value, Tensor):
            names.setdefault(id(value), _attribute_name(name))
    return names


def _attribute_name(path: str) -> str:
    name = re.sub(r"\W", "_", path)
    return f"_{name}" if name[:1].isdigit() else name


def _holders(fn: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(fn, torch.nn.Module):
        yield "", fn
        return
    if isinstance(fn, functools.partial):
        yield from ((f"arg{number}", value) for number, value in enumerate(fn.args))
        yield from fn.keywords.items()
        yield from _holders(fn.func)
        return
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        yield "", owner
    function = inspect.unwrap(getattr(fn, "__func__", fn))
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        yield from variables.nonlocals.items()
        yield from variables.globals.items()
