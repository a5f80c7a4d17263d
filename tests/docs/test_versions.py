"""The page of versions is of the records beside it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("versions")


def test_the_page_is_written_from_the_records(tool: Any) -> None:
    records = [json.loads(place.read_text(encoding="utf-8")) for place in tool.RECORDS.glob("*.json")]
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(records), (
        "docs/numbers/versions.md is stale: run python tools/versions.py"
    )


def test_failed_operators_are_listed(tool: Any) -> None:
    board = {"passed": 1, "of": 2, "others": {"cos": "error: TypeError: no"}}
    made = tool.page(
        [
            {
                "torch": "9.9.0",
                "python": "3.11.7",
                "day": "2030-01-31",
                "demo": "passes",
                "default": {"passed": 3, "known": {"eager rounds otherwise": 2}, "failed": ["tests/a.py::test_b"]},
                "scoreboard": board,
                "data": "those of 9.8",
            }
        ]
    )
    assert "| 9.9.0 | 3.11.7 | 2030-01-31 | passes | 3 pass, 1 fail | 2 | 1 of 2 | those of 9.8 |" in made
    assert "- operator `cos`: error: TypeError: no" in made
    assert "- `tests/a.py::test_b` fails" in made
    assert "- 2 tests: eager rounds otherwise" in made


def test_known_differences_name_existing_tests(tool: Any) -> None:
    for file in (ROOT / "tests" / "releases").glob("torch-*.txt"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("# "):
                path, _, name = line.partition("::")
                test = name.rpartition("::")[2].partition("[")[0]
                assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), line
