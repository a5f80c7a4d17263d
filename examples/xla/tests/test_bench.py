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
    monkeypatch.setattr(bench.importlib.metadata, "version", lambda name: "1.0")
    monkeypatch.setattr(bench, "compare_opinfos", lambda *args: iter(["## OpInfos: 2\n", "no results"]))
    assert bench.main() == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Against torchax\n")
    assert text.endswith(
        "\n\n## OpInfos: 2\n\n"
        f"Written by `python -m xla.bench --only opinfos --match 'add|mul' --write {page}`: torch 1.0, jax 1.0, torchax 1.0.\n\n"
        "no results\n"
    )


def test_a_section_is_replaced_and_the_others_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(bench, "NEEDED", ())
    monkeypatch.setattr(bench, "Worker", lambda name: type("Worker", (), {"stop": lambda self: None})())
    monkeypatch.setattr(bench.importlib.metadata, "version", lambda name: "1.0")
    for number in ("first", "second"):
        monkeypatch.setattr(bench, "compare_times", lambda *args, number=number: iter(["## Times\n", f"{number} times"]))
        monkeypatch.setattr(
            bench, "compare_losses", lambda *args, number=number: iter(["## Training losses\n", f"{number} losses"])
        )
        only = "times,losses" if number == "first" else "losses"
        monkeypatch.setattr(sys, "argv", ["bench", "--only", only, "--write", str(page)])
        assert bench.main() == 0
    intro, losses, times = page.read_text(encoding="utf-8").split("\n## ")
    assert intro.strip() == bench.COMPARED.strip()
    assert losses.endswith("\n\nsecond losses\n")
    assert times.endswith("\n\nfirst times\n")
