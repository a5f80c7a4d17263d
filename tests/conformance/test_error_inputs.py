"""For torch's error inputs, the mode raises eager's type of exception, with a message that torch's own tests would accept."""

from __future__ import annotations

import pytest
from on_core import CORE

from conformance.cases import full_name, opinfos
from conformance.error_inputs import Refusal, refusals_of, table
from eagerdecomp import OpSet, prims

INFOS = {full_name(info): info for info in opinfos() if info.error_inputs_func is not None}


@pytest.mark.parametrize("ops", [CORE, prims()], ids=["core", "prims"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full) if name == "multinomial" else name for name in INFOS])
def test_torchs_error_inputs_raise_eagers_error(name: str, ops: OpSet) -> None:
    # The sample of multinomial has uninitialized memory: if it contains zeros, they raise before the wrong out= does.
    allowed = {"pass"} if ops is CORE and name != "multinomial" else {"pass", "message", "unsupported"}
    found = list(refusals_of(INFOS[name], ops))
    assert {one.status for one in found} <= allowed, table(found)


def test_there_are_many_error_inputs() -> None:
    assert len(INFOS) > 200


def test_wrong_types_wrong_messages_and_missing_errors_are_reported() -> None:
    found = [
        Refusal("op", 0, "type", "IndexError: a", "RuntimeError: a"),
        Refusal("op", 1, "message", "RuntimeError: a", "RuntimeError: b"),
        Refusal("op", 2, "no error", "RuntimeError: a", ""),
        Refusal("op", 3, "pass", "RuntimeError: a", "RuntimeError: a"),
    ]
    reported = table(found)
    assert "4 calls that raise in eager" in reported
    assert all(f"{one.status} op (error input {one.number})" in reported for one in found[:3])
    assert "(error input 3)" not in reported
