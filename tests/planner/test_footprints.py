"""The shipped footprints: read a line at a time, they are what the file holds."""

from __future__ import annotations

import json

import pytest

from eagerdecomp._torch.ops import torch_release
from eagerdecomp.ops.shipped_data import shipped_data
from eagerdecomp.planner.rule_calls import load_footprints

TEXT = shipped_data("footprints.json") or ""


def test_footprints_read_by_line_are_those_of_the_file() -> None:
    data = json.loads(TEXT)
    assert data["torch"] == torch_release()
    found = load_footprints()
    assert list(found) == list(data["rules"])
    assert len(found) == len(data["rules"]) > 900
    assert {op: {source: list(seen) for source, seen in rules.items()} for op, rules in found.items()} == data["rules"]
    assert found.get("aten.nosuch.default") is None


def test_footprints_of_another_release_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagerdecomp.ops.shipped_data.torch_release", lambda: "1.0")
    load_footprints.cache_clear()
    try:
        assert load_footprints() == {}
    finally:
        monkeypatch.undo()
        load_footprints.cache_clear()
