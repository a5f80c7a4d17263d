"""Facts of a release that several files state agree, and the commands that issue templates ask for run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import eagerdecomp
from eagerdecomp.cli.main import main

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))  # but config.yml


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_each_file_that_has_the_version_has_the_same() -> None:
    version = eagerdecomp.__version__
    assert re.findall(r"^version: (.*)$", _text("CITATION.cff"), re.M) == [version]
    assert re.findall(r"^## (.*)$", _text("CHANGELOG.md"), re.M)[0] == version
    assert _text(f".github/release_notes/{version}.md").splitlines()[0] == f"eagerdecomp {version}"


def test_each_issue_template_asks_for_the_output_of_explain() -> None:
    assert [path.stem for path in TEMPLATES] == ["no_route", "slow", "wrong_result"]
    assert [
        path.stem for path in TEMPLATES if "label: Output of `eagerdecomp explain`" not in path.read_text(encoding="utf-8")
    ] == []


@pytest.mark.full
def test_the_command_that_a_template_asks_for_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = re.findall(r"`(eagerdecomp explain aten.*?)`", _text(".github/ISSUE_TEMPLATE/wrong_result.yml"))
    monkeypatch.setattr("sys.argv", shlex.split(command))
    assert main() == 0
    assert "2 kernel calls: 1 x aten.sigmoid.default, 1 x aten.mul.Tensor" in capsys.readouterr().out
