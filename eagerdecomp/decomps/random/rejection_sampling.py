"""Gamma, Dirichlet, Poisson and binomial samples, which eager draws by rejection.

The distribution equals eager's; the random stream does not. A fixed number of candidates is drawn for every element at once. In a
large tensor of counts, the last candidates are drawn only for elements without an accepted one. The first accepted candidate is
used, or the first candidate if none is accepted. This changes the distribution by at most the probability of that case: 3e-11 per
element for gamma, 2e-10 for Poisson and binomial with a mean of 10, less for other parameters.

Means below 10 are sampled by inversion of the distribution function, truncated at a remaining probability of 2e-13. Everything is
computed in float64 and rounded once, as in eager's kernels.

Only `poisson` reads its argument, to refuse a negative rate as eager does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp.decomps.math.operators import TensorExpr, choose, polynomial
from eagerdecomp.eager.generators import drawing_from
from eagerdecomp.eager.promotion import in_type
from eagerdecomp.eager.strides import broadcast_shapes
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64, wide_float, wide_of

aten = torch.ops.aten


def _takes_generator(*args: Any, **kwargs: Any) -> bool:
    """Return whether a generator was passed. It is the last argument of these ops, by position or by name."""
    return any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))


# A gamma candidate is rejected with a probability of at most 0.049 (shape 1), a Poisson or binomial candidate with at most 0.291
# (20 trials, probability 1/2).
_GAMMA_ROUNDS = 8
_COUNT_ROUNDS = 18

# For many elements, this many candidates are drawn first. The probability that none is accepted is at most 0.025. Then the other
# candidates are drawn for a sixteenth of the elements. The probability that more elements need them is 3e-38.
_FIRST_ROUNDS = 3
_SPARSE = 16
_MANY = 2**12

# From this mean on, counts are sampled by rejection.
_LARGE_MEAN = 10.0

# A Poisson variate with mean 10 exceeds this with a probability of 2e-13, a binomial variate with the same mean even less often.
_INVERSION_TERMS = 40

# The number of elements processed at once: the temporaries for all candidates stay in the cache, and memory stays near the
# result's.
_CHUNK = 2**14

# From this count on, Stirling's series replaces the table of log-factorials.
_TABLE = 16


def _in_chunks(draw: Callable[..., TensorExpr], *parameters: Tensor) -> TensorExpr:
    """Apply ``draw`` to 1-D tensors of the wide dtype, of equal size, one chunk after the other."""
    count = parameters[0].numel()
    if count <= _CHUNK:
        return draw(*map(TensorExpr, parameters))
    sizes = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
    parts = zip(*(aten.split_with_sizes.default(parameter, sizes) for parameter in parameters), strict=True)
    return TensorExpr(aten.cat.default([draw(*map(TensorExpr, part)).tensor for part in parts]))


def _flat(tensor: Tensor) -> Tensor:
    return aten.reshape.default(in_type(tensor, wide_of(tensor.dtype)), [-1])  # type: ignore[no-any-return]


def _shaped(flat: TensorExpr, like: Tensor) -> Tensor:
    return aten.view.default(flat.to(like.dtype).tensor, list(like.shape))  # type: ignore[no-any-return]


def _uniform(like: TensorExpr, rounds: int) -> TensorExpr:
    return TensorExpr(aten.rand.default([rounds, like.tensor.size(0)], dtype=wide_float(), device=like.tensor.device))


def _first(accepted: TensorExpr, candidates: TensorExpr) -> TensorExpr:
    """Choose the first accepted candidate of each column; the first one if none is accepted."""
    chosen = aten.argmax.default(accepted.to(candidates.tensor.dtype).tensor, 0, True)
    return TensorExpr(aten.squeeze.dim(aten.gather.default(candidates.tensor, 0, chosen), 0))


# -- gamma and Dirichlet --------------------------------------------------------------------------------------------------


def _gamma(shape: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    """Return a variate of shape + 1 if `shape` < 1 (else of `shape`), and the logarithm of the factor that corrects the shape.

    After Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
    """
    small = shape < 1
    offset = choose(small, shape + 1, shape) - 1 / 3
    noise = TensorExpr(aten.randn.default([_GAMMA_ROUNDS, shape.tensor.size(0)], dtype=wide_float(), device=shape.tensor.device))
    level = _uniform(shape, _GAMMA_ROUNDS + 1)
    step = noise * (9 * offset).rsqrt()
    # offset * (1 - v + log v), v = (1 + step)**3, without the cancellation for large shapes. NaN where v < 0: rejected.
    bound = 0.5 * noise * noise + offset * (3 * step.log1p() - step * polynomial(step, [3.0, 3.0, 1.0]))
    levels = (-level).log1p()
    accepted = TensorExpr(aten.slice.Tensor(levels.tensor, 0, 0, _GAMMA_ROUNDS)) < bound
    root = _first(accepted, step) + 1
    spare = TensorExpr(aten.select.int(levels.tensor, 0, _GAMMA_ROUNDS))
    return offset * root * root * root, choose(small, spare / shape, 0.0)


def _draw_gamma(shape: TensorExpr) -> TensorExpr:
    drawn, factor = _gamma(shape)
    return drawn * factor.exp()


def _draw_log_gamma(shape: TensorExpr) -> TensorExpr:
    drawn, factor = _gamma(shape)
    return drawn.log() + factor


@rule("aten._standard_gamma.default", recorded=True, effects=_takes_generator)
def _standard_gamma(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    with drawing_from(generator, self.device):
        drawn = _in_chunks(_draw_gamma, _flat(self))
    # As in eager, never 0 and never NaN.
    least = torch.finfo(self.dtype).tiny
    return _shaped(choose(drawn > least, drawn, least), self)


@rule("aten._sample_dirichlet.default", recorded=True, effects=_takes_generator)
def _sample_dirichlet(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    with drawing_from(generator, self.device):
        logs = _in_chunks(_draw_log_gamma, _flat(self))
    # For small shapes the variates underflow, but their logarithms still differ. The logarithms for shape 0 are all equal.
    least = -1e300 if has_float64() else -1e37
    logs = choose(logs > least, logs, least)
    shares = aten._softmax.default(aten.view.default(logs.tensor, list(self.shape)), -1, False)
    limits = torch.finfo(self.dtype)
    clamped = aten.clamp.default(shares, limits.tiny, 1 - limits.eps / 2)
    return in_type(clamped, self.dtype)


# -- counts: Poisson and binomial -----------------------------------------------------------------------------------------


def _column(x: TensorExpr) -> TensorExpr:
    return TensorExpr(aten.unsqueeze.default(x.tensor, 1))


def _orders(like: TensorExpr) -> TensorExpr:
    return TensorExpr(aten.arange.start_step(1, _INVERSION_TERMS, 1, dtype=wide_float(), device=like.tensor.device))


def _invert(first: TensorExpr, ratios: TensorExpr) -> TensorExpr:
    """Sample a count by inversion, from the logarithms of P(0) and of the ratios of successive probabilities.

    Sums over the last dimension of ``[n, terms]`` are faster than sums over the first, since its elements are neighbours in memory.
    """
    logs = TensorExpr(aten.cumsum.default(aten.cat.default([_column(first).tensor, ratios.tensor], 1), 1))
    uniform = aten.rand.default([first.tensor.size(0), 1], dtype=wide_float(), device=first.tensor.device)
    passed = TensorExpr(aten.cumsum.default(logs.exp().tensor, 1)) <= TensorExpr(uniform)
    return TensorExpr(aten.sum.dim_IntList(passed.tensor, [1], dtype=wide_float()))


def _stirling_table(like: Tensor) -> Tensor:
    """Return the difference between ``log k!`` and Stirling's formula in ``k + 1``, for the first `_TABLE` counts."""
    counts = TensorExpr(aten.arange.start_step(0, _TABLE, 1, dtype=wide_float(), device=like.device))
    factorials = counts.clamp(1).log().cumsum()
    return (factorials - (counts + 0.5) * (counts + 1).log() + counts + (1 - 0.5 * math.log(2 * math.pi))).tensor


