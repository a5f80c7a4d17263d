"""A script to run under the commands."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    step = "x = torch.ones(3, requires_grad=True)\ntorch.nn.functional.silu(x).sum().backward()\n"
    path.write_text(f"import torch\n{step}print('script done')\n", encoding="utf-8")
    return path
