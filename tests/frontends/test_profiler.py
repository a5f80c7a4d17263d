"""In torch.profiler, the range around a kernel call names the op that the program called."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE
from recorded_runs import FEW, small_net, train
from torch.profiler import ProfilerActivity, profile

import eagerdecomp as ed
from eagerdecomp.profile import RecordingMode

#: The range by which torch says that a mode handles a call.
MODE = "PythonDispatchMode"


def in_place_views_and_out() -> Callable[[], None]:
    x, out = torch.ones(3, 4), torch.empty(3, 4)

    def run() -> None:
        F.hardswish(x.clone(), inplace=True).addcmul_(x, x, value=2)
        torch.logaddexp(x, x, out=out)
        torch.stack([x.unbind(0)[0], x[1]]).t().add_(1)
        F.silu(x).chunk(2)[0].zero_()

    return run


def without_a_route() -> Callable[[], None]:
    x = torch.eye(3)
    return lambda: [x.to_sparse(), None][1]


CASES: dict[str, tuple[Callable[[], Callable[[], None]], Any]] = {
    "training": (lambda: functools.partial(train, small_net(), [4]), FEW),
    "in place": (in_place_views_and_out, CORE),
    "fallback": (without_a_route, CORE),
}


def packet(op: str) -> str:
    """``aten::mul`` for ``aten.mul.Tensor``: ranges are named without the overload."""
    namespace, name, _ = op.split(".")
    return f"{namespace}::{name}"


def by_ranges(run: Callable[[], None]) -> Counter[tuple[str, str]]:
    """How often the range of an op that the program called holds that of a kernel: one in a mode's handling, none further in."""
    with profile(activities=[ProfilerActivity.CPU]) as ranges:
        run()
    found: Counter[tuple[str, str]] = Counter()
    events = list(ranges.events() or ())
    handling = {id(above) for event in events if event.name == MODE for above in ancestors(event)}
    for event in events:
        parent = event.cpu_parent
        if parent is None or parent.name != MODE or id(event) in handling:
            continue
        called = [above.cpu_parent for above in (parent, *ancestors(parent)) if above.name == MODE][-1]
        if called is not None:
            found[full_name(called.name), full_name(event.name)] += 1
    return found


def ancestors(event: Any) -> Iterator[Any]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event


def full_name(name: str) -> str:
    return name if "::" in name else f"aten::{name}"  # torch names the range of `detach` so where autograd calls it


def by_record(mode: RecordingMode, run: Callable[[], None]) -> Counter[tuple[str, str]]:
    """The same by what a recording mode saw of one more run."""
    counts: list[Counter[tuple[str, str]]] = []
    for _ in range(2):
        flows = mode.record().flows
        counts.append(Counter())
        for flow in flows:
            if not flow.op.startswith("profiler."):  # ops that make ranges have none themselves
                counts[-1][packet(flow.op), packet(flow.kernel)] += flow.calls
        with mode:
            run()
    return counts[1] - counts[0]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*runs natively:UserWarning")
@pytest.mark.parametrize("warm", [0, 2, 20], ids=["recorded", "replayed", "compiled"])
@pytest.mark.parametrize("case", CASES)
def test_each_kernels_range_is_within_that_of_the_op_called(case: str, warm: int) -> None:
    make, ops = CASES[case]
    run = make()
    plain = ed.EagerDecompMode(ops, cache=ed.ProgramCache(), on_unsupported="fallback")
    recording = RecordingMode(ops, cache=ed.ProgramCache(), on_unsupported="fallback")
    for _ in range(warm):
        for mode in (plain, recording):
            with mode:
                run()
    with plain:
        found = by_ranges(run)
    expected = by_record(recording, run)
    assert expected
    if warm:
        assert found == expected
    else:  # where a call is recorded, what a composition calls in C++, without a kernel, has ranges too
        assert not expected - found


def test_a_kernel_in_python_has_a_range_of_its_own_while_it_is_recorded() -> None:
    def my_mul(x: Any, y: Any) -> Any:
        return torch.add(x, 0) * y

    with RecordingMode(ed.Backend("mine", CORE, {"aten.mul.Tensor": my_mul})) as mode:
        F.silu(torch.ones(3))
        with profile(activities=[ProfilerActivity.CPU]) as ranges:
            F.silu(torch.ones(3))
    (event,) = [event for event in ranges.events() or () if event.name == "aten.mul.Tensor"]
    assert "aten::silu" in [above.name for above in ancestors(event)]
    flows = {flow.kernel: flow.calls for flow in mode.record().flows if flow.op == "aten.silu.default"}
    assert flows == {"aten.sigmoid.default": 2, "aten.mul.Tensor": 2}
