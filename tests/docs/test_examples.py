"""The examples' own tests, each in a process of its own: an example may give its process a device, for good."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What an example depends on beside this library.
NEEDS = {"ort": "onnxruntime", "triton": "triton", "xla": "jax"}
#: Tools with which an example is built. pip's ninja may be in no folder of PATH.
NEEDS_TOOLS = {"cpp_device": (os.environ.get("CXX", "c++"), "ninja")}
WITH_TESTS = sorted(path.parent.name for path in (ROOT / "examples").glob("*/tests"))


@pytest.mark.full
@pytest.mark.parametrize("example", WITH_TESTS)
def test_an_examples_tests_pass(example: str) -> None:
    needed = NEEDS.get(example)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: pip install -e examples/{example}")
    for tool in NEEDS_TOOLS.get(example, ()):
        if shutil.which(tool) is None and importlib.util.find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed")
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", f"examples/{example}/tests"]
    # Not as a worker of the run that this is part of.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_every_example_has_tests_and_says_how_to_run_it() -> None:
    for folder in (ROOT / "examples").iterdir():
        assert folder.name in WITH_TESTS
        assert "```sh\npython examples/" in (folder / "README.md").read_text(encoding="utf-8")
