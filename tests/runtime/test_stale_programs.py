"""A cached program never runs for a call that differs in a fact on which the program depends.

Call A runs three times (recorded, compiled, hit), then call B, which differs from A in one fact. B must equal eager. The facts are
those that a rule may read: shape, strides, dtype, storage offset, identity of arguments, scalars with type and sign, absent tensors
and lists. `test_key` tests global settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same, outcome
from hypothesis import given
from hypothesis import strategies as st

import eagerdecomp as ed
from conformance import fuzz
from conformance.fuzz_judging import Counts
from conformance.fuzz_running import first_difference
from conformance.judge import differences, excused, observe
from eagerdecomp._torch.ops import op_named
from eagerdecomp.runtime.cache import OpPrograms

aten = torch.ops.aten

# Core ops that are removed from the set, so that their decompositions run too.
SMALL_SET = ed.core_aten() - [
    "aten.gelu",
    "aten.native_layer_norm",
    "aten.native_group_norm",
    "aten.addmm",
    "aten._softmax",
    "aten._log_softmax",
    "aten.elu",
    "aten.leaky_relu",
    "aten.hardtanh",
    "aten.slice.Tensor",
    "aten.select.int",
    "aten.constant_pad_nd",
    "aten.mean.dim",
    "aten.diagonal",
    "aten.clamp",
]


def _make(shape: tuple[int, ...], dtype: torch.dtype, layout: str, seed: int) -> torch.Tensor:
    """Return a tensor with these facts; equal arguments give equal values."""
    generator = torch.Generator().manual_seed(seed)
    if layout == "expanded" and shape:
        return _make((1, *shape[1:]), dtype, "contiguous", seed).expand(shape)
    if layout == "transposed" and len(shape) >= 2:
        return _make((*shape[:-2], shape[-1], shape[-2]), dtype, "contiguous", seed).transpose(-1, -2)
    if layout == "offset":
        base = _make((shape[0] + 2, *shape[1:]) if shape else (2,), dtype, "contiguous", seed)
        return base[2:] if shape else base[1]
    if layout == "strided" and shape:
        return _make((shape[0] * 2, *shape[1:]), dtype, "contiguous", seed)[::2]
    if layout == "channels_last" and len(shape) == 4:
        return _make(shape, dtype, "contiguous", seed).contiguous(memory_format=torch.channels_last)
    if layout == "overlapping" and len(shape) >= 2:
        flat = _make((sum(shape),), dtype, "contiguous", seed)
        return flat.as_strided(shape, [1] * len(shape))
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    return values.to(dtype) if dtype is not torch.bool else values > 0


LAYOUTS = ("contiguous", "transposed", "offset", "strided", "expanded", "channels_last", "overlapping")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)
SHAPES = ((), (1,), (0,), (4,), (3, 4), (1, 4), (4, 4), (0, 4), (2, 3, 4), (2, 3, 4, 4), (1, 1, 4, 4))
SCALARS = (True, False, 0, 1, 2, -1, 0.0, -0.0, 1.0, 2.0, 0.5, -1.5, float("nan"), float("inf"))

tensors = st.builds(_make, st.sampled_from(SHAPES), st.sampled_from(DTYPES), st.sampled_from(LAYOUTS), st.integers(0, 1))
floats = st.builds(
    _make,
    st.sampled_from([shape for shape in SHAPES if 0 not in shape]),
    st.sampled_from(DTYPES[:4]),
    st.sampled_from(LAYOUTS),
    st.just(0),
)
wide_floats = floats.map(lambda x: x if x.dtype is torch.float64 else x.float())
scalars = st.sampled_from(SCALARS)

finite = scalars.filter(math.isfinite)  # for infinite ends the number of NaN in eager depends on its vector length

# Each op with a strategy for every argument.
CALLS: dict[str, tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]]] = {
    "silu": (aten.silu.default, (tensors,)),
    "gelu": (lambda x, tanh: aten.gelu.default(x, approximate="tanh" if tanh else "none"), (tensors, st.booleans())),
    "gelu_backward": (aten.gelu_backward.default, (tensors, tensors)),
    "addcmul": (lambda x, y, z, v: aten.addcmul.default(x, y, z, value=v), (tensors, tensors, tensors, scalars)),
    "lerp": (aten.lerp.Scalar, (tensors, tensors, scalars)),
    "rsub": (aten.rsub.Scalar, (tensors, scalars, scalars)),
    "leaky_relu": (aten.leaky_relu.default, (tensors, scalars)),
    "elu": (aten.elu.default, (tensors, scalars, scalars)),
    "hardtanh": (aten.hardtanh.default, (tensors, scalars, scalars)),
    "clamp": (aten.clamp.default, (tensors, st.none() | scalars, st.none() | scalars)),
    "xlogy": (aten.xlogy.Tensor, (tensors, tensors)),
    "xlogy_scalar": (aten.xlogy.Tensor, (tensors, scalars | tensors)),
    "float_power": (aten.float_power.Tensor_Scalar, (tensors, scalars)),
    "huber_loss": (aten.huber_loss.default, (tensors, tensors, st.integers(0, 2), scalars)),
    "mse_loss": (aten.mse_loss.default, (tensors, tensors, st.integers(0, 2))),
    "layer_norm": (
        lambda x, eps, affine: aten.native_layer_norm.default(
            x, x.shape[-1:], x.new_ones(x.shape[-1:]) if affine else None, None, float(eps)
        ),
        (floats, st.sampled_from((1e-5, 1e-3, 1, True)), st.booleans()),
    ),
    "softmax": (aten._softmax.default, (wide_floats, st.integers(-2, 2), st.just(False))),
    "log_softmax": (aten._log_softmax.default, (wide_floats, st.integers(-2, 2), st.just(False))),
    "addmm": (lambda x, y, z, b, a: aten.addmm.default(x, y, z, beta=b, alpha=a), (tensors, tensors, tensors, scalars, scalars)),
    "slice": (aten.slice.Tensor, (tensors, st.integers(-1, 1), st.none() | st.integers(-2, 2), st.none() | st.integers(0, 4))),
    "select": (aten.select.int, (tensors, st.integers(-1, 1), st.integers(-1, 1))),
    "diagonal": (aten.diagonal.default, (tensors, st.integers(-1, 1))),
    "transpose": (aten.transpose.int, (tensors, st.integers(-2, 1), st.integers(-2, 1))),
    "flip": (aten.flip.default, (tensors, st.lists(st.integers(-2, 2), max_size=2))),
    "mean": (aten.mean.dim, (tensors, st.none() | st.lists(st.integers(-2, 2), max_size=2), st.booleans())),
    "var": (lambda x, c: aten.var.correction(x, correction=c), (tensors, st.sampled_from((None, 0, 1, 2)))),
    "stack": (aten.stack.default, (st.lists(tensors, min_size=1, max_size=3), st.integers(-1, 1))),
    "meshgrid": (aten.meshgrid.default, (st.lists(tensors, min_size=1, max_size=3),)),
    "triu": (aten.triu.default, (tensors, st.integers(-1, 1))),
    "logaddexp": (aten.logaddexp.default, (tensors, tensors)),
    "new_zeros": (aten.new_zeros.default, (tensors, st.sampled_from([[2], [2, 3], []]))),
    "zeros_like": (aten.zeros_like.default, (tensors,)),
    "masked_fill": (lambda x, v: aten.masked_fill.Scalar(x, x > 0, v), (tensors, scalars)),
    "isfinite": (aten.isfinite.default, (tensors,)),
    "nan_to_num": (aten.nan_to_num.default, (tensors, st.none() | scalars)),
    "sinc": (aten.sinc.default, (tensors,)),
    "dot": (aten.dot.default, (tensors, tensors)),
    "linspace": (lambda a, b, n: aten.linspace.default(float(a), float(b), n), (finite, finite, st.integers(0, 4))),
    "full_like": (aten.full_like.default, (tensors, scalars)),
    "ones": (lambda n: aten.ones.default([n]), (st.integers(0, 3),)),
    "add_inplace": (lambda x, y, a: x.clone().add_(y, alpha=a), (tensors, tensors | scalars, scalars)),
    "addcdiv_inplace": (lambda x, y, z: aten.addcdiv_.default(x.clone(), y, z), (tensors, tensors, tensors)),
    "div_mode": (lambda x, y, m: aten.floor_divide.default(x, y), (tensors, tensors, st.none())),
}


@pytest.mark.full
@given(data=st.data())
@pytest.mark.parametrize("name", CALLS)
def test_a_cached_program_never_runs_for_a_different_call(name: str, data: st.DataObject) -> None:
    call, strategies = CALLS[name]
    first = [data.draw(strategy) for strategy in strategies]
    changed = data.draw(st.integers(0, len(first) - 1), label="changed argument")
    second = list(first)
    second[changed] = data.draw(strategies[changed])
    if data.draw(st.booleans(), label="same tensor twice") and changed:
        second[changed] = next((value for value in second if isinstance(value, torch.Tensor)), second[changed])
    with ed.EagerDecompMode(SMALL_SET):
        for _ in range(3):
            outcome(lambda: call(*first))
        warm = outcome(lambda: call(*second))
    with ed.EagerDecompMode(SMALL_SET, cache=ed.ProgramCache()):
        cold = outcome(lambda: call(*second))
    arguments = (tuple(second), {})
    kind, want = outcome(lambda: observe(call, arguments))
    assert warm[0] == cold[0]
    if cold[0] == "value":
        assert_same(warm[1], cold[1], exact=True)
    else:
        assert type(warm[1]) is type(cold[1])
    if kind == "value":
        assert warm[0] == "value", f"eager gave a value; got {warm[1]!r}"
        got = observe(call, arguments, [ed.EagerDecompMode(SMALL_SET)])
        found = differences(want, got)
        assert not found or excused(found, call, arguments, want, got, False), found


@pytest.mark.parametrize("first", [19, 0])
def test_a_view_on_prims_has_the_storage_offset_of_its_tensor(first: int) -> None:
    """`prims.as_strided` contains the recorded tensor's storage offset, which another tensor of the same sizes may not have."""
    base = torch.arange(24.0)
    with ed.EagerDecompMode(ed.prims(), cache=ed.ProgramCache()):
        for start in (first, 3, 0, 7):
            seen = base[start : start + 5].view([5, 1])
            assert (seen.storage_offset(), seen[0, 0].item()) == (start, start)


