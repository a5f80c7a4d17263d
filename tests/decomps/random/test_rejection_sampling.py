"""Gamma, Dirichlet, Poisson and binomial variates on Core ATen: edges of the distributions, and generators.

`test_random_distributions` has the distributions themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from on_core import CORE, check, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.decomps.math.operators import TensorExpr
from eagerdecomp.decomps.random.rejection_sampling import _stirling_rest as stirling_rest
from eagerdecomp.decomps.random.rejection_sampling import _stirling_table as stirling_table

aten = torch.ops.aten

F32, F64 = torch.float32, torch.float64


def binomial(x: Tensor) -> Tensor:
    return torch.binomial(x, torch.full_like(x, 0.5))


OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "gamma": torch._standard_gamma,
    "dirichlet": torch._sample_dirichlet,
    "poisson": torch.poisson,
    "binomial": binomial,
}


@pytest.mark.full
@pytest.mark.parametrize("dtype", [F32, F64])
def test_certain_outcomes_are_eagers(dtype: torch.dtype) -> None:
    def tensor(*values: float) -> Tensor:
        return torch.tensor(values, dtype=dtype)

    for _ in range(5):
        check(torch.poisson, tensor(0, 0))
        check(torch._standard_gamma, tensor(0, math.nan, math.inf))
        check(torch._sample_dirichlet, tensor(0, 0))
        trials = tensor(5, 5, 5, 0, -3, 5, -3, 40, 40, 0.5, 2.5)
        check(torch.binomial, trials, tensor(0, 1, 2, 0.5, 0.5, math.nan, 0.9, 1, -1, 0.3, 1))
        check(torch.binomial, tensor(math.nan, math.nan, math.nan), tensor(0, 1, math.nan))


@pytest.mark.parametrize("name", ["poisson", "binomial"])
def test_infinite_counts_leave_the_other_distributions_alone(name: str) -> None:
    count = 2**14
    parameters = torch.full((count,), 20.0, dtype=F64)
    parameters[::8] = math.inf
    drawn = on_core(lambda: OPS[name](parameters)).view(-1, 8)
    assert torch.all(drawn[:, 0] == math.inf)
    rest = drawn[:, 1:].flatten()
    mean, variance = {"poisson": (20.0, 20.0), "binomial": (10.0, 5.0)}[name]
    assert abs(float(rest.mean()) - mean) < 5 * math.sqrt(variance / rest.numel())
    assert abs(float(rest.var()) / variance - 1) < 5 * math.sqrt(2.2 / rest.numel())


def test_variates_stay_in_their_ranges() -> None:
    tiny = torch.finfo(F32).tiny
    gamma = on_core(lambda: torch._standard_gamma(torch.full((5000,), 1e-3)))
    assert float(gamma.min()) == tiny
    shares = on_core(lambda: torch._sample_dirichlet(torch.full((5000, 3), 1e-3)))
    assert float(shares.min()) == tiny
    assert float(shares.max()) < 1
    # Where every variate underflows, one share still takes all: eager's variates are all clamped alike.
    assert float(shares.max(-1).values.median()) > 0.999
    counts = on_core(lambda: torch.binomial(torch.arange(5000.0), torch.rand(5000)))
    assert torch.equal(counts, counts.round())
    assert torch.all((counts >= 0) & (counts <= torch.arange(5000.0)))


def test_large_arguments_are_sampled_as_sums_of_independent_samples() -> None:
    count = 2**14 + 5
    torch.manual_seed(0)
    rates = torch.full((count,), 1e6, dtype=F64)
    for _ in range(3):
        drawn = on_core(lambda: torch.poisson(rates))
        assert drawn.shape == rates.shape
        assert (drawn[:5] != drawn[-5:]).any(), "the second part repeats the first"
        assert abs(float((drawn - rates).mean())) < 6 * 1000 / math.sqrt(count)


def test_poisson_alone_reads_its_argument() -> None:
    x = torch.full((3,), 2.0)
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()) as mode:
        for op in OPS.values():
            for _ in range(4):
                op(x)
    stats = mode.stats()
    assert stats["aten.poisson.default"].bypassed == 4
    for name in ("_standard_gamma", "_sample_dirichlet", "binomial"):
        assert (stats[f"aten.{name}.default"].misses, stats[f"aten.{name}.default"].hits) == (1, 3)


# -- gradients ------------------------------------------------------------------------------------------------------------


def samples(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Parameters of all regions, and variates of them."""
    generator = torch.Generator().manual_seed(0)
    alpha, beta = (torch.empty(3000, dtype=F64).uniform_(-5, 5.5, generator=generator).exp().to(dtype) for _ in range(2))
    return (
        alpha,
        beta,
        torch._standard_gamma(alpha, generator),
        torch._sample_dirichlet(torch.stack([alpha, beta], -1), generator)[:, 0],
    )


