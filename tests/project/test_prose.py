"""No word of `tools/prose.py`, which has what to write instead, is anywhere but in its list."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_no_word_of_the_list_is_used() -> None:
    done = subprocess.run([sys.executable, "tools/prose.py"], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
