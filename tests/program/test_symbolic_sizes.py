"""Symbolic sizes: ints to Python, expressions to the program; each decision that depends on one is reported as a guard."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eagerdecomp.program.symbolic_sizes import Expression, TrackedInt, TrackedSizes


class Reported:
    """Records the reported comparisons."""

    def __init__(self) -> None:
        self.watching = True
        self.notes: list[tuple[str, Any]] = []
        self.knows_shapes = True

    def decided(self, expression: Expression, value: Any) -> None:
        self.notes.append((expression.text(str), value))

    def same_shape(self, one: Any, other: Any, result: bool) -> bool:
        if self.knows_shapes:
            self.notes.append((f"{one} like {other}", result))
        return self.knows_shapes


X = torch.zeros(6, 4, 1)
Y = torch.zeros(6, 5, 1)
TENSORS = {"x": X, "y": Y}


def sizes(reported: Reported, name: str = "x") -> TrackedSizes:
    return TrackedSizes.of(name, tuple(TENSORS[name].shape), reported)


def value_of(expression: Expression) -> Any:
    assert eval(expression.text(str), dict(TENSORS)) == expression.value(TENSORS.__getitem__)
    return expression.value(TENSORS.__getitem__)


BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.truediv,
]


@given(st.lists(st.tuples(st.sampled_from(BINARY), st.integers(-3, 7) | st.sampled_from([0.5, 2.0]), st.booleans()), max_size=6))
def test_arithmetic_of_sizes_gives_expressions(steps: list[tuple[Callable[[Any, Any], Any], Any, bool]]) -> None:
    reported = Reported()
    number, size = X.shape[0], sizes(reported)[0]
    for step, other, reflected in steps:
        pair = (other, number) if reflected else (number, other)
        try:
            number = step(*pair)
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError):
                step(other, size) if reflected else step(size, other)
            return
        size = step(other, size) if reflected else step(size, other)
    assert type(size) is TrackedInt
    assert (type(size.value), size.value) == (type(number), number)
    assert size.expression.is_integer >= isinstance(number, int)
    assert value_of(size.expression) == number
    assert reported.notes == []


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
def test_a_comparison_is_reported_with_its_result(compare: Callable[[Any, Any], bool]) -> None:
    reported = Reported()
    assert compare(sizes(reported)[0], 4) is compare(6, 4)
    assert compare(4, sizes(reported)[0]) is compare(4, 6)
    assert compare(sizes(reported)[0], sizes(reported, "y")[1]) is compare(6, 5)
    assert len(reported.notes) == 3
    for text, outcome in reported.notes:
        assert eval(text, dict(TENSORS)) is outcome


def test_a_truth_value_is_reported() -> None:
    reported = Reported()
    assert bool(sizes(reported)[0])
    assert (sizes(reported)[0] - 6 or 9) == 9
    assert reported.notes == [("(x.shape[0] != 0)", True), ("((x.shape[0] - 6) != 0)", False)]


BY_VALUE: dict[str, Callable[[Any], Any]] = {
    "range": lambda n: list(range(n)),
    "times a list": lambda n: [0] * n,
    "index": lambda n: list("abcdefgh")[n],
    "int": int,
    "float": float,
    "hash": hash,
    "key": lambda n: {6: "six"}[n],
    "repr": repr,
    "format": lambda n: f"{n:03d}",
    "power": lambda n: (n**2, 2**n, n**0.5),
    "root": math.sqrt,
    "isqrt": math.isqrt,
    "bits": lambda n: (n & 2, 2 & n, n | 1, n ^ 1, n << 1, n >> 1, ~n, n.bit_length()),
    "rounding": lambda n: (round(n), math.floor(n), math.ceil(n), math.trunc(n), abs(n)),
    "view": lambda n: torch.zeros(12).view(n, -1).shape,
}


@pytest.mark.parametrize("name", BY_VALUE)
def test_conversions_to_a_number_are_reported(name: str) -> None:
    reported = Reported()
    assert BY_VALUE[name](sizes(reported)[0]) == BY_VALUE[name](6)
    assert ("x.shape[0]", 6) in reported.notes


def test_a_size_counts_as_an_int_and_a_quotient_as_a_float() -> None:
    size = sizes(Reported())[0]
    assert isinstance(size, int)
    assert not isinstance(size, float)
    assert isinstance(size / 4, float)
    assert size != "6"
    with pytest.raises(TypeError):
        size + "6"


def test_shapes_are_compared_by_one_guard_if_possible() -> None:
    reported = Reported()
    assert sizes(reported) != sizes(reported, "y")
    assert sizes(reported) == sizes(reported)
    assert reported.notes == [("x like y", False), ("x like x", True)]
    reported.knows_shapes, reported.notes = False, []
    assert sizes(reported) != sizes(reported, "y")
    assert ("(x.shape[1] == y.shape[1])", False) in reported.notes


def test_after_the_recording_sizes_are_plain_numbers() -> None:
    reported, later = Reported(), Reported()
    old = sizes(reported)[0]
    reported.watching = False
    assert type(old + 1) is int
    assert old > 3
    assert {old: 1}[6]
    mixed = sizes(later)[1] * old
    assert mixed.expression == Expression("*", (Expression("size", ("x", 1)), 6))
    assert reported.notes == later.notes == []
