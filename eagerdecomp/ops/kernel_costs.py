"""Costs of a backend's kernels by op and size, given as a function or as a table."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from eagerdecomp.errors import ArgumentError, ArgumentTypeError

__all__ = ["CostOf", "Costs", "CostTable", "cost_function"]

#: (op name such as ``"aten.mul.Tensor"``, number of elements of the largest tensor) -> seconds of one call.
CostOf: TypeAlias = Callable[[str, int], float]

#: The argument `Backend(costs=)`: such a function, or a table op -> number of elements -> seconds.
Costs: TypeAlias = CostOf | Mapping[str, Mapping[Any, float]]


@dataclass(frozen=True, eq=False)
class CostTable:
    """A function made of measured costs: linear between two sizes, constant below the first, proportional to the size beyond the
    last.

    An op that is not in the table costs the median of the others.

    Attributes:
        measured: op -> (number of elements, seconds), sorted by size.
    """

    measured: Mapping[str, tuple[tuple[int, float], ...]]

    def __call__(self, op: str, size: int) -> float:
        points = self.measured.get(op)
        if points is None:
            return statistics.median(_at(one, size) for one in self.measured.values())
        return _at(points, size)


def _at(points: tuple[tuple[int, float], ...], size: int) -> float:
    place = bisect_left(points, (size, 0.0))
    if place == 0:
        return points[0][1]
    (below, seconds) = points[place - 1]
    if place == len(points):
        return seconds * size / below
    above, more = points[place]
    return seconds + (more - seconds) * (size - below) / (above - below)


def cost_function(costs: Costs) -> CostOf:
    """Return costs as a function.

    Raises:
        ArgumentTypeError: if `costs` is neither a function nor a table, or if a size or cost is not a number.
        ArgumentError: if the table has no op, or has a size below 1.
    """
    if not isinstance(costs, Mapping):
        if not callable(costs):
            raise ArgumentTypeError(
                f"costs must be a function of an op's name and a size, or {{op: {{elements: seconds}}}}, not {costs!r}"
            )
        return costs
    measured = {}
    for op, by_size in costs.items():
        try:
            points = tuple(sorted((int(size), float(seconds)) for size, seconds in by_size.items()))
        except (AttributeError, TypeError, ValueError) as error:
            raise ArgumentTypeError(f"costs of {op} must map numbers of elements to seconds, not {by_size!r}") from error
        if points:
            measured[str(op)] = points
    if not measured or any(size < 1 for points in measured.values() for size, _ in points):
        raise ArgumentError("costs is empty, or has a size below 1: pass {op: {elements: seconds}} with elements from 1 up")
    return CostTable(measured)
