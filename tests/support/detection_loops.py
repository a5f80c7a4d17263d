"""torchvision's ops as loops over boxes, bins and pixels, in NumPy and plain torch: the reference if torchvision is missing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

__all__ = ["boxes", "deform_conv2d", "nms", "ps_roi_pool_backward", "roi_align", "roi_pool", "ps_roi_pool"]


def boxes(count: int, images: int, size: tuple[int, int], kind: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return random boxes as rows ``[image, x1, y1, x2, y2]``.

    ``kind`` is "outside" (partly outside of the image), "no area", "whole" (integer coordinates), "reversed" (x2 < x1, y2 < y1), or
    any other text for boxes that begin in the image.
    """
    draw = torch.Generator().manual_seed(seed)
    limits = torch.tensor([size[1], size[0]], dtype=torch.float64)
    low, side = (torch.rand(count, 2, generator=draw, dtype=torch.float64) * limits for _ in range(2))
    if kind == "outside":
        low = 2.5 * low - limits
    if kind == "no area":
        side = side * (torch.arange(count) % 2)[:, None]
    if kind == "whole":
        low, side = low.round(), side.round()
    if kind == "reversed":
        side = -side
    image = torch.randint(images, (count, 1), generator=draw).double()
    return torch.cat([image, low, low + side], 1).to(dtype)


