"""Choices: a case is a list of numbers, so that it can be drawn again, shrunk, and steered to what was tried least."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

__all__ = ["INPUT_SEEDS", "Coverage", "Draw", "simplest"]

T = TypeVar("T")

# How many earlier choices of a case are looked at together with a new one.
_PAIRED = 4

# How often a choice goes to what was tried least; else it is blind, so that every combination comes up some time.
_STEERED = 0.75

_SEEDS = 2**16

#: Seeds from here on are of inputs, those below of kernels. Generators of the CPU heed 32 bits of a seed.
INPUT_SEEDS = 2**31


class Coverage:
    """Chooses what was chosen least so far, alone and together with the first choices of the case.

    Args:
        seed: of the choices that are left open.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._alone: Counter[tuple[str, int]] = Counter()
        self._paired: Counter[tuple[str, int, str, int]] = Counter()

    def any(self, count: int) -> int:
        """One of so many, blindly."""
        return self._random.randrange(count)

    def choose(self, name: str, count: int, earlier: Sequence[tuple[str, int]]) -> int:
        """Which of `count` options a choice called `name` goes to, after the `earlier` ones of the case."""
        if count == 1:
            return 0
        before = earlier[:_PAIRED]
        if self._random.random() < _STEERED:
            tried = [
                4 * self._alone[name, option] + sum(self._paired[(*other, name, option)] for other in before)
                for option in range(count)
            ]
            least = min(tried)
            place = self._random.choice([option for option, times in enumerate(tried) if times == least])
        else:
            place = self._random.randrange(count)
        self._alone[name, place] += 1
        for other in before:
            self._paired[(*other, name, place)] += 1
        return place


class Draw:
    """Where a case takes its choices from: those of a case drawn before, then what `coverage` says, else the first option.

    Options are given simplest first: a case is made smaller by going to earlier ones.

    Attributes:
        choices: what was chosen so far, which `Draw(choices)` draws again.
        taken: the same with their names.
        seeds: which of the choices are seeds of values, so that a call of the same kind can be drawn with other values.
    """

    def __init__(self, choices: Sequence[int] = (), coverage: Coverage | None = None) -> None:
        self._given = choices
        self._coverage = coverage
        self.choices: list[int] = []
        self.taken: list[tuple[str, int]] = []
        self.seeds: list[int] = []

    def pick(self, name: str, options: Sequence[T]) -> T:
        """One of some options, simplest first."""
        number = len(self.choices)
        if number < len(self._given):
            place = min(self._given[number], len(options) - 1)
        elif self._coverage is not None:
            place = self._coverage.choose(name, len(options), self.taken)
        else:
            place = 0
        self.choices.append(place)
        self.taken.append((name, place))
        return options[place]

    def any(self, count: int) -> int:
        """A number below `count` that nothing is steered by."""
        number = len(self.choices)
        if number < len(self._given):
            place = min(self._given[number], count - 1)
        else:
            place = self._coverage.any(count) if self._coverage is not None else 0
        self.choices.append(place)
        return place

    def seed(self) -> int:
        """The seed of some values."""
        self.seeds.append(len(self.choices))
        return self.any(_SEEDS)

    def generator(self) -> torch.Generator:
        """A seeded generator for the values of inputs.

        Its seed is never one that a kernel is run after: a right kernel would draw the very numbers that its inputs are made of.
        """
        return torch.Generator().manual_seed(INPUT_SEEDS + self.seed())

    def with_other_values(self, step: int) -> list[int]:
        """The choices so far, each seed another."""
        return [(place + step) % _SEEDS if number in self.seeds else place for number, place in enumerate(self.choices)]

    def flag(self, name: str) -> bool:
        """False, or True."""
        return self.pick(name, (False, True))


def simplest(choices: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int) -> list[int]:
    """The simplest case found that fails too: each choice is taken back to earlier options for as long as it does.

    Args:
        choices: of a case that fails.
        fails: whether a case with these choices fails.
        tries: how often that is asked at most.
    """
    best = list(choices)
    changed = True
    while changed and tries > 0:
        changed = False
        for place in range(len(best)):
            for less in sorted({0, best[place] // 2, best[place] - 1} - {best[place], -1}):
                if tries <= 0 or place >= len(best):
                    break
                tries -= 1
                attempt = [*best[:place], less, *best[place + 1 :]]
                if fails(attempt):
                    best, changed = attempt, True
                    break
    return best
