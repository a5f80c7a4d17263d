"""Gradients of every upsampling mode against eager's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatch_recorders import SizeRecorder
from hypothesis import example, given, settings
from hypothesis import strategies as st
from on_core import check, on_core

aten = torch.ops.aten

MODES = [
    *((dims, "nearest", None) for dims in (1, 2, 3)),
    *((dims, "nearest-exact", None) for dims in (1, 2, 3)),
    *(
        (dims, mode, corners)
        for dims, mode in ((1, "linear"), (2, "bilinear"), (3, "trilinear"), (2, "bicubic"))
        for corners in (False, True)
    ),
]


def gradient(x: torch.Tensor, **options: Any) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    out = F.interpolate(leaf, **options)
    weights = torch.arange(1.0, out.numel() + 1, dtype=torch.float64).view(out.shape).to(out.dtype) / out.numel()
    if out.is_contiguous(memory_format=torch.channels_last) if out.dim() == 4 else False:
        weights = weights.contiguous(memory_format=torch.channels_last)
    return torch.autograd.grad(out, leaf, weights)[0]


@pytest.mark.parametrize("target", ["larger", "smaller", "same", "factor"])
@pytest.mark.parametrize(("dims", "mode", "corners"), MODES)
def test_gradient(dims: int, mode: str, corners: bool | None, target: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *(5, 4, 3)[:dims])
    sizes = {"larger": (9, 8, 7), "smaller": (2, 3, 2), "same": (5, 4, 3)}
    options: dict[str, Any] = {"mode": mode, "align_corners": corners}
    options |= {"scale_factor": 1.7} if target == "factor" else {"size": sizes[target][:dims]}
    check(gradient, x, **options)


@pytest.mark.parametrize("size", [(32, 2, 2), (2, 32, 32)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "trilinear"])
def test_no_intermediate_is_larger_than_both_ends(mode: str, size: tuple[int, ...]) -> None:
    """Where one dimension shrinks and another grows, the first to change is the one that becomes smaller."""
    x = torch.linspace(-1, 1, 64**3 // math.prod(size)).view(1, 1, *(64 // count for count in size))
    check(gradient, x, size=size, mode=mode)
    with SizeRecorder() as sizes:
        on_core(lambda: gradient(x, size=size, mode=mode))
    assert max(sizes.sizes) <= 2 * max(x.numel(), math.prod(size))  # of two taps


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_gradient_in_other_types(mode: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(gradient, torch.randn(1, 2, 4, 5).to(dtype), size=(7, 3), mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_gradient_of_channels_last_images_is_channels_last(mode: str) -> None:
    torch.manual_seed(0)
    check(gradient, torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), size=(8, 6), mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_second_derivative(mode: str) -> None:
    def run() -> torch.Tensor:
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 16, dtype=torch.float64).view(1, 1, 4, 4).requires_grad_()
        (first,) = torch.autograd.grad((F.interpolate(x, size=(6, 6), mode=mode) ** 3).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    want = run()
    for _ in range(3):
        torch.testing.assert_close(on_core(run), want)


def _gapped_channels_last(dims: int) -> torch.Tensor:
    """Strides that look like channels last, of a tensor that is not dense."""
    strides = {2: (200, 1, 50, 6), 3: (2000, 1, 400, 50, 6)}[dims]
    values = torch.arange(720.0).view(2, 3, 4, 5, 6)
    values = values if dims == 3 else values[..., 0]
    return torch.empty_strided(values.shape, strides).copy_(values)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("upsample_nearest2d", ()),
        ("_upsample_nearest_exact2d", ()),
        ("upsample_bilinear2d", (False,)),
        ("upsample_bicubic2d", (False,)),
        ("upsample_nearest3d", ()),
        ("_upsample_nearest_exact3d", ()),
        ("upsample_trilinear3d", (False,)),
    ],
)
def test_the_memory_format_of_a_gradient(op: str, options: Any, dense: bool) -> None:
    dims = 3 if op.endswith("3d") else 2
    grad = _gapped_channels_last(dims)
    grad = grad.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d) if dense else grad
    size = (2, 3, 7, 6, 4)[: dims + 2]
    check(getattr(aten, f"{op}_backward"), grad, list(grad.shape[2:]), list(size), *options)
    check(getattr(aten, f"{op}_backward"), grad.contiguous(), list(grad.shape[2:]), list(size), *options)


LINEAR = {1: aten.upsample_linear1d_backward, 2: aten.upsample_bilinear2d_backward, 3: aten.upsample_trilinear3d_backward}
NEAREST = {1: aten.upsample_nearest1d_backward, 2: aten.upsample_nearest2d_backward, 3: aten.upsample_nearest3d_backward}
BACKWARD = [*LINEAR.items(), *NEAREST.items(), (2, aten.upsample_bicubic2d_backward)]
SIZES = st.lists(st.integers(1, 7), min_size=3, max_size=3)


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@example(case=(1, LINEAR[1]), sizes=[3, 1, 1], counts=[3, 1, 1], corners=False, value=math.inf, at=1, half=False)
@example(case=(2, LINEAR[2]), sizes=[3, 4, 1], counts=[3, 7, 1], corners=True, value=-math.inf, at=5, half=False)
@given(
    case=st.sampled_from(BACKWARD),
    sizes=SIZES,
    counts=SIZES,
    corners=st.booleans(),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
    at=st.integers(0, 1000),
    half=st.booleans(),
)
def test_what_is_infinite_in_a_gradient_stays_where_eager_has_it(
    case: tuple[int, Any], sizes: list[int], counts: list[int], corners: bool, value: float, at: int, half: bool
) -> None:
    dims, op = case
    grad = torch.linspace(-1, 1, 2 * math.prod(counts[:dims])).view(1, 2, *counts[:dims])
    grad.view(-1)[at % grad.numel()] = value
    flags = () if op in NEAREST.values() else (corners,)
    check(op, grad.bfloat16() if half else grad, counts[:dims], [1, 2, *sizes[:dims]], *flags)
