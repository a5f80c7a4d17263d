"""The chart has dots where the numbers are, and the page that compares speed has its rows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from benchmarks import page
from benchmarks.chart import svg
from benchmarks.figures import Figure, Section, markdown

SVG = "{http://www.w3.org/2000/svg}"


def section(*figures: Figure) -> Section:
    return Section("s", "A & B", "How.", figures, {"Worst": ["x 2"]}, [{"op": "x"}])


def circles(text: str) -> list[float]:
    return [float(circle.attrib["cx"]) for circle in ElementTree.fromstring(text).iter(f"{SVG}circle")]


def test_ratios_lie_on_a_logarithmic_axis() -> None:
    text = svg([section(Figure("a / b", 0.1), Figure("b / b", 1.0), Figure("c / b", 10.0))], "here")
    low, one, high = circles(text)
    assert one - low == high - one > 0


def test_what_is_no_ratio_is_not_drawn() -> None:
    assert len(circles(svg([section(Figure("programs held", 65), Figure("a / b", 2.0, 1.5, 3.0))], "here"))) == 1
    assert circles(svg([section(Figure("programs held", 65))], "here")) == []


def test_a_section_as_markdown_is_a_table_and_its_lists() -> None:
    text = markdown(section(Figure("a / b", 1.234, 1.1, 1.3, "7 ops"), Figure("programs held", 65)))
    assert "| a / b | 1.23 | 1.10 to 1.30 | 7 ops |" in text
    assert "| programs held | 65 |  |  |" in text
    assert re.search(r"^Worst: x 2$", text, re.MULTILINE)


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
