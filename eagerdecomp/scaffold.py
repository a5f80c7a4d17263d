"""A project for a new backend, written from templates: package, kernels, tests, CI."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import keyword
import re
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

__all__ = ["FILES", "ScaffoldError", "requirement", "write_project"]

#: What a project holds, and the template that each file is made of. ``${name}`` stands for the backend's name in both.
FILES: Mapping[str, str] = {
    "README.md": "readme.md.txt",
    "pyproject.toml": "pyproject.toml.txt",
    ".gitignore": "gitignore.txt",
    ".github/workflows/tests.yml": "tests.yml.txt",
    "${name}/__init__.py": "init.py.txt",
    "${name}/__main__.py": "main.py.txt",
    "${name}/backend.py": "backend.py.txt",
    "${name}/kernels.py": "kernels.py.txt",
    "${name}/memory.py": "memory.py.txt",
    "${name}/py.typed": "",
    "tests/test_${name}.py": "test.py.txt",
}

#: Longer ones would break the lines of the templates.
_LONGEST = 24


class ScaffoldError(Exception):
    """A project that cannot be written: its name will not do, or something is in its place."""


def write_project(name: str, folder: Path) -> list[Path]:
    """Write the project of a backend into a new or empty folder; the files, in order.

    Raises:
        ScaffoldError: for a name that no package can have, or a folder that holds something or cannot be written.
    """
    _check_name(name)
    values = {"name": name, "requirement": requirement()}
    templates = files("eagerdecomp") / "templates"
    written = []
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ScaffoldError(f"{folder} exists and is not an empty folder: choose another with --dir")
        for target, template in FILES.items():
            path = folder / Template(target).substitute(values)
            text = (templates / template).read_text(encoding="utf-8") if template else ""
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(values), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ScaffoldError(f"{error.filename or folder}: cannot be written: {error.strerror}") from None
    return written


def _check_name(name: str) -> None:
    if not re.fullmatch("[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?", name) or keyword.iskeyword(name):
        raise ScaffoldError(f"{name!r} cannot be a package's name: take letters, digits and _, a letter first, and no keyword")
    if len(name) > _LONGEST:
        raise ScaffoldError(f"{name!r} is longer than {_LONGEST} letters")
    if name in ("tests", "build", "dist") or name in sys.stdlib_module_names:
        raise ScaffoldError(f"{name!r} is the name of something else in Python projects")
    found = importlib.util.find_spec(name)
    if found is not None and found.origin is not None:
        raise ScaffoldError(f"there is a module {name!r} already: {found.origin}")


def requirement() -> str:
    """How a project asks pip for this library: as it was installed here, where that is from version control, else by name."""
    try:
        told = importlib.metadata.distribution("eagerdecomp").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        told = None
    source = json.loads(told) if told else {}
    if "vcs_info" not in source:
        return "eagerdecomp"
    return f"eagerdecomp @ {source['vcs_info']['vcs']}+{source['url']}@{source['vcs_info']['commit_id']}"
