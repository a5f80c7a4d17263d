"""Imports point one way: a module imports from its own package and the packages before it, and no imports form a cycle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import eagerdecomp

ROOT = Path(eagerdecomp.__file__).parent
LAYERS = (
    *("errors", "_version", "_torch", "host", "ops", "eager", "program", "rules", "dispatcher", "decomps", "planner", "tracing"),
    *("diagnosis", "runtime", "verify", "frontends", "backends", "coverage", "insight", "conformance", "cli", "__init__"),
)
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in ROOT.rglob("*.py")
}


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [f"{name}.{alias.name}" for name in names for alias in node.names]
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name in MODULES)


def package_of(module: str) -> str:
    return [*module.split("."), "__init__"][1]


GRAPH = {module: set(imports_of(path)) - {module} for module, path in MODULES.items() if package_of(module) != "__main__"}


def test_imports_point_one_way_and_form_no_cycle() -> None:
    ranks = {module: LAYERS.index(package_of(module)) for module in GRAPH}
    upward = {(module, target) for module in GRAPH for target in GRAPH[module] if ranks[target] > ranks[module]}
    assert not upward
    assert {*TopologicalSorter({module: found - {module.rpartition(".")[0]} for module, found in GRAPH.items()}).static_order()}
