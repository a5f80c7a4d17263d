"""All checks of each script pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "showing")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_sees_what_is_claimed(script: str) -> None:
    done = subprocess.run([sys.executable, FOLDER / f"{script}.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith("ok  ") for line in lines)


def test_what_is_not_so_is_reported_by_the_exit_code() -> None:
    code = "from showing import Checks\ncheck = Checks()\ncheck('one and one', 3, 2)\nraise SystemExit(check.failed)"
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "NO  one and one: 3, expected 2\n")


def test_every_script_is_in_the_readme() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [script for script in SCRIPTS if f"python examples/shown/{script}.py" not in text] == []
