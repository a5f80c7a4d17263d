"""Random ops on Core ATen sample the right distribution, including its tails; neighbours and calls are independent.

The first table lists the ops and their distributions. `distribution_tests` computes 13 p-values from two successive calls, and a
test fails if one of them is below `THRESHOLD`. This threshold divides `FALSE_ALARMS` among all p-values of the file, with a factor
of 10 for approximations. So for any seed, right samplers fail this file at most once in a million runs. Seeds are fixed.
``SAMPLE_SEED=17 pytest tests/eager/test_random_distributions.py`` uses another seed, ``-m nightly`` twenty others.

The second table lists wrong samplers, all of which must fail.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from distribution_tests import p_values
from on_core import on_core
from scipy import stats
from torch import Tensor, distributions

pytestmark = pytest.mark.full

aten = torch.ops.aten

COUNT = 20_000
FALSE_ALARMS = 1e-6
SEED = int(os.environ.get("SAMPLE_SEED", "0"))

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
FLOATS = (F32, F64, BF16, F16)
WIDE = (F32, F64)
INTEGERS = (torch.int64, torch.int32, torch.uint8)

Generator = torch.Generator | None


class Case(NamedTuple):
    """A sampler: ``draw(dtype, generator)`` returns `COUNT` numbers of `distribution`."""

    draw: Callable[[torch.dtype, Generator], Tensor]
    distribution: Any
    dtypes: tuple[torch.dtype, ...] = WIDE
    generator: bool = True


def new(dtype: torch.dtype) -> Tensor:
    return torch.zeros(COUNT, dtype=dtype)


def filled(value: float, dtype: torch.dtype) -> Tensor:
    return torch.full((COUNT,), value, dtype=dtype)


def outcomes(*chances: float, values: tuple[float, ...] | None = None) -> Any:
    total = sum(chances)
    return stats.rv_discrete(values=(values or tuple(range(len(chances))), tuple(chance / total for chance in chances)))


def dropped(run: Callable[[Tensor], Tensor]) -> Callable[[torch.dtype, Generator], Tensor]:
    """Return 1 for elements that a dropout keeps, else 0."""
    return lambda dtype, g: (run(torch.full((1, COUNT, 1, 1), 3.0, dtype=dtype)).flatten() > 0).double()


def of(distribution: Callable[[], distributions.Distribution]) -> Callable[[torch.dtype, Generator], Tensor]:
    return lambda dtype, g: distribution().sample((COUNT,)).flatten()


ORDERS = list(itertools.permutations(range(4)))


def order_number(rows: Tensor) -> Tensor:
    """Return for each row the index in `ORDERS` of its permutation of four."""
    return torch.stack([(rows == torch.tensor(order)).all(-1) for order in ORDERS]).double().argmax(0)


def sampled_one_by_one(weights: tuple[float, ...]) -> Any:
    """Return the probability of each order if elements are sampled by weight, without replacement."""
    chances = []
    for order in ORDERS:
        left, chance = sum(weights), 1.0
        for one in order:
            chance, left = chance * weights[one] / left, left - weights[one]
        chances.append(chance)
    return outcomes(*chances)


WEIGHTS = (1.0, 2.0, 3.0, 6.0)
RANDPERM_COUNT = 2500

CASES: dict[str, Case] = {
    # In-place ops
    "uniform_": Case(lambda t, g: new(t).uniform_(generator=g), stats.uniform(), FLOATS),
    "normal_": Case(lambda t, g: new(t).normal_(generator=g), stats.norm(), FLOATS),
    "exponential_": Case(lambda t, g: new(t).exponential_(generator=g), stats.expon(), FLOATS),
    "cauchy_": Case(lambda t, g: new(t).cauchy_(1, 2, generator=g), stats.cauchy(1, 2), FLOATS),
    "log_normal_": Case(lambda t, g: new(t).log_normal_(0, 0.5, generator=g), stats.lognorm(0.5), FLOATS),
    "geometric_": Case(lambda t, g: new(t).geometric_(0.3, generator=g), stats.geom(0.3), (*FLOATS, *INTEGERS)),
    "geometric_ rare": Case(lambda t, g: new(t).geometric_(0.001, generator=g), stats.geom(0.001), (F32, F64, torch.int64)),
    "bernoulli_": Case(lambda t, g: new(t).bernoulli_(0.3, generator=g), stats.bernoulli(0.3), (*FLOATS, *INTEGERS, torch.bool)),
    "bernoulli_ rare": Case(lambda t, g: new(t).bernoulli_(0.01, generator=g), stats.bernoulli(0.01)),
    "bernoulli_ by tensor": Case(
        lambda t, g: new(t).bernoulli_(torch.tensor(0.2, dtype=F64), generator=g), stats.bernoulli(0.2), (*FLOATS, torch.int64)
    ),
    "random_ of bytes": Case(lambda t, g: new(t).random_(generator=g), stats.randint(0, 256), (torch.uint8,)),
    "random_ of bool": Case(lambda t, g: new(t).random_(generator=g), stats.bernoulli(0.5), (torch.bool,)),
    "random_ of longs": Case(lambda t, g: new(t).random_(generator=g), stats.uniform(0, 2**63), (torch.int64,)),
    "random_ up to": Case(lambda t, g: new(t).random_(5, generator=g), stats.randint(0, 5), (*FLOATS, *INTEGERS)),
    "random_ between": Case(lambda t, g: new(t).random_(-3, 4, generator=g), stats.randint(-3, 4), (*WIDE, torch.int8)),
    "random_ far": Case(lambda t, g: new(t).random_(5, 2**40, generator=g), stats.uniform(5, 2**40 - 5), (torch.int64,)),
    "random_ far, low bits": Case(lambda t, g: new(t).random_(0, 2**40, generator=g) % 7, stats.randint(0, 7), (torch.int64,)),
    "random_ around, low bits": Case(
        lambda t, g: new(t).random_(-(2**62), 2**62 + 5, generator=g) % 8, stats.randint(0, 8), (torch.int64,)
    ),
    "random_ beyond doubles": Case(
        lambda t, g: new(t).random_(2**53 + 1, 2**53 + 4, generator=g) - 2**53, stats.randint(1, 4), (torch.int64,)
    ),
    # Factory ops
    "rand": Case(lambda t, g: torch.rand(COUNT, dtype=t, generator=g), stats.uniform(), FLOATS),
    "randn": Case(lambda t, g: torch.randn(COUNT, dtype=t, generator=g), stats.norm(), FLOATS),
    "complex randn": Case(
        lambda t, g: torch.view_as_real(torch.randn(COUNT, dtype=t, generator=g)).reshape(-1),
        stats.norm(scale=math.sqrt(0.5)),
        (torch.complex64, torch.complex128),
    ),
    "randint": Case(lambda t, g: torch.randint(7, (COUNT,), dtype=t, generator=g), stats.randint(0, 7), (*WIDE, *INTEGERS)),
    "rand_like": Case(lambda t, g: aten.rand_like.generator(new(t), generator=g), stats.uniform(), FLOATS),
    "randn_like": Case(lambda t, g: aten.randn_like.generator(new(t), generator=g), stats.norm(), FLOATS),
    "randint_like": Case(
        lambda t, g: aten.randint_like.generator(new(t), 4, generator=g), stats.randint(0, 4), (*FLOATS, *INTEGERS)
    ),
    "randperm": Case(
        lambda t, g: order_number(torch.stack([torch.randperm(4, dtype=t, generator=g) for _ in range(RANDPERM_COUNT)])),
        stats.randint(0, 24),
        (torch.int64,),
    ),
    "randperm, where to": Case(
        lambda t, g: torch.randperm(COUNT, dtype=t, generator=g)[:1000] // 2000, stats.randint(0, 10), (torch.int64,)
    ),
    # Ops with tensor parameters
    "bernoulli": Case(lambda t, g: torch.bernoulli(filled(0.25, t), generator=g), stats.bernoulli(0.25), FLOATS),
    "normal of tensors": Case(lambda t, g: torch.normal(filled(2, t), filled(0.5, t), generator=g), stats.norm(2, 0.5), FLOATS),
    "normal of numbers": Case(lambda t, g: torch.normal(2.0, 0.5, (COUNT,), dtype=t, generator=g), stats.norm(2, 0.5)),
    "multinomial": Case(
        lambda t, g: torch.multinomial(torch.tensor([1.0, 0, 2, 1], dtype=t), COUNT, True, generator=g),
        outcomes(1, 2, 1, values=(0, 2, 3)),
        FLOATS,
    ),
    "multinomial, one": Case(
        lambda t, g: torch.multinomial(torch.tensor([[1.0, 0, 2, 1]], dtype=t).expand(COUNT, 4), 1, generator=g)[:, 0],
        outcomes(1, 2, 1, values=(0, 2, 3)),
        FLOATS,
    ),
    "multinomial, none put back": Case(
        lambda t, g: order_number(torch.multinomial(torch.ones(COUNT, 4, dtype=t), 4, generator=g)), stats.randint(0, 24)
    ),
    "multinomial by weight, none put back": Case(
        lambda t, g: order_number(torch.multinomial(torch.tensor([WEIGHTS], dtype=t).expand(COUNT, 4), 4, generator=g)),
        sampled_one_by_one(WEIGHTS),
    ),
    "gamma of a tenth": Case(lambda t, g: torch._standard_gamma(filled(0.1, t), g), stats.gamma(0.1), (F64,)),
    "gamma of one": Case(lambda t, g: torch._standard_gamma(filled(1, t), g), stats.gamma(1)),
    "gamma of many": Case(lambda t, g: torch._standard_gamma(filled(1e4, t), g), stats.gamma(1e4), (F64,)),
    "gamma of a trillion": Case(lambda t, g: torch._standard_gamma(filled(1e12, t), g), stats.norm(1e12, 1e6), (F64,)),
    "dirichlet": Case(
        lambda t, g: torch._sample_dirichlet(torch.tensor([[0.7, 2.0, 3.0]], dtype=t).expand(COUNT, 3), g)[:, 0], stats.beta(0.7, 5)
    ),
    "dirichlet of small shapes": Case(
        lambda t, g: torch._sample_dirichlet(torch.tensor([[0.2, 0.3]], dtype=t).expand(COUNT, 2), g)[:, 0],
        stats.beta(0.2, 0.3),
        (F64,),
    ),
    **{
        f"poisson of {rate}": Case(lambda t, g, rate=rate: torch.poisson(filled(rate, t), g), stats.poisson(rate), dtypes)
        for rate, dtypes in ((0.01, WIDE), (0.7, FLOATS), (9.99, (F64,)), (10.0, FLOATS), (55.5, WIDE), (1e6, (F64,)))
    },
    "poisson of a trillion": Case(lambda t, g: torch.poisson(filled(1e12, t), g), stats.norm(1e12, 1e6), (F64,)),
    "poisson, mixed rates": Case(
        lambda t, g: torch.poisson(torch.tensor([2.0, 30.0], dtype=t).repeat(COUNT), g)[::2], stats.poisson(2.0)
    ),
    **{
        f"binomial of {trials} by {chance}": Case(
            lambda t, g, trials=trials, chance=chance: torch.binomial(filled(trials, t), filled(chance, t), g),
            stats.binom(trials, chance),
            dtypes,
        )
        for trials, chance, dtypes in (
            *((5, 0.25, WIDE), (5, 0.75, (F64,)), (20, 0.5, WIDE), (40, 0.25, (F32,)), (100, 0.875, (F32,)), (1000, 0.001, (F64,))),
            *((1000, 0.011, (F64,)), (10**6, 0.3, (F64,)), (10**9, 1e-9, (F64,))),
        )
    },
    "binomial of a billion": Case(
        lambda t, g: torch.binomial(filled(1e9, t), filled(0.5, t), g), stats.norm(5e8 + 0.0, math.sqrt(2.5e8)), (F64,)
    ),
    # Composites
    "dropout": Case(dropped(lambda x: F.dropout(x, 0.2)), stats.bernoulli(0.8), FLOATS, False),
    "native_dropout": Case(dropped(lambda x: aten.native_dropout(x, 0.2, True)[0]), stats.bernoulli(0.8), FLOATS, False),
    "alpha_dropout": Case(dropped(lambda x: F.alpha_dropout(x, 0.2, True)), stats.bernoulli(0.8), WIDE, False),
    "rrelu": Case(lambda t, g: -F.rrelu(filled(-1, t), 0.1, 0.5, True), stats.uniform(0.1, 0.4), (F32, F64, BF16), False),
    "gumbel_softmax": Case(
        lambda t, g: F.gumbel_softmax(torch.tensor(WEIGHTS, dtype=t).log().expand(COUNT, 4), hard=True).argmax(-1),
        outcomes(*WEIGHTS),
        WIDE,
        False,
    ),
    "Gamma": Case(of(lambda: distributions.Gamma(2.5, 3.0)), stats.gamma(2.5, scale=1 / 3), (F32,), False),
    "StudentT": Case(of(lambda: distributions.StudentT(5.0)), stats.t(5), (F32,), False),
    "NegativeBinomial": Case(of(lambda: distributions.NegativeBinomial(5.0, 0.4)), stats.nbinom(5, 0.6), (F32,), False),
    "VonMises": Case(of(lambda: distributions.VonMises(0.0, 2.0)), stats.vonmises(2.0), (F32,), False),
}

DRAWN = [(name, dtype) for name, case in CASES.items() for dtype in case.dtypes]
FINDINGS = 13
THRESHOLD = FALSE_ALARMS / (10 * FINDINGS * len(DRAWN))


def seed_of(name: str, dtype: torch.dtype) -> int:
    return 1000 * SEED + 2 * DRAWN.index((name, dtype))


def two_calls(name: str, dtype: torch.dtype, seed: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    first, second = (on_core(lambda: CASES[name].draw(dtype, generator)) for _ in range(2))
    return first, second


#: Cases that several tests use.
kept_calls = functools.cache(two_calls)


def judge(name: str, dtype: torch.dtype, seed: int) -> None:
    first, second = (kept_calls if dtype is CASES[name].dtypes[0] and seed == seed_of(name, dtype) else two_calls)(
        name, dtype, seed
    )
    found = p_values(first, second, CASES[name].distribution, seed)
    assert len(found) == FINDINGS
    assert {finding: p for finding, p in found.items() if not p >= THRESHOLD} == {}


@pytest.mark.parametrize(("name", "dtype"), DRAWN, ids=str)
def test_samples_follow_the_distribution(name: str, dtype: torch.dtype) -> None:
    judge(name, dtype, seed_of(name, dtype))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 21))
def test_samples_follow_the_distribution_for_other_seeds(seed: int) -> None:
    for name, dtype in DRAWN:
        judge(name, dtype, seed_of(name, dtype) + 1000 * seed)


@pytest.mark.parametrize("name", CASES)
def test_equal_seeds_repeat_samples_and_calls_differ(name: str) -> None:
    dtype = CASES[name].dtypes[0]
    seed = seed_of(name, dtype)
    (first, second), again = kept_calls(name, dtype, seed), two_calls(name, dtype, seed)
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.generator])
def test_a_generator_argument_is_the_only_source_of_random_numbers(name: str) -> None:
    """It returns the default generator's numbers for the same seed, advances at each call, and does not change the default one."""
    dtype = CASES[name].dtypes[0]
    seed = seed_of(name, dtype)
    want = kept_calls(name, dtype, seed)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    got = [on_core(lambda: CASES[name].draw(dtype, generator)) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


# -- what the tests can see -----------------------------------------------------------------------------------------------


def truncated(dtype: torch.dtype, g: Generator) -> Tensor:
    sample = new(dtype).normal_()
    return torch.where(sample.abs() > 2.5, torch.randn(COUNT).clamp(-2.5, 2.5) / 2, sample)


def coarse_exponential(dtype: torch.dtype, g: Generator) -> Tensor:
    return -torch.log(torch.randint(0, 4096, (COUNT,)) / 4096.0)


def biased_shuffle(dtype: torch.dtype, g: Generator) -> Tensor:
    rows = torch.arange(4).repeat(COUNT, 1)
    every = torch.arange(COUNT)
    for place in range(4):
        other = torch.randint(4, (COUNT,))  # a right shuffle samples from the remaining elements
        rows[every, place], rows[every, other] = rows[every, other], rows[every, place].clone()
    return order_number(rows)


WRONG: dict[str, Case] = {
    "randint that never gives the last": Case(lambda t, g: torch.randint(6, (COUNT,)), stats.randint(0, 7)),
    "random_ of few low bits": Case(lambda t, g: torch.rand(COUNT).mul(2**40).long() % 8, stats.randint(0, 8)),
    "normal of a variance": Case(lambda t, g: torch.randn(COUNT) * 0.25, stats.norm(0, 0.5)),
    "normal without tails": Case(truncated, stats.norm()),
    "exponential of the logarithm of 0": Case(coarse_exponential, stats.expon()),
    "gamma without the factor for small shapes": Case(lambda t, g: torch._standard_gamma(filled(1.5, F32)), stats.gamma(0.5)),
    "poisson by rounding normals": Case(lambda t, g: (torch.randn(COUNT) * 0.83 + 0.7).round().clamp(0), stats.poisson(0.7)),
    "shuffle that swaps with any place": Case(biased_shuffle, stats.randint(0, 24)),
    "drawn by weight, put back in any order": Case(lambda t, g: torch.randint(24, (COUNT,)), sampled_one_by_one(WEIGHTS)),
    "neighbours alike": Case(lambda t, g: torch.rand(COUNT // 2).repeat_interleave(2), stats.uniform()),
    "every call the same": Case(lambda t, g: torch.from_numpy(np.random.default_rng(3).random(COUNT)), stats.uniform()),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_wrong_distribution_is_found(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    case = WRONG[name]
    first, second = (case.draw(F32, None) for _ in range(2))
    assert min(p_values(first, second, case.distribution, seed).values()) < THRESHOLD
