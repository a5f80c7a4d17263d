"""torch made to lack names, as another release would, before the library is imported. A process ends with what it asks for here."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

PRIVATE = Path(__file__).parents[2] / "eagerdecomp" / "_torch"


def without_ops(names: set[str]) -> None:
    """Let the library alone find no ops of these names (``"aten.cholesky.default"``); without its default no packet either."""
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
    """Module of `_torch` -> the private names of torch that it reads, dotted."""
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
    """Whether a dotted name is one of torch's, and begins with an underscore somewhere."""
    parts = name.split(".")
    return parts[0] == "torch" and all(map(str.isidentifier, parts)) and any(one.startswith("_") and one[1] != "_" for one in parts)


def delete(name: str) -> bool:
    """Take a name away from torch; False where it is not there to be taken: its module is imported where it is first used."""
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


def imported_without(names: list[str]) -> str:
    """Import eagerdecomp in a child process where torch lacks these names; return the error, "" where it works."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        words = ""
        try:
            for name in names:
                delete(name)
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
