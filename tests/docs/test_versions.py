"""The page of versions is of the records beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

#: The module that the fixture `tool` returns.
TOOL = "versions"


def test_the_page_is_written_from_the_records(tool: Any) -> None:
    records = [json.loads(place.read_text(encoding="utf-8")) for place in tool.RECORDS.glob("*.json")]
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(records), (
        "docs/numbers/versions.md is stale: run python tools/versions.py"
    )


def test_known_differences_name_existing_tests(tool: Any) -> None:
    for file in (ROOT / "tests" / "releases").glob("torch-*.txt"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("# "):
                path, _, name = line.partition("::")
                test = name.rpartition("::")[2].partition("[")[0]
                assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), line
