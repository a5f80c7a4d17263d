"""Errors of decomposed functions in ulps (units in the last place), compared with eager's errors.

The exact values are computed with `mpmath`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import torch
from torch import Tensor

from eagerdecomp import EagerDecompMode, core_aten
from tools.special_functions import Function


@dataclass(frozen=True)
class LargestErrors:
    """The largest errors, ours and eager's, and the points where they occurred."""

    ours: float
    ours_at: tuple[float, ...]
    eagers: float
    eagers_at: tuple[float, ...]

    @property
    def acceptable(self) -> bool:
        """Whether our error is at most twice eager's."""
        return self.ours <= 2 * self.eagers


def ulps(value: float, exact: Any, dtype: torch.dtype, scale: Any = 0) -> float:
    """Return the error in ulps of the exact value, or of `scale` if that is larger.

    The error is infinite if only one of value and exact value is finite.
    """
    info = torch.finfo(dtype)
    if mp.isnan(exact):
        return 0.0 if math.isnan(value) else math.inf
    if abs(exact) > info.max * (1 + info.eps / 2):
        return 0.0 if value == math.copysign(math.inf, exact) else math.inf
    if not math.isfinite(value):
        return math.inf
    exponent = mp.floor(mp.log(max(abs(exact), mp.mpf(scale), mp.mpf(info.tiny)), 2))
    return float(abs(mp.mpf(value) - exact) / (mp.mpf(2) ** exponent * info.eps))


def errors(
    function: Callable[..., Tensor],
    reference: Callable[..., Any],
    points: Sequence[tuple[float, ...]],
    dtype: torch.dtype,
    scale: Callable[..., Any] | None = None,
) -> list[tuple[float, float, tuple[float, ...]]]:
    """Return for each point our error, eager's error, and the point rounded to the dtype."""
    operands = [torch.tensor(column, dtype=torch.float64).to(dtype) for column in zip(*points, strict=True)]
    with EagerDecompMode(core_aten()):
        result = function(*operands)
    ours, theirs = result.tolist(), function(*operands).tolist()
    rounded = list(zip(*(operand.tolist() for operand in operands), strict=True))
    with mp.workdps(40):
        exact = [mp.mpf(reference(*map(mp.mpf, point))) for point in rounded]
        scales = [scale(*map(mp.mpf, point)) if scale else 0 for point in rounded]
        return [
            (ulps(our, value, dtype, least), ulps(their, value, dtype, least), point)
            for our, their, value, least, point in zip(ours, theirs, exact, scales, rounded, strict=True)
        ]


def largest_errors(function: Function, dtype: torch.dtype, count: int, seed: int = 0) -> LargestErrors:
    """Return the largest errors of a function at ``count`` random points."""
    points = function.sample(random.Random(seed), count)
    found = errors(function.call, function.reference, points, dtype, function.error_scale)
    (ours, _, ours_at), (_, eagers, eagers_at) = max(found), max(found, key=lambda item: item[1])
    return LargestErrors(ours, ours_at, eagers, eagers_at)
