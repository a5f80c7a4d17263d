"""Test whether random numbers follow their distribution, with bounds that are valid for every sample size.

Each test returns the logarithm of an upper bound of its p-value. The bounds are proven for finite samples: by Dvoretzky, Kiefer,
Wolfowitz and Massart for the distance of distributions, by Chernoff for counts, and by the method of types for several counts. So a
correct kernel is called wrong with a probability of at most `ALARM` per run, if the run makes at most `TESTS` tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "ALARM",
    "LEVEL",
    "NORMAL",
    "TESTS",
    "UNIFORM",
    "Distribution",
    "chance",
    "distance",
    "duplicates",
    "hits",
    "pairs",
    "repeats",
    "sampled",
    "seeded",
    "share",
    "shares",
    "worst",
]

#: Maximum probability that a run calls a correct kernel wrong.
ALARM = 1e-9
#: Maximum number of tests per run.
TESTS = 10**6
#: A test fails if the logarithm of its p-value is below this.
LEVEL = math.log(ALARM / TESTS)

#: Probabilities of the tails that are tested separately. Each is the probability of both tails together.
_TAILS = (1e-4, 1e-3, 1e-2, 1e-1)
_CELLS = 4
_PLACES = 4096
#: Number of values that are searched for repetitions.
_FIRST = 2**15
_LAGS = (1, 2, 3, 4, 7, 8, 16, 32, 64)


@dataclass(frozen=True)
class Distribution:
    """A continuous distribution.

    Attributes:
        cdf: its distribution function, for a float64 tensor.
        low: lower bound of its values.
        high: upper bound of its values, exclusive.
        grained: whether values may be multiples of the dtype's epsilon, without finer values near zero.
        bits: dtype -> n, if two values are equal with a probability of at most ``2 ** -n``.
    """

    cdf: Callable[[Tensor], Tensor]
    low: float
    high: float
    grained: bool
    bits: dict[torch.dtype, float]


#: Uniform on [0, 1).
UNIFORM = Distribution(
    lambda x: x.clamp(0.0, 1.0), 0.0, 1.0, True, {torch.float64: 32, torch.float32: 22, torch.float16: 10, torch.bfloat16: 7}
)
#: Normal with mean 0 and variance 1.
NORMAL = Distribution(
    torch.special.ndtr, -math.inf, math.inf, False, {torch.float64: 32, torch.float32: 20, torch.float16: 8, torch.bfloat16: 5}
)


# -- tests -------------------------------------------------------------------------------------------------------------------


def distance(levels: Tensor, slack: float = 0.0) -> float:
    """Return the log p-value bound of the largest distance between the levels' distribution and the uniform one.

    The distance is evaluated at a fixed number of points, and `slack` is subtracted for rounding errors. The bound also holds for
    the maximum over all points.
    """
    count = levels.numel()
    bins = torch.bincount((levels * _PLACES).long().clamp(0, _PLACES - 1), minlength=_PLACES)
    below = bins.cumsum(0)[:-1].double() / count
    most = float((below - torch.arange(1, _PLACES, dtype=torch.float64) / _PLACES).abs().max())
    return math.log(2) - 2 * count * max(0.0, most - slack) ** 2


def share(found: int, count: int, probability: float) -> float:
    """Return the log of an upper bound on the p-value of a binomial count (Chernoff)."""
    return min(0.0, math.log(2) - count * _divergence([found / count, 1 - found / count], [probability, 1 - probability]))


def shares(found: Sequence[int], probabilities: Sequence[float]) -> float:
    """Return the log p-value bound of the counts of several outcomes (method of types)."""
    count, kinds = sum(found), len(found)
    away = count * _divergence([one / count for one in found], probabilities)
    types = math.lgamma(count + kinds) - math.lgamma(count + 1) - math.lgamma(kinds)
    alone = min(share(one, count, probability) for one, probability in zip(found, probabilities, strict=True))
    return min(0.0, math.log(2) + min(types - away, math.log(kinds) + alone))


def pairs(outcomes: Tensor, probabilities: Sequence[float], lag: int) -> float:
    """Return the log p-value bound of the counts of pairs of outcomes with distance `lag`. No outcome is in two pairs."""
    kinds = len(probabilities)
    whole = outcomes[: outcomes.numel() // (2 * lag) * 2 * lag].view(-1, 2, lag)
    counts = torch.bincount((whole[:, 0] * kinds + whole[:, 1]).flatten(), minlength=kinds * kinds)
    return shares(counts.tolist(), [one * other for one in probabilities for other in probabilities])


def repeats(values: Tensor, coincidence: float) -> float:
    """Return the log p-value bound of a repeated run of values, if two values are equal with probability at most `coincidence`.

    Each value counts with the square root of `coincidence`. So the bound also holds for two runs that overlap.
    """
    count = values.numel()
    each = math.log(coincidence) / 2
    length = math.ceil((2 * math.log(max(count, 2)) - LEVEL + 1) / -each)
    if count < 2 * length:
        return 0.0
    bits = values.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]).long()
    hashed = torch.zeros(count - length + 1, dtype=torch.int64)
    for place in range(length):
        hashed = hashed * 6364136223846793005 + bits[place : count - length + 1 + place]
    ordered, places = hashed.sort()
    for number in (ordered[1:] == ordered[:-1]).nonzero().flatten()[:8].tolist():
        one, other = int(places[number]), int(places[number + 1])
        if torch.equal(bits[one : one + length], bits[other : other + length]):
            return 2 * math.log(count) + length * each
    return 0.0


def duplicates(values: Tensor, bits: float) -> float:
    """Return the log p-value bound of the number of repeated values, if two are equal with probability at most ``2 ** -bits``."""
    count = values.numel()
    found = count - torch.unique(values).numel()
    return hits(found, count * (count - 1) / 2 * 2.0**-bits)


def hits(found: int, expected: float) -> float:
    """Return the log p-value bound of at least `found` rare events, if `expected` are expected (Poisson)."""
    return 0.0 if found <= expected else found - expected - found * math.log(found / expected)


def _divergence(found: Sequence[float], expected: Sequence[float]) -> float:
    if any(one > 0 and other <= 0 for one, other in zip(found, expected, strict=True)):
        return math.inf
    return max(0.0, sum(one * math.log(one / other) for one, other in zip(found, expected, strict=True) if one > 0))


# -- samples -----------------------------------------------------------------------------------------------------------------


def sampled(sample: Tensor, distribution: Distribution, lags: Sequence[int] = ()) -> str | None:
    """Return how a sample contradicts the distribution, or None.

    Args:
        sample: floats in memory order.
        distribution: the distribution.
        lags: distances of pairs to test, in addition to the usual ones.
    """
    flat = sample.detach().contiguous().flatten()
    if not bool(flat.isfinite().all()):
        return f"{flat[~flat.isfinite()][0].item()} is among the numbers"
    outside = flat[(flat < distribution.low) | (flat >= distribution.high)]
    if outside.numel():
        return (
            f"{outside[0].item()} is among the numbers, which are from {distribution.low:g} to {distribution.high:g}, that excluded"
        )
    epsilon = torch.finfo(flat.dtype).eps
    levels = distribution.cdf(flat.double())
    found = {
        "the distance from the distribution": distance(levels, epsilon),
        "how many are in the tails": _tails(levels, 32 * epsilon if distribution.grained else 0.0),
        "how often numbers come up again": duplicates(flat[:_FIRST], distribution.bits[flat.dtype]),
        "runs of numbers that come up again": repeats(flat[:_FIRST], 2.0 ** -distribution.bits[flat.dtype]),
    }
    outcomes = (levels * _CELLS).long().clamp(0, _CELLS - 1)
    for lag in sorted({*_LAGS, *lags, flat.numel() // 2}):
        if 0 < 2 * lag <= flat.numel():
            found[f"numbers {lag} apart"] = pairs(outcomes, [1 / _CELLS] * _CELLS, lag)
    return worst(found)


def _tails(levels: Tensor, least: float) -> float:
    edges = [edge for edge in _TAILS if edge >= least]
    if not edges:
        return 0.0
    both = 2 * torch.minimum(levels, 1 - levels)
    counts = torch.bincount(torch.bucketize(both, torch.tensor(edges, dtype=torch.float64)), minlength=len(edges) + 1)
    return shares(counts.tolist(), [after - before for before, after in zip((0.0, *edges), (*edges, 1.0), strict=True)])


def chance(outcomes: Tensor, probability: float, lags: Sequence[int] = ()) -> str | None:
    """Return how a Bernoulli sample contradicts its probability, or None."""
    flat = outcomes.detach().contiguous().flatten()
    count = flat.numel()
    found = {"how many there are": share(int(flat.sum()), count, probability)}
    for lag in sorted({*_LAGS, *lags, count // 2}):
        if 0 < 2 * lag <= count:
            found[f"those {lag} apart"] = pairs(flat.long(), [1 - probability, probability], lag)
    found["runs that come up again"] = repeats(flat, probability**2 + (1 - probability) ** 2)
    return worst(found)


def worst(found: dict[str, float]) -> str | None:
    """Return the name of the failed test with the smallest p-value, or None."""
    name = min(found, key=lambda one: found[one])
    if found[name] >= LEVEL:
        return None
    return (
        f"{name}: as unlikely as 1 in 10^{-found[name] / math.log(10):.0f}" if math.isfinite(found[name]) else f"{name}: impossible"
    )


# -- seeds -------------------------------------------------------------------------------------------------------------------


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Return a context manager that seeds the default generators, and restores their states."""
    module: Any = torch.get_device_module(device)  # the CPU's has no state of its own
    kept = torch.get_rng_state()
    other = module.get_rng_state() if hasattr(module, "get_rng_state") else None
    try:
        torch.manual_seed(seed)
        yield
    finally:
        torch.set_rng_state(kept)
        if other is not None:
            module.set_rng_state(other)
