"""Build the C++ code at the first import, in about a minute, into torch's folder for extensions, where later imports find it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch
from torch.utils import cpp_extension

__all__ = ["build"]

FLAGS = ["-O2", "-Wall", "-Wextra"]

SOURCES = sorted(str(path) for path in Path(__file__).parent.glob("csrc/*.cpp"))


def build() -> ModuleType:
    """Return the module of the C++ code, compiled again if a source file has changed. Each torch and each Python has its own.

    Raises:
        ImportError: if there is no C++ compiler or no ninja.
    """
    compiler = cpp_extension.get_cxx_compiler()
    if shutil.which(compiler) is None:
        raise ImportError(f"chip is written in C++, and there is no compiler {compiler!r}: install g++, or set CXX")
    name = "chip_torch_" + re.sub(r"\W", "_", torch.__version__)  # also of the folder
    path = os.environ["PATH"]
    os.environ["PATH"] = os.pathsep.join([*_folder_of_ninja(), path])
    try:
        if not cpp_extension.is_ninja_available():
            raise ImportError("chip is written in C++, and torch builds it with ninja: pip install ninja")
        folder = Path(cpp_extension._get_build_directory(name, verbose=False))
        if not (folder / f"{name}.so").exists():
            print(f"chip: compiling its C++ code, for a minute, once, in {folder}", file=sys.stderr)
        module: ModuleType = cpp_extension.load(name, SOURCES, extra_cflags=FLAGS, build_directory=str(folder))
    finally:
        os.environ["PATH"] = path
    return module


def _folder_of_ninja() -> list[str]:
    """Return the folder of pip's ninja, which is not in PATH if the environment of this Python is not activated."""
    if find_spec("ninja") is None:
        return []
    import ninja

    return [ninja.BIN_DIR]
