"""The runner of other libraries' pytest suites: one small suite, and a wrong backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "conformance" / "library_tests.py"

#: A backend with a wrong `atan`.
BACKEND = """
import eagerdecomp as ed, torch
WRONG = ed.Backend("wrong", ed.core_aten(), kernels={"aten.atan.default": lambda x: torch.ops.aten.atan.default(x) + 1})
"""

SUITE = """
import os, unittest
import pytest, torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

SEEN = []

def in_mode():
    return type(_get_current_dispatch_mode()).__name__ == "EagerDecompMode"

@pytest.mark.parametrize("number", [1, 2])
def test_right(number):
    assert torch.nn.functional.silu(torch.zeros(number)).sum() == 0

def test_wrong():
    assert torch.atan(torch.zeros(2)).sum() == 0

def test_fails_natively():
    assert False

def test_skipped():
    pytest.skip("always")

def test_any_mode():
    assert _get_current_dispatch_mode() is None

def test_same_numbers():
    assert torch.rand(()).item() == pytest.approx(0.4962566)

def test_ends():
    if in_mode():
        os._exit(3)

def test_hangs():
    while in_mode():
        torch.zeros(2)

class TestUnit(unittest.TestCase):
    def test_right(self):
        self.assertEqual(len(torch.zeros(2)), 2)
    def test_after_another(self):
        SEEN.append(1)
    def test_alone(self):
        assert not (SEEN and in_mode())
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    """Run the command, since pytest cannot run in a fork of itself; return the exit code and what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder, check=False)
    return done.returncode, done.stdout


@pytest.mark.full
def test_each_test_gets_the_status_that_its_runs_give(tmp_path: Path) -> None:
    suite, journal = tmp_path / "test_suite.py", tmp_path / "rows.jsonl"
    suite.write_text(SUITE)
    (tmp_path / "backends.py").write_text(BACKEND)
    options = ["--backend", "backends:WRONG", "--limit", "2", "--resume", str(journal), str(suite)]
    code, _ = run(tmp_path, *options)
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    assert code == 1
    assert {row["test"]: row["status"] for row in rows} == {
        "test_right[1]": "mode",
        "test_right[2]": "mode",
        "test_wrong": "differs",
        "test_fails_natively": "not counted",
        "test_skipped": "not counted",
        "test_any_mode": "any mode",
        "test_same_numbers": "mode",
        "test_ends": "lost",
        "test_hangs": "differs",
        "TestUnit::test_right": "mode",
        "TestUnit::test_after_another": "mode",
        "TestUnit::test_alone": "alone",
    }
    code, printed = run(tmp_path, *options)
    assert code == 1
    assert len(journal.read_text().splitlines()) == len(rows), "the second run goes on from the results"
    assert "test_suite.py 10 5 1 1 0 2 1" in " ".join(printed.split())


@pytest.mark.full
def test_a_file_that_cannot_be_collected_is_reported(tmp_path: Path) -> None:
    suite = tmp_path / "test_broken.py"
    suite.write_text("raise RuntimeError('broken on purpose')")
    code, printed = run(tmp_path, str(suite))
    assert code == 1
    assert "broken on purpose" in printed
