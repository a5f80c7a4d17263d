"""Core ops by fewer of them: to the bit where an identity says so, and nearer to the mathematics than eager's kernel elsewhere."""

from __future__ import annotations

import math
import operator
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

_ODD = torch.tensor(
    [
        0.0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        1.5,
        -1.5,
        2.5,
        -2.5,
        math.inf,
        -math.inf,
        math.nan,
        1e-30,
        -1e-5,
        3.3e38,
        -3.3e38,
        8388609.0,
        1000,
    ]
)
_PLAIN = torch.randn(200, generator=_DRAWS)
_WIDE = _PLAIN * torch.exp(8 * torch.randn(200, generator=_DRAWS))
_X = torch.cat([_ODD, _PLAIN, _WIDE])
_A, _B = torch.cat([_ODD.repeat_interleave(19), _WIDE]), torch.cat([_ODD.repeat(19), _PLAIN])
_I = torch.cat([torch.tensor([2**63 - 1, -(2**63), 1, -1, 0, 7]), torch.randint(-(2**62), 2**62, (194,), generator=_DRAWS)])
_J = torch.cat([torch.tensor([1, 1, -7, 2**62]), 2 * torch.randint(-25, 25, (196,), generator=_DRAWS) + 1])
_ROWS = _X[:400].view(8, 50)

#: Calls whose results are eager's to the bit.
_EXACT: dict[str, list[tuple[Any, ...]]] = {
    **{
        f"{name}.Scalar": [(_X, 1.5), (_X, 2), (_I, 3), (_I, 2.5), (_X.bfloat16(), 0.1), ((_I % 200).byte(), 5)]
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder")
    },
    **{f"{name}.Tensor": [(_A, _B), (_I, _J), (_A, _B.double())] for name in ("ne", "lt", "le", "ge", "sub", "remainder")},
    **{f"bitwise_{name}.Tensor": [(_I, _J), (_I.byte(), _J), (_I > 0, _J > 0)] for name in ("and", "xor")},
    **{f"{name}.default": [(_A, _B), (_I, _J), (_A.half(), _B)] for name in ("maximum", "minimum")},
    **{
        f"{name}.default": [(_X,), (_X.half(),), (_X.double(),), (_I,), ((_I % 200).byte(),)]
        for name in ("isnan", "neg", "abs", "sign", "ceil", "trunc", "round")
    },
    "reciprocal.default": [(_X,), (_X.double(),), (_J,)],
    "pow.Tensor_Scalar": [(_X, 2), (_X, 3), (_X, 0.5), (_X, -1), (_I, 3)],
    "amin.default": [(_ROWS, [1]), (_I.view(10, 20), [0, 1], True), (_J[:9] > 0, [0])],
    **{f"{name}.dim": [(_ROWS, 1), (_I.view(10, 20), 0, True), (_J.view(20, 10) > 0, 1), (_X[0], 0)] for name in ("max", "min")},
    **{f"{name}.default": [(_ROWS, 1), (_I.view(10, 20), None, True), (_PLAIN,)] for name in ("argmax", "argmin")},
    "prod.dim_int": [(_J.view(20, 10), 1, True)],
    "prod.default": [(_J[:7],)],
    "flip.default": [(_ROWS, [0, 1]), (_X[0], [0])],
    "scatter.value": [(_ROWS, 1, torch.tensor([[1, 2]]), 3.0)],
    "topk.default": [(_PLAIN.view(20, 10), 3)],
    "div.Tensor_mode": [
        (_A[_A.abs() < 1e38], _B[_A.abs() < 1e38]),  # beyond, eager's vectorized fmod is NaN, and its quotient infinite
        (_A.double(), _B.double()),
        (_A.half(), _B.half()),
        (_I, _J),
        (_I.short(), _J.short() | 1),
        (_J, _I | 1),
    ],
}


