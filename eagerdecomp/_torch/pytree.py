"""Nested containers (pytrees), and code generation for graphs with nested arguments."""

from __future__ import annotations

from typing import Any

__all__ = ["tree_codegen", "tree_flatten"]


def tree_flatten(value: Any) -> tuple[list[Any], Any]:
    """Return the leaves of a nested value, and its spec (``.unflatten(leaves)`` nests them again)."""
    from torch.utils._pytree import tree_flatten

    return tree_flatten(value)


def tree_codegen(names: list[str], in_spec: Any, out_spec: Any) -> Any:
    """Return the code generator of an FX graph with nested arguments and results.

    Args:
        names: the names of the arguments.
        in_spec: the spec of ``(args, kwargs)``.
        out_spec: the spec of the result; None if the graph's output is nested already.
    """
    from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

    return _PyTreeCodeGen(_PyTreeInfo(names, in_spec, out_spec))
