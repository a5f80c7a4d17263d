"""Promises of the settings that all tests share."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import HypothesisProvider


def _drawn() -> list[int]:
    found: list[int] = []

    @given(st.integers())
    def draw(value: int) -> None:
        found.append(value)

    draw()
    return found


def test_a_property_tries_the_same_whatever_was_imported_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _drawn()
    file = tmp_path / "numbers_of_mine.py"
    file.write_text("".join(f"x{n} = {7_000_000 + n}\n" for n in range(500)))
    module = types.ModuleType("numbers_of_mine")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "numbers_of_mine", module)
    assert _drawn() == before
    assert not any(7_000_000 <= value < 7_000_500 for value in before)
    assert len(HypothesisProvider(None)._local_constants) == 0