def _stirling_rest(count: TensorExpr, table: Tensor) -> TensorExpr:
    near = aten.index.Tensor(table, [count.clamp(0, _TABLE - 1).to(torch.int64).tensor])
    inverse = 1 / (count + 1)
    square = inverse * inverse
    return choose(count < _TABLE, TensorExpr(near), inverse * polynomial(square, [1 / 12, -1 / 360, 1 / 1260]))


class _Hat(NamedTuple):
    """Hörmann's fit of an envelope over a histogram: its centre, its width and its height."""

    centre: TensorExpr
    width: TensorExpr
    shoulder: TensorExpr
    height: TensorExpr


def _reject(
    rounds: int, hat: _Hat, log_chance: Callable[[TensorExpr], TensorExpr], limit: TensorExpr | None = None
) -> tuple[TensorExpr, TensorExpr]:
    """Sample a count by transformed rejection. `log_chance` omits a constant of the log-probability that is in the hat's height.

    After Hörmann, "The transformed rejection method for generating Poisson random variables" and "The generation of binomial random
    variates" (both 1993), without their squeezes, which only save evaluations. Return also which candidates were accepted.
    """
    u, v = _uniform(hat.centre, rounds) - 0.5, _uniform(hat.centre, rounds)
    edge = 0.5 - u.abs()
    counts = ((2 * hat.shoulder / edge + hat.width) * u + hat.centre).floor()
    bound = (v * hat.height / (hat.shoulder / (edge * edge) + hat.width)).log()
    accepted = (bound <= log_chance(counts)) & (counts >= 0)
    if limit is not None:
        accepted = accepted & (counts <= limit)
    return accepted, _first(accepted, counts).clamp(0)


