"""Samples for tests that sweep much: a fixed part each time, and all with `-m ""`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

__all__ = ["SEED", "part_of", "sampled"]

#: A seed for what is drawn. Fixed, so that a commit which passes one day passes the next.
SEED = 48

#: Chooses the part; any number would do.
_PART = 105_706

_Case = TypeVar("_Case")


def part_of(cases: Sequence[_Case], parts: int, part: int = _PART) -> Sequence[_Case]:
    """One case in so many."""
    return cases[part % parts :: parts]


def sampled(
    cases: Iterable[Any],
    parts: int = 4,
    *,
    ids: Callable[[Any], str] | None = None,
    each: Callable[[Any], Hashable] | None = None,
    part: int = _PART,
) -> list[Any]:
    """All cases, for `pytest.mark.parametrize`; those that are not of the part that runs each time are marked slow.

    Args:
        cases: tuples are several arguments.
        parts: one case in so many runs each time.
        ids: names a case.
        each: of cases for which it returns the same, the first runs each time.
        part: which part.
    """
    seen: set[Hashable] = set()
    found = []
    for number, case in enumerate(cases):
        first = each is not None and each(case) not in seen
        if each is not None:
            seen.add(each(case))
        now = first or number % parts == part % parts
        values = case if isinstance(case, tuple) else (case,)
        found.append(pytest.param(*values, id=None if ids is None else ids(case), marks=() if now else pytest.mark.nightly))
    return found
