"""Deformable convolution, forward and backward: sample between pixels (`rows.py`), then multiply by the weight.

Shapes: N images, G offset groups, K positions of the kernel, P positions of the output, S channels of an offset group. Sampled
values are rows ``[N * G * K * P, S]``; the weight multiplies columns ``[groups, channels * K, N * P]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp.decomps.libraries.torchvision.checks import check, check_dtype, type_name
from eagerdecomp.decomps.libraries.torchvision.rows import (
    blocks,
    contiguous,
    gather_rows,
    joined,
    padded,
    part,
    scatter_rows,
    take,
)
from eagerdecomp.eager.messages import not_true
from eagerdecomp.eager.promotion import in_type, number_like, widened
from eagerdecomp.rules.rule import library_rule

aten = torch.ops.aten


class _Conv(NamedTuple):
    """The options of a call; pairs are of height and width."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    offset_groups: int
    use_mask: bool
    kernel: tuple[int, int]
    output: tuple[int, int]


class _Corners(NamedTuple):
    """The four pixels around each sample, [N * G * K * P, 4]: upper left, upper right, lower left, lower right.

    Attributes:
        row: the corner's row in the table of pixels, or the row past the table if the corner is outside the image.
        weight: the corner's weight in bilinear interpolation.
        inside: whether the sample itself is near the image, [N * G * K * P, 1].
        right, below: how far the sample is from the left and the upper corners, [N * G * K * P, 1].
    """

    row: Tensor
    weight: Tensor
    inside: Tensor
    right: Tensor
    below: Tensor


