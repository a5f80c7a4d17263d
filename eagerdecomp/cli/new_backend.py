"""Write the project of a new backend from templates: package, kernels, tests, CI. The backend may define its own device."""

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

from eagerdecomp.device.names import problem_with_name
from eagerdecomp.errors import ArgumentError
from eagerdecomp.host.atomic_file import write_text

__all__ = ["DEVICE_FILES", "FILES", "ScaffoldError", "requirement", "write_project"]

#: Files of every project, each with its template. ``${name}`` is replaced by the backend's name in paths and in contents.
COMMON: Mapping[str, str] = {
    "pyproject.toml": "pyproject.toml.txt",
    ".gitignore": "gitignore.txt",
    ".github/workflows/tests.yml": "tests.yml.txt",
    "${name}/py.typed": "",
}

#: Files of a project that uses CPU tensors.
FILES: Mapping[str, str] = {
    **COMMON,
    "README.md": "readme.md.txt",
    "${name}/__init__.py": "init.py.txt",
    "${name}/__main__.py": "main.py.txt",
    "${name}/backend.py": "backend.py.txt",
    "${name}/kernels.py": "kernels.py.txt",
    "${name}/memory.py": "memory.py.txt",
    "tests/test_${name}.py": "test.py.txt",
}

#: Files of a project that defines its own device, ``${device}``. ``device.py``, ``host.py`` and ``memory.py`` also exist
#: in `examples/npu`, under other names.
DEVICE_FILES: Mapping[str, str] = {
    **COMMON,
    "README.md": "device_readme.md.txt",
    "${name}/__init__.py": "device_init.py.txt",
    "${name}/__main__.py": "device_main.py.txt",
    "${name}/backend.py": "device_backend.py.txt",
    "${name}/device.py": "device_device.py.txt",
    "${name}/host.py": "device_host.py.txt",
    "${name}/kernels.py": "device_kernels.py.txt",
    "${name}/memory.py": "device_memory.py.txt",
    "tests/conftest.py": "device_conftest.py.txt",
    "tests/test_${name}.py": "device_test.py.txt",
}

#: Maximum length of a name. Longer names would make template lines too long.
_MAX_NAME_LENGTH = 24

#: With this entry point, `import torch` loads the device package, which registers the decompositions.
_ENTRY_POINT = """
[project.entry-points."torch.backends"]
${name} = "${name}:install"
"""


class ScaffoldError(ArgumentError):
    """Invalid name, or the folder is not empty."""


def write_project(name: str, folder: Path, device: str | None = None) -> list[Path]:
    """Write the project of a backend into a new or empty folder, and return the paths written.

    Args:
        name: the name of the backend and of its package.
        folder: where to write the project.
        device: the name of the backend's own device; None if the backend uses CPU tensors.

    Raises:
        ScaffoldError: if a name is invalid for a package or a device, the folder is not empty, or a file cannot be written.
    """
    _check_name(name)
    values = {"name": name, "requirement": requirement(), "requirement_to_test": requirement("[conformance]")}
    values.update(kind="backend", entry_point="")
    if device is not None:
        _check_device(device)
        values.update(device=device, kind="device", entry_point=Template(_ENTRY_POINT).substitute(name=name))
    templates = files("eagerdecomp.cli") / "templates"
    written = []
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ScaffoldError(f"{folder} exists and is not an empty folder. Choose another with --dir")
        for target, template in (FILES if device is None else DEVICE_FILES).items():
            path = folder / Template(target).substitute(values)
            text = (templates / template).read_text(encoding="utf-8") if template else ""
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, Template(text).substitute(values))
            written.append(path)
    except OSError as error:
        raise ScaffoldError(
            f"cannot write to {error.filename or folder}: {error.strerror}. Choose another folder with --dir"
        ) from None
    return written


def _check_name(name: str) -> None:
    if not re.fullmatch("[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?", name) or keyword.iskeyword(name):
        raise ScaffoldError(
            f"{name!r} cannot name a Python package. Use letters, digits and _, starting with a letter, and no Python keyword"
        )
    if len(name) > _MAX_NAME_LENGTH:
        raise ScaffoldError(f"the name {name!r} is longer than {_MAX_NAME_LENGTH} letters. Choose a shorter one")
    if name in ("tests", "build", "dist") or name in sys.stdlib_module_names:
        raise ScaffoldError(f"the name {name!r} is taken by the standard library or by project tools. Choose another")
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None:
        raise ScaffoldError(f"a module {name!r} is installed already: {spec.origin}. Choose another name")


def _check_device(device: str) -> None:
    problem = problem_with_name(device)
    if problem:
        raise ScaffoldError(f"{problem}. Choose another --device")
    if len(device) > _MAX_NAME_LENGTH:
        raise ScaffoldError(f"the name {device!r} is longer than {_MAX_NAME_LENGTH} letters. Choose a shorter one")


def requirement(extra: str = "") -> str:
    """Return the pip requirement for this library, with an extra if given.

    It names the installed commit if the library was installed from version control, else only the package.
    """
    try:
        recorded = importlib.metadata.distribution("eagerdecomp").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        recorded = None
    source = json.loads(recorded) if recorded else {}
    if "vcs_info" not in source:
        return f"eagerdecomp{extra}"
    return f"eagerdecomp{extra} @ {source['vcs_info']['vcs']}+{source['url']}@{source['vcs_info']['commit_id']}"
