"""The table of kernel calls: what is dear has a reason, and reasons are for ops that there are."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagerdecomp._torch.ops import overload

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("kernel_calls")


def test_every_op_with_a_reason_exists_and_has_one_reason(tool: Any) -> None:
    importlib.import_module("torch.nn.modules.linear_cross_entropy")  # defines its operators when it is first used
    named = [op for _, ops in tool._OPS_BY_REASON for op in ops]
    assert [op for op in named if overload(op.replace(".", "::", 1)) is None] == []
    assert len(named) == len(set(named)) == len(tool.REASONS)


@pytest.mark.full
def test_an_op_of_many_kernels_without_a_reason_fails(
    tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--match", "_dirichlet_grad"]) == 0
    row = capsys.readouterr().out.splitlines()[2]
    assert re.fullmatch(
        rf"\| `aten\._dirichlet_grad\.default` \| \d+ \| {re.escape(tool.REASONS['aten._dirichlet_grad.default'])} \|", row
    )
    monkeypatch.delitem(tool.REASONS, "aten._dirichlet_grad.default")
    assert tool.main(["--match", "_dirichlet_grad"]) == 1
    assert capsys.readouterr().err == "more than 64 kernel calls without a reason: aten._dirichlet_grad.default\n"


@pytest.mark.nightly
def test_every_op_with_many_kernel_calls_has_a_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [sys.executable, str(TOOLS / "kernel_calls.py"), "--above", "64", "--markdown", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TOOLS.parent)
    assert done.returncode == 0, done.stderr
    assert page.read_text().endswith(done.stdout)
    assert "| `aten._linalg_svd.default` | " in done.stdout