def _on_its_own(name: str, args: tuple[Any, ...], **named: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return _BY_OP[name].fn(*args, **named)


@pytest.mark.parametrize("name", sorted(_EXACT))
def test_an_identity_is_eager_to_the_bit(name: str) -> None:
    modes = [{"rounding_mode": mode} for mode in ("trunc", "floor")] if name == "div.Tensor_mode" else [{}]
    for args in _EXACT[name]:
        for named in modes:
            got, want = _on_its_own(name, args, **named), _BY_OP[name].op(*args, **named)
            assert_same(got, want)
            # To the bit, but for the sign of NaN.
            pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
            for one, other in pairs:
                assert torch.equal(one.nan_to_num(5.0), other.nan_to_num(5.0))
                if other.dtype.is_floating_point and "imum" not in name:  # which of two zeros is greater no one says
                    assert torch.equal(one.nan_to_num(5.0).signbit(), other.nan_to_num(5.0).signbit())


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


@pytest.mark.parametrize("op", [torch.atan2, torch.maximum, torch.minimum, torch.fmax, torch.le, torch.ge, torch.remainder])
def test_results_lie_as_the_operands(op: Callable[..., Tensor]) -> None:
    x, y = torch.randn(4, 3, generator=_DRAWS), torch.randn(3, 4, generator=_DRAWS).t()
    for left, right in (
        (x, y),
        (y, y),
        (y, x.double()),
        (x.double(), y),
        (y, x.int()),
        (x.expand(2, 4, 3), y),
        (y[::2], x[::2].double()),
    ):
        check(op, left, right, ops=ed.tiny())


@pytest.mark.full
def test_flips_and_largest_elements_are_eagers_and_refuse_what_eager_refuses() -> None:
    images = torch.randn(2, 3, 4, 5, generator=_DRAWS).to(memory_format=torch.channels_last)
    for x in (images, images.transpose(0, 1), images > 0, torch.tensor(2.0), torch.zeros(0, 3)):
        for dims in ([0], [-1], [0, 1], [0, 0], [7], []):
            check(lambda x: torch.flip(x, dims), x, ops=ed.tiny())  # noqa: B023
        for k in (0, 1, 9):
            check(lambda x: torch.topk(x, k), x, ops=ed.tiny())  # noqa: B023
    for op in (torch.bitwise_and, torch.bitwise_xor, torch.hypot, torch.remainder):
        check(op, images, images, ops=ed.tiny())
        check(op, images > 0, images < 1, ops=ed.tiny())
    check(lambda x: torch.topk(x, 0), images.to(torch.complex64), ops=ed.tiny())


@pytest.mark.parametrize("name", ["softplus", "mish", "logsigmoid", "tanhshrink"])
def test_losses_and_activations_of_float64_have_a_route(name: str) -> None:
    check(getattr(torch.nn.functional, name), _PLAIN.double(), ops=ed.tiny())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("ops", [ed.tiny(), ed.prims()], ids=["tiny", "prims"])
@pytest.mark.parametrize("name", ["sigmoid", "silu"])
def test_a_complex_sigmoid_of_far_numbers_is_eagers(name: str, ops: ed.OpSet, dtype: torch.dtype) -> None:
    """The exponential overflows in complex64."""
    real, imaginary = torch.arange(-200.0, 201), torch.tensor([[0.0], [-0.0], [0.5], [-1.0], [50.0]])
    x = torch.complex(*torch.broadcast_tensors(real, imaginary)).to(dtype)
    check(getattr(torch.nn.functional, name), x, ops=ops)


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


@pytest.mark.parametrize("op", [operator.ilshift, operator.irshift, operator.lshift, operator.rshift])
@pytest.mark.parametrize("by", [2, torch.tensor([1, 3, 2, 33], dtype=torch.int32)], ids=["a number", "a tensor"])
def test_the_tiny_set_shifts_without_shifts(op: Callable[..., Any], by: Any) -> None:
    check(lambda x: op(x.clone(), by), torch.tensor([1, 2, -7, 100], dtype=torch.int32), ops=ed.tiny())