def test_gradients_in_float32_are_those_of_float64_rounded_once() -> None:
    # Eager computes parts of its Dirichlet gradient in float32 and is up to 5e-3 off; its gamma gradient is in float64 too.
    alpha, beta, gamma, share = samples(F32)
    check(torch._standard_gamma_grad, alpha, gamma)
    want = torch._dirichlet_grad(*(one.double() for one in (share, alpha, alpha + beta))).float()
    for _ in range(3):
        got = on_core(lambda: torch._dirichlet_grad(share, alpha, alpha + beta))
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got, torch._dirichlet_grad(share, alpha, alpha + beta), rtol=1e-2, atol=1e-4)


SETS = {
    "core": CORE,
    "forward held": CORE | {aten._standard_gamma.default, aten._sample_dirichlet.default},
    "backward held": CORE | {aten._standard_gamma_grad.default, aten._dirichlet_grad.default},
}


@pytest.mark.parametrize("ops", SETS.values(), ids=SETS)
def test_training_through_variates_follows_them(ops: ed.OpSet) -> None:
    """The gradient is eager's for the variates that were drawn, whichever half the set holds."""
    alpha = torch.rand(50, 3, dtype=F64).add(0.2).requires_grad_()

    def gamma() -> tuple[Tensor, Tensor]:
        drawn = torch._standard_gamma(alpha)
        return drawn, torch.autograd.grad(drawn.sum(), alpha)[0]

    drawn, slope = on_core(gamma, ops)
    torch.testing.assert_close(slope, torch._standard_gamma_grad(alpha.detach(), drawn.detach()))

    def shares() -> tuple[Tensor, Tensor]:
        drawn = torch.distributions.Dirichlet(alpha).rsample()
        return drawn, torch.autograd.grad((drawn * weights).sum(), alpha)[0]

    weights = torch.tensor([1.0, 2.0, -1.0], dtype=F64)
    drawn, slope = on_core(shares, ops)
    total = alpha.detach().sum(-1, keepdim=True).expand_as(alpha)
    along = torch._dirichlet_grad(drawn.detach(), alpha.detach(), total)
    mean = (drawn.detach() * weights).sum(-1, keepdim=True)
    torch.testing.assert_close(slope, along * (weights - mean))


# -- formulas -------------------------------------------------------------------------------------------------------------


def test_log_factorials_are_stirlings_formula_and_its_rest() -> None:
    # The chances by which counts are accepted; an error here is too small for samples of a usual size to show.
    counts = torch.cat([torch.arange(40, dtype=F64), torch.logspace(2, 12, 11, dtype=F64)])
    rest = stirling_rest(TensorExpr(counts), stirling_table(counts)).tensor
    stirling = (counts + 0.5) * (counts + 1).log() - (counts + 1) + 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(rest[:40], torch.lgamma(counts + 1)[:40] - stirling[:40], rtol=0, atol=1e-11)
    torch.testing.assert_close(rest, 1 / (12 * (counts + 1)), rtol=4e-2, atol=0)
