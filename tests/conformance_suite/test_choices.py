"""Random choices: they are recorded, reproduced, steered and shrunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagerdecomp.conformance.choices import INPUT_SEEDS, Coverage, Draw, simplest

OPTIONS = {"dtype": "abcd", "layout": "uvwxyz", "kind": range(9)}


def drawn(draw: Draw) -> tuple[object, ...]:
    found = [draw.pick(name, options) for name, options in OPTIONS.items()]
    return (*found, draw.below(1000), draw.flag("deep") and draw.pick("more", "mn"), draw.seed())


@given(st.integers(0, 2**32))
def test_inputs_and_kernels_have_separate_random_streams(seed: int) -> None:
    draw = Draw(coverage=Coverage(seed))
    assert draw.generator().initial_seed() >= INPUT_SEEDS > draw.seed() + 1  # properties run kernels after a seed and the next


@pytest.mark.full
@given(st.integers(0, 2**32))
def test_choices_reproduce_a_case(seed: int) -> None:
    first = Draw(coverage=Coverage(seed))
    assert drawn(first) == drawn(Draw(first.choices))  # in this order


def test_equal_seeds_generate_equal_cases() -> None:
    def cases(seed: int) -> list[tuple[object, ...]]:
        coverage = Coverage(seed)
        return [drawn(Draw(coverage=coverage)) for _ in range(50)]

    assert cases(3) == cases(3)
    assert cases(3) != cases(4)


def test_every_pair_of_the_first_choices_occurs_early() -> None:
    coverage, pairs = Coverage(0), Counter[tuple[object, object]]()
    for _ in range(120):
        dtype, layout, *_ = drawn(Draw(coverage=coverage))
        pairs[dtype, layout] += 1
    assert len(pairs) == 24
    assert max(pairs.values()) < 6 * min(pairs.values())


@pytest.mark.full
@given(st.lists(st.integers(0, 20), min_size=3, max_size=8))
def test_the_simplest_case_still_fails(choices: list[int]) -> None:
    def fails(attempt: Sequence[int]) -> bool:
        return sum(attempt) >= 10 and attempt[0] >= 1

    if fails(choices):
        found = simplest(choices, fails, 1000)
        assert fails(found)
        assert sum(found) == 10
        assert all(not fails([*found[:place], one - 1, *found[place + 1 :]]) for place, one in enumerate(found) if one)
