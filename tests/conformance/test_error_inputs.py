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


_X = torch.ones(3, 2)
_BOOLS = torch.tensor([True, False])
_EXPANDED = torch.ones(1, 7).expand(2, 7)

#: Calls that are not in torch's database, or only in one form.
CALLS = {
    "narrow_copy of a dimension too low": lambda: torch.narrow_copy(_X, -4, 0, 1),
    "narrow_copy of less than nothing, from the end": lambda: torch.narrow_copy(_X, 0, -1, -1),
    "narrow_copy of a dimension too high": lambda: torch.narrow_copy(_X, 2, 0, 1),
    "aminmax of nothing": lambda: torch.aminmax(torch.empty(0, 3)),
    "aminmax along nothing": lambda: torch.aminmax(torch.empty(2, 0), dim=-1),
    "aminmax of complex numbers": lambda: torch.aminmax(_X.cfloat()),
    "complex of integers": lambda: torch.complex(_X, _X.int()),
    "polar of two types": lambda: torch.polar(_X, _X.double()),
    "polar into another type": lambda: torch.polar(_X, _X, out=torch.empty(3, 2)),
    "amin into another type": lambda: torch.amin(_X, 0, out=torch.empty(2).int()),
    "multinomial into another type": lambda: torch.multinomial(_X, 1, out=torch.empty(3, 1)),
    "multinomial of infinity": lambda: torch.multinomial(torch.tensor([1.0, torch.inf]), 2, replacement=True),
    "one of multinomial, below zero": lambda: torch.multinomial(torch.tensor([1.0, -1.0]), 1, replacement=True),
    "masked_fill of a half beyond halves": lambda: torch.ones(2).half().masked_fill(_BOOLS, 1e50),
    "masked_fill of bytes beyond bytes": lambda: torch.ones(2).byte().masked_fill(_BOOLS, 300),
    "masked_fill of integers with infinity": lambda: torch.ones(2).int().masked_fill(_BOOLS, torch.inf),
    "masked_fill of floats with an imaginary number": lambda: torch.ones(2).masked_fill(_BOOLS, 1j),
    "masked_fill of floats with an imaginary tensor": lambda: torch.ones(2).masked_fill(_BOOLS, torch.tensor(1j)),
    "masked_fill of integers with a tensor beyond them": lambda: torch.ones(2).int().masked_fill(_BOOLS, torch.tensor(1e50)),
    "linspace to a line": lambda: torch.linspace(1, torch.ones(1), 3),
    "logspace from a line": lambda: torch.logspace(torch.ones(1), torch.tensor(1.0), 3),
    "logcumsumexp of a number along a third dimension": lambda: torch.logcumsumexp(torch.tensor(1.0), 3),
    "cross of short vectors": lambda: torch.linalg.cross(torch.ones(2, 3), torch.ones(2, 3), dim=0),
    "vdot of two types": lambda: torch.vdot(torch.ones(3).cfloat(), torch.ones(3)),
    "dot of two lengths": lambda: torch.dot(torch.ones(3), torch.ones(4)),
    "index_add of a number": lambda: torch.index_add(_X, 0, torch.tensor([0]), torch.tensor(1.0)),
    "index_add to a number": lambda: torch.index_add(torch.tensor(1.0), 0, torch.tensor([0]), torch.ones(1)),
    "index_add at fractions": lambda: torch.index_add(_X, 0, torch.tensor([0.0]), torch.ones(1, 2)),
    "index_add at a matrix": lambda: torch.index_add(_X, 0, torch.tensor([[0]]), torch.ones(1, 2)),
    "index_add of another type": lambda: torch.index_add(_X, 0, torch.tensor([0]), torch.ones(1, 2).double()),
    "index_add of too few": lambda: torch.index_add(_X, 0, torch.tensor([0, 1]), torch.ones(1, 2)),
    "index_add of a line along a second dimension": lambda: torch.index_add(_X, 1, torch.tensor([0]), torch.ones(2)),
    "trace of a line": lambda: torch.trace(torch.ones(2)),
    "bucketize among a matrix": lambda: torch.bucketize(2.0, torch.ones(2, 2)),
    "lstsq of another type": lambda: torch.linalg.lstsq(_X, _X.double()),
    "lstsq of other rows": lambda: torch.linalg.lstsq(_X, torch.ones(4, 2)),
    "lstsq by a driver that is none": lambda: torch.linalg.lstsq(_X, _X, driver="foo"),
    "max_unpool2d at other places": lambda: torch.max_unpool2d(torch.ones(1, 4, 4), torch.ones(1, 4, 1).long(), [8, 8]),
    "an expanded out= of add, to be resized": lambda: torch.add(_X, _X, out=_EXPANDED),
    "an expanded out= of take, to be resized": lambda: torch.take(_X, torch.tensor([0]), out=_EXPANDED),
}


@pytest.mark.parametrize("name", CALLS)
def test_messages_equal_eagers(name: str) -> None:
    (kind, expected), (_, got) = outcome(CALLS[name]), outcome(lambda: on_core(CALLS[name]))
    assert kind == "error"
    assert (type(got), str(got)) == (type(expected), str(expected))


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
