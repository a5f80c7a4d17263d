"""Remove names from torch before the library is imported, as if another release lacked them.

The changes cannot be undone: use these functions in a process of their own.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

PRIVATE = Path(__file__).parents[2] / "eagerdecomp" / "_torch"


def hide_ops(names: set[str]) -> None:
    """Hide the ops with these names (``"aten.cholesky.default"``) from the library, not from torch.

    A packet whose default overload is hidden is hidden too.
    """
    space, packet = type(torch.ops.aten), type(torch.ops.aten.add)
    own_name = space.__getattribute__

    def hide(kind: type, method: str) -> None:
        get = getattr(kind, method)

        def find(self: Any, name: str) -> Any:
            if not name.startswith("__") and sys._getframe(1).f_globals.get("__name__", "").startswith("eagerdecomp"):
                path = f"{own_name(self, 'name') if kind is space else self}.{name}"
                if path in names or (kind is space and f"{path}.default" in names):
                    raise AttributeError(f"there is no {path}", name=name, obj=self)
            return get(self, name)

        setattr(kind, method, find)

    overloads = packet.overloads
    packet.overloads = lambda self: [one for one in overloads(self) if f"{self}.{one}" not in names]  # type: ignore[method-assign]
    for kind in (space, packet):
        for method in ("__getattribute__", "__getattr__"):
            hide(kind, method)


def private_names() -> dict[str, set[str]]:
    """Return for each module of `_torch` the dotted private names of torch that it uses."""
    return {path.stem: set(_private_names(ast.parse(path.read_text()))) for path in sorted(PRIVATE.glob("*.py"))}


def _private_names(tree: ast.Module) -> Iterator[str]:
    for_types = {
        id(node)
        for one in ast.walk(tree)
        if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test)
        for node in one.body
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types:
            yield from (f"{node.module}.{one.name}" for one in node.names if _is_private(f"{node.module}.{one.name}"))
        elif isinstance(node, ast.Attribute) and _is_private(ast.unparse(node)):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "private" and isinstance(node.args[0], ast.Constant):
            yield node.args[0].value


def _is_private(name: str) -> bool:
    """Return whether a dotted name is torch's, and a part of it begins with one underscore."""
    parts = name.split(".")
    return parts[0] == "torch" and all(map(str.isidentifier, parts)) and any(one.startswith("_") and one[1] != "_" for one in parts)


def delete_name(name: str) -> bool:
    """Delete a name from torch; return False if there is none yet, because its module is imported at its first use."""
    owner, _, last = name.rpartition(".")
    value: Any = torch
    for part in owner.split(".")[1:]:
        value = getattr(value, part, None)
    try:
        delattr(value, last)
    except (AttributeError, TypeError):
        return False
    sys.modules.pop(name, None)
    return True


def import_error_without(names: list[str]) -> str:
    """Import eagerdecomp in a child process where torch lacks these names; return the error, or "" if there is none."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        words = ""
        try:
            for name in names:
                delete_name(name)
            import eagerdecomp  # noqa: F401
        except BaseException as error:
            words = f"{type(error).__name__}: {error}"
        os.write(write, words.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        words = said.read()
    os.waitpid(child, 0)
    return words
