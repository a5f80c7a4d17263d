"""Rules for torchvision's ops against its own CPU kernels, forward and gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import detection_loops as loops
import pytest
import torch
from on_core import check, on_core
from torch import Tensor

torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed: its kernels are the oracle here")
ops: Any = torch.ops.torchvision

DTYPES = [torch.float32, torch.float64, torch.float16]
KINDS = ("inside", "outside", "no area", "whole")
SIZE = (7, 6)


def image(channels: int, dtype: torch.dtype, layout: torch.memory_format = torch.contiguous_format) -> Tensor:
    drawn = torch.randn(2, channels, *SIZE, generator=torch.Generator().manual_seed(0))
    return drawn.to(dtype).contiguous(memory_format=layout)


def check_both(forward: Callable[[Tensor], Tensor], x: Tensor, dtype: torch.dtype) -> None:
    """Forward and gradient against eager's; the kernels sum in float16, ours in float32."""
    grad = torch.randn(forward(x).shape, generator=torch.Generator().manual_seed(1)).to(dtype)

    def run() -> tuple[Tensor, ...]:
        leaf = x.clone().requires_grad_()
        out = forward(leaf)
        return out.detach(), *torch.autograd.grad(out, leaf, grad)

    loose = {torch.float16: 0.03, torch.float32: 2e-5, torch.float64: 1e-12}[dtype]
    for have, want in zip(on_core(run), run(), strict=True):
        scale = float(want.nan_to_num().abs().max()) if want.numel() else 1.0
        torch.testing.assert_close(have, want, rtol=loose, atol=loose * max(scale, 1.0), equal_nan=True, check_stride=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 60, 600])
@pytest.mark.parametrize("kind", ["inside", "whole", "reversed"])
def test_nms(kind: str, count: int, dtype: torch.dtype) -> None:
    dets = loops.boxes(count, 1, (50, 40), kind, dtype=dtype)[:, 1:]
    scores = torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=dtype)
    ties = (scores * 5).round()
    for threshold in (0.1, 0.6):
        for one in (scores, ties):
            assert torch.equal(on_core(lambda: ops.nms(dets, one, threshold)), ops.nms(dets, one, threshold))  # noqa: B023


def test_nms_passes_over_nan_in_worse_boxes() -> None:
    dets = loops.boxes(20, 1, (8, 8), "inside", dtype=torch.float32)[:, 1:]
    dets[::3, 1] = float("nan")
    check(ops.nms, dets, torch.linspace(1, 0, 20), 0.2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [-1, 2])
def test_roi_align(ratio: int, kind: str, dtype: torch.dtype) -> None:
    rois = loops.boxes(5, 2, (14, 12), kind, dtype=dtype)
    for aligned in (False, True):
        check_both(lambda x: ops.roi_align(x, rois, 0.5, 2, 3, ratio, aligned), image(3, dtype), dtype)  # noqa: B023


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["roi_pool", "ps_roi_pool", "ps_roi_align", "ps_roi_align, adaptive"])
def test_other_pooling(name: str, kind: str, dtype: torch.dtype) -> None:
    rois = loops.boxes(5, 2, SIZE, kind, dtype=dtype)
    ratio = {"ps_roi_align": (2,), "ps_roi_align, adaptive": (0,)}.get(name, ())
    op = getattr(ops, name.partition(",")[0])
    x = image(6, dtype, torch.channels_last)
    check_both(lambda x: op(x, rois, 1.0, 2, 3, *ratio)[0], x, dtype)
    assert torch.equal(on_core(lambda: op(x, rois, 1.0, 2, 3, *ratio)[1]), op(x, rois, 1.0, 2, 3, *ratio)[1])


def test_no_boxes_and_no_channels() -> None:
    for channels, count in ((6, 0), (0, 2)):
        rois = loops.boxes(count, 2, SIZE, "inside", dtype=torch.float32)
        x = image(channels, torch.float32)
        for name, ratio in (("roi_align", (2, True)), ("roi_pool", ()), ("ps_roi_pool", ()), ("ps_roi_align", (2,))):
            check(getattr(ops, name), x, rois, 1.0, 2, 3, *ratio)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("groups", "offset_groups", "use_mask", "geometry"),
    [
        (1, 1, True, ((1, 1), (0, 0), (1, 1))),
        (2, 2, False, ((2, 1), (1, 2), (1, 2))),
        (1, 4, True, ((1, 2), (2, 1), (2, 1))),
        (4, 2, True, ((1, 1), (1, 1), (1, 1))),
    ],
)
def test_deform_conv2d(groups: int, offset_groups: int, use_mask: bool, geometry: Any, dtype: torch.dtype) -> None:
    stride, padding, dilation = geometry
    draw = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(dtype)

    high, wide = ((SIZE[d] + 2 * padding[d] - dilation[d] * (3, 2)[d] + dilation[d] - 1) // stride[d] + 1 for d in range(2))
    taps = offset_groups * 6
    inputs = {
        "input": image(4, dtype, torch.channels_last),
        "weight": drawn(8, 4 // groups, 3, 2),
        "offset": drawn(2, 2 * taps, high, wide) * 2,
        "mask": drawn(2, taps, high, wide),
        "bias": drawn(8),
    }
    for name in inputs:
        if name == "mask" and not use_mask:
            continue

        def run(x: Tensor, name: str = name) -> Tensor:
            tensors = {**inputs, name: x}.values()
            return ops.deform_conv2d(*tensors, *stride, *padding, *dilation, groups, offset_groups, use_mask)  # type: ignore[no-any-return]

        check_both(run, inputs[name], dtype)


def test_errors_are_the_kernels() -> None:
    x, rois = image(3, torch.float32), torch.zeros(1, 5)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: ops.roi_align(x, rois.double(), 1.0, 2, 2, 2, True),
        lambda: ops.roi_align(x, rois[:, :4], 1.0, 2, 2, 2, True),
        lambda: ops.roi_align(x.bfloat16(), rois.bfloat16(), 1.0, 2, 2, 2, True),
        lambda: ops.roi_pool(x, rois.double(), 1.0, 2, 2),
        lambda: ops.ps_roi_pool(x, rois, 1.0, 2, 2),
        lambda: ops.nms(rois, torch.zeros(1), 0.5),
        lambda: ops.nms(rois[:, :4].half(), torch.zeros(1).half(), 0.5),
    )
    for call in calls:
        with pytest.raises(RuntimeError) as theirs:
            call()
        with pytest.raises(RuntimeError) as ours:
            on_core(call)
        assert str(ours.value) in str(theirs.value)


def test_a_gradient_of_a_gradient_is_refused_as_in_eager() -> None:
    def run() -> Tensor:
        x = image(3, torch.float32).requires_grad_()
        out = ops.roi_align(x, loops.boxes(2, 2, SIZE, "inside", dtype=torch.float32), 1.0, 2, 2, 2, True)
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.sum(), x)[0]

    with pytest.raises(RuntimeError, match="double backwards on roi_align not supported"):
        on_core(run)
