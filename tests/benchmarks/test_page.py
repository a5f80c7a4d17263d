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


@pytest.mark.full
def test_the_part_for_gpus_runs_on_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``cpu:0`` is a device like another for all that asks for ``cpu``; nothing is compiled, and there is nothing to wait for."""
    waits: list[None] = []
    measure, make = page._sections, page._models
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A stand-in")
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waits.append(None))
    monkeypatch.setattr(torch, "compile", lambda model: model)
    monkeypatch.setattr(page, "_models", lambda: {"MLP": make()["MLP"]})
    monkeypatch.setattr(page, "_sections", lambda device, rounds: measure("cpu:0" if device == "cuda" else device, rounds))
    monkeypatch.setattr(sys, "argv", ["page", "--device", "cuda", "--rounds", "1", "--write", str(tmp_path / "speed")])
    assert page.main() == 0
    text = (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert "Measured on A stand-in, torch" in text
    assert "--device cuda" in text
    assert "not run" not in text
    assert "A stand-in" in (tmp_path / "speed.svg").read_text(encoding="utf-8")
    assert waits
