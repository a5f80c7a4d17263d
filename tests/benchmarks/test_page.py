"""The page that compares speed: what it says of rows, and that it writes nothing without its device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from benchmarks import page
from benchmarks.figures import Section


def test_the_page_has_a_row_for_each_way() -> None:
    rows = [{"model": "MLP", "ms": 1.5, "eagerdecomp, as a mode": 2.25, "torch.compile": 0.5}, {"model": "ResNet", "ms": 2.0}]
    text = page._page([Section("training", "Training", "", [], {}, rows)], "cpu", "a machine", "speed.svg")
    assert "](speed.svg)" in text
    assert "| way | MLP | ResNet |" in text
    assert "| native, milliseconds | 1.50 | 2.00 |" in text
    assert "| eagerdecomp, as a mode | 2.25 | not run |" in text


@pytest.mark.parametrize("kind", ["inference", "training"])
@pytest.mark.parametrize("name", ["MLP", "ResNet", "transformer"])
def test_each_model_has_a_pass(kind: str, name: str) -> None:
    result = page._pass(kind, name, "cpu", compiled=False)()
    assert result is None if kind == "training" else bool(result.isfinite().all())


def test_nothing_is_written_without_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["page", "--device", "cuda", "--write", str(tmp_path / "speed")])
    assert page.main() == 0
    assert "no CUDA device" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
