"""Time functions in alternating rounds, and compute ratios with their spread.

Times drift with the load of the machine. So each ratio is computed within one round, and its spread is the spread over the rounds.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, TypeAlias

__all__ = [
    "Clock",
    "Contestant",
    "Spread",
    "time_runs",
    "geometric_mean",
    "joint_spread",
    "without_gc",
    "race",
    "ratios",
    "thread_seconds",
]

Clock: TypeAlias = Callable[[], float]


def thread_seconds() -> float:
    """Return the CPU time of the calling thread, which other processes on the machine affect less than wall time."""
    return time.thread_time_ns() * 1e-9


@dataclass(frozen=True)
class Contestant:
    """A function to time, and the context (such as a mode) in which it runs."""

    run: Callable[[], Any]
    context: AbstractContextManager[Any] = field(default_factory=nullcontext)


@dataclass(frozen=True)
class Spread:
    """A median with the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of one or more values."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean; for a ratio and its inverse it is 1."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return one ratio for each round."""
    return [a / b for a, b in zip(over, under, strict=True)]


def joint_spread(rows: Sequence[Sequence[float]]) -> Spread:
    """Return the spread over the rounds of the geometric mean over the rows. A row has a value for each round."""
    return Spread.of([geometric_mean(one_round) for one_round in zip(*rows, strict=True)])


@contextmanager
def without_gc() -> Iterator[None]:
    """Turn off Python's garbage collector: a collection would add to the time of one contestant only."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def time_runs(contestant: Contestant, times: int, clock: Clock = thread_seconds) -> float:
    """Run a contestant so many times in a row, and return the seconds per run."""
    run = contestant.run
    with contestant.context:
        start = clock()
        for _ in repeat(None, times):
            run()
        return (clock() - start) / times


def race(
    contestants: Mapping[str, Contestant], rounds: int, seconds: float, clock: Clock = thread_seconds, warm: int = 3
) -> dict[str, list[float]]:
    """Time contestants in turns, and return for each its seconds per run in each round.

    Args:
        contestants: name -> contestant.
        rounds: number of rounds. In each, every contestant has one turn, and another one goes first.
        seconds: duration of a turn. A run before the rounds shows how many runs that is.
        clock: returns the current time in seconds.
        warm: number of runs before anything is timed.
    """
    names = list(contestants)
    times: dict[str, int] = {}
    found: dict[str, list[float]] = {name: [] for name in names}
    with without_gc():
        for name in names:
            time_runs(contestants[name], warm, clock)
            once = time_runs(contestants[name], 1, clock)
            times[name] = max(1, round(seconds / once)) if once > 0 else 1
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                found[name].append(time_runs(contestants[name], times[name], clock))
    return found