def _conv(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, options: Sequence[Any]) -> _Conv:
    """Run the kernel's checks, and return the options of a call."""
    stride, padding, dilation = options[:2], options[2:4], options[4:6]
    groups, offset_groups, use_mask = options[6:]
    for dims, named in ((input.dim(), "input_c"), (offset.dim(), "offset_c"), (weight.dim(), "weight_c")):
        if dims != 4:
            raise not_true(f"{named}.ndimension() == 4")
    if use_mask and mask.dim() != 4:
        raise not_true("!use_mask || mask_c.ndimension() == 4")
    kernel = (weight.shape[2], weight.shape[3])
    check(min(kernel) > 0, f"weight_h: {kernel[0]} weight_w: {kernel[1]}")
    check(min(stride) > 0, f"stride_h: {stride[0]} stride_w: {stride[1]}")
    check(min(padding) >= 0, f"pad_h: {padding[0]} pad_w: {padding[1]}")
    check(min(dilation) > 0, f"dilation_h: {dilation[0]} dilation_w: {dilation[1]}")
    high, wide = ((input.shape[2 + d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(2))
    taps = offset_groups * kernel[0] * kernel[1]
    if weight.shape[1] * groups != input.shape[1]:
        raise not_true("weight_c.size(1) * n_weight_grps == input_c.size(1)")
    if weight.shape[0] % groups:
        raise not_true("weight_c.size(0) % n_weight_grps == 0")
    check(offset.shape[1] == 2 * taps, f"offset.shape[1] is not valid: got: {offset.shape[1]} expected: {2 * taps}")
    if use_mask:
        check(mask.shape[1] == taps, f"mask.shape[1] is not valid: got: {mask.shape[1]} expected: {taps}")
    if input.shape[1] % offset_groups:
        raise not_true("input_c.size(1) % n_offset_grps == 0")
    check(offset.shape[0] == input.shape[0], "invalid batch size of offset")
    for name, one in (("offset", offset), *((("mask", mask),) if use_mask else ())):
        got = f"{name} output dims: ({one.shape[2]}, {one.shape[3]}) - computed output dims: ({high}, {wide})"
        check((one.shape[2], one.shape[3]) == (high, wide), got)
    check(mask.shape[0] == input.shape[0], "invalid batch size of mask")
    check(high > 0 and wide > 0, f"Calculated output size too small - out_h: {high} out_w: {wide}")
    check_dtype("deformable_im2col", input)
    for one in (weight, offset, mask):
        check(
            one.dtype == input.dtype,
            f"expected scalar type {type_name(input)} but found {type_name(one)}",
        )
    return _Conv(stride, padding, dilation, groups, offset_groups, use_mask, kernel, (high, wide))


def _places(how: _Conv, dim: int, like: Tensor) -> Tensor:
    """Return the positions that a convolution without offsets samples along a dimension, [1, 1, K, P]."""
    size, taps = how.output[dim], how.kernel[dim]
    first, step = -how.padding[dim], how.stride[dim]
    output = aten.arange.start_step(first, first + size * step, step, dtype=like.dtype, device=like.device)
    tap = aten.arange.start_step(0, taps * how.dilation[dim], how.dilation[dim], dtype=like.dtype, device=like.device)
    shapes = ([taps, 1, 1, 1], [1, 1, size, 1]) if dim == 0 else ([1, taps, 1, 1], [1, 1, 1, size])
    place = aten.add.Tensor(aten.view.default(tap, shapes[0]), aten.view.default(output, shapes[1]))
    all_places = aten.expand.default(place, [*how.kernel, *how.output])
    return aten.reshape.default(all_places, [1, 1, how.kernel[0] * how.kernel[1], how.output[0] * how.output[1]])  # type: ignore[no-any-return]


def _corners(offset: Tensor, how: _Conv, height: int, width: int) -> _Corners:
    n, g, taps, area = offset.shape[0], how.offset_groups, how.kernel[0] * how.kernel[1], how.output[0] * how.output[1]
    moved = aten.view.default(aten.clone.default(offset, memory_format=torch.contiguous_format), [n, g, taps, 2, area])
    y = aten.add.Tensor(_places(how, 0, offset), aten.select.int(moved, 3, 0))
    x = aten.add.Tensor(_places(how, 1, offset), aten.select.int(moved, 3, 1))
    inside = aten.logical_and.default(_between(y, -1, height), _between(x, -1, width))
    top, left = aten.floor.default(y), aten.floor.default(x)
    below, right = aten.sub.Tensor(y, top), aten.sub.Tensor(x, left)
    above, before = aten.rsub.Scalar(below, 1), aten.rsub.Scalar(right, 1)
    image = aten.view.default(
        aten.arange.start_step(0, n * g * height * width, height * width, dtype=torch.int64, device=offset.device), [n, g, 1, 1]
    )
    rows, weights = [], []
    for down, of_y in ((0, above), (1, below)):
        for over, of_x in ((0, before), (1, right)):
            v, u = aten.add.Scalar(top, down), aten.add.Scalar(left, over)
            within = aten.logical_and.default(_between(v, -1, height), _between(u, -1, width))
            pixel = aten.add.Tensor(aten.mul.Scalar(in_type(v, torch.int64), width), in_type(u, torch.int64))
            row = aten.add.Tensor(pixel, image)
            rows.append(aten.where.self(within, row, number_like(row, n * g * height * width)))
            weights.append(aten.mul.Tensor(of_y, of_x))
    return _Corners(
        aten.view.default(aten.stack.default(rows, 4), [-1, 4]),
        widened(aten.view.default(aten.stack.default(weights, 4), [-1, 4])),
        aten.reshape.default(inside, [-1, 1]),
        widened(aten.reshape.default(right, [-1, 1])),
        widened(aten.reshape.default(below, [-1, 1])),
    )


def _between(x: Tensor, low: float, high: float) -> Tensor:
    return aten.logical_and.default(aten.gt.Scalar(x, low), aten.lt.Scalar(x, high))  # type: ignore[no-any-return]


def _table(input: Tensor, how: _Conv) -> Tensor:
    """Return the pixels of each offset group as rows, and a last row of zeros."""
    n, c, h, w = input.shape
    g = how.offset_groups
    whole = aten.clone.default(input, memory_format=torch.contiguous_format)
    split = aten.view.default(whole, [n, g, c // g, h, w])
    return padded(widened(contiguous(split, [0, 1, 3, 4, 2], [n * g * h * w, c // g])))


def _inner(corners: _Corners, size: int) -> Tensor:
    """Return the rows that interpolation reads. Samples that are not near the image read the row of zeros."""
    return aten.where.self(corners.inside, corners.row, number_like(corners.row, size))  # type: ignore[no-any-return]


def _column_mask(mask: Tensor) -> Tensor:
    return widened(aten.reshape.default(mask, [-1, 1]))


def _columns(rows: Tensor, n: int, how: _Conv) -> Tensor:
    """Return sampled rows as the columns that the weight multiplies."""
    g, taps, area, s = how.offset_groups, how.kernel[0] * how.kernel[1], how.output[0] * how.output[1], rows.shape[1]
    split = aten.view.default(rows, [n, g, taps, area, s])
    return contiguous(split, [1, 4, 2, 0, 3], [how.groups, g * s * taps // how.groups, n * area])


def _outputs(grad: Tensor, how: _Conv) -> Tensor:
    """Return an output ``[N, O, OH, OW]`` as ``[groups, O / groups, N * P]``."""
    n, o = grad.shape[0], grad.shape[1]
    return widened(contiguous(grad, [1, 0, 2, 3], [how.groups, o // how.groups, n * how.output[0] * how.output[1]]))


def _weights(weight: Tensor, how: _Conv) -> Tensor:
    return widened(aten.reshape.default(weight, [how.groups, weight.shape[0] // how.groups, -1]))


@library_rule("torchvision.deform_conv2d.default")
def deform_conv2d(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *options: Any) -> Tensor:
    """Convolve an input sampled at offset positions (Zhu et al., "Deformable ConvNets v2", 2019, equation 1)."""
    how = _conv(input, weight, offset, mask, options)
    n, out = input.shape[0], weight.shape[0]
    if not n:
        return aten.full.default([n, out, *how.output], 0, dtype=input.dtype, device=input.device)  # type: ignore[no-any-return]
    corners = _corners(offset, how, input.shape[2], input.shape[3])
    table = _table(input, how)
    rows = gather_rows(table, _inner(corners, table.shape[0] - 1), corners.weight)
    if how.use_mask:
        rows = aten.mul.Tensor(rows, _column_mask(mask))
    product = in_type(aten.bmm.default(_weights(weight, how), _columns(rows, n, how)), input.dtype)
    result = contiguous(aten.view.default(product, [out, n, *how.output]), [1, 0, 2, 3], [n, out, *how.output])
    return aten.add.Tensor(result, aten.view.default(bias, [1, out, 1, 1]))  # type: ignore[no-any-return]


@library_rule("torchvision._deform_conv2d_backward.default")
def deform_conv2d_backward(
    grad: Tensor, input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *options: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of input, weight, offsets, mask and bias.

    `_products` multiplies each corner's pixel by the gradient of its column. The sum of products times corner weights is the mask's
    gradient. The sum of products times the weights' derivatives in y or x is the offsets' gradient.
    """
    how = _conv(input, weight, offset, mask, options)
    n, c, h, w = input.shape
    of_bias = aten.mul.Tensor(aten.ones_like.default(bias), aten.sum.dim_IntList(grad, [0, 2, 3]))
    if not n:
        zeros = [aten.full.default(one.shape, 0, dtype=one.dtype, device=one.device) for one in (input, weight, offset, mask)]
        return (*zeros, of_bias)
    g, taps, area, s = how.offset_groups, how.kernel[0] * how.kernel[1], how.output[0] * how.output[1], c // how.offset_groups
    corners, table, outputs, size = _corners(offset, how, h, w), _table(input, how), _outputs(grad, how), n * g * h * w
    of_columns = aten.bmm.default(aten.transpose.int(_weights(weight, how), 1, 2), outputs)
    of_rows = contiguous(aten.view.default(of_columns, [g, s, taps, n, area]), [3, 0, 2, 4, 1], [n * g * taps * area, s])
    mask_column = _column_mask(mask) if how.use_mask else None
    masked = of_rows if mask_column is None else aten.mul.Tensor(of_rows, mask_column)

    none = aten.logical_or.default(aten.eq.Scalar(corners.weight, 0), aten.logical_not.default(corners.inside))
    reached = aten.where.self(none, number_like(corners.row, size), corners.row)
    of_pixels = aten.view.default(scatter_rows([(reached, corners.weight, masked)], size, of_rows), [n, g, h, w, s])
    of_input = in_type(contiguous(of_pixels, [0, 1, 4, 2, 3], [n, c, h, w]), input.dtype)

    products, inner_products = _products(table, corners, of_rows)
    samples = gather_rows(table, _inner(corners, size), corners.weight)
    if mask_column is not None:
        samples = aten.mul.Tensor(samples, mask_column)
    of_weight = aten.bmm.default(outputs, aten.transpose.int(_columns(samples, n, how), 1, 2))

    in_y, in_x = _slopes(products, corners)
    if mask_column is not None:
        in_y, in_x = aten.mul.Tensor(in_y, mask_column), aten.mul.Tensor(in_x, mask_column)
    pairs = aten.view.default(aten.stack.default([in_y, in_x], 0), [2, n, g, taps, area])
    of_offset = in_type(contiguous(pairs, [1, 2, 3, 0, 4], [n, 2 * g * taps, *how.output]), offset.dtype)
    if how.use_mask:
        summed = aten.sum.dim_IntList(aten.mul.Tensor(inner_products, corners.weight), [1])
        of_mask = in_type(aten.view.default(summed, [n, g * taps, *how.output]), mask.dtype)
    else:
        of_mask = aten.full.default(mask.shape, 0, dtype=mask.dtype, device=mask.device)
    return of_input, in_type(aten.view.default(of_weight, weight.shape), weight.dtype), of_offset, of_mask, of_bias


def _products(table: Tensor, corners: _Corners, of_rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the product of each corner's pixel with its column's gradient, [N * G * K * P, 4].

    The second result has 0 for samples that are not near the image, which interpolation skips.
    """
    found = []
    for first, last in blocks(corners.row, table.shape[1]):
        pixels = take(table, part(corners.row, first, last))
        found.append(aten.squeeze.dim(aten.bmm.default(pixels, aten.unsqueeze.default(part(of_rows, first, last), 2)), 2))
    products = joined(found)
    return products, aten.where.self(corners.inside, products, number_like(products, 0))


def _slopes(products: Tensor, corners: _Corners) -> tuple[Tensor, Tensor]:
    """Return the gradients of each sample's y and x, [N * G * K * P, 1]."""
    upper_left, upper_right, lower_left, lower_right = (aten.slice.Tensor(products, 1, at, at + 1) for at in range(4))
    in_y = _mean(aten.sub.Tensor(lower_left, upper_left), aten.sub.Tensor(lower_right, upper_right), corners.right)
    in_x = _mean(aten.sub.Tensor(upper_right, upper_left), aten.sub.Tensor(lower_right, lower_left), corners.below)
    return in_y, in_x


def _mean(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    """Return ``(1 - share) * a + share * b``."""
    return aten.add.Tensor(aten.mul.Tensor(aten.rsub.Scalar(share, 1), a), aten.mul.Tensor(share, b))  # type: ignore[no-any-return]
