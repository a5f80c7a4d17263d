"""A name in single backticks, in a docstring or comment, exists in Python code. Names of C++ stand in double backticks."""

from __future__ import annotations

import ast
import builtins
import re
import tokenize
from collections import Counter
from pathlib import Path

import torch

from eagerdecomp._torch.ops import op_names

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "eagerdecomp"
FOLDERS = ("benchmarks", "conformance", "eagerdecomp", "tests", "tools")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
_QUOTED = re.compile(r"(?<!`)`([\w./]+)(?:\(\))?`(?!`)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NO_STATEMENT = {tokenize.COMMENT, tokenize.NL}
_BETWEEN_STATEMENTS = {tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def prose_and_names(path: Path) -> tuple[list[tuple[int, str]], set[str]]:
    """Return the docstrings and comments of a file with their lines, and the names in its code and other strings."""
    prose, names = [], set()
    with path.open("rb") as file:
        last = tokenize.ENCODING
        for token in tokenize.tokenize(file.readline):
            is_docstring = token.type == tokenize.STRING and last in _BETWEEN_STATEMENTS
            if is_docstring or token.type == tokenize.COMMENT:
                prose.append((token.start[0], token.string))
            else:
                names.update(_WORD.findall(token.string))
            last = last if token.type in _NO_STATEMENT else token.type
    return prose, names


def of_torch_and_python() -> set[str]:
    spaces = (torch, torch.Tensor, torch.nn, torch.nn.functional, torch.autograd, torch.fx, torch.utils, torch.library, builtins)
    ops = {part for name in op_names() for part in re.split(r"::|\.", name)}
    return ops.union(*map(dir, spaces))


def is_missing(name: str, known: set[str], members: dict[str, set[str]]) -> bool:
    """Return whether nothing has a name; `members` has the names of each package of ours."""
    if name.endswith(".py"):
        return not any(f"/{path.relative_to(ROOT).as_posix()}".endswith(f"/{name}") for path in SOURCES)
    first, *rest = name.removeprefix("eagerdecomp.").split(".")
    if rest and rest[0] not in members.get(first, rest):
        return True
    return "/" not in name and not set(name.split(".")) <= known | {""}


def test_names_in_backticks_exist() -> None:
    found = {path: prose_and_names(path) for path in SOURCES}
    known = of_torch_and_python().union(*(names for _, names in found.values()))
    known |= {part for path in SOURCES for part in path.relative_to(ROOT).with_suffix("").parts}
    inits = {path.parent.name: path for path in PACKAGE.glob("*/__init__.py")}
    members = {name: found[init][1] | {one.stem for one in init.parent.iterdir()} for name, init in inits.items()}
    missing = [
        f"{path.relative_to(ROOT)}:{line + text[: one.start()].count(chr(10))}: {one[1]}"
        for path, (prose, _) in found.items()
        for line, text in prose
        for one in _QUOTED.finditer(text)
        if is_missing(one[1], known, members)
    ]
    assert not missing, "\n".join(missing)


def test_a_name_of_a_class_has_one_meaning() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    classes = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in classes.items() if count > 1 and not name.startswith("_")] == []


def test_a_package_that_lists_its_modules_lists_each() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        items = re.findall(r"^- (.*)", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "", re.MULTILINE)
        # Names of modules come first, and after a semicolon.
        listed = {name for item in items for part in item.split("; ") for name in re.findall(r"`(\w+)`", part.partition(":")[0])}
        modules = {one.stem for one in path.parent.iterdir() if one.suffix == ".py" or (one / "__init__.py").exists()}
        assert not listed or listed == modules - {"__init__", "__main__"}, path
