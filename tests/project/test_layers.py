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
    *(
        "diagnosis",
        "runtime",
        "verify",
        "frontends",
        "backends",
        "coverage",
        "insight",
        "conformance",
        "bench",
        "cli",
        "__init__",
        "__main__",
    ),
)
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in ROOT.rglob("*.py")
}


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else name.rpartition(".")[0] for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def package_of(module: str) -> str:
    return [*module.split("."), "__init__"][1]


GRAPH = {module: {*imports_of(path)} & {*MODULES} - {module} for module, path in MODULES.items()}


def test_imports_point_one_way_and_form_no_cycle() -> None:
    rank = {module: LAYERS.index(package_of(module)) for module in MODULES}
    assert not [(module, target) for module in GRAPH for target in GRAPH[module] if rank[target] > rank[module]]
    assert {*TopologicalSorter(GRAPH).static_order()} == {*MODULES}
