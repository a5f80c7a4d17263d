"""Next kernels: the enabled ops equal the difference between plans with and without the kernels."""

from __future__ import annotations

import pytest

import eagerdecomp as ed
from eagerdecomp.conformance.next_kernels import next_kernels
from eagerdecomp.conformance.results import NextKernel
from eagerdecomp.ops.backend import as_backend

pytestmark = pytest.mark.full

LACKING = ("aten.amax.default", "aten.clamp.default", "aten.erf.default", "aten.exp.default")
FEW = ed.core_aten() - list(LACKING)


@pytest.fixture(scope="module")
def found() -> tuple[NextKernel, ...]:
    return next_kernels(as_backend(FEW))


def closing(ops: ed.OpSet) -> set[str]:
    return {one.op for one in ed.plan(ops).with_status("closed", "supported", "passes")}


def test_a_kernel_enables_the_ops_that_it_closes_alone(found: tuple[NextKernel, ...]) -> None:
    before = closing(FEW)
    first = found[0]
    assert first.alone == first.together == len(closing(FEW | [first.op]) - before) > 1


def test_a_kernel_of_a_decomposed_op_is_not_proposed(found: tuple[NextKernel, ...]) -> None:
    assert {str(one.op) for one in found} == {*LACKING} - {"aten.clamp.default"}
