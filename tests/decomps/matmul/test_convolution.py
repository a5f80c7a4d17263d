"""Convolutions where the set holds no gradient of them, or none at all: eager's values and layouts in every geometry."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same, outcome
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import eagerdecomp as ed

aten = torch.ops.aten
NO_GRADIENT = CORE - ["aten.convolution_backward"]
NONE = NO_GRADIENT - ["aten.convolution"]

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
LAYOUTS = ["contiguous", "channels last", "permuted", "gapped"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def whole(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small integers: every type holds their sums exactly, whatever the order."""
    return torch.arange(torch.Size(shape).numel()).mul(7).remainder(5).sub(2).view(shape).to(dtype)


def laid(x: Tensor, layout: str) -> Tensor:
    if layout == "channels last" and x.dim() in CHANNELS_LAST:
        return x.contiguous(memory_format=CHANNELS_LAST[x.dim()])
    if layout == "permuted":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    return torch.stack([x, x], -1)[..., 0] if layout == "gapped" else x


def check_all(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Sequence[Any],
    layout: str,
    mask: Sequence[bool],
) -> None:
    out = aten.convolution(x, weight, bias, *geometry)
    grad = laid(whole(*out.shape, dtype=x.dtype), layout)
    # Without them eager aborts where there is no batch.
    channels = [out.size(1)] if bias is not None or not out.numel() else None

    def backward(*tensors: Tensor) -> list[Any]:
        # What was not asked for may be there all the same.
        found = aten.convolution_backward(*tensors, channels, *geometry, mask)
        return [gradient if asked else None for gradient, asked in zip(found, mask, strict=True)]

    check(aten.convolution.default, x, weight, bias, *geometry, ops=NONE)
    check(backward, grad, x, weight, ops=NO_GRADIENT)
    check(backward, grad, x, weight, ops=NONE)


# Channels in and out per group, groups, sizes, kernel, stride, padding, dilation, output padding (None: not transposed).
GEOMETRIES: dict[str, Any] = {
    "plain": (2, 3, 1, (5, 4), (3, 2), (1, 1), (0, 0), (1, 1), None),
    "one dimension": (2, 3, 1, (7,), (3,), (2,), (1,), (1,), None),
    "three dimensions": (2, 1, 1, (4, 3, 5), (2, 1, 3), (1, 2, 2), (1, 0, 1), (1, 1, 1), None),
    "stride leaves a rest": (2, 3, 2, (7, 6), (2, 3), (3, 2), (0, 1), (1, 1), None),
    "dilated": (1, 2, 1, (7, 6), (3, 2), (1, 2), (2, 1), (2, 3), None),
    "depthwise": (1, 1, 3, (5, 5), (3, 3), (2, 1), (1, 1), (1, 1), None),
    "pointwise": (3, 2, 1, (4, 4), (1, 1), (1, 1), (0, 0), (1, 1), None),
    "transposed": (2, 3, 1, (3, 4), (3, 2), (2, 1), (1, 0), (1, 1), (1, 0)),
    "transposed groups": (2, 1, 2, (3, 4), (2, 2), (2, 3), (0, 1), (1, 1), (0, 2)),
    "transposed, dilated more than strided": (1, 2, 1, (3, 4), (2, 3), (1, 2), (0, 1), (3, 1), (2, 1)),
    "transposed, one dimension": (2, 2, 1, (5,), (3,), (2,), (1,), (2,), (1,)),
    "transposed, three dimensions": (1, 2, 1, (3, 2, 3), (2, 2, 1), (1, 2, 1), (0, 1, 0), (1, 1, 1), (0, 1, 0)),
}


def built(name: str, batch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, list[Any]]:
    inputs, outputs, groups, sizes, kernel, stride, padding, dilation, more = GEOMETRIES[name]
    transposed = more is not None
    channels = (inputs * groups, outputs) if transposed else (outputs * groups, inputs)
    geometry = [list(stride), list(padding), list(dilation), transposed, list(more or [0] * len(sizes)), groups]
    return whole(batch, inputs * groups, *sizes, dtype=dtype), whole(*channels, *kernel, dtype=dtype), geometry


