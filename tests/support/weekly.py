"""What a test that sweeps much tries each time: a part of it that the week chooses, and all of it with `-m ""`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

__all__ = ["WEEK", "this_weeks", "weekly"]

_TODAY = datetime.date.today()

#: The week of the year, for seeds: there are few, so that all can be tried.
WEEK = _TODAY.isocalendar().week

# Of all weeks, so that each part has its turn, however many there are.
_COUNT = _TODAY.toordinal() // 7

_Case = TypeVar("_Case")


def this_weeks(cases: Sequence[_Case], parts: int, week: int = _COUNT) -> Sequence[_Case]:
    """One case in so many, others each week."""
    return cases[week % parts :: parts]


def weekly(
    cases: Iterable[Any],
    parts: int = 4,
    *,
    ids: Callable[[Any], str] | None = None,
    each: Callable[[Any], Hashable] | None = None,
    week: int = _COUNT,
) -> list[Any]:
    """All cases, for `pytest.mark.parametrize`; those that are not of this week's part are marked slow.

    Args:
        cases: tuples are several arguments.
        parts: how many weeks it takes to try all.
        ids: names a case.
        each: of cases for which it answers alike the first is tried every week.
    """
    seen: set[Hashable] = set()
    found = []
    for number, case in enumerate(cases):
        first = each is not None and each(case) not in seen
        if each is not None:
            seen.add(each(case))
        now = first or number % parts == week % parts
        values = case if isinstance(case, tuple) else (case,)
        found.append(pytest.param(*values, id=None if ids is None else ids(case), marks=() if now else pytest.mark.slow))
    return found
