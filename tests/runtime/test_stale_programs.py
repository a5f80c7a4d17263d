"""A cached program never runs for a call that differs in a fact on which the program depends: the fuzzer would find it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import eagerdecomp as ed
from conformance import fuzz
from conformance.fuzz_judging import Counts
from conformance.fuzz_running import first_difference
from eagerdecomp._torch.ops import op_named
from eagerdecomp.runtime.cache import OpPrograms


@pytest.mark.parametrize("first", [19, 0])
def test_a_view_on_prims_has_the_storage_offset_of_its_tensor(first: int) -> None:
    """`prims.as_strided` contains the recorded tensor's storage offset, which another tensor of the same sizes may not have."""
    base = torch.arange(24.0)
    with ed.EagerDecompMode(ed.prims(), cache=ed.ProgramCache()):
        for start in (first, 3, 0, 7):
            seen = base[start : start + 5].view([5, 1])
            assert (seen.storage_offset(), seen[0, 0].item()) == (start, start)


def _stale(monkeypatch: pytest.MonkeyPatch, name: str, programs: int) -> list[str]:
    """Return the differences from eager of random programs of one op that occur only with a cache that earlier programs filled."""
    monkeypatch.setattr("conformance.fuzz_drawing._ops", lambda: [op_named(name)])
    modes, seen, found = fuzz._Modes(), Counts(), []
    for number in range(programs):
        program, difference = fuzz.generate_and_run(1, number, modes, seen, lambda value: None)
        if difference is not None and first_difference(program) is None:
            found.append(str(difference))
    assert seen.ops[name] > programs
    return found


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        *("aten.special_zeta.default", "aten.native_layer_norm.default", "aten.native_group_norm.default", "aten.nanmedian.dim"),
        *("aten.logaddexp2.default", "aten.threshold.default", "aten.roll.default", "aten.index_select.default"),
    ],
)
def test_fuzzed_programs_of_one_op_never_run_stale_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _stale(monkeypatch, name, 12) == []


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_key_without_dtypes_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    widen = OpPrograms.widen

    def forgetful(self: OpPrograms, columns: Any, exact: Any, always: Any = ()) -> Any:
        kept = [tuple(one for one in some if not one.text.endswith(".dtype")) for some in (columns, exact, always)]
        return widen(self, *kept)

    monkeypatch.setattr(OpPrograms, "widen", forgetful)
    assert any(one.startswith("dtype after") for one in _stale(monkeypatch, "aten.threshold.default", 12))
