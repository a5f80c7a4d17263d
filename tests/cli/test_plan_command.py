"""`eagerdecomp plan`: a plan of a set or a model, written, compared, and as a gate."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eagerdecomp.cli.main import main
from eagerdecomp.coverage.plan_report import Plan


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "planned_nets.py").write_text(
        "import torch\n"
        "def mlp():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SiLU()), torch.randn(2, 4)\n"
        "def broken():\n"
        "    raise ValueError('no such net\\nof any size')\n"
        "def mismatched():\n"
        "    return torch.randn(2) + torch.randn(3)\n",
        encoding="utf-8",
    )
    (tmp_path / "unreadable_nets.py").write_text("import torch\nnet = torch.nn.(\n", encoding="utf-8")
    (tmp_path / "few.txt").write_text("@infra\naten.mul.Tensor\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "planned_nets", raising=False)  # that of an earlier test
    return tmp_path


@pytest.mark.full
def test_the_command_plans_a_model_and_is_a_gate(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "planned_nets:mlp", "--require", "closed"]) == 0
    assert "nothing is missing" in capsys.readouterr().out
    assert main(["plan", "--ops", "few.txt", "--model", "planned_nets:mlp", "--require", "closed"]) == 1
    printed = capsys.readouterr()
    assert "aten.silu.default" in printed.err
    assert "aten.addmm.default" in printed.err
    assert '  ops | {"' in printed.err
    assert "kernels to write" in printed.out


@pytest.mark.full
def test_the_command_writes_and_compares(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["plan", "--match", r"aten\.silu(_backward)?\.default"]
    assert main([*few, "--json", "old.json", "--html", "plan.html"]) == 0
    assert {one.op for one in Plan.from_json(Path("old.json").read_text()).ops} == {
        "aten.silu.default",
        "aten.silu_backward.default",
    }
    assert 'id="aten.silu.default"' in Path("plan.html").read_text()
    assert main([*few, "--ops", "few.txt", "--compare", "old.json"]) == 0
    assert main([*few, "--ops", "few.txt", "--compare", "old.json", "--require", "no-worse"]) == 1
    assert "no longer closed: 2" in capsys.readouterr().out
    assert main([*few, "--compare", "old.json", "--require", "no-worse", "--json", "-"]) == 0
    assert Plan.from_json(capsys.readouterr().out).counts == {"closed": 2}


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--ops", "planned_nets"], "did you mean planned_nets:NAME"),
        (
            ["--model", "planned_nets:broken"],
            "--model planned_nets:broken: calling it raises ValueError: no such net (planned_nets.py:5). Fix that first\n",
        ),
        (["--model", "planned_nets:mismatched"], "(planned_nets.py:7). Fix that first\n"),
        (["--model", "unreadable_nets:net"], "raises SyntaxError: invalid syntax (unreadable_nets.py:2)"),
    ],
)
def test_an_error_is_one_or_two_lines_and_exits_with_2(
    words: list[str], printed: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    err = capsys.readouterr().err
    assert printed in err
    assert len(err.splitlines()) <= 2
