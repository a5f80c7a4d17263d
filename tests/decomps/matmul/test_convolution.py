"""Convolutions where the set holds no gradient of them, or none at all: strides, and what they cost."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import eagerdecomp as ed

aten = torch.ops.aten
NO_GRADIENT = CORE - ["aten.convolution_backward"]
NONE = NO_GRADIENT - ["aten.convolution"]

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def whole(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small integers: every type holds their sums exactly, whatever the order."""
    return torch.arange(torch.Size(shape).numel()).mul(7).remainder(5).sub(2).view(shape).to(dtype)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_gradient_of_one_pixel_has_the_strides_of_eagers_kernel(transposed: bool, dtype: torch.dtype, threads: int) -> None:
    """With one thread, oneDNN does not compute small convolutions. It never computes those of float64."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, weight = whole(2, 3, 4, 4, dtype=dtype).contiguous(memory_format=torch.channels_last), whole(3, 3, 1, 1, dtype=dtype)
        geometry = [[1, 1], [0, 0], [1, 1], transposed, [0, 0], 1]
        for one in (weight, weight.as_strided(weight.shape, (3, 1, 3, 3))):
            grad = whole(*aten.convolution(x, one, None, *geometry).shape, dtype=dtype)
            check(aten.convolution.default, x, one, None, *geometry, ops=NONE)
            for ops in (NO_GRADIENT, NONE):
                check(aten.convolution_backward.default, grad, x, one, None, *geometry, [True, True, False], ops=ops)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", [2, 3])
def test_a_depthwise_convolution_is_one_of_groups(dims: int, dtype: torch.dtype) -> None:
    """Compare with a convolution of as many groups: eager has no kernel of this op on the CPU, and calls it below autograd."""
    op = {2: aten._conv_depthwise2d.default, 3: aten.conv_depthwise3d.default}[dims]
    grouped = {2: F.conv2d, 3: F.conv3d}[dims]
    kernel, stride, padding, dilation = [3, 2, 2][:dims], [2, 1, 1][:dims], [1, 0, 1][:dims], [1, 2, 1][:dims]
    x, weight, bias = (whole(*shape, dtype=dtype) for shape in ((2, 3, 7, 6, 5)[: dims + 2], (6, 1, *kernel), (6,)))
    want = grouped(x, weight, bias, stride, padding, dilation, groups=3)
    assert_same(on_core(lambda: op(x, weight, kernel, bias, stride, padding, dilation)), want)


def test_stays_short() -> None:
    for groups, channels, limit in ((1, 2, 8), (3, 1, 12)):
        x, weight = whole(2, groups * channels, 5, 4), whole(3, channels, 3, 2)
        geometry = [[1, 1], [0, 0], [1, 1], False, [0, 0], groups]
        grad = torch.ones_like(aten.convolution(x, weight, None, *geometry))
        run = functools.partial(aten.convolution_backward, grad, x, weight, [1], *geometry, [True] * 3)
        assert kernel_calls(run, NO_GRADIENT) <= limit
    assert kernel_calls(lambda: aten.convolution(x[:, :1], weight, None, *geometry[:-1], 1), NONE) <= 12


# -- on other devices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_off_the_cpu_the_strides_of_volumes_are_those_of_the_library_that_torch_selects(device: str, dtype: torch.dtype) -> None:
    """oneDNN, which returns channels last for float32, computes on the CPU only."""
    with FakeTensorMode():
        x = torch.empty(2, 3, 4, 4, 4, dtype=dtype, device=device).to(memory_format=torch.channels_last_3d)
        weight = torch.empty(3, 3, 2, 2, 2, dtype=dtype, device=device)
        geometry = [[1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1]
        grad = aten.convolution(x, weight, None, *geometry)

        def strides() -> list[tuple[int, ...]]:
            gradients = aten.convolution_backward(grad, x, weight, None, *geometry, [True, True, False])
            return [one.stride() for one in (aten.convolution(x, weight, None, *geometry), *gradients[:2])]

        want = strides()
        with ed.EagerDecompMode(NONE):
            assert strides() == want
