"""A project for a new backend, with a device of its own or without, written from templates: package, kernels, tests, CI."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import keyword
import re
import sys
import warnings
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

import torch
from torch import Tensor

from eagerdecomp.errors import ArgumentError
from eagerdecomp.host.atomic_file import write_text

__all__ = ["DEVICE_FILES", "FILES", "ScaffoldError", "requirement", "write_project"]

#: What a project holds, and the template that each file is made of. ``${name}`` stands for the backend's name in both.
COMMON: Mapping[str, str] = {
    "pyproject.toml": "pyproject.toml.txt",
    ".gitignore": "gitignore.txt",
    ".github/workflows/tests.yml": "tests.yml.txt",
    "${name}/py.typed": "",
}

#: That of a backend whose tensors are the CPU's.
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

#: The files of a backend with a device of its own, called ``${device}``. Seven of them are also files of `examples/npu`, five of
#: `examples/xla`, under other names.
DEVICE_FILES: Mapping[str, str] = {
    **COMMON,
    "README.md": "device_readme.md.txt",
    "${name}/__init__.py": "device_init.py.txt",
    "${name}/__main__.py": "device_main.py.txt",
    "${name}/backend.py": "device_backend.py.txt",
    "${name}/autocast.py": "device_autocast.py.txt",
    "${name}/device.py": "device_device.py.txt",
    "${name}/errors.py": "device_errors.py.txt",
    "${name}/host.py": "device_host.py.txt",
    "${name}/kernels.py": "device_kernels.py.txt",
    "${name}/memory.py": "device_memory.py.txt",
    "${name}/printing.py": "device_printing.py.txt",
    "${name}/storages.py": "device_storages.py.txt",
    "tests/conftest.py": "device_conftest.py.txt",
    "tests/test_${name}.py": "device_test.py.txt",
}

#: Longer ones would break the lines of the templates.
_LONGEST = 24

#: By it torch itself imports a device's package and installs what its set lacks, when it is imported.
_ENTRY_POINT = """
[project.entry-points."torch.backends"]
${name} = "${name}:install"
"""


class ScaffoldError(ArgumentError):
    """A project that cannot be written: its name will not do, or something is in its place."""


def write_project(name: str, folder: Path, device: str | None = None) -> list[Path]:
    """Write the project of a backend, with a device of its own if one is named, into a new or empty folder; the files, in order.

    Raises:
        ScaffoldError: for a name that no package or no device can have, or a folder that holds something or cannot be written.
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
        raise ScaffoldError(f"{error.filename or folder}: cannot write this file: {error.strerror}") from None
    return written


def _check_name(name: str) -> None:
    if not re.fullmatch("[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?", name) or keyword.iskeyword(name):
        raise ScaffoldError(
            f"{name!r} cannot name a Python package. Use letters, digits and _, starting with a letter, and no Python keyword"
        )
    if len(name) > _LONGEST:
        raise ScaffoldError(f"the name {name!r} is longer than {_LONGEST} letters. Choose a shorter one")
    if name in ("tests", "build", "dist") or name in sys.stdlib_module_names:
        raise ScaffoldError(f"the name {name!r} is taken by the standard library or by project tools. Choose another")
    found = importlib.util.find_spec(name)
    if found is not None and found.origin is not None:
        raise ScaffoldError(f"a module {name!r} is installed already: {found.origin}. Choose another name")


def _check_device(device: str) -> None:
    if not re.fullmatch("[a-z]([a-z_]*[a-z])?", device) or keyword.iskeyword(device):
        raise ScaffoldError(f"{device!r} cannot name a device. Use lowercase letters, with _ between them, and no Python keyword")
    if len(device) > _LONGEST:
        raise ScaffoldError(f"the name {device!r} is longer than {_LONGEST} letters. Choose a shorter one")
    if device == "privateuseone" or _is_device(device):
        raise ScaffoldError(f"torch has a device {device!r} already. Choose another name")
    # torch makes `torch.NAME`, `Tensor.NAME()`, `Tensor.is_NAME` and `Module.NAME()` for a device, over nothing that is there.
    for owner, taken in ((torch, device), (Tensor, device), (Tensor, f"is_{device}"), (torch.nn.Module, device)):
        if hasattr(owner, taken):
            raise ScaffoldError(f"{device!r} cannot name a device: {owner.__name__}.{taken} exists already. Choose another name")


def _is_device(name: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that torch has given up
            torch.device(name)
    except RuntimeError:
        return False
    return True


def requirement(extra: str = "") -> str:
    """How a project asks pip for this library, with an extra: as it was installed here, where that is from version control, else
    by name."""
    try:
        recorded = importlib.metadata.distribution("eagerdecomp").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        recorded = None
    source = json.loads(recorded) if recorded else {}
    if "vcs_info" not in source:
        return f"eagerdecomp{extra}"
    return f"eagerdecomp{extra} @ {source['vcs_info']['vcs']}+{source['url']}@{source['vcs_info']['commit_id']}"
