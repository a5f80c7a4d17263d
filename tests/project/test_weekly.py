"""Parts by weeks: each case has its turn, all are there, and the rest of them is slow."""

from __future__ import annotations

import pytest
from weekly import this_weeks, weekly


@pytest.mark.parametrize("parts", [1, 3, 6, 96])
def test_each_case_has_its_turn_once_in_so_many_weeks(parts: int) -> None:
    cases = range(200)
    assert sorted(case for week in range(1000, 1000 + parts) for case in this_weeks(cases, parts, week)) == list(cases)


@pytest.mark.parametrize("week", range(1000, 1004))
def test_what_is_not_tried_this_week_is_slow_and_one_of_each_kind_is_tried_every_week(week: int) -> None:
    cases = [(letter, number) for letter in "abc" for number in range(8)]
    made = weekly(cases, 4, ids=lambda case: f"{case[0]}{case[1]}", each=lambda case: case[0], week=week)
    assert [one.values for one in made] == cases
    assert [one.id for one in made][:2] == ["a0", "a1"]
    now = {one.values for one in made if not one.marks}
    assert now == {*this_weeks(cases, 4, week), ("a", 0), ("b", 0), ("c", 0)}
    assert {mark.name for one in made for mark in one.marks} == {"slow"}
