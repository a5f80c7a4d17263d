"""The table of rules that could go upstream marks a shipped entry that is not its operator, and has the existing rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

STALE = "docs/numbers/upstream.md is stale: run python tools/upstream_table.py"

#: The module that the fixture `tool` returns.
TOOL = "upstream_table"


def test_rows_are_those_of_the_existing_rules(tool: Any) -> None:
    page = tool.FILE.read_text(encoding="utf-8")
    rows, unseen = page.split("No sample calls ")
    named = re.findall(r"^\| `([^`]*)` \| `([^`]*)`", rows, re.M)
    short = {str(op).removeprefix("aten.").removesuffix(".default"): tool.rule_files()[str(op)] for op in tool.eligible()}
    assert dict(named) | {op: short.get(op) for op in re.findall("`([^`]*)`", unseen)} == short, STALE


@pytest.mark.nightly
def test_the_page_is_what_is_measured(tool: Any) -> None:
    assert tool.main(["--check"]) == 0
