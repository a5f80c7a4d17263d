"""The table of kernel calls: what is dear has a reason, and reasons are for ops that there are."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagerdecomp._torch.ops import overload

TOOLS = Path(__file__).parents[2] / "tools"

#: The module that the fixture `tool` returns.
TOOL = "kernel_calls"


def test_every_op_with_a_reason_exists_and_has_one_reason(tool: Any) -> None:
    importlib.import_module("torch.nn.modules.linear_cross_entropy")  # defines its operators when it is first used
    named = [op for _, ops in tool._OPS_BY_REASON for op in ops]
    assert [op for op in named if overload(op.replace(".", "::", 1)) is None] == []
    assert len(named) == len(set(named)) == len(tool.REASONS)


@pytest.mark.nightly
def test_every_op_with_many_kernel_calls_has_a_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [sys.executable, str(TOOLS / "kernel_calls.py"), "--above", "64", "--markdown", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TOOLS.parent)
    assert done.returncode == 0, done.stderr
    assert page.read_text().endswith(done.stdout)
    assert "| `aten._linalg_svd.default` | " in done.stdout
