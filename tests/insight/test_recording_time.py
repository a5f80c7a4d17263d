"""`RecordingMode`: its own time is reported, its memory is bounded, and its timeline is in order."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
import recorded_runs
import torch
import torch.nn.functional as F
from recorded_runs import FEW, run_recorded, small_net, train

from eagerdecomp.profile import mode as recording

# -- time, and bounds ------------------------------------------------------------------------------------------------------------


def test_the_recorders_own_time_is_reported_and_not_part_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*args: Any) -> str:
        time.sleep(0.05)
        return "described"

    monkeypatch.setattr(recording, "describe_call", slowly)
    record, _ = run_recorded(lambda: F.silu(torch.ones(3)))
    assert record.metadata.recorder_seconds > 0.1
    assert all(event.call == "described" for event in record.events)
    assert 0 < sum(site.seconds for site in record.sites) < record.metadata.seconds - 0.1
    for site in record.sites:
        assert 0 < site.kernel_seconds < site.seconds


def test_the_timeline_is_bounded_and_counts_dropped_events() -> None:
    def run() -> None:
        for _ in range(50):
            F.silu(torch.ones(3))

    record, stats = run_recorded(run, timeline=30)
    assert len(record.events) + sum(len(event.kernels) for event in record.events) == 30
    assert record.events_left_out == stats.total.calls - len(record.events) > 0
    assert sum(site.calls for site in record.sites) == stats.total.calls == 100
    assert run_recorded(run, timeline=0)[0].events == ()


# -- the timeline ----------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_the_trace_nests_kernels_in_calls_on_the_track_of_their_thread() -> None:
    record, stats = run_recorded(lambda: train(small_net()), FEW)
    trace = json.loads(record.to_perfetto())
    events = trace["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
    slices = [event for event in events if event["ph"] == "X"]
    calls = [event for event in slices if event["cat"] == "op"]
    assert len(calls) == stats.total.calls
    assert len(slices) - len(calls) == sum(site.kernels for site in record.sites)
    around: dict[str, Any] = {}
    for event in sorted(slices, key=lambda one: (one["ts"], -one["dur"])):
        if event["cat"] == "op":
            around = event
            assert event["args"]["call"].startswith(event["name"])
        else:
            assert event["args"]["op"] == around["name"]
            assert event["tid"] == around["tid"]
            assert around["ts"] <= event["ts"]
            assert event["ts"] + event["dur"] <= around["ts"] + around["dur"]
    gradient = next(event for event in calls if event["name"] == "aten.gelu_backward.default")
    assert gradient["args"]["backward"] == "GeluBackward0"
    assert f"{recorded_runs.__file__}:" in gradient["args"]["line"]
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert named == {1: threading.current_thread().name}
    assert {event["tid"] for event in slices} == set(named)
    held = [event["args"]["programs"] for event in events if event["name"] == "programs held"]
    assert held == [bucket.programs for bucket in record.buckets]
