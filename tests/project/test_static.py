"""Linter, formatter and type checker, as tests: one command says whether all is well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("tool", ["ruff check", "ruff format --check", "mypy"])
def test_the_source_passes(tool: str) -> None:
    paths = [] if tool == "mypy" else ["."]  # mypy's are in pyproject.toml
    done = subprocess.run([sys.executable, "-m", *tool.split(), *paths], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool}:\n{done.stdout}{done.stderr}"