@pytest.mark.full
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_geometry_in_every_layout(name: str, layout: str) -> None:
    x, weight, geometry = built(name, 2, torch.float32)
    check_all(laid(x, layout), weight, None, geometry, "contiguous", [True, True, True])
    check_all(x, laid(weight, layout), whole(GEOMETRIES[name][1] * geometry[-1]), geometry, layout, [True, True, True])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_gradient_of_one_pixel_has_the_strides_of_eagers_kernel(transposed: bool, dtype: torch.dtype, threads: int) -> None:
    """With one thread, oneDNN does not compute small convolutions. It never computes those of float64."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, weight = laid(whole(2, 3, 4, 4, dtype=dtype), "channels last"), whole(3, 3, 1, 1, dtype=dtype)
        geometry = [[1, 1], [0, 0], [1, 1], transposed, [0, 0], 1]
        for one in (weight, weight.as_strided(weight.shape, (3, 1, 3, 3))):
            check_all(x, one, None, geometry, "contiguous", [True, True, True])
    finally:
        torch.set_num_threads(before)


@pytest.mark.full
@pytest.mark.parametrize("name", ["plain", "transposed groups", "three dimensions"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(name: str, dtype: torch.dtype) -> None:
    x, weight, geometry = built(name, 2, dtype)
    check_all(laid(x, "channels last"), weight, None, geometry, "contiguous", [True, True, True])


@pytest.mark.parametrize("mask", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("name", ["plain", "transposed"])
def test_only_what_is_asked_for(name: str, mask: tuple[bool, ...]) -> None:
    x, weight, geometry = built(name, 1, torch.float32)
    check_all(x, weight, None, geometry, "contiguous", list(mask))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_batch_at_all(layout: str) -> None:
    for name in ("plain", "transposed"):
        x, weight, geometry = built(name, 0, torch.float32)
        check_all(x, laid(weight, layout), None, geometry, "contiguous", [True, True, True])


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], list[Any]]:
    dims, groups, transposed = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.booleans())
    sizes, kernel, stride, padding, dilation = (
        draw(st.lists(st.integers(low, high), min_size=dims, max_size=dims))
        for low, high in ((2, 6), (1, 3), (1, 3), (0, 2), (1, 3))
    )
    more = [draw(st.integers(0, max(s, d) - 1)) if transposed else 0 for s, d in zip(stride, dilation, strict=True)]
    inputs, outputs = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    channels = (inputs * groups, outputs) if transposed else (outputs * groups, inputs)
    shape = (draw(st.integers(0, 2)), inputs * groups, *sizes)
    return shape, (*channels, *kernel), [stride, padding, dilation, transposed, more, groups]


@pytest.mark.full
@given(call=calls(), layout=st.sampled_from(LAYOUTS))
@example(call=((0, 2, 4, 4), (2, 2, 3, 1), [[2, 2], [2, 0], [1, 3], False, [0, 0], 1]), layout="permuted")
@settings(max_examples=20)
def test_any_geometry(call: Any, layout: str) -> None:
    shape, kernel, geometry = call
    # In three dimensions eager's choice of kernel, and so of layout, turns on sizes and on how many threads it has.
    assume(layout != "channels last" or len(shape) < 5)
    x, weight = laid(whole(*shape), layout), laid(whole(*kernel), layout)
    try:
        aten.convolution(x, weight, None, *geometry)
    except RuntimeError:
        assume(False)
    check_all(x, weight, None, geometry, layout, [True, True, True])


@pytest.mark.full
@pytest.mark.parametrize("name", ["plain", "one dimension", "stride leaves a rest", "transposed groups"])
def test_gradients_agree_with_finite_differences(name: str) -> None:
    x, weight, geometry = built(name, 1, torch.float64)
    leaves = [t.requires_grad_() for t in (x, weight, whole(GEOMETRIES[name][1] * geometry[-1], dtype=torch.float64))]

    def run(*tensors: Tensor) -> Tensor:
        return aten.convolution(*tensors, *geometry)

    for ops in (NO_GRADIENT, NONE):
        assert on_core(lambda: torch.autograd.gradcheck(run, leaves, fast_mode=True), ops)
        assert on_core(lambda: torch.autograd.gradgradcheck(run, leaves, fast_mode=True), ops)


MODULES: dict[str, Any] = {
    "same": lambda: nn.Conv2d(4, 4, 3, padding="same", dilation=2),
    "same, even kernel": lambda: nn.Conv2d(4, 4, 2, padding="same"),
    "circular": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    "reflected": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
    "complex": lambda: nn.Conv2d(4, 4, 3, dtype=torch.complex64),
    "transposed": lambda: nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1, groups=2),
    "channels last": lambda: nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last),
}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("batched", [False, True])
def test_layers_train(name: str, batched: bool) -> None:
    torch.manual_seed(0)
    layer = MODULES[name]()
    x = torch.randn((2, 4, 5, 6) if batched else (4, 5, 6), dtype=next(layer.parameters()).dtype)

    def step(x: Tensor) -> list[Tensor]:
        leaf = x.detach().requires_grad_()
        out = layer(leaf)
        return [out.detach(), *torch.autograd.grad(out.abs().square().sum(), [leaf, *layer.parameters()])]

    for ops in (CORE, NO_GRADIENT, NONE):
        check(step, x, ops=ops)
    with torch.inference_mode():
        check(layer, x, ops=NONE)


WITHOUT_PLACES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, int]] = {  # input, weight, elements of bias, groups
    "no channels": ((1, 0, 4, 4), (2, 0, 3, 3), 2, 1),
    "no outputs": ((1, 2, 4, 4), (0, 2, 3, 3), 0, 1),
    "no weights of a transposed one": ((1, 0, 4, 4), (0, 2, 3, 3), 2, 1),
    "no outputs of a transposed one": ((1, 2, 4, 4), (2, 0, 3, 3), 0, 1),
    "no rows": ((1, 2, 0, 4), (2, 2, 3, 3), 2, 1),
    "no columns, but a margin": ((1, 2, 4, 0), (2, 2, 1, 1), 2, 1),
    "no rows of the kernel": ((1, 2, 4, 4), (2, 2, 0, 3), 2, 1),
    "no images": ((0, 2, 4, 4), (2, 2, 3, 3), 2, 1),
    "a wide kernel": ((1, 2, 2, 2), (2, 2, 3, 3), 2, 1),
    "more groups than outputs": ((1, 2, 4, 4), (1, 1, 3, 3), 1, 2),
    "outputs that groups do not share": ((1, 2, 4, 4), (3, 1, 3, 3), 3, 2),
    "a long bias": ((1, 2, 4, 4), (2, 2, 3, 3), 3, 1),
}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", WITHOUT_PLACES)
def test_products_of_patches_refuse_what_eager_refuses_of_shapes(name: str, transposed: bool) -> None:
    shape, weight, bias, groups = WITHOUT_PLACES[name]
    args = (torch.ones(shape), torch.ones(weight), torch.ones(bias), [1, 1], [0, 0], [1, 1], transposed, [0, 0], groups)
    kind, _ = outcome(lambda: aten.convolution(*args))
    if kind == "error":
        check(lambda: aten.convolution(*args), ops=NONE)
    else:
        check(aten.convolution, *args, ops=NONE)


def test_gradients_of_a_convolution_over_no_channels() -> None:
    def run(*leaves: Tensor) -> Any:
        made = F.conv2d(*leaves)
        return torch.autograd.grad(made, leaves, torch.ones_like(made))

    check(run, *(torch.ones(shape).requires_grad_() for shape in ((1, 0, 4, 4), (2, 0, 3, 3), (2,))), ops=NONE)


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
    def calls(name: str, ops: Any) -> int:
        x, weight, geometry = built(name, 2, torch.float32)
        grad = torch.ones_like(aten.convolution(x, weight, None, *geometry))
        return kernel_calls(lambda: aten.convolution_backward(grad, x, weight, [1], *geometry, [True] * 3), ops)

    assert calls("plain", NO_GRADIENT) <= 8
    assert calls("depthwise", NO_GRADIENT) <= 12
    x, weight, geometry = built("plain", 2, torch.float32)
    assert kernel_calls(lambda: aten.convolution(x, weight, None, *geometry), NONE) <= 12


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


IMAGE = torch.arange(2 * 3 * 7 * 6.0).view(2, 3, 7, 6)


@pytest.mark.parametrize(
    "image",
    [IMAGE, IMAGE.to(memory_format=torch.channels_last), IMAGE[0], IMAGE.transpose(-1, -2)[:, 1:], IMAGE.bfloat16(), IMAGE[:0]],
    ids=["batch", "channels last", "one", "part of a transpose", "half", "none"],
)
@pytest.mark.parametrize("kernel", [[1, 1], [3, 2], [9, 9]], ids=str)
@pytest.mark.parametrize("padding", [[0, 0], [1, 2], [-1, 0]], ids=str)
def test_columns_of_windows(image: Tensor, kernel: list[int], padding: list[int]) -> None:
    if not image.numel() and min(padding) < 0:
        pytest.skip("the shipped entry takes what eager refuses")
    for dilation, stride in (([1, 1], [1, 1]), ([2, 1], [1, 3])):
        check(aten.im2col.default, image, kernel, dilation, padding, stride, exact=True)


def test_columns_of_windows_are_one_copy() -> None:
    assert kernel_calls(lambda: aten.im2col.default(IMAGE, [3, 3], [1, 1], [1, 1], [1, 1])) == 4
    assert kernel_calls(lambda: aten.im2col.default(IMAGE, [3, 3], [1, 1], [0, 0], [2, 2])) == 3
