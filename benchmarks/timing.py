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
    "block",
    "geometric_mean",
    "joint",
    "quiet_collector",
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
    """A function to time: `run`, called over and over inside `inside` (a mode, or nothing)."""

    run: Callable[[], Any]
    inside: AbstractContextManager[Any] = field(default_factory=nullcontext)


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


def joint(rows: Sequence[Sequence[float]]) -> Spread:
    """The geometric mean over rows within each round, and the spread of it over the rounds."""
    return Spread.of([geometric_mean(in_round) for in_round in zip(*rows, strict=True)])


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Turn off Python's garbage collector, because a collection would count as the time of one function only."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def block(contestant: Contestant, times: int, clock: Clock = thread_seconds) -> float:
    """Seconds a run, over so many runs in a row."""
    run = contestant.run
    with contestant.inside:
        start = clock()
        for _ in repeat(None, times):
            run()
        return (clock() - start) / times


def race(
    contestants: Mapping[str, Contestant], rounds: int, seconds: float, clock: Clock = thread_seconds, warm: int = 3
) -> dict[str, list[float]]:
    """For each contestant its seconds a run in every round.

    Each is run `warm` times, then once more to learn how often it must run for a block of `seconds`. In every round each has one
    block, and another one goes first.
    """
    names = list(contestants)
    times: dict[str, int] = {}
    found: dict[str, list[float]] = {name: [] for name in names}
    with quiet_collector():
        for name in names:
            block(contestants[name], warm, clock)
            once = block(contestants[name], 1, clock)
            times[name] = max(1, round(seconds / once)) if once > 0 else 1
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                found[name].append(block(contestants[name], times[name], clock))
    return found
