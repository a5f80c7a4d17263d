"""Pooling and its gradients against eager's: windows that overlap, leave the input, tie, or hold NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls, on_core

import eagerdecomp as ed

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SPATIAL = {2: (5, 7), 3: (3, 5, 4)}


def sample(dims: int, dtype: torch.dtype = torch.float32, layout: str = "contiguous", *, batch: int = 2) -> torch.Tensor:
    """Few distinct values, so that windows tie."""
    torch.manual_seed(0)
    x = torch.randint(-4, 5, (batch, 3, *SPATIAL[dims])).to(dtype)
    if layout == "channels last":
        return x.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
    if layout == "permuted":
        return x.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "gapped":
        return x.repeat_interleave(2, -1)[..., ::2]
    if layout == "no batch":
        return x[0]
    if layout == "channels last, no batch":
        return x[0].movedim(0, -1).contiguous().movedim(-1, 0)
    return x


LAYOUTS = ["contiguous", "channels last", "permuted", "gapped", "no batch", "channels last, no batch"]


def rising(like: torch.Tensor) -> torch.Tensor:
    return (torch.arange(1.0, like.numel() + 1).view(like.shape) / 8).to(like.dtype)


def gradient(x: torch.Tensor, pool: Any, *args: Any, **options: Any) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    out = pool(leaf, *args, **options)
    out = out[0] if isinstance(out, tuple) else out
    return torch.autograd.grad(out, leaf, rising(out))[0]


ADAPTIVE = {2: aten.adaptive_max_pool2d, 3: aten.adaptive_max_pool3d}
SIZES = {2: [(1, 1), (5, 1), (2, 3), (3, 7), (9, 8), (0, 2)], 3: [(1, 1, 1), (3, 5, 2), (2, 3, 3), (4, 6, 5), (1, 2, 2), (2, 0, 2)]}


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dims", "size"), [(dims, size) for dims in (2, 3) for size in SIZES[dims]])
def test_adaptive_maxima_and_their_indices(dims: int, size: tuple[int, ...], layout: str) -> None:
    x = sample(dims, layout=layout)
    check(ADAPTIVE[dims], x, size, exact=True)
    if 0 not in size:
        check(gradient, x, ADAPTIVE[dims], size)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dims", [2, 3])
def test_adaptive_maxima_in_every_type(dims: int, dtype: torch.dtype) -> None:
    x = sample(dims, dtype)
    check(ADAPTIVE[dims], x, SIZES[dims][2], exact=True)
    check(gradient, x, ADAPTIVE[dims], SIZES[dims][4], exact=True)


@pytest.mark.parametrize("op", [aten.adaptive_max_pool2d, aten.max_pool2d_with_indices])
def test_the_last_nan_of_a_window_wins_and_the_first_of_equals(op: Any) -> None:
    x = torch.tensor([[[1, NAN, 3.0, 2], [NAN, 5, 6, 6], [-INF, -INF, 0, -0.0], [-INF, -INF, INF, NAN], [1, 1, 1, 1]]])
    for size in ([3, 3], [2, 3], [4, 2]):
        check(op, x, size, ops=CORE - {op}, exact=True)


@pytest.mark.parametrize(("dims", "shape"), [(2, (0, 4, 6)), (3, (0, 4, 4, 6)), (3, (0, 2, 4, 4, 6))], ids=str)
def test_adaptive_maxima_of_no_channels_or_no_images_have_gradients(dims: int, shape: tuple[int, ...]) -> None:
    check(ADAPTIVE[dims], torch.ones(shape), [2] * dims)
    check(gradient, torch.ones(shape), ADAPTIVE[dims], [2] * dims)
    check(gradient, torch.ones(shape), ADAPTIVE[dims], [0] * dims)
    check(ADAPTIVE[dims], torch.ones(2, 0, *shape[-dims:]), [2] * dims)


windows = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2)).filter(
    lambda one: 2 * one[2] <= one[0]
)


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(
    each=st.lists(windows, min_size=3, max_size=3),
    dims=st.sampled_from([2, 3]),
    ceil_mode=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.int64]),
    layout=st.sampled_from(LAYOUTS),
    lacking=st.booleans(),
)
def test_maxima_of_any_windows(each: Any, dims: int, ceil_mode: bool, dtype: torch.dtype, layout: str, lacking: bool) -> None:
    op = {2: aten.max_pool2d_with_indices, 3: aten.max_pool3d_with_indices}[dims]
    ops = CORE - {op, aten.max_pool2d_with_indices_backward} if lacking else CORE
    options = [list(option) for option in zip(*each[:dims], strict=True)]
    x = sample(dims, dtype, layout)
    check(op, x, *options, ceil_mode, ops=ops)
    if dtype is not torch.int64:
        check(_gradient_or_none, x, op, *options, ceil_mode, ops=ops)


def _gradient_or_none(x: torch.Tensor, *args: Any) -> Any:
    return gradient(x, *args)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("held", ["forward", "backward"])
def test_forward_and_backward_share_their_indices(dims: int, held: str) -> None:
    for op, back, args in (
        (f"adaptive_max_pool{dims}d", f"adaptive_max_pool{dims}d_backward", (SIZES[dims][2],)),
        (f"max_pool{dims}d_with_indices", f"max_pool{dims}d_with_indices_backward", ([3] * dims, [1] * dims, [1] * dims)),
    ):
        ops = CORE - {getattr(aten, op), getattr(aten, back)} | {getattr(aten, op if held == "forward" else back)}
        check(gradient, sample(dims), getattr(aten, op), *args, ops=ops)


@pytest.mark.full
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "no batch"])
@pytest.mark.parametrize(("dims", "kernel", "size"), [(2, (2, 3), (4, 1)), (2, (1, 1), (5, 7)), (3, (2, 3, 1), (1, 2, 3))])
def test_fractional_maxima(dims: int, kernel: Any, size: Any, layout: str, dtype: torch.dtype) -> None:
    x = sample(dims, dtype, layout)
    op = getattr(aten, f"fractional_max_pool{dims}d")
    for seed in range(3):
        samples = torch.rand(2, 3, dims, generator=torch.Generator().manual_seed(seed)).to(dtype)
        check(op, x, kernel, size, samples, exact=True)
        check(gradient, x, op, kernel, size, samples)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": (3, 2, 2), "stride": (1, 2, 1), "padding": (1, 0, 1)},
        {"kernel_size": (2, 3, 3), "stride": (2, 2, 3), "padding": (1, 1, 0), "ceil_mode": True},
        {"kernel_size": (2, 3, 3), "stride": (2, 2, 3), "padding": (1, 1, 0), "ceil_mode": True, "count_include_pad": False},
        {"kernel_size": (3, 3, 2), "stride": 2, "padding": 1, "count_include_pad": False},
        {"kernel_size": 3, "padding": 1, "ceil_mode": True, "divisor_override": 5},
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_of_averages_of_volumes(options: dict[str, Any], layout: str) -> None:
    check(gradient, sample(3, layout=layout), F.avg_pool3d, **options)
    check(gradient, sample(3, torch.float64, layout), F.avg_pool3d, **options)


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dims", "size"), [(dims, size) for dims in (2, 3) for size in SIZES[dims] if 0 not in size])
def test_gradient_of_adaptive_averages(dims: int, size: tuple[int, ...], layout: str) -> None:
    pool = {2: aten._adaptive_avg_pool2d, 3: aten._adaptive_avg_pool3d}[dims]
    ops = CORE - {aten._adaptive_avg_pool2d_backward}
    check(gradient, sample(dims, layout=layout), pool, size, ops=ops)
    check(gradient, sample(dims, torch.float64, layout), pool, size, ops=ops)


def test_an_infinite_gradient_reaches_its_own_window_alone() -> None:
    grad = torch.ones(1, 1, 2, 2, 2)
    grad[0, 0, 0, 1, 1] = INF
    grad[0, 0, 1, 0, 0] = NAN
    x = torch.zeros(1, 1, 4, 5, 5)
    check(aten.avg_pool3d_backward, grad, x, [2, 3, 3], [2, 2, 2], [0] * 3, False, True, None)
    check(aten._adaptive_avg_pool3d_backward, grad, x)
    check(aten.max_pool3d_with_indices_backward, grad, x, [2, 2, 2], [2, 3, 3], [0] * 3, [1] * 3, False,
          aten.max_pool3d_with_indices(x, [2, 2, 2], [2, 3, 3])[1])  # fmt: skip


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_unpooling(dims: int, layout: str) -> None:
    x = sample(dims, layout=layout)
    pool, unpool = getattr(F, f"max_pool{dims}d"), getattr(F, f"max_unpool{dims}d")
    values, indices = pool(x, 2, return_indices=True)
    check(unpool, values, indices, 2)
    check(gradient, values, unpool, indices, 2)
    check(unpool, values, indices + 1000, 2)
    check(unpool, values, indices.int(), 2)
    check(unpool, values, indices * 0, 2)


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0])
def test_power_averages(dims: int, norm: float) -> None:
    x = sample(2).abs() + 0.5
    check(gradient, x[0] if dims == 1 else x, getattr(F, f"lp_pool{dims}d"), norm, 2)


@pytest.mark.full
@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.adaptive_max_pool2d(x, (2, 2)),
        lambda x: F.adaptive_avg_pool2d(x, (2, 2)),
        lambda x: F.adaptive_avg_pool3d(x, (2, 2, 2)),
        lambda x: F.avg_pool3d(x, (1, 2, 2), (1, 1, 2), (0, 1, 0), ceil_mode=True),
        lambda x: F.max_pool3d(x, (2, 2, 2), 1),
        lambda x: F.fractional_max_pool2d(x, 2, (2, 2), _random_samples=torch.full((1, 2, 2), 0.4, dtype=torch.float64)),
    ],
)
def test_gradients_of_first_and_second_order(pool: Any) -> None:
    x = torch.randperm(24, generator=torch.Generator().manual_seed(1)).double().view(1, 2, 3, 4).requires_grad_()
    ops = CORE - {aten._adaptive_avg_pool2d_backward, aten.max_pool2d_with_indices_backward}
    assert on_core(lambda: torch.autograd.gradcheck(pool, (x,)), ops)
    assert on_core(lambda: torch.autograd.gradgradcheck(pool, (x,)), ops)


def test_kernel_calls() -> None:
    x, g = torch.randn(1, 2, 4, 4), torch.randn(1, 2, 2, 2)
    indices = aten.max_pool2d_with_indices(x, [2, 2])[1]
    assert kernel_calls(lambda: aten.adaptive_max_pool2d_backward(g, x, indices)) <= 7
    assert kernel_calls(lambda: aten.adaptive_max_pool2d(x, [3, 3])) <= 33
    assert kernel_calls(lambda: aten.fractional_max_pool2d(x, [2, 2], [2, 2], torch.ones(1, 2, 2) / 3)) <= 48
    assert kernel_calls(lambda: aten._adaptive_avg_pool3d_backward(g, x)) <= 4
    assert kernel_calls(lambda: aten.avg_pool3d_backward(g, x, [1, 2, 2], [], [0] * 3, False, True, None)) <= 8


def test_the_rules_leave_no_index_to_read() -> None:
    x, samples = sample(2), torch.rand(2, 3, 2)
    with ed.EagerDecompMode(CORE) as mode:
        for _ in range(3):
            aten.fractional_max_pool2d(x, [2, 2], [2, 2], samples)
    assert mode.stats().total.bypassed == 0


@pytest.mark.parametrize("batch", [(), (1,)])
def test_out_of_max_pool3d_keeps_its_strides_without_a_batch(batch: tuple[int, ...]) -> None:
    x = torch.randn(*batch, 2, 3, 4, 4)
    values, places = (torch.zeros(*x.shape[:-1], 8, dtype=dtype)[..., ::2] for dtype in (torch.float32, torch.int64))
    check(lambda x, out, indices: aten.max_pool3d_with_indices.out(x, [1, 1, 1], out=out, indices=indices), x, values, places)


PLANES, VOLUMES = ((2, 3, 4, 5), (2, 3, 2, 2)), ((2, 3, 4, 5, 6), (2, 3, 2, 2, 3))


def _z(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize("count", [(1, 1, 1), (2, 2, 2), (3, 4, 5)])
def test_the_gradient_of_max_pool3d_takes_the_size_of_the_output_from_the_gradient(count: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    g, indices = torch.randn(2, 3, *count), torch.randint(0, 120, (2, 3, *count))
    options = [2] * 3, [2] * 3, [0] * 3, [1] * 3, False
    check(lambda g: torch.ops.aten.max_pool3d_with_indices_backward(g, _z(VOLUMES[0]), *options, indices), g)
