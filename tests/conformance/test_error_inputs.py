"""For torch's error inputs, the mode raises eager's type of exception, with a message that torch's own tests would accept."""

from __future__ import annotations

import pytest
import torch
from compare import assert_same, outcome
from on_core import CORE, on_core

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


_BOOLS = torch.tensor([True, False])


@pytest.mark.parametrize(
    "value", [torch.tensor(2 + 0j), torch.tensor(2j), torch.tensor(2.0, dtype=torch.float64), torch.tensor(2**40)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool], ids=str)
def test_masked_fill_accepts_values_that_fit_the_dtype(dtype: torch.dtype, value: object) -> None:
    def call() -> torch.Tensor:
        return torch.ones(2).to(dtype).masked_fill(_BOOLS, value)

    (kind, expected), (_, got) = outcome(call), outcome(lambda: on_core(call))
    if kind == "error":
        assert (type(got), str(got)) == (type(expected), str(expected))
    else:
        assert_same(got, expected, exact=True)


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
