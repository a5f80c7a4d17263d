"""Costs of a backend's kernels by op and size, given as a function or as a table."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from eagerdecomp.errors import ArgumentError, ArgumentTypeError
from eagerdecomp.ops.opset import resolve_ops

__all__ = ["CostOf", "Costs", "CostTable", "cost_function"]

#: (op name such as ``"aten.mul.Tensor"``, number of elements of the largest tensor) -> seconds of one call.
CostOf: TypeAlias = Callable[[str, int], float]

#: The argument `Backend(costs=)`: such a function, or a table op -> number of elements -> seconds.
Costs: TypeAlias = CostOf | Mapping[str, Mapping[Any, float]]


@dataclass(frozen=True, eq=False)
class CostTable:
    """Measured costs as a function of the size.

    Between two measured sizes it interpolates linearly. Below the first size it is constant, beyond the last it grows in proportion
    to the size. An op that is not in the table costs the median of the others.

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


@dataclass(frozen=True, eq=False)
class _CheckedCosts:
    """A user's function of costs, whose results are checked."""

    costs: CostOf

    def __call__(self, op: str, size: int) -> float:
        seconds = self.costs(op, size)
        if not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
            raise ArgumentError(
                f"costs({op!r}, {size}) returned {seconds!r}. Return the seconds of one call: a finite number, at least 0"
            )
        return seconds


def cost_function(costs: Costs) -> CostOf:
    """Return costs as a function.

    Raises:
        ArgumentTypeError: if `costs` is neither a function nor a table, or a size or cost is not a number.
        ArgumentError: if the table is empty, or has a size that is not an integer from 1 up, a size twice, or a cost that is
            negative or not finite. The function raises it for such a result.
        OpSetError: for an op name that this torch does not have.
    """
    if isinstance(costs, (CostTable, _CheckedCosts)):
        return costs
    if not isinstance(costs, Mapping):
        if not callable(costs):
            raise ArgumentTypeError(
                f"costs must be a function of an op's name and a size, or {{op: {{elements: seconds}}}}, not {costs!r}"
            )
        return _CheckedCosts(costs)
    measured: dict[str, tuple[tuple[int, float], ...]] = {}
    for given, by_size in costs.items():
        points = _points(given, by_size)
        if points:
            measured.update((str(op), points) for op in resolve_ops([given]))
    if not measured:
        raise ArgumentError("costs is empty: pass {op: {elements: seconds}}")
    return CostTable(measured)


def _points(op: object, by_size: Mapping[Any, Any]) -> tuple[tuple[int, float], ...]:
    try:
        points = [(int(size), float(seconds)) for size, seconds in by_size.items()]
        whole = all(size == float(given) for (size, _), given in zip(points, by_size, strict=True))
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"costs of {op} must map numbers of elements to seconds, not {by_size!r}") from error
    if not whole or len(dict(points)) < len(points) or not all(size > 0 and 0 <= cost < math.inf for size, cost in points):
        raise ArgumentError(
            f"costs of {op} are invalid: {by_size!r}. Pass {{elements: seconds}}; each size is an integer from 1 up and given "
            "once, each cost is finite and at least 0"
        )
    return tuple(sorted(points))
