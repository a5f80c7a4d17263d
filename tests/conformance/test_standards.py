"""The table of OpInfos for which eager's values are no reference: every entry is needed, and only values are excluded."""

from __future__ import annotations

import pytest
import torch

import eagerdecomp as ed
from conformance import scoreboard
from conformance.cases import Selection, full_name, opinfos
from conformance.scoreboard import judge_opinfo, table
from conformance.standards import NOT_A_REFERENCE

pytestmark = pytest.mark.filterwarnings("ignore")

CORE = ed.core_aten()
INFOS = {full_name(info): info for info in opinfos("|".join(NOT_A_REFERENCE))}
HERE = [(name, dtype) for name, (dtypes, elsewhere, _) in NOT_A_REFERENCE.items() if not elsewhere for dtype in dtypes]


def test_each_entry_names_an_opinfo_of_its_dtypes() -> None:
    for name, (dtypes, _, why) in NOT_A_REFERENCE.items():
        assert set(dtypes) <= set(INFOS[name].dtypes), name
        assert why


@pytest.mark.parametrize(("name", "dtype"), HERE)
def test_every_entry_is_needed(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    selection = Selection(samples=2, dtype=dtype)
    left_out = judge_opinfo(INFOS[name], CORE, selection)
    assert (left_out.status, left_out.detail) == ("none", NOT_A_REFERENCE[name][2])
    assert f"left out {name}: " in table([left_out], CORE)
    monkeypatch.setattr(scoreboard, "why_no_reference", lambda *_: "")
    row = judge_opinfo(INFOS[name], CORE, selection)
    assert row.status == "wrong", "eager is a standard there: strike the entry"
    assert " values, the worst" in row.detail
