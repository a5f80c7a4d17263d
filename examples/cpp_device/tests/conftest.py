"""The package is beside this folder; importing it gives this process its device. Where it cannot be built, tests are skipped."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from torch.utils.cpp_extension import get_cxx_compiler

sys.path.insert(0, str(Path(__file__).parent.parent))

WHY = (
    f"no C++ compiler: {get_cxx_compiler()} is not installed\n"
    if shutil.which(get_cxx_compiler()) is None
    else "ninja is not installed: pip install -e examples/cpp_device\n"
    if shutil.which("ninja") is None and find_spec("ninja") is None
    else ""
)


def pytest_pycollect_makemodule() -> None:
    if WHY:
        pytest.skip(WHY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write(WHY)  # pytest prints reasons only with `-rs`
