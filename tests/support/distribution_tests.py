"""Tests of samples against a distribution: p-values that hold far out in the tail, so that a threshold is a false alarm rate.

A sample is mapped to what the distribution calls uniform. A number stands for all that round to it, a count for its share of the
distribution function, and where in that interval is settled by chance: for the right distribution the result is exactly
uniform, whether it is continuous, discrete, or rounded to float16 or bfloat16. One exact test then serves all.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

__all__ = ["p_values", "uniform_levels"]

#: The share on each side that has a test of its own: a cut-off tail is too little for the Kolmogorov-Smirnov test.
TAIL = 0.005


def uniform_levels(sample: Tensor, distribution: Any, seed: int) -> np.ndarray[Any, Any]:
    """Uniform on [0, 1] if the sample follows `distribution` (frozen, of ``scipy.stats``), up to the rounding of its dtype."""
    if is_discrete(distribution):
        values = sample.double().numpy()
        low, high = distribution.cdf(values - 1), distribution.cdf(values)
    else:
        low, high = (distribution.cdf(edge) for edge in _rounded_from(sample))
    lot = np.random.default_rng(seed).random(len(low))
    if sample.dtype.itemsize == 2 and distribution.dist.name == "uniform":
        # What would round up to the end of the range is given as its start.
        start, end = (torch.tensor(bound, dtype=sample.dtype) for bound in distribution.support())
        wrapped = 1 - distribution.cdf((end.double() + torch.nextafter(end, start).double()).item() / 2)
        lot = lot * np.where((sample == start).numpy(), (high - low + wrapped) / np.maximum(high - low, 1e-300), 1.0)
        level = low + (high - low) * lot
        return np.where(lot > 1, 1 - wrapped + level - high, level)
    return low + (high - low) * lot


def is_discrete(distribution: Any) -> bool:
    return isinstance(getattr(distribution, "dist", distribution), stats.rv_discrete)


def _rounded_from(sample: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The interval of numbers that round to each element."""
    if not sample.dtype.is_floating_point:
        return sample.double().numpy(), sample.double().numpy() + 1
    exact = sample.double()
    return tuple(
        ((exact + torch.nextafter(sample, torch.full_like(sample, towards)).double()) / 2).numpy()
        for towards in (-math.inf, math.inf)
    )


def p_values(first: Tensor, second: Tensor, distribution: Any, seed: int) -> dict[str, float]:
    """How likely each of several findings is, or a greater one, if two calls drew independent samples of `distribution`.

    The normal and chi-square approximations are used where they hold to within a tenth of a p-value's order of magnitude.
    """
    levels = uniform_levels(first, distribution, seed), uniform_levels(second, distribution, seed + 1)
    found: dict[str, float] = {}
    for name, sample, level in zip(("first", "second"), (first, second), levels, strict=True):
        found[f"{name}: outside the support"] = float(_inside(sample, distribution))
        found[f"{name}: distance from the distribution"] = float(stats.kstest(level, "uniform").pvalue)
        found[f"{name}: lower tail"] = float(stats.binomtest(int((level < TAIL).sum()), len(level), TAIL).pvalue)
        found[f"{name}: upper tail"] = float(stats.binomtest(int((level > 1 - TAIL).sum()), len(level), TAIL).pvalue)
        found[f"{name}: neighbours"] = _correlation(level[:-1], level[1:])
        found[f"{name}: shares"] = _shares(sample, distribution)
    found["between calls"] = _correlation(*levels)
    return found


def _inside(sample: Tensor, distribution: Any) -> bool:
    low, high = distribution.support()
    values = sample.double()
    if sample.dtype.is_floating_point:
        low, high = (
            round_to(bound, torch.tensor(bound, dtype=sample.dtype).item()) for round_to, bound in ((min, low), (max, high))
        )
    # A 16-bit float type rounds large numbers to infinity.
    finite = bool(values.isfinite().all()) or sample.dtype.itemsize == 2
    return finite and bool(((values >= low) & (values <= high)).all())


def _correlation(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """Test uniform levels: the sum of so many bounded products is normal."""
    score = float(((left - 0.5) * (right - 0.5)).sum() * 12 / math.sqrt(len(left)))
    return float(2 * stats.norm.sf(abs(score)))


def _shares(sample: Tensor, distribution: Any) -> float:
    """Chi-square over the outcomes of a discrete distribution that are expected a hundred times, the rest as one."""
    if not is_discrete(distribution):
        return 1.0
    values = sample.double().numpy()
    outcomes = np.unique(np.round(distribution.ppf(np.linspace(1e-4, 1 - 1e-4, 4001))))
    expected = distribution.pmf(outcomes) * len(values)
    common = outcomes[expected >= 100]
    if len(common) < 2:
        return 1.0
    expected = distribution.pmf(common) * len(values)
    seen = np.array([(values == outcome).sum() for outcome in common], dtype=float)
    rest = len(values) - expected.sum()
    if rest >= 100:
        seen, expected = np.append(seen, len(values) - seen.sum()), np.append(expected, rest)
    statistic = float(((seen - expected) ** 2 / expected).sum())
    # Where the rest is left out, the sum is that of as many cells with one more degree of freedom, or less.
    return float(stats.chi2.sf(statistic, len(seen) - (1 if rest >= 100 or rest < 1e-6 else 0)))
