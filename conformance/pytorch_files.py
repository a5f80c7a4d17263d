"""Import PyTorch's test files, or a backend's own copy of them, as tests of another device.

PyTorch's files need nothing: `instantiate_device_type_tests` makes tests for the CPU. A backend's copy names its own device in
literals, decorators and methods, and imports its own package. Both are rewritten in the file's syntax tree before it is compiled,
and the package is replaced by a stand-in that has no device.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import os
import sys
import types
import unittest
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal import common_device_type, common_utils

__all__ = ["DeviceNames", "StandIn", "cases_of", "function_of", "import_test_file", "install_stand_ins", "key_of", "select_device"]

#: The name under which torch's tests select a device that is not one of its own.
_OUT_OF_TREE = "privateuse1"


@dataclass(frozen=True)
class DeviceNames:
    """Which device names of a file to replace, and by which.

    Attributes:
        names: device names as the file writes them, for example ``("npu",)``.
        target: the device that the tests are made for: "cpu", or the name that PrivateUse1 was given.
    """

    names: tuple[str, ...] = ()
    target: str = "cpu"

    @property
    def selector(self) -> str:
        """The name by which torch's `only_for=` selects the target."""
        return "cpu" if self.target == "cpu" else _OUT_OF_TREE

    def text(self, value: str) -> str:
        """Return a string literal of the file with its device name replaced; any other string as it is."""
        if value == _OUT_OF_TREE:
            return self.selector
        name, colon, index = value.partition(":")
        return self.target + colon + index if name in self.names else value


class _Rename(ast.NodeTransformer):
    """Replace device names in literals, in `onlyPRIVATEUSE1`-like decorators, and in methods such as `x.npu()`."""

    def __init__(self, devices: DeviceNames) -> None:
        self._devices = devices
        self._only = "onlyCPU" if devices.target == "cpu" else "onlyPRIVATEUSE1"
        self._modules = {"torch", *(f"torch_{name}" for name in devices.names)}

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = self._devices.text(node.value)
        return node

    def visit_alias(self, node: ast.alias) -> ast.AST:
        if node.name == "onlyPRIVATEUSE1":
            node.name, node.asname = self._only, node.asname or self._only
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "onlyPRIVATEUSE1":
            node.id = self._only
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        of_module = isinstance(node.value, ast.Name) and node.value.id in self._modules
        for name in self._devices.names:
            if node.attr == name and not of_module:
                node.attr = self._devices.target
            elif node.attr == f"is_{name}":
                node.attr = f"is_{self._devices.target}"
        return node


class StandIn(types.ModuleType):
    """A stand-in for an absent package: false, empty, equal to 0, and a decorator that changes nothing.

    A name that PyTorch's own test helpers also have comes from them, because a backend's helpers are copies of them.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__file__ = f"{name}.py"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for helpers in (common_utils, common_device_type):
            if isinstance(found := getattr(helpers, name, None), (type, types.FunctionType)):
                return found
        found = StandIn(f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorated = len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType))
        return args[0] if decorated else StandIn(f"{self.__name__}()")

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __index__(self) -> int:
        return 0

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __lt__(self, other: Any) -> bool:
        return bool(other > 0)

    def __le__(self, other: Any) -> bool:
        return bool(other >= 0)

    def __gt__(self, other: Any) -> bool:
        return bool(other < 0)

    def __ge__(self, other: Any) -> bool:
        return bool(other <= 0)


class _StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = tuple(packages)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        ours = name.partition(".")[0] in self._packages
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def install_stand_ins(devices: DeviceNames, packages: Sequence[str] = ()) -> None:
    """Make the packages of a backend's copy importable, and `torch.NAME` readable, without the backend. For the whole process."""
    sys.meta_path.insert(0, _StandInFinder([*(f"torch_{name}" for name in devices.names), *packages]))
    for name in devices.names:
        if not hasattr(torch, name):
            setattr(torch, name, StandIn(f"torch.{name}"))


def select_device(name: str) -> None:
    """Have torch's `instantiate_device_type_tests` make tests for one device only: "cpu", or the name of PrivateUse1."""
    known = common_device_type.device_type_test_bases
    if name != "cpu" and common_device_type.PrivateUse1TestBase not in known:
        known.append(common_device_type.PrivateUse1TestBase)  # the list was made before the backend was imported
    os.environ[common_device_type.PYTORCH_TESTING_DEVICE_ONLY_FOR_KEY] = "cpu" if name == "cpu" else f"{_OUT_OF_TREE},{name}"


def import_test_file(path: Path, root: Path, devices: DeviceNames) -> types.ModuleType:
    """Import one test file with its device names replaced.

    Args:
        path: the file.
        root: the `test/` folder. The file can import modules from it and from its own folder.

    Raises:
        Exception: any exception that the file raises when it is imported.
    """
    for folder in (root, path.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    # Use the file's name, because some tests import their own module. For a second device the name is different.
    name = path.stem if devices.target == "cpu" else f"{path.stem}_{devices.target}"
    tree = _Rename(devices).visit(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), module.__dict__)
    return module


def cases_of(module: types.ModuleType) -> list[unittest.TestCase]:
    """Return the test cases of a module, in the order of its classes and of their names."""
    loader = unittest.defaultTestLoader
    # Not loadTestsFromModule: the ``load_tests`` of PyTorch's files is for their own runner.
    classes = dict.fromkeys(one for one in vars(module).values() if isinstance(one, type) and issubclass(one, unittest.TestCase))
    return [one(name) for one in classes for name in loader.getTestCaseNames(one)]


def function_of(case: unittest.TestCase) -> str:
    """Return the name of the function that a case is an instance of: one for all its dtypes, ops and parameters."""
    name = case._testMethodName
    written = getattr(getattr(type(case), name, None), "__qualname__", name)
    # A closure has the name of the function that created it, so each test name counts as a function.
    return f"{type(case).__name__}.{name}" if "<locals>" in written else written


def key_of(case: unittest.TestCase) -> str:
    """Return a case's name without its device, ``TestViewOps.test_view_copy_*_float32``: the same on every device."""
    device = getattr(type(case), "device_type", None)
    if not device:
        return f"{type(case).__name__}.{case._testMethodName}"
    name = type(case).__name__
    for suffix in (device.upper(), _OUT_OF_TREE.upper()):
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            break
    parts = case._testMethodName.split("_")
    return f"{name}.{'_'.join('*' if part == device else part for part in parts)}"
