"""The shipped calls: what the file holds, and which gradients it knows."""

from __future__ import annotations

import pytest

from eagerdecomp.planner.calls import load_calls
from eagerdecomp.planner.rule_calls import load_footprints


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
