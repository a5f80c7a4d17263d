"""Random ops on Core ATen: the law, eager's stream where it is a scaled `rand`, seeds, generators, types, layouts and refusals.

Laws are judged by Kolmogorov-Smirnov (continuous) and chi-square (discrete) tests on fixed seeds: each would reject a right law
with probability 1e-4, some 80 tests in all, so that a new set of seeds raises a false alarm once in 125 runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import outcome, significant_strides
from on_core import CORE, on_core
from scipy import stats
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten

COUNT = 20_000
FALSE_ALARM = 1e-4
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def drawn(run: Callable[[], Tensor], seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return on_core(run)


def empty(dtype: torch.dtype = torch.float32, count: int = COUNT) -> Tensor:
    return torch.zeros(count, dtype=dtype)


def assert_continuous(sample: Tensor, law: Any) -> None:
    assert stats.kstest(sample.double().numpy(), law.cdf).pvalue > FALSE_ALARM


def assert_discrete(sample: Tensor, chances: dict[float, float]) -> None:
    """Chi-square over the given outcomes; what is not named is one more cell."""
    values = sample.double()
    seen = [int((values == outcome).sum()) for outcome in chances]
    expected = [chance * len(values) for chance in chances.values()]
    rest = len(values) - sum(expected)
    if rest > 1e-6:
        seen, expected = [*seen, len(values) - sum(seen)], [*expected, rest]
    assert sum(seen) == len(values), "an outcome without any chance"
    assert stats.chisquare(seen, expected).pvalue > FALSE_ALARM


# -- laws -----------------------------------------------------------------------------------------------------------------

CONTINUOUS: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    "uniform_": (lambda x: x.uniform_(), stats.uniform()),
    "uniform_ between": (lambda x: x.uniform_(-3, 5), stats.uniform(-3, 8)),
    "normal_": (lambda x: x.normal_(), stats.norm()),
    "normal_ moved": (lambda x: x.normal_(2, 0.5), stats.norm(2, 0.5)),
    "exponential_": (lambda x: x.exponential_(), stats.expon()),
    "exponential_ fast": (lambda x: x.exponential_(3.0), stats.expon(scale=1 / 3)),
    "cauchy_": (lambda x: x.cauchy_(), stats.cauchy()),
    "cauchy_ moved": (lambda x: x.cauchy_(1, 2), stats.cauchy(1, 2)),
    "log_normal_": (lambda x: x.log_normal_(), stats.lognorm(2.0, scale=math.e)),
    "log_normal_ narrow": (lambda x: x.log_normal_(0, 0.5), stats.lognorm(0.5)),
    "rand_like": (torch.rand_like, stats.uniform()),
    "randn_like": (torch.randn_like, stats.norm()),
    "normal of tensors": (lambda x: torch.normal(x + 2, x + 0.5), stats.norm(2, 0.5)),
    "normal of a mean": (lambda x: torch.normal(x + 2, 0.5), stats.norm(2, 0.5)),
    "normal of a deviation": (lambda x: torch.normal(2.0, x + 0.5), stats.norm(2, 0.5)),
    "normal of numbers": (lambda x: torch.normal(2.0, 0.5, x.shape, dtype=x.dtype), stats.norm(2, 0.5)),
    "uniform": (lambda x: aten.uniform.default(x, -1.0, 1.0), stats.uniform(-1, 2)),
    "exponential": (lambda x: aten.exponential.default(x), stats.expon()),
}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_continuous_laws(name: str, dtype: torch.dtype) -> None:
    run, law = CONTINUOUS[name]
    sample = drawn(lambda: run(empty(dtype)))
    assert sample.dtype is dtype
    assert_continuous(sample, law)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_have_the_laws_quantiles(name: str, dtype: torch.dtype) -> None:
    # Rounding makes ties, which the Kolmogorov-Smirnov test does not allow: five quantiles, each within five deviations of its
    # own estimate and one rounding step.
    run, law = CONTINUOUS[name]
    sample = drawn(lambda: run(empty(dtype)))
    assert sample.dtype is dtype
    values = sample.double()
    for level in (0.1, 0.25, 0.5, 0.75, 0.9):
        at = float(law.ppf(level))
        slack = abs(at) * torch.finfo(dtype).eps + torch.finfo(dtype).eps
        low, high = float((values <= at - slack).double().mean()), float((values <= at + slack).double().mean())
        spread = 5 * math.sqrt(level * (1 - level) / COUNT)
        assert low - spread <= level <= high + spread


def geometric(p: float) -> dict[float, float]:
    return {k: p * (1 - p) ** (k - 1) for k in range(1, 9)}


DISCRETE: dict[str, tuple[Callable[[], Tensor], dict[float, float]]] = {
    "bernoulli_": (lambda: empty().bernoulli_(), {0: 0.5, 1: 0.5}),
    "bernoulli_ rare": (lambda: empty(torch.int64).bernoulli_(0.0005), {0: 0.9995, 1: 0.0005}),
    "bernoulli_ on bool": (lambda: empty(torch.bool).bernoulli_(0.3), {0: 0.7, 1: 0.3}),
    "bernoulli.p": (lambda: torch.bernoulli(empty(torch.int32), 0.3), {0: 0.7, 1: 0.3}),
    "bernoulli": (lambda: torch.bernoulli(empty() + 0.2), {0: 0.8, 1: 0.2}),
    "bernoulli_ by tensor": (lambda: empty(torch.uint8).bernoulli_(torch.tensor(0.2, dtype=torch.float64)), {0: 0.8, 1: 0.2}),
    "bernoulli by half": (lambda: torch.bernoulli(empty(torch.float16) + 0.25), {0: 0.75, 1: 0.25}),
    "geometric_": (lambda: empty().geometric_(0.3), geometric(0.3)),
    "geometric_ on integers": (lambda: empty(torch.int64).geometric_(0.6), geometric(0.6)),
    "geometric_ on halves": (lambda: empty(torch.bfloat16).geometric_(0.6), geometric(0.6)),
    "random_ of bool": (lambda: empty(torch.bool).random_(), {0: 0.5, 1: 0.5}),
    "random_ of bytes": (lambda: empty(torch.uint8).random_() // 64, dict.fromkeys(range(4), 0.25)),
    "random_ up to": (lambda: empty(torch.int32).random_(5), dict.fromkeys(range(5), 0.2)),
    "random_ between": (lambda: empty(torch.int8).random_(-3, 2), dict.fromkeys(range(-3, 2), 0.2)),
    "random_ on floats": (lambda: empty().random_(-2, 3), dict.fromkeys(range(-2, 3), 0.2)),
    "random_ on halves": (lambda: empty(torch.float16).random_(5), dict.fromkeys(range(5), 0.2)),
    "randint": (lambda: torch.randint(7, (COUNT,)), dict.fromkeys(range(7), 1 / 7)),
    "randint between": (lambda: torch.randint(-2, 5, (COUNT,), dtype=torch.int16), dict.fromkeys(range(-2, 5), 1 / 7)),
    "randint_like": (lambda: torch.randint_like(empty(), 4), dict.fromkeys(range(4), 0.25)),
    "randint_like between": (lambda: torch.randint_like(empty(), -1, 3), dict.fromkeys(range(-1, 3), 0.25)),
    "randint_like by tensor": (lambda: torch.randint_like(empty(), torch.tensor(4)), dict.fromkeys(range(4), 0.25)),
    "multinomial, replaced": (lambda: torch.multinomial(torch.tensor([1.0, 0, 2, 1]), COUNT, True), {0: 0.25, 2: 0.5, 3: 0.25}),
    "multinomial, one": (
        lambda: torch.multinomial(torch.tensor([[1.0, 0, 2, 1]]).expand(COUNT, 4), 1)[:, 0],
        {0: 0.25, 2: 0.5, 3: 0.25},
    ),
    "multinomial, the second": (
        # First 0 then 1, or first 2 then 1 (weights 1, 1, 2); and so on.
        lambda: torch.multinomial(torch.tensor([[1.0, 1, 2]]).expand(COUNT, 3), 2)[:, 1],
        {0: 1 / 12 + 1 / 4, 1: 1 / 12 + 1 / 4, 2: 1 / 3},
    ),
    "randperm": (
        lambda: torch.stack([torch.randperm(4, generator=STREAM) for _ in range(400)])[:, 2],
        dict.fromkeys(range(4), 0.25),
    ),
}
STREAM = torch.Generator()


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_laws(name: str) -> None:
    run, chances = DISCRETE[name]
    STREAM.manual_seed(1)
    assert_discrete(drawn(run), chances)


WIDE_RANGES = [
    (-(2**63), None),
    (0, None),
    (-(2**62), 2**62 + 5),
    (5, 2**40 + 12345),
    (-(2**63), 2**63 - 1),
    (2**53 + 1, 2**53 + 4),
]


@pytest.mark.parametrize(("low", "high"), WIDE_RANGES)
def test_wide_integer_ranges(low: int, high: int | None) -> None:
    sample = drawn(lambda: empty(torch.int64).random_(low, high))
    end = 2**63 if high is None else high
    values = [int(value) for value in sample]
    assert low <= min(values)
    assert max(values) < end
    if end - low < 10:
        assert_discrete(sample - low, dict.fromkeys(range(end - low), 1 / (end - low)))
    else:
        parts = torch.tensor([(value - low) / (end - low) for value in values], dtype=torch.float64)
        assert_continuous(parts, stats.uniform())
        # The low bits are drawn too.
        assert_discrete(torch.tensor([(value - low) % 4 for value in values]), dict.fromkeys(range(4), 0.25))


def test_exponential_never_answers_zero() -> None:
    assert float(drawn(lambda: torch.zeros(2_000_000).exponential_()).min()) > 0


# -- streams, seeds, generators -------------------------------------------------------------------------------------------

STREAMS: dict[str, Callable[[Any], Tensor]] = {
    "uniform_": lambda g: torch.zeros(4, 5).uniform_(-1, 3, generator=g),
    "uniform_ transposed": lambda g: torch.zeros(4, 5).t().uniform_(generator=g),
    "normal_": lambda g: torch.zeros(7, 5).normal_(1, 2, generator=g),
    "normal_ in float64": lambda g: torch.zeros(3, dtype=torch.float64).normal_(1, 2, generator=g),
    "rand": lambda g: torch.rand(5, generator=g),
    "randn": lambda g: torch.randn(5, generator=g),
    "randperm": lambda g: torch.randperm(9, generator=g),
    "rand_like": lambda g: aten.rand_like.generator(torch.zeros(4, 5).t(), generator=g),
    "normal of numbers": lambda g: torch.normal(1.0, 2.0, (20,), generator=g),
    "complex rand": lambda g: torch.rand(4, dtype=torch.complex64, generator=g),
    "complex uniform_": lambda g: torch.zeros(4, dtype=torch.complex64).uniform_(1, 2, generator=g),
    "bfloat16 uniform_": lambda g: torch.zeros(9, dtype=torch.bfloat16).uniform_(generator=g),
}


@pytest.mark.parametrize("name", STREAMS)
def test_follows_eagers_own_stream(name: str) -> None:
    run = STREAMS[name]
    ours, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    for _ in range(3):
        torch.testing.assert_close(on_core(lambda: run(ours)), run(theirs))
    torch.manual_seed(5)
    want = run(None)
    torch.testing.assert_close(drawn(lambda: run(None), 5), want)


MAKERS: dict[str, Callable[[Any], Tensor]] = {
    **STREAMS,
    "bernoulli_": lambda g: torch.zeros(9).bernoulli_(0.3, generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((9,), 0.3), generator=g),
    "bernoulli by tensor": lambda g: torch.zeros(9).bernoulli_(torch.full((9,), 0.3), generator=g),
    "exponential_": lambda g: torch.zeros(9).exponential_(2.0, generator=g),
    "geometric_": lambda g: torch.zeros(9).geometric_(0.2, generator=g),
    "cauchy_": lambda g: torch.zeros(9).cauchy_(generator=g),
    "log_normal_": lambda g: torch.zeros(9).log_normal_(generator=g),
    "random_": lambda g: torch.zeros(9).random_(generator=g),
    "random_ between": lambda g: torch.zeros(9).random_(3, 900, generator=g),
    "randint": lambda g: torch.randint(9000, (9,), generator=g),
    "randint between": lambda g: torch.randint(4, 9000, (9,), generator=g),
    "normal of tensors": lambda g: torch.normal(torch.zeros(9), torch.ones(9), generator=g),
    "normal of a mean": lambda g: torch.normal(torch.zeros(9), 2.0, generator=g),
    "normal of a deviation": lambda g: torch.normal(1.0, torch.ones(9), generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(50), 9, generator=g),
    "multinomial, replaced": lambda g: torch.multinomial(torch.ones(50), 9, True, generator=g),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_generator_is_the_only_one_drawn_from(name: str) -> None:
    run = MAKERS[name]
    generator = torch.Generator().manual_seed(7)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = [on_core(lambda: run(generator)) for _ in range(4)]
    assert torch.equal(torch.get_rng_state(), before), "drew from the default generator"
    assert not torch.equal(first[0], first[1]), "the generator did not move on"
    generator.manual_seed(7)
    torch.manual_seed(2)
    for again in first:
        assert torch.equal(on_core(lambda: run(generator)), again)


@pytest.mark.parametrize("name", MAKERS)
def test_repeats_under_a_seed_and_moves_on_within_it(name: str) -> None:
    run = MAKERS[name]
    torch.manual_seed(3)
    first = [on_core(lambda: run(None)) for _ in range(4)]
    assert not torch.equal(first[2], first[3]), "the same draw twice"
    torch.manual_seed(3)
    for again in first:
        assert torch.equal(on_core(lambda: run(None)), again)


def test_a_rule_that_hands_its_generator_on_is_not_frozen_into_a_program() -> None:
    rule = ed.register_decomposition("aten.rrelu_with_noise_functional")(
        lambda x, noise, lower=0.1, upper=0.3, training=False, generator=None: (
            aten.uniform(x, 0.0, 1.0, generator=generator),
            noise,
        )
    )
    generator = torch.Generator()
    drawn_twice = []
    with ed.EagerDecompMode(CORE, rules=[rule]):
        for _ in range(2):
            generator.manual_seed(11)
            for _ in range(3):
                x = torch.zeros(4)
                got = aten.rrelu_with_noise_functional(x, torch.zeros(4), 0.1, 0.3, True, generator)[0]
            drawn_twice.append(got)
    assert torch.equal(*drawn_twice)


# -- types, shapes, layouts, refusals -------------------------------------------------------------------------------------


def facts(run: Callable[[], Any]) -> Any:
    kind, value = outcome(run)
    if kind == "error":
        return type(value)
    return value.dtype, value.shape, significant_strides(value) if value.numel() else ()


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "0-dim": lambda: torch.zeros(()),
    "empty": lambda: torch.zeros(0, 3),
    "transposed": lambda: torch.zeros(3, 4).t(),
    "sliced": lambda: torch.zeros(6, 4)[::2],
    "channels last": lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "permuted": lambda: torch.zeros(2, 3, 4).permute(2, 0, 1),
}
OF_A_TENSOR: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform_": lambda x: x.uniform_(),
    "normal_": lambda x: x.normal_(1, 2),
    "exponential_": lambda x: x.exponential_(),
    "geometric_": lambda x: x.geometric_(0.5),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "bernoulli_": lambda x: x.bernoulli_(0.5),
    "bernoulli_ by tensor": lambda x: x.bernoulli_(torch.tensor(0.5)),
    "random_": lambda x: x.random_(),
    "random_ up to": lambda x: x.random_(2),
    "uniform": lambda x: aten.uniform.default(x),
    "normal_functional": lambda x: aten.normal_functional.default(x),
    "random.from": lambda x: getattr(aten.random, "from")(x, 0, 2),
    "bernoulli": torch.bernoulli,
    "bernoulli.p": lambda x: torch.bernoulli(x, 0.5),
    "bernoulli.Tensor": lambda x: aten.bernoulli.Tensor(x, torch.tensor(0.5)),
    "normal of tensors": lambda x: torch.normal(x, torch.ones(1)),
    "normal of a mean": lambda x: torch.normal(x, 2.0),
    "normal of a deviation": lambda x: torch.normal(2.0, x),
    "rand_like": torch.rand_like,
    "rand_like, contiguous": lambda x: torch.rand_like(x, memory_format=torch.contiguous_format),
    "rand_like of float64": lambda x: torch.rand_like(x, dtype=torch.float64),
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 2),
    "randint_like of int8": lambda x: torch.randint_like(x, 0, 2, dtype=torch.int8),
    "expanded": lambda x: x.expand(2, *x.shape).uniform_(),
}
ALL_TYPES = [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool, torch.complex64, torch.complex128]


@pytest.mark.parametrize("name", OF_A_TENSOR)
def test_types_shapes_strides_and_refusals_are_eagers(name: str) -> None:
    run = OF_A_TENSOR[name]
    for make in LAYOUTS.values():
        assert facts(lambda: on_core(lambda: run(make()))) == facts(lambda: run(make()))  # noqa: B023 - called at once
    for dtype in ALL_TYPES:
        for count in (3, 0):
            given = torch.zeros(count, dtype=dtype)
            ours, theirs = given.clone(), given.clone()
            assert facts(lambda: on_core(lambda: run(ours))) == facts(lambda: run(theirs)), (dtype, count)  # noqa: B023


def test_in_place_answers_the_callers_own_tensor_and_keeps_its_neighbours() -> None:
    base = torch.full((6, 4), -1.0)
    part = base[::2]
    assert on_core(lambda: part.uniform_()) is part
    assert torch.all(base[::2] >= 0)
    assert torch.all(base[1::2] == -1)


REFUSALS: dict[str, Callable[[], Any]] = {
    "uniform_ backwards": lambda: torch.zeros(3).uniform_(2, 1),
    "uniform_ too wide": lambda: torch.zeros(3).uniform_(-3e38, 3e38),
    "uniform_ out of half": lambda: torch.zeros(3).half().uniform_(0, 1e6),
    "uniform_ of nan": lambda: torch.zeros(3).uniform_(math.nan, 1),
    "normal_": lambda: torch.zeros(3).normal_(0, -1),
    "normal_ of nan": lambda: torch.zeros(3).normal_(0, math.nan),
    "bernoulli_": lambda: torch.zeros(3).bernoulli_(1.5),
    "exponential_": lambda: torch.zeros(3).exponential_(0),
    "geometric_": lambda: torch.zeros(3).geometric_(1),
    "cauchy_": lambda: torch.zeros(3).cauchy_(0, 0),
    "cauchy_ of integers": lambda: torch.zeros(3, dtype=torch.int64).cauchy_(),
    "log_normal_": lambda: torch.zeros(3).log_normal_(0, 0),
    "random_ backwards": lambda: torch.zeros(3).random_(5, 3),
    "random_ up to nothing": lambda: torch.zeros(3).random_(0),
    "random_ out of bytes": lambda: torch.zeros(3, dtype=torch.uint8).random_(0, 257),
    "random_ below bytes": lambda: torch.zeros(3, dtype=torch.uint8).random_(-1, 5),
    "random_ out of bool": lambda: torch.zeros(3, dtype=torch.bool).random_(0, 3),
    "random_ out of half": lambda: torch.zeros(3).half().random_(0, 100000),
    "randint backwards": lambda: torch.randint(5, 2, (2,)),
    "randint_like by a vector": lambda: torch.randint_like(torch.zeros(3), torch.tensor([5])),
    "normal of tensors": lambda: torch.normal(torch.zeros(3), torch.tensor([1.0, -1, 1])),
    "normal of complex": lambda: torch.normal(torch.zeros(3), torch.ones(3).cfloat()),
    "multinomial of integers": lambda: torch.multinomial(torch.tensor([1, 2]), 1),
    "multinomial of 3 dims": lambda: torch.multinomial(torch.ones(2, 2, 2), 1),
    "multinomial of none": lambda: torch.multinomial(torch.ones(3), 0),
    "multinomial of too many": lambda: torch.multinomial(torch.ones(3), 4),
    "multinomial of negatives": lambda: torch.multinomial(torch.tensor([1.0, -1]), 1),
    "multinomial of negatives, replaced": lambda: torch.multinomial(torch.tensor([1.0, -1]), 2, True),
    "multinomial of infinities": lambda: torch.multinomial(torch.tensor([1.0, math.inf]), 1),
    "multinomial of zeros": lambda: torch.multinomial(torch.tensor([[1.0, 1], [0, 0]]), 1),
    "multinomial of zeros, replaced": lambda: torch.multinomial(torch.zeros(3), 3, True),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_with_eagers_message(name: str) -> None:
    _, want = outcome(REFUSALS[name])
    kind, got = outcome(lambda: on_core(REFUSALS[name]))
    assert kind == "error"
    assert type(got) is type(want)
    assert str(got) == str(want).splitlines()[0]


@pytest.mark.parametrize("p", [torch.tensor([0.5, 2.0]), torch.tensor([0.5, math.nan]), torch.rand(2, 3)])
def test_refuses_probabilities_outside_their_domain(p: Tensor) -> None:
    for run in (lambda: torch.bernoulli(p[..., :0] if p.dim() > 1 else p), lambda: torch.zeros(2).bernoulli_(p)):
        assert facts(lambda: on_core(run)) == facts(run)  # noqa: B023 - called at once


def test_rrelu_keeps_its_slopes_in_the_noise() -> None:
    x = torch.linspace(-1, 1, 1000)
    torch.manual_seed(0)
    for _ in range(3):
        noise = torch.empty_like(x)
        out = on_core(lambda: aten.rrelu_with_noise(x, noise, 0.1, 0.3, True))  # noqa: B023 - called at once
        assert torch.all(noise[x > 0] == 1)
        assert torch.all((noise[x <= 0] >= 0.1) & (noise[x <= 0] <= 0.3))
        assert torch.equal(out, x * noise)
    torch.testing.assert_close(on_core(lambda: aten.rrelu_with_noise(x, noise, 0.1, 0.3)), torch.where(x > 0, x, x * 0.2))


def test_dropout_scales_what_it_keeps() -> None:
    x = torch.ones(COUNT)
    for ops in (CORE, CORE - ["aten.native_dropout"]):
        torch.manual_seed(0)
        for _ in range(3):
            with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops):
                out = torch.nn.functional.dropout(x, 0.2, True)
            assert not seen.outside(ops)
            assert_discrete((out * 0.8).round(), {0: 0.2, 1: 0.8})
