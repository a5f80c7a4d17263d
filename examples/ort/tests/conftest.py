"""The package is beside this folder. Without ONNX Runtime, the tests are skipped."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

WHY = (
    ""
    if all(map(importlib.util.find_spec, ("onnx", "onnxruntime")))
    else "onnxruntime is not installed: pip install -e examples/ort\n"
)


def pytest_pycollect_makemodule() -> None:
    if WHY:
        pytest.skip(WHY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write(WHY)  # pytest prints reasons only with `-rs`
