"""`sampled` and `part_of`: the parts together are all cases, and cases outside the default part are nightly."""

from __future__ import annotations

import pytest
from sampled import part_of, sampled


@pytest.mark.parametrize("part", range(1000, 1004))
def test_cases_outside_the_part_are_nightly_but_for_the_first_of_each_group(part: int) -> None:
    cases = [(letter, number) for letter in "abc" for number in range(8)]
    made = sampled(cases, 4, ids=lambda case: f"{case[0]}{case[1]}", group=lambda case: case[0], part=part)
    assert [one.values for one in made] == cases
    assert [one.id for one in made][:2] == ["a0", "a1"]
    now = {one.values for one in made if not one.marks}
    assert now == {*part_of(cases, 4, part), ("a", 0), ("b", 0), ("c", 0)}
    assert {mark.name for one in made for mark in one.marks} == {"nightly"}
