"""Rules for torchvision's ops against loops over boxes, bins and pixels; torchvision itself is not needed."""

from __future__ import annotations

from typing import Any

import detection_loops as loops
import pytest
import torch
from on_core import on_core
from torch import Tensor

from eagerdecomp.decomps.libraries.torchvision import deform_conv, nms, roi_pooling, rows

KINDS = ("inside", "outside", "no area", "whole")
SIZE = (7, 6)


def image(channels: int = 4, count: int = 2, seed: int = 0) -> Tensor:
    return torch.randn(count, channels, *SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(have: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert have.is_contiguous()


def is_transpose(input: Tensor, output: Tensor, grad: Tensor, of_input: Tensor) -> None:
    """`of_input` is the gradient of a linear map that takes `input` to `output`."""
    torch.testing.assert_close((of_input * input).sum(), (grad * output).sum(), rtol=1e-10, atol=1e-10)


# -- nms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 1.0])
def test_nms_is_greedy(threshold: float, dtype: torch.dtype) -> None:
    dets = loops.boxes(40, 1, (20, 20), "inside", dtype=dtype)[:, 1:]
    scores = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=dtype)
    assert torch.equal(on_core(lambda: nms.nms(dets, scores, threshold)), loops.nms(dets, scores, threshold))


def test_nms_takes_equal_scores_in_order() -> None:
    dets, scores = loops.boxes(30, 1, (8, 8), "whole", dtype=torch.float32)[:, 1:], (torch.arange(30) % 3).float()
    assert torch.equal(on_core(lambda: nms.nms(dets, scores, 0.3)), loops.nms(dets, scores, 0.3))


def test_nms_compares_with_the_threshold_as_a_double() -> None:
    """The overlap is 1/10 in float32, which is above 0.1 and so above the threshold; rounded to float32 the two are equal."""
    dets = torch.tensor([[0.0, 0.0, 10.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    scores = torch.tensor([1.0, 0.5])
    assert on_core(lambda: nms.nms(dets, scores, 0.1)).tolist() == [0] == loops.nms(dets, scores, 0.1).tolist()
    assert on_core(lambda: nms.nms(dets, scores, 0.11)).tolist() == [0, 1]


def test_nms_works_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain in which each box overlaps the next alone settles one box per step, also across blocks."""
    monkeypatch.setattr(nms, "_BLOCK", 4)
    left = torch.arange(11.0)
    dets = torch.stack([left, torch.zeros(11), left + 1.8, torch.ones(11)], 1)
    scores = torch.linspace(1, 0, 11)
    assert on_core(lambda: nms.nms(dets, scores, 0.2)).tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("dets", "scores", "words"),
    [
        ((4,), (1,), "2d tensor, got 1D"),
        ((1, 5), (1,), "4 elements in dimension 1, got 5"),
        ((1, 4), (1, 1), "1d tensor, got 2D"),
        ((1, 4), (2,), "got 1 and 2"),
    ],
)
def test_nms_checks_shapes(dets: tuple[int, ...], scores: tuple[int, ...], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        nms.nms(torch.zeros(dets), torch.zeros(scores), 0.5)


# -- pooling of boxes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_roi_align(kind: str, ratio: int, aligned: bool) -> None:
    x, rois, bins = image(), loops.boxes(6, 2, (14, 12), kind), (2, 3)
    have = on_core(lambda: roi_pooling.roi_align(x, rois, 0.5, *bins, ratio, aligned))
    close(have, loops.roi_align(x, rois, 0.5, bins, ratio, aligned))
    grad = torch.randn_like(have)
    of_input = on_core(lambda: roi_pooling.roi_align_backward(grad, rois, 0.5, *bins, *x.shape, ratio, aligned))
    is_transpose(x, have, grad, of_input)
    assert of_input.is_contiguous()


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_ps_roi_align(kind: str, ratio: int) -> None:
    x, rois, bins = image(12), loops.boxes(6, 2, SIZE, kind), (2, 3)
    have, mapping = on_core(lambda: roi_pooling.ps_roi_align(x, rois, 1.0, *bins, ratio))
    want = loops.roi_align(x, rois, 1.0, bins, ratio, aligned=True, sensitive=True)
    close(have, want)
    assert torch.equal(mapping, torch.arange(12, dtype=torch.int32).view(1, 2, 2, 3).expand(6, 2, 2, 3))
    grad = torch.randn_like(have)
    of_input = on_core(lambda: roi_pooling.ps_roi_align_backward(grad, rois, mapping, 1.0, *bins, ratio, *x.shape))
    is_transpose(x, have.nan_to_num(), grad, of_input)


def test_reversed_boxes_have_samples_if_the_call_says_how_many() -> None:
    x, rois = image(), loops.boxes(4, 2, SIZE, "reversed")
    close(on_core(lambda: roi_pooling.roi_align(x, rois, 1.0, 2, 2, 2, True)), loops.roi_align(x, rois, 1.0, (2, 2), 2, True))


def test_samples_far_from_the_image_read_nothing_of_it() -> None:
    """But `roi_align` multiplies the image's first pixel by 0, as the kernel does."""
    x, far = image(), torch.tensor([[0.0, 50.0, 50.0, 60.0, 60.0]], dtype=torch.float64)
    x[0, :, 0, 0] = float("inf")
    assert on_core(lambda: roi_pooling.roi_align(x, far, 1.0, 1, 1, 2, False)).isnan().all()
    assert not on_core(lambda: roi_pooling.ps_roi_align(x, far, 1.0, 2, 2, 2)[0]).any()
    grad = torch.full((1, 4, 1, 1), float("inf"), dtype=torch.float64)
    assert not on_core(lambda: roi_pooling.roi_align_backward(grad, far, 1.0, 1, 1, *x.shape, 2, False)).any()


@pytest.mark.parametrize("kind", [*KINDS, "reversed"])
def test_roi_pool(kind: str) -> None:
    x, rois, bins = image(), loops.boxes(6, 2, SIZE, kind), (2, 3)
    have, where = on_core(lambda: roi_pooling.roi_pool(x, rois, 1.0, *bins))
    want, want_where = loops.roi_pool(x, rois, 1.0, bins)
    close(have, want)
    assert torch.equal(where, want_where)
    grad = torch.randn_like(have)
    of_input = on_core(lambda: roi_pooling.roi_pool_backward(grad, rois, where, 1.0, *bins, *x.shape))
    is_transpose(x, have, grad, of_input)
    assert (of_input != 0).sum() <= (where >= 0).sum()


def test_roi_pool_passes_over_nan_and_takes_the_first_of_equals() -> None:
    x, whole = torch.zeros(1, 2, 2, 2), torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0]])
    x[0, 0, 0, 0], x[0, 1] = float("nan"), float("-inf")
    value, where = on_core(lambda: roi_pooling.roi_pool(x, whole, 1.0, 1, 1))
    assert where.flatten().tolist() == [1, -1]
    assert value.flatten().tolist() == [0.0, torch.finfo(torch.float32).min]


@pytest.mark.parametrize("kind", [*KINDS, "reversed"])
def test_ps_roi_pool(kind: str) -> None:
    x, rois, bins = image(12), loops.boxes(6, 2, SIZE, kind), (2, 3)
    have, mapping = on_core(lambda: roi_pooling.ps_roi_pool(x, rois, 1.0, *bins))
    close(have, loops.ps_roi_pool(x, rois, 1.0, bins))
    grad = torch.randn_like(have)
    of_input = on_core(lambda: roi_pooling.ps_roi_pool_backward(grad, rois, mapping, 1.0, *bins, *x.shape))
    close(of_input, loops.ps_roi_pool_backward(grad, rois, 1.0, tuple(x.shape)))


@pytest.mark.parametrize("count", [0, 5])
def test_large_calls_run_in_blocks(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    x, rois = image(), loops.boxes(count, 2, SIZE, "inside")
    grad = torch.randn(count, 4, 2, 2, dtype=torch.float64)

    def both() -> tuple[Tensor, Tensor]:
        have = roi_pooling.roi_align(x, rois, 1.0, 2, 2, 2, True)
        return have, roi_pooling.roi_align_backward(grad, rois, 1.0, 2, 2, *x.shape, 2, True)

    want = on_core(both)
    monkeypatch.setattr(rows, "_ELEMENTS", 100)
    for have, one in zip(on_core(both), want, strict=True):
        close(have, one)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_dtypes_that_the_kernels_refuse(dtype: torch.dtype) -> None:
    x, rois = torch.ones(1, 4, 3, 3, dtype=dtype), torch.ones(1, 5, dtype=dtype)
    for call in (
        lambda: roi_pooling.roi_align(x, rois, 1.0, 2, 2, 2, True),
        lambda: roi_pooling.roi_pool(x, rois, 1.0, 2, 2),
        lambda: roi_pooling.ps_roi_pool(x, rois, 1.0, 2, 2),
        lambda: nms.nms(rois[:, 1:], torch.ones(1, dtype=dtype), 0.5),
    ):
        with pytest.raises(RuntimeError, match="not implemented for"):
            call()


# -- deformable convolution ---------------------------------------------------------------------------------------

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "without mask": {"mask": False},
    "stride, padding, dilation": {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "kernel": (3, 2)},
    "groups": {"groups": 2, "channels": 4},
    "offset groups": {"offset_groups": 2, "channels": 4},
    "both": {"groups": 2, "offset_groups": 4, "channels": 4, "mask": False},
    "far": {"reach": 6.0, "padding": (1, 1)},
    "one by one": {"kernel": (1, 1), "images": 1},
}


@pytest.mark.parametrize("case", CASES)
def test_deform_conv2d_and_its_gradients(case: str) -> None:
    options = {"images": 2, "channels": 2, "kernel": (2, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    options = {**options, "groups": 1, "offset_groups": 1, "mask": True, "reach": 0.7, **CASES[case]}
    n, c, (kh, kw), groups, g = (options[name] for name in ("images", "channels", "kernel", "groups", "offset_groups"))
    stride, padding, dilation = (options[name] for name in ("stride", "padding", "dilation"))
    draw = torch.Generator().manual_seed(0)
    size = (4, 3)
    oh, ow = ((size[d] + 2 * padding[d] - dilation[d] * ((kh, kw)[d] - 1) - 1) // stride[d] + 1 for d in range(2))

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    x, weight, bias = drawn(n, c, *size), drawn(4, c // groups, kh, kw), drawn(4)
    offset, mask = drawn(n, 2 * g * kh * kw, oh, ow) * options["reach"], drawn(n, g * kh * kw, oh, ow)
    leaves = [one.requires_grad_() for one in (x, weight, offset, mask, bias)]
    used = mask if options["mask"] else None
    want = loops.deform_conv2d(x, weight, offset, used, bias, stride, padding, dilation, groups, g)
    grad = drawn(*want.shape)
    gradients = torch.autograd.grad(want, leaves, grad, allow_unused=True)
    inputs = [one.detach() for one in leaves]
    tail = (*stride, *padding, *dilation, groups, g, options["mask"])
    close(on_core(lambda: deform_conv.deform_conv2d(*inputs, *tail)), want.detach())
    for have, one, leaf in zip(
        on_core(lambda: deform_conv.deform_conv2d_backward(grad, *inputs, *tail)), gradients, inputs, strict=True
    ):
        torch.testing.assert_close(have, torch.zeros_like(leaf) if one is None else one, rtol=1e-10, atol=1e-10)


def test_a_sample_on_the_edge_outside_the_image_reads_no_infinite_pixel() -> None:
    x, one = torch.full((1, 1, 1, 1), float("inf")), torch.ones(1, 1, 1, 1)
    offset = torch.tensor([-1.0, 0.0]).view(1, 2, 1, 1)
    inputs = (x, one, offset, one, torch.zeros(1))
    assert not on_core(lambda: deform_conv.deform_conv2d(*inputs, 1, 1, 0, 0, 1, 1, 1, 1, False)).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({1: torch.ones(2, 3, 1, 1)}, "n_weight_grps"),
        ({2: torch.ones(1, 3, 2, 2)}, "offset.shape"),
        ({2: torch.ones(1, 2, 3, 2)}, "offset output dims"),
        ({2: torch.ones(2, 2, 2, 2)}, "invalid batch size of offset"),
        ({3: torch.ones(1, 2, 2, 2)}, "mask.shape"),
        ({1: torch.ones(2, 2, 1, 1).double()}, "expected scalar type Float but found Double"),
        ({5: 0}, "stride_h: 0"),
        ({7: -1}, "pad_h: -1"),
    ],
)
def test_deform_conv2d_checks_its_arguments(change: dict[int, Any], words: str) -> None:
    arguments: list[Any] = [torch.ones(1, 2, 2, 2), torch.ones(2, 2, 1, 1), torch.ones(1, 2, 2, 2), torch.ones(1, 1, 2, 2)]
    arguments += [torch.ones(2), 1, 1, 0, 0, 1, 1, 1, 1, True]
    for place, value in change.items():
        arguments[place] = value
    with pytest.raises(RuntimeError, match=words):
        deform_conv.deform_conv2d(*arguments)
