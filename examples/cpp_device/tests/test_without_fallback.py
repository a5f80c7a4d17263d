"""The same without the device's fallback to the CPU, and with the device loaded by torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import chip
import pytest

FOLDER = Path(__file__).parent.parent


@pytest.mark.skipif(chip.handle.fallback == "eagerdecomp", reason="this is the run without a fallback")
def test_these_tests_pass_without_a_fallback() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"CHIP_FALLBACK": "0"}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", str(FOLDER / "tests")]
    done = subprocess.run(command, cwd=FOLDER.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("first", ["torch", "chip"])
def test_an_entry_point_loads_the_device_with_torch(first: str, tmp_path: Path) -> None:
    (tmp_path / "eagerdecomp_chip-0.1.0.dist-info").mkdir()
    entry = tmp_path / "eagerdecomp_chip-0.1.0.dist-info" / "entry_points.txt"
    entry.write_text("[torch.backends]\nchip = chip:autoload\n", encoding="utf-8")
    assert '[project.entry-points."torch.backends"]\nchip = "chip:autoload"\n' in (FOLDER / "pyproject.toml").read_text("utf-8")
    paths = [str(tmp_path), str(FOLDER), str(FOLDER.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    code = f"import {first}; import torch; print(torch.nn.functional.silu(torch.ones(2, device='chip')).device)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "chip:0\n", done.stderr
