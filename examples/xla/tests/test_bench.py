"""The command that compares with torchax reports what it lacks, and its page names the command that wrote it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from xla import bench


def test_an_unknown_section_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "times,speed"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "error: --only: 'speed' is no section; there are opinfos, losses, times\n" in capsys.readouterr().err


def test_without_torchax_nothing_is_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench"])
    monkeypatch.setitem(sys.modules, "torchax", None)
    monkeypatch.setattr(bench, "NEEDED", ("torchax", "jax"))
    with pytest.raises(SystemExit):
        bench.main()
    assert "error: not installed: pip install torchax\n" in capsys.readouterr().err


def test_the_page_names_the_command_that_wrote_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "opinfos", "--match", "add|mul", "--write", str(page)])
    monkeypatch.setattr(bench, "NEEDED", ())
    monkeypatch.setattr(bench, "compare_opinfos", lambda *args: iter(["no results"]))
    assert bench.main() == 0
    text = page.read_text(encoding="utf-8")
    assert f"Written by `python -m xla.bench --only opinfos --match 'add|mul' --write {page}`: torch" in text
    assert text.endswith("\nno results\n")
