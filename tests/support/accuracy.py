"""How far a function on Core ATen is from the mathematics, in units of the last place, beside how far eager is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import torch
from on_core import on_core
from special_functions import Function
from torch import Tensor


@dataclass(frozen=True)
class Worst:
    """The largest errors that were seen, ours and eager's, and where each was."""

    ours: float
    ours_at: tuple[float, ...]
    eagers: float
    eagers_at: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether ours is at most twice eager's."""
        return self.ours <= 2 * self.eagers


def ulps(value: float, exact: Any, dtype: torch.dtype, size: Any = 0) -> float:
    """The distance in units of the last place of the exact value, or of `size` where that is larger.

    Infinite where only one of them is a finite number.
    """
    info = torch.finfo(dtype)
    if mp.isnan(exact):
        return 0.0 if math.isnan(value) else math.inf
    if abs(exact) > info.max * (1 + info.eps / 2):
        return 0.0 if value == math.copysign(math.inf, exact) else math.inf
    if not math.isfinite(value):
        return math.inf
    exponent = mp.floor(mp.log(max(abs(exact), mp.mpf(size), mp.mpf(info.tiny)), 2))
    return float(abs(mp.mpf(value) - exact) / (mp.mpf(2) ** exponent * info.eps))


def errors(
    function: Callable[..., Tensor],
    reference: Callable[..., Any],
    points: Sequence[tuple[float, ...]],
    dtype: torch.dtype,
    size: Callable[..., Any] | None = None,
) -> list[tuple[float, float, tuple[float, ...]]]:
    """At each point our error and eager's, with the point as the dtype has it."""
    operands = [torch.tensor(column, dtype=torch.float64).to(dtype) for column in zip(*points, strict=True)]
    ours, theirs = on_core(lambda: function(*operands)).tolist(), function(*operands).tolist()
    places = list(zip(*(operand.tolist() for operand in operands), strict=True))
    with mp.workdps(40):
        exact = [mp.mpf(reference(*map(mp.mpf, place))) for place in places]
        sizes = [size(*map(mp.mpf, place)) if size else 0 for place in places]
        return [
            (ulps(our, value, dtype, least), ulps(their, value, dtype, least), place)
            for our, their, value, least, place in zip(ours, theirs, exact, sizes, places, strict=True)
        ]


def worst(function: Function, dtype: torch.dtype, count: int, seed: int = 0) -> Worst:
    """The largest errors of a function at so many of its places."""
    points = function.points(random.Random(seed), count)
    found = errors(function.call, function.truth, points, dtype, function.size)
    (ours, _, ours_at), (_, eagers, eagers_at) = max(found), max(found, key=lambda item: item[1])
    return Worst(ours, ours_at, eagers, eagers_at)


def assert_accurate(
    function: Callable[..., Tensor],
    reference: Callable[..., Any],
    points: Sequence[tuple[float, ...]],
    dtype: torch.dtype,
    bound: float,
) -> None:
    """Nowhere more than `bound` units off, or twice as far as eager is there."""
    found = errors(function, reference, points, dtype)
    worse = [item for item in found if not item[0] <= max(bound, 2 * item[1])]
    assert not worse, f"ours, eager's, at: {sorted(worse, reverse=True)[:3]}"
