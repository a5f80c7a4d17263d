"""Sampling for large parametrized tests: the default tier runs a fixed part of the cases, the nightly tier runs the rest."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

__all__ = ["SEED", "part_of", "sampled"]

#: The seed of random tests. It is fixed so that a commit that passes today also passes tomorrow.
SEED = 48

#: Selects the part. The value is arbitrary.
_PART = 105_706

_Case = TypeVar("_Case")


def part_of(cases: Sequence[_Case], parts: int, part: int = _PART) -> Sequence[_Case]:
    """Return every ``parts``-th case; ``part`` selects the first."""
    return cases[part % parts :: parts]


def sampled(
    cases: Iterable[Any],
    parts: int = 4,
    *,
    ids: Callable[[Any], str] | None = None,
    group: Callable[[Any], Hashable] | None = None,
    part: int = _PART,
) -> list[Any]:
    """Return all cases for `pytest.mark.parametrize`, and mark as nightly those that are not in the default part.

    Args:
        cases: the cases; a tuple holds several arguments.
        parts: one in this many cases is in the default part.
        ids: returns the test id of a case.
        group: returns the group of a case; the first case of each group is in the default part too.
        part: selects the default part.
    """
    seen: set[Hashable] = set()
    found = []
    for number, case in enumerate(cases):
        first = group is not None and group(case) not in seen
        if group is not None:
            seen.add(group(case))
        is_default = first or number % parts == part % parts
        values = case if isinstance(case, tuple) else (case,)
        found.append(pytest.param(*values, id=None if ids is None else ids(case), marks=() if is_default else pytest.mark.nightly))
    return found
