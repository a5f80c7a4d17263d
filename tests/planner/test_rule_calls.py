"""The recorded calls of rules: they are up to date, and a changed rule's calls are not used."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_named, op_names
from eagerdecomp.coverage.record_rule import calls_of
from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.shipped_data import nearest_release, shipped_data
from eagerdecomp.planner import rule_calls
from eagerdecomp.planner.planner import shipped_costs
from eagerdecomp.planner.rule_calls import FILE, load_calls
from eagerdecomp.rules.rule import Rule

SILU = "aten.silu.default"


@pytest.fixture
def read_again() -> Iterator[None]:
    for cached in (load_calls, nearest_release, shipped_costs):
        cached.cache_clear()
    yield
    for cached in (load_calls, nearest_release, shipped_costs):
        cached.cache_clear()


def recorded() -> list[tuple[str, Rule, str, dict[str, int]]]:
    """Yield each recorded example of our rules: the op, the rule, the call, and the ops that it called."""
    return [
        (op, rule, call.example, dict(call.by_rule[rule.key]))
        for op, seen in load_calls().items()
        for rule in _rules(op)
        for call in seen.calls
        if rule.key in call.by_rule
    ]


def _rules(op: str) -> tuple[Rule, ...]:
    found = op_named(op)
    return () if found is None else our_rules(found)


def called_again(rule: Rule, example: str) -> dict[str, int] | None:
    """Return the ops that a rule calls now; None if eager rejects the call that the text describes."""
    try:
        found = calls_of(rule, example, fake=False)
    except (RuntimeError, ValueError, TypeError, LookupError, AssertionError, NotImplementedError):
        return None
    return None if found is None else dict(found)


def test_no_rule_has_changed_since_it_was_recorded() -> None:
    changed = [str(rule) for seen in load_calls().values() for rule in seen.changed]
    assert not changed, "run `python tools/record_rules.py --changed`"


@pytest.mark.full
def test_rules_make_their_recorded_calls() -> None:
    every = recorded()
    assert len(every) > 1500
    some = random.Random(0).sample(every, 60)
    again = [(op, example, called, called_again(rule, example)) for op, rule, example, called in some]
    tried = [(op, example, called, now) for op, example, called, now in again if now is not None]
    assert len(tried) > 40
    assert [one for one in tried if one[2] != one[3]] == []


@pytest.mark.nightly
def test_all_rules_make_their_recorded_calls() -> None:
    again = [(op, example, called, called_again(rule, example)) for op, rule, example, called in recorded()]
    tried = [one for one in again if one[3] is not None]
    assert len(tried) > 0.9 * len(again)
    assert [one for one in tried if one[2] != one[3]] == []


@pytest.mark.full
def test_a_changed_rule_is_unknown_to_the_planner_and_run_by_plan(monkeypatch: pytest.MonkeyPatch, read_again: None) -> None:
    before = ed.plan(ed.core_aten(), ops=[SILU])[SILU]
    assert shipped_costs(ed.infra()).rank_of_rule(SILU, "own-linked")[0] == 3
    load_calls.cache_clear()
    shipped_costs.cache_clear()
    hash_now = rule_calls.code_hash
    monkeypatch.setattr(rule_calls, "code_hash", lambda rule: "changed" if str(rule.op) == SILU else hash_now(rule))
    seen = load_calls()[SILU]
    keys = {rule.key for rule in our_rules(torch.ops.aten.silu.default)}
    assert {rule.key for rule in seen.changed} == keys
    assert not any(keys & call.by_rule.keys() for call in seen.calls)
    costs = shipped_costs(ed.infra())
    assert {costs.rank_of_rule(SILU, key)[0] for key in keys} == {1}  # 2 is unknown, 3 is not closed
    after = ed.plan(ed.core_aten(), ops=[SILU])[SILU]
    assert [replace(route, ops={}) for route in after.routes] == [replace(route, ops={}) for route in before.routes]


def test_the_file_is_read_an_op_at_a_time() -> None:
    data: dict[str, Any] = json.loads(shipped_data(FILE, nearest_release(FILE)) or "")
    assert data["torch"] == nearest_release(FILE)
    assert list(load_calls()) == list(data["ops"])
    seen = load_calls()[SILU]
    assert [call.example for call in seen.calls] == [example for example, _, _ in data["ops"][SILU]["calls"]]
    assert load_calls().get("aten.nosuch.default") is None


@pytest.mark.parametrize(("release", "nearest"), [("1.0", "oldest"), ("99.0", "newest")])
@pytest.mark.full
def test_a_release_without_recorded_calls_uses_those_of_the_nearest(
    release: str, nearest: str, monkeypatch: pytest.MonkeyPatch, read_again: None
) -> None:
    monkeypatch.setattr("eagerdecomp.ops.shipped_data.torch_release", lambda: release)
    monkeypatch.setattr("eagerdecomp.coverage.analysis.torch_release", lambda: release)
    data = Path(rule_calls.__file__).parents[1] / "data"
    releases = [place.parent.name.removeprefix("torch-") for place in data.glob(f"torch-*/{FILE}")]
    releases.sort(key=lambda name: [*map(int, name.split("."))])
    expected = releases[0 if nearest == "oldest" else -1]
    assert nearest_release(FILE) == expected
    assert load_calls()[SILU].calls
    made = ed.plan(ed.core_aten(), ops=[SILU])
    assert made[SILU].status == "closed"
    assert any(f"no calls were recorded with torch {release}: the plan uses those of {expected}" in n for n in made.notes)


@pytest.mark.full
def test_the_calls_of_another_release_are_those_of_ops_that_this_torch_has(
    monkeypatch: pytest.MonkeyPatch, read_again: None
) -> None:
    monkeypatch.setattr(rule_calls, "torch_release", lambda: "99.0")
    monkeypatch.setattr(rule_calls, "op_names", lambda: [name for name in op_names() if name != "aten::silu"])
    found = load_calls()
    assert SILU not in found
    assert SILU.replace("silu", "gelu") in found
