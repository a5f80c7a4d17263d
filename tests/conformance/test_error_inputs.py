"""For torch's error inputs, the mode raises eager's type of exception, with a message that torch's own tests would accept."""

from __future__ import annotations

import pytest
from on_core import CORE

from conformance.cases import full_name, opinfos
from conformance.error_inputs import refusals_of, table
from eagerdecomp import OpSet, prims

INFOS = {full_name(info): info for info in opinfos() if info.error_inputs_func is not None}


@pytest.mark.parametrize("ops", [CORE, prims()], ids=["core", "prims"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full) if name == "multinomial" else name for name in INFOS])
def test_torchs_error_inputs_raise_eagers_error(name: str, ops: OpSet) -> None:
    # The sample of multinomial has uninitialized memory: if it contains zeros, they raise before the wrong out= does.
    allowed = {"pass"} if ops is CORE and name != "multinomial" else {"pass", "message", "unsupported"}
    found = list(refusals_of(INFOS[name], ops))
    assert {one.status for one in found} <= allowed, table(found)
