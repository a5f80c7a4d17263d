"""The documentation site: every page is in it, every link leads somewhere, every docstring is read without a complaint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import eagerdecomp

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]


def test_the_site_builds_with_warnings_as_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "reference" / "api" / "index.html").read_text(encoding="utf-8")
    assert [name for name in eagerdecomp.__all__ if f'id="eagerdecomp.{name}"' not in reference] == []
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="howto/keep/"' in start
    assert "usage: eagerdecomp plan" in (tmp_path / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert "http-equiv" not in start
    assert '="https://fonts.' not in start
