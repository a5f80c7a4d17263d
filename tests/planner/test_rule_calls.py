"""The shipped footprints and calls: what the files hold, read a line at a time or whole, and which gradients they know."""

from __future__ import annotations

import json

import pytest

from eagerdecomp._torch.ops import torch_release
from eagerdecomp.ops.shipped_data import shipped_data
from eagerdecomp.planner.rule_calls import load_calls, load_footprints

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


def test_calls_and_footprints_were_harvested_of_the_same_ops() -> None:
    seen, kept = load_calls(), load_footprints()
    assert len(seen) > 1200
    assert len(kept.keys() & seen.keys()) > 0.98 * len(kept)


def test_a_gradient_is_what_autograd_calls_and_none_where_it_has_none() -> None:
    seen = load_calls()
    assert {"aten.silu_backward.default": 1} in [found for _, found in seen["aten.silu.default"].gradient]
    assert [found for _, found in seen["aten.argmax.default"].gradient] == [None]


def test_calls_of_another_release_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagerdecomp.ops.shipped_data.torch_release", lambda: "1.0")
    load_calls.cache_clear()
    try:
        assert load_calls() == {}
    finally:
        monkeypatch.undo()
        load_calls.cache_clear()
