"""Type promotion: a sample of all combinations of operands equals eager, and a wrong value is found."""

from __future__ import annotations

import itertools

import pytest
import torch
from compare import outcome
from on_core import CORE, check, on_core
from sampled import SEED

from conformance.promotion import judge, judged, mixes, table
from eagerdecomp import EagerDecompMode, core_aten, register_decomposition

_EVERY = 900


@pytest.mark.full
def test_a_sample_of_calls_promotes_as_eager() -> None:
    found = list(judged(itertools.islice(mixes(), SEED * 17 % _EVERY, None, _EVERY), core_aten()))
    assert len(found) > 100
    assert not [str(mix) for mix, status, _ in found if status == "wrong"], table(found)[0]


@pytest.mark.nightly
def test_all_calls_promote_as_eager() -> None:
    text, _ = table(one for one in judged(mixes(), core_aten()) if one[1] in ("wrong", "pass"))
    assert "wrong" not in text, text


_CALLS = {
    "an out= that cannot hold the type, of a refused one": lambda: torch.bitwise_and(
        torch.ones(2).bool(), 1.5, out=torch.empty(2).bool()
    ),
    "an in-place op that cannot hold the type, of a refused one": lambda: torch.ones(2).int().gcd_(torch.ones(2)),
    "xlogy of a float and a complex number": lambda: torch.xlogy(torch.ones(2), torch.ones(2).cfloat()),
    "xlog1py of a float and a complex number": lambda: torch.special.xlog1py(torch.ones(2), torch.ones(2).cfloat()),
    "an out= of clamp of another type": lambda: torch.clamp(torch.ones(2), 1.5, out=torch.empty(2).double()),
    "an out= of lerp of another type": lambda: torch.lerp(torch.ones(2), torch.ones(2), torch.ones(2), out=torch.empty(2).double()),
    "igamma of two integer types": lambda: torch.igamma(torch.ones(2).short(), torch.ones(2).int()),
    "lerp of integers by a number": lambda: torch.lerp(torch.arange(2), torch.arange(2).flip(0), torch.tensor(1.5)),
    "lerp of bools by a number": lambda: torch.lerp(torch.ones(2).bool(), torch.zeros(2).bool(), torch.tensor(0.25)),
    "lerp of bools by an integer": lambda: torch.lerp(torch.ones(2).bool(), torch.ones(2).bool(), torch.tensor(2)),
    "lerp towards another type": lambda: torch.lerp(torch.ones(2).bool(), torch.ones(2).int(), 0.5),
    "a complex number that is real": lambda: torch.addcmul(
        torch.ones(2).int(), torch.ones(2).int(), torch.ones(2).int(), value=2 + 0j
    ),
    "a complex number that is not": lambda: torch.addcmul(*[torch.ones(2).half()] * 3, value=2 + 1j),
    "a complex threshold of integers": lambda: torch.nn.functional.threshold(torch.arange(3), 1 + 0j, 5 + 0j),
    "a complex threshold of floats": lambda: torch.nn.functional.threshold(torch.ones(2), 1 + 1j, 0),
    "a complex bound": lambda: torch.clamp_min(torch.ones(2), 1 + 0j),
    "complex numbers in order, into integers": lambda: torch.lt(*[torch.ones(2).cfloat()] * 2, out=torch.ones(2).int()),
    "complex numbers in order, in place": lambda: torch.ones(2).int().lt_(torch.ones(2).cfloat()),
    "a sign of complex numbers": lambda: torch.copysign(torch.ones(2).cfloat(), torch.ones(2)),
    "an in-place floor of complex numbers": lambda: torch.ones(2).int().floor_divide_(1j),
    "huber of a type that self cannot hold": lambda: torch.nn.functional.huber_loss(torch.ones(2).bool(), torch.ones(2).cfloat()),
    "a bound of bools, into floats": lambda: torch.clamp_min(torch.ones(2).bool(), True, out=torch.ones(2)),
    "polar halves, into floats": lambda: torch.polar(torch.ones(2).half(), torch.ones(2).half(), out=torch.ones(2)),
    "shifts of halves by a number": lambda: torch.bitwise_left_shift(2, torch.ones(2).half()),
    "a complex number for bools": lambda: torch.masked_fill(torch.zeros(2).bool(), torch.tensor([True, False]), 1j),
    "a distance of integers": lambda: torch.dist(torch.ones(2).int(), torch.ones(2).byte()),
    "a distance of bools": lambda: torch.dist(torch.ones(2).bool(), torch.ones(2).int()),
    "zeta of two float16 and bfloat16": lambda: torch.special.zeta(torch.full((2,), 2.0).half(), torch.ones(2).bfloat16()),
}


@pytest.mark.parametrize("name", _CALLS)
def test_results_depend_on_the_promoted_dtype(name: str) -> None:
    check(_CALLS[name])
    kind, want = outcome(_CALLS[name])
    if kind == "error":
        _, got = outcome(lambda: on_core(_CALLS[name]))
        assert (type(got), str(got)) == (type(want), str(want))


@pytest.mark.full
def test_a_wrong_value_is_found() -> None:
    @register_decomposition("aten.logaddexp2.default")
    def wrong(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.add.Tensor(self, other)

    floats = [mix for mix in mixes("^logaddexp2 plain$") if "(float32[2], float32[2])" in str(mix)]
    assert [judge(mix, EagerDecompMode(CORE, rules=[wrong]))[0] for mix in floats] == ["wrong"]