def _in_two_phases(draw: Callable[..., tuple[TensorExpr, TensorExpr]], *parameters: TensorExpr) -> TensorExpr:
    """Draw a few candidates for all elements, and the rest for those of which none was accepted."""
    size = parameters[0].tensor.size(0)
    if size < _MANY:
        return draw(_COUNT_ROUNDS, *parameters)[1]
    accepted, counts = draw(_FIRST_ROUNDS, *parameters)
    found = TensorExpr(aten.amax.default(accepted.to(counts.tensor.dtype).tensor, [0]))
    some = aten.slice.Tensor(aten.sort.default(found.tensor)[1], 0, 0, size // _SPARSE)
    again = draw(_COUNT_ROUNDS - _FIRST_ROUNDS, *(TensorExpr(aten.index.Tensor(one.tensor, [some])) for one in parameters))[1]
    before, done = (TensorExpr(aten.index.Tensor(one.tensor, [some])) for one in (counts, found))
    return TensorExpr(aten.index_put.default(counts.tensor, [some], choose(done.equals(0), again, before).tensor))


def _draw_small_poisson(rate: TensorExpr) -> TensorExpr:
    return _invert(-rate, _column(rate.log()) - _orders(rate).log())


def _poisson_candidates(rounds: int, rate: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    table = _stirling_table(rate.tensor)
    width = 0.931 + 2.53 * rate.sqrt()
    hat = _Hat(rate + 0.43, width, 0.02483 * width - 0.059, 1.1239 + 1.1328 / (width - 3.4))
    scale = 0.5 * (2 * math.pi * rate).log()

    def log_chance(count: TensorExpr) -> TensorExpr:
        # Relative to the rate, so that large rates do not cause cancellation.
        beyond = count - rate + 1
        return beyond - (count + 0.5) * (beyond / rate).log1p() - scale - _stirling_rest(count, table)

    return _reject(rounds, hat, log_chance)


def _draw_large_poisson(rate: TensorExpr) -> TensorExpr:
    return _in_two_phases(_poisson_candidates, rate)


def _draw_poisson(rate: TensorExpr) -> TensorExpr:
    large = rate >= _LARGE_MEAN
    below = _draw_small_poisson(choose(large, 0.0, rate))
    above = _draw_large_poisson(choose(large, rate, _LARGE_MEAN))
    return choose(large, above, below)


@rule("aten.poisson.default", recorded=True, effects=_takes_generator)
def _poisson(self: Tensor, generator: torch.Generator | None = None) -> Any:
    draw, most = _draw_poisson, 0.0
    if self.numel():
        # Eager refuses a negative rate. Once the range is read, one of the two methods can usually be skipped.
        least, most = (aten._local_scalar_dense.default(bound.default(self)) for bound in (aten.amin, aten.amax))
        if not least >= 0:
            return NotImplemented
        draw = _draw_small_poisson if most < _LARGE_MEAN else _draw_large_poisson if least >= _LARGE_MEAN else _draw_poisson
    rate = TensorExpr(_flat(self))
    with drawing_from(generator, self.device):
        if most < math.inf:
            return _shaped(_in_chunks(draw, rate.tensor), self)
        # As the variate of an infinite rate, return the rate: no candidate would be accepted.
        finite = rate < math.inf
        return _shaped(choose(finite, _in_chunks(draw, choose(finite, rate, _LARGE_MEAN).tensor), rate), self)


def _draw_small_binomial(trials: TensorExpr, chance: TensorExpr) -> TensorExpr:
    orders, odds = _orders(trials), chance / (1 - chance)
    return _invert(trials * (-chance).log1p(), ((_column(trials + 1) - orders).clamp(0) * (1 / orders) * _column(odds)).log())


def _binomial_candidates(rounds: int, trials: TensorExpr, chance: TensorExpr) -> tuple[TensorExpr, TensorExpr]:
    table = _stirling_table(trials.tensor)
    mean, rest = trials * chance, trials * (1 - chance)
    spread = (mean * (1 - chance)).sqrt()
    width = 1.15 + 2.53 * spread
    shoulder = 0.0248 * width - 0.0873 + 0.01 * chance
    hat = _Hat(mean + 0.5, width, shoulder, (2.83 + 5.1 / width) * spread)

    def log_chance(count: TensorExpr) -> TensorExpr:
        other = trials - count
        # Relative to the two means, so that many trials do not cause cancellation.
        return (
            -(count + 0.5) * ((count - mean + 1) / mean).log1p()
            - (other + 0.5) * ((other - rest + 1) / rest).log1p()
            - _stirling_rest(count, table)
            - _stirling_rest(other, table)
        )

    top = log_chance(((trials + 1) * chance).floor())
    return _reject(rounds, hat, lambda count: log_chance(count) - top, trials)


def _draw_binomial(trials: TensorExpr, chance: TensorExpr) -> TensorExpr:
    """Sample the count of the rarer outcome. The caller replaces results for parameters out of range."""
    large = trials * chance >= _LARGE_MEAN
    above = _in_two_phases(_binomial_candidates, choose(large, trials, 2 * _LARGE_MEAN), choose(large, chance, 0.5))
    return choose(large, above, _draw_small_binomial(trials, choose(large, 0.0, chance)))


# This takes some 200 kernel calls for few elements, because both methods are computed. For probabilities above 1/2, the other
# outcome is counted.
@rule("aten.binomial.default", recorded=True, effects=_takes_generator)
def _binomial(count: Tensor, prob: Tensor, generator: torch.Generator | None = None) -> Any:
    shape = broadcast_shapes(count.shape, prob.shape)
    full = [one if list(one.shape) == shape else aten.expand.default(one, shape) for one in (count, prob)]
    given, chance = TensorExpr(_flat(full[0])), TensorExpr(_flat(full[1]))
    flip = chance > 0.5
    rarer = choose(flip, 1 - chance, chance).clamp(0, 0.5)
    # For infinitely many trials no candidate is accepted. Many such elements would fill the second phase, so replace them here.
    endless = given >= math.inf
    with drawing_from(generator, count.device):
        drawn = _in_chunks(_draw_binomial, choose(endless, 0.0, given.floor().clamp(0)).tensor, rarer.tensor)
    drawn = choose(flip | endless, given - drawn, drawn)
    drawn = choose(chance.isnan(), chance, drawn)
    drawn = choose((given <= 0) | (chance <= 0), 0.0, drawn)
    return aten.view.default(drawn.to(count.dtype).tensor, shape)
