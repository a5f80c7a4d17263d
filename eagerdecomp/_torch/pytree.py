"""Trees of containers, and the code of graphs that take them."""

from __future__ import annotations

from typing import Any

__all__ = ["tree_codegen", "tree_flatten"]


def tree_flatten(value: Any) -> tuple[list[Any], Any]:
    """The leaves of a nested value, registered containers decomposed, and what puts them together (``.unflatten(leaves)``)."""
    from torch.utils._pytree import tree_flatten

    return tree_flatten(value)


def tree_codegen(names: list[str], in_spec: Any, out_spec: Any) -> Any:
    """Code of an FX graph that takes arguments of these names, nested as a spec of ``(args, kwargs)`` says, and return what another
    spec, or None for a graph whose output is nested itself, says."""
    from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

    return _PyTreeCodeGen(_PyTreeInfo(names, in_spec, out_spec))
