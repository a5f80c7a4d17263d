"""Sampling by a grid, forward and backward, against eager's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import outcome
from hypothesis import example, given, settings
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls, on_core

aten = torch.ops.aten
SAMPLERS = {2: aten.grid_sampler_2d, 3: aten.grid_sampler_3d}
LACKING = CORE - {aten.grid_sampler_2d}
NAN, INF = float("nan"), float("inf")
BILINEAR, NEAREST, BICUBIC = 0, 1, 2


def arguments(dims: int, dtype: torch.dtype, layout: str = "contiguous", *, channels: int = 3, seed: int = 0) -> Any:
    """An input and a grid of it that leaves it now and then, and meets its corners and borders."""
    torch.manual_seed(seed)
    x = torch.randn(2, channels, *(2, 4, 5)[-dims:]).to(dtype)
    grid = (torch.rand(2, *(2, 3, 4)[-dims:], dims) * 4 - 2).to(dtype)
    grid.view(-1)[:: 2 * dims + 1] = 1
    grid.view(-1)[1 :: 3 * dims + 1] = -1
    if layout == "channels last":
        x = x.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
    if layout == "permuted":
        x, grid = x.transpose(1, -1).contiguous().transpose(1, -1), grid.movedim(-1, 1).contiguous().movedim(1, -1)
    return x, grid


def gradients(x: torch.Tensor, grid: torch.Tensor, *options: Any) -> Any:
    x, grid = x.detach().requires_grad_(), grid.detach().requires_grad_()
    out = SAMPLERS[x.dim() - 2](x, grid, *options)
    return torch.autograd.grad(out, [x, grid], (torch.arange(out.numel()).view(out.shape) % 7 - 2.5).to(out.dtype))


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(
    dims=st.sampled_from([2, 3]),
    mode=st.sampled_from([BILINEAR, NEAREST, BICUBIC]),
    padding=st.integers(0, 2),
    corners=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    layout=st.sampled_from(["contiguous", "channels last", "permuted"]),
    seed=st.integers(0, 9),
)
@example(dims=2, mode=BICUBIC, padding=2, corners=True, dtype=torch.float64, layout="permuted", seed=0)
def test_samples_and_gradients(
    dims: int, mode: int, padding: int, corners: bool, dtype: torch.dtype, layout: str, seed: int
) -> None:
    x, grid = arguments(dims, dtype, layout, seed=seed)
    check(SAMPLERS[dims], x, grid, mode, padding, corners, ops=LACKING)
    if not (dims == 3 and mode == BICUBIC):
        check(gradients, x, grid, mode, padding, corners)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("dims", "mode"), [(2, BILINEAR), (2, NEAREST), (2, BICUBIC), (3, BILINEAR), (3, NEAREST)])
def test_float16_and_bfloat16_are_as_exact_as_eager(dims: int, mode: int, dtype: torch.dtype) -> None:
    """The kernels round every step; ours round the places alike, the sums once."""
    for padding, corners in itertools.product((0, 1, 2), (False, True)):
        x, grid = arguments(dims, dtype)
        options = (mode, padding, corners)
        theirs = (SAMPLERS[dims](x, grid, *options), *gradients(x, grid, *options))
        ours = (on_core(lambda: SAMPLERS[dims](x, grid, *options), LACKING), *on_core(lambda: gradients(x, grid, *options)))  # noqa: B023
        truth = (SAMPLERS[dims](x.double(), grid.double(), *options), *gradients(x.double(), grid.double(), *options))
        for got, want, exact in zip(ours, theirs, truth, strict=True):
            assert got.dtype is want.dtype
            assert got.stride() == want.stride()
            slack = torch.finfo(dtype).eps * (1 + exact.abs().max())
            assert (got - want).abs().max() <= 2 * (want - exact).abs().max() + slack


@pytest.mark.parametrize("mode", [BILINEAR, NEAREST])
@pytest.mark.parametrize("corners", [False, True])
def test_coordinates_that_are_nan_or_far_away(mode: int, corners: bool) -> None:
    odd = [(NAN, 0), (0, NAN), (INF, 0), (-INF, 0), (0, INF), (1e10, 0), (-1e10, 0.3), (3e38, 0), (1.5, 0.2), (NAN, NAN)]
    grid = torch.tensor(odd).view(1, 1, -1, 2)
    volume = torch.cat([grid, torch.zeros(1, 1, len(odd), 1)], 3).unsqueeze(0)
    x = torch.arange(1.0, 13).view(1, 1, 3, 4)
    deep = torch.stack([x, 10 * x], 2)
    check(aten.grid_sampler_2d, x, grid, mode, 0, corners, ops=LACKING)
    for padding in (0, 1, 2):
        check(aten.grid_sampler_3d, deep, volume, mode, padding, corners)
    check(gradients, deep, volume, mode, 0, corners)
    finite = [pair for pair in odd if all(abs(value) < 2 for value in pair)]
    check(gradients, x, torch.tensor(finite).view(1, 1, -1, 2), mode, 0, corners)


def test_infinite_values_reach_only_their_own_pixels() -> None:
    x, grid = arguments(3, torch.float32)
    x[0, 0, 0, 0, 0], x[1, 2, 1, 3, 4] = INF, NAN
    check(aten.grid_sampler_3d, x, grid, BILINEAR, 0, False)
    grad = torch.ones(2, 3, 2, 3, 4)
    grad[0, 0, 0, 0, 0], grad[1, 1, 1, 1, 1] = NAN, INF
    check(aten.grid_sampler_3d_backward, grad, arguments(3, torch.float32)[0], grid, BILINEAR, 0, False, [True, True])


@pytest.mark.full
@pytest.mark.parametrize("dims", [2, 3])
def test_of_nothing_and_of_single_elements(dims: int) -> None:
    x, grid = arguments(dims, torch.float32)
    back = {2: aten.grid_sampler_2d_backward, 3: aten.grid_sampler_3d_backward}[dims]
    for some, places in ((x[:0], grid[:0]), (x[:, :0], grid), (x, grid[:, :0])):
        check(SAMPLERS[dims], some, places, 0, 0, False, ops=LACKING)
        grad = torch.ones(*some.shape[:2], *places.shape[1:-1])
        check(back, grad, some, places, 0, 0, False, [True, True])
    for padding, corners in itertools.product((0, 1, 2), (False, True)):
        check(gradients, x[..., :1], grid, BILINEAR, padding, corners)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("mode", [BILINEAR, NEAREST])
def test_only_what_is_asked_for_is_computed(dims: int, mode: int) -> None:
    x, grid = arguments(dims, torch.float32)

    def one(which: int) -> torch.Tensor:
        leaves = [tensor.clone() for tensor in (x, grid)]
        out = SAMPLERS[dims](leaves[0].requires_grad_(which == 0), leaves[1].requires_grad_(which == 1), mode, 0, False)
        return torch.autograd.grad(out.sum(), leaves[which])[0]

    for which in (0, 1):
        check(one, which)


@pytest.mark.full
@pytest.mark.parametrize(("dims", "mode"), [(2, "bilinear"), (2, "bicubic"), (2, "nearest"), (3, "bilinear"), (3, "nearest")])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_gradients_of_first_order(dims: int, mode: str, padding: str) -> None:
    torch.manual_seed(1)
    x = torch.randn(1, 2, *(2, 3, 3)[-dims:], dtype=torch.float64, requires_grad=True)
    grid = (torch.rand(1, *(1, 2, 2)[-dims:], dims, dtype=torch.float64) * 2.4 - 1.2).requires_grad_(mode != "nearest")

    def sample(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=False)

    assert on_core(lambda: torch.autograd.gradcheck(sample, (x, grid)), LACKING)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 2, 4, 5)])
@pytest.mark.parametrize("corners", [False, True])
def test_affine_grids(size: tuple[int, ...], corners: bool) -> None:
    torch.manual_seed(0)
    theta = torch.randn(2, len(size) - 2, len(size) - 1)
    check(F.affine_grid, theta, list(size), align_corners=corners)

    def gradient(theta: torch.Tensor) -> torch.Tensor:
        leaf = theta.detach().requires_grad_()
        grid = F.affine_grid(leaf, list(size), align_corners=corners)
        return torch.autograd.grad((grid**2).sum(), leaf)[0]

    check(gradient, theta)


#: Without, with one and with two pixels in a dimension.
AFFINE_SIZES = [
    (batch, 1, *spatial)
    for batch in (0, 1)
    for spatial in [(2, 2), (1, 2), (2, 1), (0, 2), (2, 0), (2, 2, 2), (1, 2, 2), (2, 1, 3), (2, 2, 1), (0, 2, 2), (2, 2, 0)]
]


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8, torch.bool, torch.uint16, torch.complex32])
def test_affine_grids_of_every_dtype_and_size(dtype: torch.dtype, corners: bool) -> None:
    for size in AFFINE_SIZES:
        dims = len(size) - 2
        theta = torch.arange(size[0] * dims * (dims + 1)).view(size[0], dims, dims + 1).to(dtype)

        def run(theta: torch.Tensor = theta, size: tuple[int, ...] = size) -> torch.Tensor:
            return torch.ops.aten.affine_grid_generator(theta, list(size), corners)

        if outcome(run)[0] == "error":
            check(run)
        else:
            check(run, theta)


@pytest.mark.parametrize(
    ("dims", "mode", "forward", "both"),
    [(2, BILINEAR, 52, 90), (2, NEAREST, 30, 40), (2, BICUBIC, 64, 110), (3, BILINEAR, 66, 171), (3, NEAREST, 40, 84)],
)
def test_kernel_calls(dims: int, mode: int, forward: int, both: int) -> None:
    x, grid = arguments(dims, torch.float32)
    assert kernel_calls(lambda: SAMPLERS[dims](x, grid, mode, 0, False), LACKING) <= forward
    assert kernel_calls(lambda: gradients(x, grid, mode, 0, False)) <= both
