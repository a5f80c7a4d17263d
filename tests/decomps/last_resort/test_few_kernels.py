"""Core ops by fewer of them: nearer to the mathematics than eager's kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import check
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.coverage import analysis
from eagerdecomp.decomps import families
from eagerdecomp.planner.rule_calls import load_calls

aten = torch.ops.aten
_BY_OP = {str(rule.op).removeprefix("aten."): rule for rule in families()["last_resort"] if rule.source == "small"}
_DRAWS = torch.Generator().manual_seed(0)
_COMPLEX = re.compile(r"\bc(32|64|128)\[")

_ODD = torch.tensor([0.0, 1, 0.5, 1.5, 2.5, math.inf, 3.3e38, 1e-5])
_ODD = torch.cat([_ODD, -_ODD, torch.tensor([math.nan, 1e-30, 8388609.0])])
_PLAIN = torch.randn(200, generator=_DRAWS)
_WIDE = _PLAIN * torch.exp(8 * torch.randn(200, generator=_DRAWS))
_A, _B = torch.cat([_ODD.repeat_interleave(19), _WIDE]), torch.cat([_ODD.repeat(19), _PLAIN])


def _on_its_own(name: str, args: tuple[Any, ...], **named: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return _BY_OP[name].fn(*args, **named)


_UNARY = "acos acosh asin asinh atanh cosh expm1 log10 log1p log2 rsqrt sigmoid sinh tan tanh"
_FAR: dict[str, Callable[[Tensor], Tensor]] = {
    "acosh": lambda x: x.abs() + 1,
    "log1p": torch.abs,
    "log2": torch.abs,
    "log10": torch.abs,
}


def _ulps(got: Tensor, true: Tensor) -> float:
    size = true.float().abs()
    apart = (got.double() - true).abs() / (size.nextafter(torch.tensor(math.inf)) - size).double()
    return float(apart[torch.isfinite(apart) & torch.isfinite(true)].max())


@pytest.mark.parametrize("name", _UNARY.split())
def test_a_special_function_is_no_further_from_the_mathematics_than_eagers(name: str) -> None:
    op = getattr(aten, name).default
    unit = 2 * torch.rand(300, generator=_DRAWS) - 1
    x = torch.cat([_ODD, unit, 1e-4 * unit, _FAR.get(name, torch.clone)(10 * _PLAIN)])
    got, want, true = _on_its_own(f"{name}.default", (x,)), op(x), op(x.double())
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.isinf(), want.isinf())
    assert torch.equal(got.signbit()[~got.isnan()], want.signbit()[~got.isnan()])
    assert _ulps(got, true) <= max(0.51, _ulps(want, true))


def test_angles_are_no_further_from_the_mathematics_than_eagers() -> None:
    got, want = _on_its_own("atan2.default", (_A, _B)), torch.atan2(_A, _B)
    assert_same(got, want)
    assert torch.equal(got.signbit()[~got.isnan()], want.signbit()[~got.isnan()])
    assert _ulps(got, torch.atan2(_A.double(), _B.double())) <= 0.51


@pytest.mark.full
@pytest.mark.parametrize("name", ["acosh", "cosh", "log1p", "sinh", "tanh"])
def test_of_float64_they_are_off_by_three_units_in_the_last_place_at_most(name: str) -> None:
    mpmath = pytest.importorskip("mpmath")
    op, unit = getattr(aten, name).default, 2 * torch.rand(200, dtype=torch.float64, generator=_DRAWS) - 1
    edges = torch.tensor([5e-324, 1e-300, 3e-16, 1e-8, 708.9, 709.5, 711, 1e150, 2e150, 1.7e308], dtype=torch.float64)
    x = torch.cat([_ODD.double(), edges, -edges, unit, 1e-4 * unit, 1e-9 * unit, 20 * unit, 700 * unit])
    x = torch.cat([x, 1 + x.abs()]) if name == "acosh" else x
    got, want = _on_its_own(f"{name}.default", (x,)), op(x)
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.isinf(), want.isinf())
    known = want.isfinite()
    with mpmath.workprec(120):
        function = getattr(mpmath, name)
        true = [function(mpmath.mpf(value)) for value in x[known].tolist()]
        apart = [abs(one - right) / math.ulp(right) for one, right in zip(got[known].tolist(), true, strict=True)]
    assert max(apart) <= 3
    signed = known & (want != 0)
    assert torch.equal(got[signed].signbit(), want[signed].signbit())
    if name in ("sinh", "tanh"):
        assert torch.equal(got[x == 0].signbit(), x[x == 0].signbit())


@pytest.mark.parametrize("name", ["log2.default", "atanh.default"])
def test_what_would_lose_accuracy_is_left_alone(name: str) -> None:
    assert _on_its_own(name, (_PLAIN.double(),)) is NotImplemented
    with pytest.raises(ed.UnsupportedOpError), ed.EagerDecompMode(ed.tiny()):
        _BY_OP[name].op(_PLAIN.double())


def test_means_and_variances_are_those_of_float64() -> None:
    x = 1000 + _PLAIN.view(10, 20)
    for name in ("var.correction", "var_mean.correction", "mean.dim"):
        assert_same(_on_its_own(name, (x, [1])), _BY_OP[name].op(x, [1]))
    assert _ulps(_on_its_own("var.correction", (x, None)), x.double().var()) <= 0.51


def test_a_set_of_less_than_ninety_carries_what_it_lacks() -> None:
    assert len(ed.tiny()) < 90

    def call(x: Tensor) -> Tensor:
        scores = torch.nn.functional.layer_norm(x.tanh() @ x.t(), [6])
        return torch.nn.functional.cross_entropy(scores, torch.arange(6)) + x.amin() + x.round().remainder(0.7).std()

    check(call, torch.randn(6, 5, generator=_DRAWS), ops=ed.tiny())


@pytest.mark.nightly
def test_the_planner_finds_the_tiny_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """For calls of real numbers, of which it takes `index_select` for one of its own."""
    seen = {
        op: replace(one, calls=tuple(call for call in one.calls if not _COMPLEX.search(call.example)))
        for op, one in load_calls().items()
    }
    monkeypatch.setattr(analysis, "load_calls", lambda: seen)
    found = set(map(str, ed.minimal_opset(last_resort=True).ops))
    tiny = set(map(str, ed.tiny())) - set(map(str, ed.infra()))
    more = ("abs.default", "expm1.default", "fmod.Scalar", "_to_dense.default")
    more += ("sparse_sampled_addmm.default", "_sparse_mm_reduce_impl.default")
    assert tiny - found == {f"aten.{name}" for name in more}
    assert found - tiny == {"aten.index_select.default"}


@pytest.mark.parametrize("exponent", [0, 0.0, 0j])
def test_complex_numbers_to_the_power_of_zero_are_one(exponent: complex) -> None:
    check(torch.pow, torch.tensor([0j, 2 - 3j, complex(math.inf, 0), complex(math.nan, 0)]), exponent, ops=ed.tiny())
