"""Run a measurement in a new process, in which the library has not run yet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["in_fresh_process"]


def in_fresh_process(module: str, *arguments: str) -> Any:
    """Run ``python -m module arguments`` and return the value of its last line, which is JSON."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
