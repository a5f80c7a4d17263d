"""`tools/faults.py`: each fault changes one place of the library as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_each_fault_has_its_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    import faults

    assert [
        one for one in faults.FAULTS if (ROOT / "eagerdecomp" / one.file).read_text(encoding="utf-8").count(one.text) != 1
    ] == []
    assert len(faults.FAULTS) == 60
