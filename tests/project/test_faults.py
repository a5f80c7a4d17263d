"""`tools/faults.py`: each fault changes one place of the library as it is now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


#: The module that the fixture `tool` returns.
TOOL = "faults"


def test_each_fault_has_its_text_once(tool: Any) -> None:
    assert [one for one in tool.FAULTS if (ROOT / "eagerdecomp" / one.file).read_text(encoding="utf-8").count(one.text) != 1] == []
    assert len(tool.FAULTS) == 60
