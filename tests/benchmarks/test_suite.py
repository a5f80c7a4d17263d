"""The command runs and writes what it says. No time is asserted anywhere: machines differ, and so does one from itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import eagerdecomp as ed
from benchmarks import suite
from benchmarks.__main__ import main
from eagerdecomp.backends.inductor import cpp_compiler

pytestmark = pytest.mark.full

FAST = replace(suite.QUICK, rounds=2, seconds=1e-5)

#: What a section's rows hold, at the least.
ROWS = {
    "ops": {"op", "family", "size", "decomposed", "times", "ratios"},
    "kernels": {"op", "ours", "shipped"},
    "models": {"model", "kind", "times", "ratios"},
    "bound": {"model", "kind", "times", "bounds", "calls"},
    "memory": {"model", "kind", "held", "ours_growth", "native_growth", "ratio", "growth_ratio"},
    "writeback": {"call", "times", "ratio"},
    "fused": {"call", "size", "times", "ratios"},
    "growth": {"length", "rate", "ours", "noop", "programs"},
    "threads": {"threads", "times", "programs"},
    "install": {"op", "decomposed", "times"},
    "boxed": {"op", "times"},
    "verify": {"model", "kind", "times", "ratios"},
    "plan": {"set", "seconds", "supported", "closed"},
    "compared": set(),
    "linalg": {"op", "size", "kernels", "times", "ratios"},
    "scans": {"scan", "kind", "times", "ratios", "native", "ours"},
}


#: Sections that take a minute, whatever the settings: they compile whole models.
LONG = ("verify", "compared")
SHORT = tuple(name for name in suite.SECTIONS if name not in LONG)


def _run(names: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run the command on some sections and return its output."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "QUICK", FAST)
        words = ["--quick", "--only", ",".join(names), "--json", str(folder / "b.json"), "--svg", str(folder / "b.svg")]
        assert main(words) == 0
    return {"json": json.loads((folder / "b.json").read_text()), "svg": (folder / "b.svg").read_text()}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _run(SHORT, tmp_path_factory.mktemp("bench"))


@pytest.mark.full
def test_every_section_is_in_the_json_file_and_in_the_chart(printed: dict[str, Any]) -> None:
    assert [section["name"] for section in printed["json"]["sections"]] == list(SHORT)
    assert printed["json"]["settings"] == {"quick": True, "rounds": 2, "seconds": 1e-5}
    assert printed["json"]["machine"]["torch"] == torch.__version__
    drawn = {text.text for text in ElementTree.fromstring(printed["svg"]).iter("{http://www.w3.org/2000/svg}text")}
    # A plan and a start are timed alone: they have no ratio to draw.
    assert {section["title"] for section in printed["json"]["sections"] if section["name"] not in ("plan", "start")} <= drawn


@pytest.mark.parametrize("name", [name for name in ROWS if name not in LONG])
def test_rows_have_their_fields(printed: dict[str, Any], name: str) -> None:
    if name == "fused" and cpp_compiler() is None:
        pytest.skip("no C++ compiler is installed: nothing is fused")
    _has_its_fields(printed, name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LONG)
def test_rows_of_long_sections_have_their_fields(name: str, tmp_path: Path) -> None:
    _has_its_fields(_run([name], tmp_path), name)


def _has_its_fields(printed: dict[str, Any], name: str) -> None:
    (section,) = [section for section in printed["json"]["sections"] if section["name"] == name]
    assert section["rows"]
    for row in section["rows"]:
        assert ROWS[name] <= set(row)
    for figure in section["figures"]:
        assert figure["value"] > 0 or "/" not in figure["name"]


def test_costs_of_kernels_are_a_table_for_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "QUICK", FAST)
    assert main(["--quick", "--costs", str(tmp_path / "costs.json")]) == 0
    table = json.loads((tmp_path / "costs.json").read_text())
    assert {"aten.mul.Tensor", "aten.mm.default", "aten.exp.default", "aten.where.self", "aten.cumsum.default"} <= set(table)
    costs = ed.Backend("measured", ed.core_aten(), costs=table).costs
    assert costs is not None
    assert costs("aten.mul.Tensor", 1000) > 0
    with ed.EagerDecompMode(ed.Backend("measured", ed.core_aten(), costs=table)):
        torch.testing.assert_close(torch.nn.functional.silu(torch.ones(2)), torch.full((2,), 0.7310586))