def _stale(monkeypatch: pytest.MonkeyPatch, name: str, programs: int) -> list[str]:
    """Return the differences from eager of random programs of one op that occur only with a cache that earlier programs filled."""
    monkeypatch.setattr("conformance.fuzz_drawing._ops", lambda: [op_named(name)])
    modes, seen, found = fuzz._Modes(), Counts(), []
    for number in range(programs):
        program, difference = fuzz.generate_and_run(1, number, modes, seen, lambda value: None)
        if difference is not None and first_difference(program) is None:
            found.append(str(difference))
    assert seen.ops[name] > programs
    return found


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        *("aten.special_zeta.default", "aten.native_layer_norm.default", "aten.native_group_norm.default", "aten.nanmedian.dim"),
        *("aten.logaddexp2.default", "aten.threshold.default", "aten.roll.default", "aten.index_select.default"),
    ],
)
def test_fuzzed_programs_of_one_op_never_run_stale_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _stale(monkeypatch, name, 12) == []


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_key_without_dtypes_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    widen = OpPrograms.widen

    def forgetful(self: OpPrograms, columns: Any, exact: Any, always: Any = ()) -> Any:
        kept = [tuple(one for one in some if not one.text.endswith(".dtype")) for some in (columns, exact, always)]
        return widen(self, *kept)

    monkeypatch.setattr(OpPrograms, "widen", forgetful)
    assert any(one.startswith("dtype after") for one in _stale(monkeypatch, "aten.threshold.default", 12))
