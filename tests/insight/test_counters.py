"""Counts per thread and their sum, in time buckets that grow with the run."""

from __future__ import annotations

import pytest
import torch

from eagerdecomp.host.source_lines import UserLines
from eagerdecomp.profile import counters
from eagerdecomp.profile.counters import OUTCOMES, RunningCall, Tally, buckets_of, sites_of

GELU = torch.ops.aten.gelu.default
SECOND = 1_000_000_000


def tally(number: int = 0) -> Tally:
    return Tally(number, f"thread {number}", number, UserLines())


def called(into: Tally, at: int, outcome: str = "hit", line: int = 0, taken: int = 1000) -> None:
    call = RunningCall(GELU)
    call.line = line
    into.settle(call, OUTCOMES.index(outcome), taken, at)


def test_buckets_grow_with_the_run_and_lose_no_count() -> None:
    one = tally()
    for second in range(10_000):
        called(one, second * SECOND, "miss" if second < 5 else "hit")
    buckets, seconds = buckets_of([one], 0)
    assert len(buckets) <= 256
    assert sum(bucket.calls for bucket in buckets) == 10_000
    assert buckets[0].misses == 5
    assert seconds * 256 >= 10_000 > seconds * 128
    assert [round(bucket.start / seconds) for bucket in buckets] == list(range(len(buckets)))


def test_a_bucket_has_the_size_of_the_cache_at_its_end() -> None:
    one = tally()
    for second, programs in ((0, 4), (10, 7), (20, None), (30, 6)):
        called(one, second * SECOND)
        if programs is not None:
            one.held(programs, second * SECOND)
    assert [bucket.programs for bucket in buckets_of([one], 3)[0]] == [4, 7, 7, 6]
    assert [bucket.programs for bucket in buckets_of([tally()], 3)[0]] == []
    quiet = tally()
    called(quiet, 0)
    assert [bucket.programs for bucket in buckets_of([quiet], 3)[0]] == [3]


def test_sites_beyond_the_limit_are_counted_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_MOST_SITES", 3)
    one = tally()
    for line in range(10):
        called(one, 0, line=100 + line)
    assert sum(site.calls for site in sites_of([one])) == 10
    assert len(sites_of([one])) == 4
    assert next(site.calls for site in sites_of([one]) if site.line == one.lines.other()) == 7
