"""The conformance suite passes for the device's kernels (some of them; all with ``-m nightly``), and finds wrong kernels."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import npu
import pytest
import torch
from npu.memory import on_cpu, wrap
from sampled import part_of

import eagerdecomp as ed
from eagerdecomp.conformance import Report, check_call, run_conformance
from eagerdecomp.conformance.devices import can_fork

aten = torch.ops.aten

#: Every PART-th kernel is tested.
PARTS = 4
EVERY = sorted(map(str, npu.backend.ops))
#: Not possible in Python: a storage that grows. If a tensor grows, its views keep the old storage.
KNOWN = {"aten.resize_.default": "argument self has another storage afterwards"}


def wrong(report: Report) -> list[tuple[str, str]]:
    """Return the differences, and the samples that were not tried, with the reason."""
    unseen = [(str(one.op), one.note) for one in report.results if one.state not in ("right", "wrong")]
    failures = [(str(one.op), one.message) for one in report.failures]
    return unseen + [one for one in failures if KNOWN.get(one[0]) != one[1]]


def test_a_part_of_the_kernels_is_right() -> None:
    ops = part_of(EVERY, PARTS)
    report = run_conformance(npu.backend, ops=ops, profile="quick")
    assert wrong(report) == []
    assert len(report.results) == len(ops) > 40


@pytest.mark.nightly
def test_every_kernel_is_right() -> None:
    report = run_conformance(npu.backend, ops=EVERY, profile="quick", programs=True)
    assert wrong(report) == []
    assert report.calls > 150


def test_they_are_right_in_this_process_too() -> None:
    ops = [
        "aten.add.Tensor",
        "aten.view",
        "aten.set_",
        "aten.resize_",
        "aten._local_scalar_dense",
        "aten.rand",
        "aten.native_dropout",
    ]
    report = run_conformance(npu.backend, ops=ops, profile="quick", isolate=False)
    assert wrong(report) == []
    assert len(report.results) == 11


def of_cpu(change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel of the device that applies a function to CPU tensors."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return wrap(change(*(on_cpu(one) if isinstance(one, torch.Tensor) else one for one in args), **kwargs))

    return run


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "aten.mul.Tensor": (of_cpu(torch.add), "values"),
    "aten.sum.dim_IntList": (of_cpu(lambda x, dim, keep=False, *, dtype=None: torch.sum(x, dim, False, dtype=dtype)), "shape"),
    "aten.full.default": (lambda size, value, **options: aten.full.default(size, value, **{**options, "device": "cpu"}), "device"),
    "aten.t.default": (of_cpu(lambda x: x.t().clone()), "aliasing"),
    "aten.relu.default": (lambda x: x.copy_(on_cpu(x).relu()), "aliasing"),
    "aten.mm.default": (lambda x, y: os.abort(), "crash"),
}


@pytest.mark.parametrize("op", list(WRONG))
def test_a_wrong_kernel_is_named(op: str) -> None:
    kernel, prop = WRONG[op]
    backend = ed.Backend("wrong", npu.backend.ops | [op], {op: kernel}, device_type="npu")
    report = run_conformance(backend, ops=[op, "aten.sub.Tensor"], profile="quick")
    assert {str(failure.op) for failure in report.failures} == {op}
    assert prop in [failure.property for failure in report.failures]
    assert report.verdict("aten.sub.Tensor").state == "right"


def test_a_wrong_kernel_is_to_blame_for_what_is_made_of_it() -> None:
    wrong = {"aten.sigmoid.default": of_cpu(lambda x: torch.sigmoid(x) * 1.01)}
    report = run_conformance(ed.Backend("wrong", npu.backend.ops, wrong, device_type="npu"), ops=[], profile="quick", programs=True)
    assert {str(failure.op) for failure in report.failures} == {"aten.sigmoid.default"}
    assert {str(one.blamed) for one in report.consequences} == {"aten.sigmoid.default"}


def test_what_makes_tensors_is_asked_to_make_them_on_the_device() -> None:
    before = npu.counts().get("aten.arange.start_step", 0)
    assert check_call(npu.backend, "aten.arange.start_step", [0, 5]) is None
    assert npu.counts()["aten.arange.start_step"] == before + 1


def test_whether_it_lives_through_a_fork_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_fork(npu.backend)
    here, parent = on_cpu, os.getpid()

    def in_the_parent(tensor: torch.Tensor) -> torch.Tensor:
        if os.getpid() != parent:
            raise RuntimeError("lost its driver")
        return here(tensor)

    monkeypatch.setattr("npu.host.on_cpu", in_the_parent)
    assert not can_fork(npu.backend)


def test_a_device_that_no_tensor_comes_back_from_is_reported_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npu.host.on_cpu", lambda tensor: here(tensor).clone())
    here = on_cpu
    with pytest.raises(ed.EagerDecompError, match="a tensor does not survive a copy to npu and back"):
        run_conformance(npu.backend, ops=["aten.relu"], profile="quick")
