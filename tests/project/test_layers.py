"""Imports point one way: a module imports from its own package and those before it in `LAYERS`, and imports form no cycle."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import eagerdecomp

pytestmark = pytest.mark.full

ROOT = Path(eagerdecomp.__file__).parents[1]
LAYERS = (
    *("errors", "_version", "_torch", "host", "ops", "eager", "program", "rules", "dispatcher", "decomps", "planner", "tracing"),
    *("diagnosis", "runtime", "verify", "frontends", "device", "backends", "coverage", "insight", "profile", "recording"),
    *("conformance", "cli", "", "__main__"),
)
FILES = (path.relative_to(ROOT) for path in ROOT.glob("eagerdecomp/**/*.py"))
PATHS = {".".join(file.with_suffix("").parts).removesuffix(".__init__"): ROOT / file for file in FILES}


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            folder = ".".join(path.relative_to(ROOT).parent.parts) if node.level else ""
            names = [".".join(filter(None, (folder, node.module, alias.name))) for alias in node.names]
            yield from (name if name in PATHS else name.rpartition(".")[0] for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_imports_point_one_way_and_form_no_cycle() -> None:
    ranks = {module: LAYERS.index(f"{module}..".split(".")[1]) for module in PATHS}
    graph = {module: {*imports_of(path)} & {*PATHS} - {module} for module, path in PATHS.items()}
    assert [(module, one) for module in graph for one in graph[module] if ranks[one] > ranks[module]] == []
    assert {*TopologicalSorter(graph).static_order()} == {*PATHS}
