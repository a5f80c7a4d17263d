"""Running: what is wrong with a kernel is found, made small and reported once; state and threads are tried too."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import shape, tensor
from eagerdecomp.conformance.spec import Call, Fault, Near, Spec, TestedKernel
from eagerdecomp.conformance.state import THREADS
from eagerdecomp.conformance.trial import Effort, Trial, try_kernel

aten = torch.ops.aten
EFFORT = Effort(150, 60.0, 30)
DTYPES = (torch.float32, torch.int32, torch.float64)


def call(draw: Draw) -> Call:
    dtype = draw.pick("dtype", DTYPES)
    return Call([tensor(draw, "self", dtype, shape(draw), ("normal", "lattice", "special"))])


SPEC = Spec(call, Near(4))


def trial(run: Callable[..., Any], op: Any = aten.exp.default, spec: Spec = SPEC, seed: int = 0) -> Trial:
    return try_kernel(TestedKernel(op, run, op), spec, EFFORT, seed)


def kinds(found: Trial) -> set[str]:
    return {one.fault.kind for one in found.found}


def single(one: Tensor) -> Tensor:
    if one.dtype is not torch.float32:
        raise RuntimeError("float32 only")
    return aten.exp(one)


@pytest.mark.parametrize(
    ("run", "failing"), [(single, ("torch.float64", "torch.int32")), (lambda one: aten.exp(one) + 1, ())], ids=["single", "all"]
)
def test_the_dtypes_that_a_kernel_refuses_are_known(run: Callable[..., Any], failing: tuple[str, ...]) -> None:
    assert try_kernel(TestedKernel(aten.exp.default, run, aten.exp), SPEC, Effort(20, 60.0, 10), 0).failing_dtypes == failing


def test_a_predicate_may_raise_for_a_call_that_eager_refuses() -> None:
    """`predicate_holds` raises a `KernelError` otherwise."""

    def claims(*args: Any) -> bool:
        raise ValueError("two sizes")

    found = try_kernel(TestedKernel(aten.exp.default, aten.exp, aten.exp, claims=claims), SPEC, Effort(2, 60.0, 1), 0)
    assert (found.found, found.cases) == ([], 0)


def test_dimensions_are_counted_from_both_ends() -> None:
    spec = Spec(lambda draw: Call([tensor(draw, "self", torch.float32, [2, 3, 4], ("lattice",)), [1]]))
    assert kinds(trial(lambda x, dim: aten.sum(x, [abs(one) for one in dim]), aten.sum.dim_IntList, spec)) == {"shape"}


def cached_by_memory() -> Callable[[Tensor], Tensor]:
    kept: dict[Any, tuple[Tensor, Tensor]] = {}
    return lambda one: kept.setdefault(one.data_ptr(), (one, aten.exp(one)))[1].clone()


def one_buffer() -> Callable[[Tensor], Tensor]:
    kept: dict[Any, Tensor] = {}

    def run(one: Tensor) -> Tensor:
        result = aten.exp(one)
        return kept.setdefault((one.shape, one.stride(), result.dtype), torch.empty_like(result)).copy_(result)

    return run


def by_numpy() -> Callable[[Tensor], Tensor]:
    """It runs on every tensor but a module's parameters."""
    return lambda one: aten.exp(torch.from_numpy(one.numpy()))


@pytest.mark.full
def test_a_right_kernel_is_tried_and_nothing_found() -> None:
    found = trial(aten.exp.default)
    assert not found.found
    assert found.cases >= 150
    assert set(found.checked) == {"values", "parameters", "state", "threads", "default dtype", "rare dtypes"}
    assert found.varied == ("self",)


@pytest.mark.full
@pytest.mark.parametrize(("make", "expected"), [(cached_by_memory, "state"), (one_buffer, "state"), (by_numpy, "raises")])
def test_kernels_with_state_are_found(make: Callable[[], Callable[[Tensor], Tensor]], expected: str) -> None:
    assert expected in kinds(trial(make()))


def test_traces_are_set_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a hook audits it, Python refuses to set a trace while another thread does."""
    inside, most, settrace = [], [0], sys.settrace

    def slow(trace: Any) -> None:
        inside.append(trace)
        most.append(len(inside))
        time.sleep(0.001)
        inside.pop()
        settrace(trace)

    monkeypatch.setattr(sys, "settrace", slow)
    for seed in range(3):
        assert broken_from_threads(torch.neg, seed) is None
    assert max(most) == 1


def test_threads_come_between_any_two_lines() -> None:
    shared: dict[str, Tensor] = {}

    def sharing(x: Tensor) -> Tensor:
        shared["result"] = torch.neg(x)
        return shared["result"]

    found = (broken_from_threads(sharing, seed) for seed in range(40))
    assert any(fault is not None and fault.kind == "threads" for fault in found)
    assert [broken_from_threads(torch.neg, seed) for seed in range(3)] == [None] * 3
    assert "yielding" not in repr(sys.gettrace())


def broken_from_threads(run: Callable[[Tensor], Tensor], seed: int) -> Fault | None:
    kernel = TestedKernel(aten.neg.default, run, aten.neg.default)
    with torch.no_grad():
        return THREADS.find_fault(
            kernel, Spec(lambda draw: Call([tensor(draw, "self", torch.float32, [3], ("normal",))])), Draw([0, 0, seed])
        )


def test_a_call_of_many_elements_is_cut_to_those_that_show_the_fault() -> None:
    def call(draw: Draw) -> Call:
        return Call([torch.arange(5000.0), torch.arange(5000.0).reshape(1, 5000)])

    def add(one: Tensor, other: Tensor) -> Tensor:
        return torch.where(one == 3777, 0.0, one + other)

    (only,) = try_kernel(TestedKernel(aten.add.Tensor, add, aten.add.Tensor), Spec(call, Near(1)), EFFORT, 0).found
    one, other = only.fault.call.args
    assert one.tolist() == [3777.0]
    assert other.tolist() == [0.0]
