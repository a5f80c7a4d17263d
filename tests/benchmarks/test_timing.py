"""Ratios and their spread, on times that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.timing import Contestant, Spread, joint_spread, race, ratios, time_runs


class FakeTime:
    """A clock that goes on only when someone works."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def worker(self, name: str, seconds: float) -> Contestant:
        def run() -> None:
            self.log.append(name)
            self.now += seconds

        return Contestant(run)


def test_entering_a_mode_is_not_timed() -> None:
    time = FakeTime()

    @contextmanager
    def slow_to_enter() -> Iterator[None]:
        time.now += 100
        yield
        time.now += 100

    assert time_runs(Contestant(time.worker("a", 1).run, slow_to_enter()), 1, time) == 1


def test_a_race_gives_every_contestant_its_seconds_a_run_in_every_round() -> None:
    time = FakeTime()
    found = race({"slow": time.worker("slow", 0.5), "fast": time.worker("fast", 0.125)}, rounds=4, seconds=1.0, clock=time)
    assert found == {"slow": [0.5] * 4, "fast": [0.125] * 4}
    assert joint_spread([ratios(found["slow"], found["fast"])]) == Spread(4.0, 4.0, 4.0)


def test_contestants_take_turns_and_each_goes_first_in_its_round() -> None:
    time = FakeTime()
    race({name: time.worker(name, 1.0) for name in "abc"}, rounds=3, seconds=1.0, clock=time, warm=1)
    assert "".join(time.log) == "aabbcc" + "abc" + "bca" + "cab"  # warming and learning how long each takes, then the rounds


def test_the_spread_is_the_median_between_the_quartiles() -> None:
    assert Spread.of([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([2.5]) == Spread(2.5, 2.5, 2.5)
    assert str(Spread(1.23456, 1.0, 2.0)) == "1.23 (1 to 2)"


def test_ratios_are_taken_within_a_round() -> None:
    # A machine that is four times as slow in the second round changes no ratio.
    assert ratios([2.0, 8.0], [1.0, 4.0]) == [2.0, 2.0]


def test_the_joint_spread_is_over_rounds_of_means_over_rows() -> None:
    spread = joint_spread([[1.0, 2.0, 3.0], [4.0, 8.0, 12.0]])
    assert (spread.low, spread.median, spread.high) == pytest.approx((3.0, 4.0, 5.0))
