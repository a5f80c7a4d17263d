"""Make the random choices of a case as a list of numbers, so that the case can be repeated, shrunk, and steered to rare choices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

__all__ = ["INPUT_SEEDS", "Coverage", "Draw", "simplest"]

T = TypeVar("T")

# Number of earlier choices of a case that are combined with a new one.
_PAIRED = 4

# Probability of choosing the least tried option. Otherwise the choice is uniform, so that every combination occurs at some time.
_STEERED = 0.75

_SEEDS = 2**16

#: Inputs have seeds from here on, kernels have smaller ones. CPU generators use 32 bits of a seed.
INPUT_SEEDS = 2**31


class Coverage:
    """Chooses the least tried option, alone and together with earlier choices of the case.

    Args:
        seed: seed of the random part of choices.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._alone: Counter[tuple[str, int]] = Counter()
        self._paired: Counter[tuple[str, int, str, int]] = Counter()

    def below(self, count: int) -> int:
        """Return a uniform random number below `count`."""
        return self._random.randrange(count)

    def choose(self, name: str, count: int, earlier: Sequence[tuple[str, int]]) -> int:
        """Return one of `count` options for the choice `name`, given the earlier choices of the case."""
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
    """Makes the choices of a case: first those of a given case, then those of `coverage`, else the first option.

    Options are sorted from simple to complex, so earlier options make a case smaller.

    Attributes:
        choices: the choices so far; `Draw(choices)` repeats them.
        taken: the choices with their names.
        seeds: which choices are seeds of values, so that the case can be drawn again with other values.
    """

    def __init__(self, choices: Sequence[int] = (), coverage: Coverage | None = None) -> None:
        self._given = choices
        self._coverage = coverage
        self.choices: list[int] = []
        self.taken: list[tuple[str, int]] = []
        self.seeds: list[int] = []

    def pick(self, name: str, options: Sequence[T]) -> T:
        """Return one of the options, which are sorted from simple to complex."""
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

    def below(self, count: int) -> int:
        """Return a random number below `count`, whatever was tried before."""
        number = len(self.choices)
        if number < len(self._given):
            place = min(self._given[number], count - 1)
        else:
            place = self._coverage.below(count) if self._coverage is not None else 0
        self.choices.append(place)
        return place

    def seed(self) -> int:
        """Return a seed for values."""
        self.seeds.append(len(self.choices))
        return self.below(_SEEDS)

    def generator(self) -> torch.Generator:
        """Return a seeded generator for the values of inputs.

        Its seed is never one that is set before a kernel runs. With equal seeds, a correct random kernel would return the values
        of its inputs.
        """
        return torch.Generator().manual_seed(INPUT_SEEDS + self.seed())

    def with_other_values(self, step: int) -> list[int]:
        """Return the choices so far with other seeds."""
        return [(place + step) % _SEEDS if number in self.seeds else place for number, place in enumerate(self.choices)]

    def flag(self, name: str) -> bool:
        """Return False or True."""
        return self.pick(name, (False, True))


def simplest(choices: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int) -> list[int]:
    """Return the simplest case that still fails: each choice is replaced by earlier options while the case fails.

    Args:
        choices: the choices of a failing case.
        fails: returns whether a case fails.
        tries: maximum number of calls of `fails`.
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
