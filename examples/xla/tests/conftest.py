"""The package is beside this folder; importing it gives this process its device. Without JAX, the tests are skipped."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

WHY = "" if importlib.util.find_spec("jax") else "jax is not installed: pip install -e examples/xla\n"


def pytest_pycollect_makemodule() -> None:
    if WHY:
        pytest.skip(WHY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write(WHY)  # pytest prints reasons only with `-rs`
