"""The soak test, shortened to some rounds; planted faults and growth are reported."""

from __future__ import annotations

import pytest

from conformance.soak import JOBS, Report, Sample, grows, soak


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_steps_of_four_threads_equal_eager_and_free_all_tensors() -> None:
    report = soak(rounds=4, models=5, seed=1)
    assert not report.wrong
    assert not report.hung
    assert report.total_steps() == 4 * 4 * 5 * 4
    assert set(report.steps) == set(JOBS)
    assert report.hits > 20 * report.misses > 0
    # Constants of new programs are cached, so the count may grow a little. Models and batches must be freed.
    assert report.samples[-1].tensors - report.samples[0].tensors < 80


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_ten_minutes_of_steps_equal_eager_and_memory_is_flat() -> None:
    report = soak(seconds=600)
    assert [*report.wrong, *report.growth()] == [], str(report)
    assert not report.hung


def test_growth_is_reported_and_a_single_peak_is_not() -> None:
    seconds = [float(number) for number in range(30)]
    assert grows(seconds, [100.0 + one for one in seconds]) == pytest.approx(19)
    assert grows(seconds, [100.0] * 20 + [500.0] + [100.0] * 9) == 0
    leaking = Report({"words": 1}, samples=[Sample(one, 100 + 10 * one, 50, 7) for one in seconds])
    flat = Report({"words": 1}, samples=[Sample(one, 100 + one % 2, 50, 7) for one in seconds])
    assert leaking.growth() == ["resident grew by 190.0 to 390.0"]
    assert flat.growth() == []
