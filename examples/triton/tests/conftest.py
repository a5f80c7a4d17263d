"""The package is beside this folder. The tests use Triton's interpreter, so they need no GPU. Without Triton, they are skipped."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

WHY = "" if importlib.util.find_spec("triton") else "triton is not installed: pip install -e examples/triton\n"


def pytest_pycollect_makemodule() -> None:
    if WHY:
        pytest.skip(WHY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write(WHY)  # pytest prints reasons only with `-rs`
