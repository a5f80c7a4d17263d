"""The site has every page and each link leads somewhere; generated pages and docstrings print what commands print today."""

from __future__ import annotations

import doctest
import inspect
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


def test_the_generated_page_is_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools" / "repairs_table.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(eagerdecomp.__all__))
def test_an_example_prints_its_documented_output(name: str) -> None:
    value = inspect.unwrap(getattr(eagerdecomp, name))
    text = inspect.getdoc(value) or ""
    example = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, name, inspect.getfile(value), 0)
    assert example.examples
    flags = doctest.ELLIPSIS | doctest.REPORT_NDIFF
    assert doctest.DocTestRunner(optionflags=flags).run(example, out=sys.stdout.write).failed == 0