def nms(dets: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Greedy non-maximum suppression, in the dtype of the boxes."""
    order = scores.argsort(descending=True, stable=True).tolist()
    rows = dets.numpy()
    areas = (rows[:, 2] - rows[:, 0]) * (rows[:, 3] - rows[:, 1])
    kept: list[int] = []
    dropped: set[int] = set()
    for at, i in enumerate(order):
        if i in dropped:
            continue
        kept.append(i)
        for j in order[at + 1 :]:
            wide, high = (max(0, min(rows[i, 2 + d], rows[j, 2 + d]) - max(rows[i, d], rows[j, d])) for d in range(2))
            shared = wide * high
            union = areas[i] + areas[j] - shared
            if union and float(shared / union) > threshold:
                dropped.add(j)
    return torch.tensor(kept, dtype=torch.int64)


def _bilinear(plane: np.ndarray, y: float, x: float) -> float:
    high, wide = plane.shape
    if not (-1 <= y <= high and -1 <= x <= wide):
        return 0.0
    y, x = min(max(y, 0.0), high - 1), min(max(x, 0.0), wide - 1)
    top, left = int(y), int(x)
    down, right = min(top + 1, high - 1), min(left + 1, wide - 1)
    v, u = y - top, x - left
    return float(
        (1 - v) * ((1 - u) * plane[top, left] + u * plane[top, right]) + v * ((1 - u) * plane[down, left] + u * plane[down, right])
    )


def _channel(c: int, ph: int, pw: int, bins: tuple[int, int], sensitive: bool) -> int:
    return (c * bins[0] + ph) * bins[1] + pw if sensitive else c


def roi_align(
    input: Tensor, rois: Tensor, scale: float, bins: tuple[int, int], ratio: int, aligned: bool, sensitive: bool = False
) -> Tensor:
    """`roi_align`, or `ps_roi_align` if ``sensitive`` (its boxes are always aligned, and its mean of no samples is NaN)."""
    pixels, offset = input.numpy(), 0.5 if aligned else 0.0
    channels = input.shape[1] // (bins[0] * bins[1] if sensitive else 1)
    out = np.zeros((len(rois), channels, *bins))
    for k, (image, x1, y1, x2, y2) in enumerate(rois.tolist()):
        x, y = x1 * scale - offset, y1 * scale - offset
        wide, high = x2 * scale - offset - x, y2 * scale - offset - y
        if not aligned:
            wide, high = max(wide, 1.0), max(high, 1.0)
        bin_h, bin_w = high / bins[0], wide / bins[1]
        grid_h, grid_w = (ratio, ratio) if ratio > 0 else (math.ceil(bin_h), math.ceil(bin_w))
        for c, ph, pw in np.ndindex(channels, *bins):
            plane = pixels[int(image), _channel(c, ph, pw, bins, sensitive)]
            samples = [
                _bilinear(plane, y + ph * bin_h + (i + 0.5) * bin_h / grid_h, x + pw * bin_w + (j + 0.5) * bin_w / grid_w)
                for i in range(grid_h)
                for j in range(grid_w)
            ]
            none = math.nan if sensitive and grid_h * grid_w == 0 else 0.0
            out[k, c, ph, pw] = sum(samples) / len(samples) if samples else none
    return torch.from_numpy(out)


def _rounded(x: float) -> int:
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def _spans(rois: Tensor, scale: float, bins: tuple[int, int], limits: tuple[int, int], extra: int) -> Iterator[tuple[int, ...]]:
    """Yield for each bin of each box: box, image, bin, and the first and past-the-last row and column."""
    for k, (image, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (_rounded(one * scale) for one in corners)
        sizes = max(y2 - y1 + extra, 1) / bins[0], max(x2 - x1 + extra, 1) / bins[1]
        for ph, pw in np.ndindex(*bins):
            ends = (
                min(max(edge(number * size) + start, 0), limit)
                for number, size, start, limit in ((ph, sizes[0], y1, limits[0]), (pw, sizes[1], x1, limits[1]))
                for edge, number in ((math.floor, number), (math.ceil, number + 1))
            )
            yield k, int(image), ph, pw, *ends


def roi_pool(input: Tensor, rois: Tensor, scale: float, bins: tuple[int, int]) -> tuple[Tensor, Tensor]:
    _, channels, high, wide = input.shape
    pixels = input.numpy()
    out, where = np.zeros((len(rois), channels, *bins)), np.full((len(rois), channels, *bins), -1, dtype=np.int32)
    for k, image, ph, pw, y, y_end, x, x_end in _spans(rois, scale, bins, (high, wide), 1):
        for c in range(channels):
            window = pixels[image, c, y:y_end, x:x_end]
            if window.size:
                v, u = np.unravel_index(window.argmax(), window.shape)
                out[k, c, ph, pw], where[k, c, ph, pw] = window[v, u], (y + v) * wide + x + u
    return torch.from_numpy(out), torch.from_numpy(where)


def ps_roi_pool(input: Tensor, rois: Tensor, scale: float, bins: tuple[int, int]) -> Tensor:
    _, channels, high, wide = input.shape
    pixels = input.numpy()
    out = np.zeros((len(rois), channels // (bins[0] * bins[1]), *bins))
    for k, image, ph, pw, y, y_end, x, x_end in _spans(rois, scale, bins, (high - 1, wide - 1), 0):
        for c in range(out.shape[1]):
            window = pixels[image, _channel(c, ph, pw, bins, True), y:y_end, x:x_end]
            out[k, c, ph, pw] = window.mean() if window.size else 0
    return torch.from_numpy(out)


def ps_roi_pool_backward(grad: Tensor, rois: Tensor, scale: float, shape: tuple[int, ...]) -> Tensor:
    """Gradient of `ps_roi_pool`. It is not the transpose of the forward: it includes the image's last row and column."""
    bins = (grad.shape[2], grad.shape[3])
    out = np.zeros(shape)
    for k, image, ph, pw, y, y_end, x, x_end in _spans(rois, scale, bins, (shape[2], shape[3]), 0):
        for c in range(grad.shape[1]):
            window = out[image, _channel(c, ph, pw, bins, True), y:y_end, x:x_end]
            if window.size:
                window += float(grad[k, c, ph, pw]) / window.size
    return torch.from_numpy(out)


def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    bias: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    offset_groups: int,
) -> Tensor:
    """Deformable convolution, one output position, offset group and tap at a time, in differentiable ops."""
    n, c, high, wide = input.shape
    out_channels, _, kh, kw = weight.shape
    oh, ow = offset.shape[2:]
    share, taps = c // offset_groups, kh * kw
    columns = []
    for image, g, i, j, oy, ox in np.ndindex(n, offset_groups, kh, kw, oh, ow):
        tap = g * taps + i * kw + j
        y = oy * stride[0] - padding[0] + i * dilation[0] + offset[image, 2 * tap, oy, ox]
        x = ox * stride[1] - padding[1] + j * dilation[1] + offset[image, 2 * tap + 1, oy, ox]
        top, left = math.floor(float(y)), math.floor(float(x))
        value = input.new_zeros(share)
        for v in (top, top + 1):
            for u in (left, left + 1):
                if 0 <= v < high and 0 <= u < wide:
                    pixel = input[image, g * share : (g + 1) * share, v, u]
                    value = value + (1 - (y - v).abs()) * (1 - (x - u).abs()) * pixel
        columns.append(value if mask is None else value * mask[image, tap, oy, ox])
    table = torch.stack(columns).view(n, offset_groups, taps, oh * ow, share).permute(0, 1, 4, 2, 3)
    table = table.reshape(n, groups, c // groups * taps, oh * ow)
    product = weight.reshape(groups, out_channels // groups, -1) @ table
    return product.reshape(n, out_channels, oh, ow) + bias.view(1, -1, 1, 1)
