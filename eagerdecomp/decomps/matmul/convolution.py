"""Convolutions. Named forms call `convolution`, gradients call it twice, and `convolution` multiplies patches by weights.

With ``y[o, x] = sum_ik w[o, i, k] * v[i, x * stride + k * dilation - padding]``, the gradient of v is the transposed convolution of
the gradient of y. The gradient of w is a convolution with batch and channels exchanged, and stride and dilation exchanged.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import convolution_format, is_slow_convolution, strides_like_channels_last, suggested_memory_format
from eagerdecomp.eager.layouts import in_format
from eagerdecomp.eager.promotion import in_type, widened
from eagerdecomp.eager.strides import in_order
from eagerdecomp.rules.restride import restrided
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.writeback import write_out

aten = torch.ops.aten


# A function, not a constant: the hash of a rule's code must be the same on every processor.
@functools.cache
def _onednn_takes(dtype: torch.dtype) -> bool:
    """Return whether oneDNN's convolutions support `dtype` on this processor: float16 and bfloat16 need special instructions."""
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype is torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return dtype is torch.float32


@rule("aten.convolution_backward.default", recorded=True)
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """Return the gradients of input, weight and bias that `output_mask` selects, and None for the others."""
    channels, outputs = (weight.size(0), weight.size(1) * groups) if transposed else (weight.size(1) * groups, weight.size(0))
    outputs = outputs if channels else 0  # of nothing comes nothing
    if input.size(1) != channels or list(grad_output.shape[:2]) != [input.size(0), outputs]:
        return NotImplemented
    dims = input.dim() - 2
    stride, padding, dilation = (_per_dim(given, dims) for given in (stride, padding, dilation))
    geometry = (stride, padding, dilation, transposed, _per_dim(output_padding, dims), groups)
    last = _is_channels_last(input, weight, *geometry)
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        grad_input = _input_gradient(grad_output, input, weight, stride, padding, dilation, transposed, groups)
        grad_input = _formatted(grad_input, last)
    if output_mask[1] and not (grad_output.numel() and input.numel()):
        grad_weight = aten.zeros_like.default(weight)
    elif output_mask[1]:
        # A transposed convolution exchanges input and output.
        sides = (grad_output, input) if transposed else (input, grad_output)
        # Without oneDNN, eager concatenates the groups' gradients, each in the memory format that its part of the weight suggests.
        alone = groups > 1 and weight.size(1) == 1 and not _onednn_takes(input.dtype)
        grad_weight = _formatted(_weight_gradient(*sides, weight, stride, padding, dilation, groups), last and not alone)
        as_weight = last and dims == 2 and weight.is_contiguous(memory_format=torch.channels_last)
        if as_weight and is_slow_convolution(input, weight, *geometry):
            grad_weight = restrided(grad_weight, weight.stride())
    if output_mask[2]:
        grad_bias = _bias_gradient(grad_output) if input.size(1) else aten.new_zeros.default(grad_output, list(bias_sizes or [0]))
    return grad_input, grad_weight, grad_bias


def _input_gradient(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    groups: int,
) -> Tensor:
    dims = input.dim() - 2
    if not (grad_output.numel() and weight.numel()):
        return aten.zeros_like.default(input)  # type: ignore[no-any-return]
    if transposed:
        grad = aten.convolution.default(grad_output, weight, None, stride, padding, dilation, False, [0] * dims, groups)
        return _cut(grad, input.shape)
    # Output elements read `reached` elements. The stride skips the rest, at the end of the input.
    reached = [
        (grad_output.size(2 + d) - 1) * stride[d] - 2 * padding[d] + dilation[d] * (weight.size(2 + d) - 1) + 1 for d in range(dims)
    ]
    left = [input.size(2 + d) - reached[d] for d in range(dims)]
    return aten.convolution.default(grad_output, weight, None, stride, padding, dilation, True, left, groups)  # type: ignore[no-any-return]


def _weight_gradient(
    fine: Tensor, coarse: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> Tensor:
    """Return ``[coarse's channels, fine's channels per group, *kernel]``. The stride skips positions of `fine`, not of `coarse`."""
    dims = weight.dim() - 2
    batch, channels = fine.shape[:2]
    swap = [1, 0, *range(2, 2 + dims)]
    if groups == 1:
        image = aten.permute.default(fine, swap)
    else:
        # The channels of a group become the batch, and the batch of images becomes the channels of the group.
        apart = aten.reshape.default(fine, [batch, groups, channels // groups, *fine.shape[2:]])
        moved = aten.permute.default(apart, [2, 1, 0, *range(3, 3 + dims)])
        image = aten.reshape.default(moved, [channels // groups, groups * batch, *fine.shape[2:]])
    kernel = aten.permute.default(coarse, swap)
    grad = aten.convolution.default(image, kernel, None, dilation, padding, stride, False, [0] * dims, groups)
    return aten.permute.default(_cut(grad, [channels // groups, coarse.size(1), *weight.shape[2:]]), swap)  # type: ignore[no-any-return]


def _bias_gradient(grad_output: Tensor) -> Tensor:
    return aten.sum.dim_IntList(grad_output, [0, *range(2, grad_output.dim())])  # type: ignore[no-any-return]


def _cut(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Slice each dimension to the size in `shape`."""
    for dim, size in enumerate(shape):
        if x.size(dim) != size:
            x = aten.slice.Tensor(x, dim, 0, size)
    return x


def _per_dim(given: Sequence[int], dims: int) -> list[int]:
    return list(given) * dims if len(given) == 1 else list(given)


def _is_channels_last(input: Tensor, weight: Tensor, *geometry: Any) -> bool:
    """Return whether a convolution's results are channels last, because either argument is.

    In three dimensions, only the kernels of oneDNN, cuDNN and MIOpen return channels last. One dimension is computed as two, with a
    contiguous input.
    """
    dims = input.dim() - 2
    if dims != 1:
        last = any(suggested_memory_format(x) is not torch.contiguous_format for x in (input, weight))
        return last and (dims == 2 or convolution_format(input, weight, *geometry) is torch.channels_last_3d)
    lies = [input.stride() if input.is_contiguous() else in_order(input.shape, range(3)), weight.stride()]
    return any(
        strides_like_channels_last([*x.shape[:2], 1, x.shape[2]], [*strides[:2], x.shape[2] * strides[2], strides[2]])
        for x, strides in zip((input, weight), lies, strict=True)
    )


def _formatted(x: Tensor, channels_last: bool) -> Tensor:
    if not channels_last:
        return in_format(x, torch.contiguous_format)
    if x.dim() == 3:
        return restrided(x, in_order(x.shape, [0, 2, 1]))
    return in_format(x, torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


@rule("aten.convolution.default", recorded=True)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Compute a convolution for op sets without it: copy each patch under the kernel to a column, and multiply by the weights.

    Memory grows with the size of the kernel.
    """
    dims, (first, second, *kernel) = input.dim() - 2, weight.shape
    outputs, channels = (second * groups, first) if transposed else (first, second * groups)
    if input.dtype.is_complex or first % groups or channels != input.size(1) or (bias is not None and bias.numel() != outputs):
        return NotImplemented
    stride, padding, dilation = (_per_dim(given, dims) for given in (stride, padding, dilation))
    more = _per_dim(output_padding, dims)
    last = _is_channels_last(input, weight, stride, padding, dilation, transposed, more, groups)
    spans = [dilation[d] * (kernel[d] - 1) for d in range(dims)]
    if transposed:
        input = _spread(input, stride)
        margins = [(spans[d] - padding[d], spans[d] - padding[d] + more[d]) for d in range(dims)]
        weight, stride = _turned(weight, groups), [1] * dims
    else:
        margins = [(pad, pad) for pad in padding]
    flat = [side for pair in reversed(margins) for side in pair]
    padded = aten.constant_pad_nd.default(input, flat) if any(flat) else aten.clone.default(input)
    padded = in_format(padded, torch.contiguous_format)
    sizes = [(padded.size(2 + d) - spans[d] - 1) // stride[d] + 1 for d in range(dims)]
    batch = input.size(0)
    may_be_empty = transposed and (not input.numel() or _onednn_takes(input.dtype))
    if min(sizes) < (0 if may_be_empty else 1):
        return NotImplemented
    inner = padded.stride()[2:]
    steps = [*(dilation[d] * inner[d] for d in range(dims)), *(stride[d] * inner[d] for d in range(dims))]
    patches = aten.as_strided.default(padded, [channels, *kernel, batch, *sizes], _woven(padded.stride(), steps, dims))
    columns = aten.reshape.default(patches, [groups, channels // groups * math.prod(kernel), batch * math.prod(sizes)])
    if not channels:  # of nothing eager makes nothing, whatever the weights would make
        return aten.full.default([batch, 0, *sizes], 0, dtype=input.dtype, device=input.device)
    rows = aten.reshape.default(weight, [groups, outputs // groups, channels // groups * math.prod(kernel)])
    if bias is not None:  # of float16 and bfloat16 the sum is rounded with it, once
        rows, columns, bias = widened(rows), widened(columns), widened(bias)
    result = aten.view.default(aten.bmm.default(rows, columns), [outputs, batch, *sizes])
    if bias is not None:
        result = in_type(aten.add.Tensor(result, aten.view.default(bias, [outputs, *[1] * (dims + 1)])), input.dtype)
    return _formatted(aten.permute.default(result, [1, 0, *range(2, 2 + dims)]), last)


def _woven(strides: Sequence[int], steps: list[int], dims: int) -> list[int]:
    """Return the strides of all patches: channel, kernel, batch and position."""
    return [strides[1], *steps[:dims], strides[0], *steps[dims:]]


def _spread(x: Tensor, stride: Sequence[int]) -> Tensor:
    """Insert ``stride - 1`` zeros between neighbours along each spatial dimension."""
    for dim, step in enumerate(stride, 2):
        if step > 1:
            after = x.dim() - 1 - dim
            apart = aten.constant_pad_nd.default(aten.unsqueeze.default(x, dim + 1), [0, 0] * after + [0, step - 1])
            shape = [*x.shape[:dim], x.size(dim) * step, *x.shape[dim + 1 :]]
            x = aten.slice.Tensor(aten.reshape.default(apart, shape), dim, 0, (x.size(dim) - 1) * step + 1)
    return x


def _turned(weight: Tensor, groups: int) -> Tensor:
    """Convert the weight of a transposed convolution to that of a plain one, with the kernel mirrored.

    ``[I, O / groups, *kernel]`` becomes ``[O, I / groups, *kernel]``.
    """
    inputs, outputs = weight.shape[:2]
    kernel = list(weight.shape[2:])
    space = list(range(2, weight.dim()))
    apart = aten.reshape.default(weight, [groups, inputs // groups, outputs, *kernel])
    turned = aten.permute.default(apart, [0, 2, 1, *(dim + 1 for dim in space)])
    together = aten.reshape.default(turned, [groups * outputs, inputs // groups, *kernel])
    return aten.flip.default(together, space)  # type: ignore[no-any-return]


# -- named forms ----------------------------------------------------------------------------------------------------


@rule("aten._convolution.default", "aten._convolution.deprecated", "aten.convolution_overrideable.default", recorded=True)
def _convolution(*args: Any) -> Any:
    """Leave the switches behind `groups` out, which choose among kernels."""
    return aten.convolution.default(*args[:9])


@rule("aten.mkldnn_convolution.default", recorded=True)
def _mkldnn(self: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    padding, stride, dilation, groups = geometry
    return aten.convolution.default(self, weight, bias, stride, padding, dilation, False, [0] * (self.dim() - 2), groups)


@rule(
    "aten.slow_conv_dilated2d.default",
    "aten.slow_conv_dilated3d.default",
    "aten._slow_conv2d_forward.default",
    "aten.slow_conv3d_forward.default",
    "aten.slow_conv_transpose2d.default",
    "aten.slow_conv_transpose3d.default",
    by_schema=True,
)
def _slow(call: Any) -> Any:
    """Convolve with one group; accept an image without a batch dimension too."""
    dims, transposed = call.weight.dim() - 2, hasattr(call, "output_padding")
    alone = call.self.dim() == dims + 1
    images = aten.unsqueeze.default(call.self, 0) if alone else call.self
    stride, padding = _per_dim(call.stride, dims), _per_dim(call.padding, dims)
    dilation, beyond = _per_dim(getattr(call, "dilation", [1]), dims), _per_dim(getattr(call, "output_padding", [0]), dims)
    result = aten.convolution.default(images, call.weight, call.bias, stride, padding, dilation, transposed, beyond, 1)
    # In two dimensions, the transposed kernel keeps the batch dimension that it inserted.
    return aten.squeeze.dim(result, 0) if alone and not (transposed and dims == 2) else result


@rule("aten._slow_conv2d_backward.output_mask", recorded=True)
def _slow_backward(*args: Any) -> Any:
    operands, (_, stride, padding, output_mask) = args[:3], args[3:]
    gradients = aten.convolution_backward.default(*operands, None, stride, padding, [1, 1], False, [0, 0], 1, output_mask)
    # oneDNN's kernel also returns the gradient of the weight whenever that of the bias is requested.
    return tuple(gradient if asked else None for gradient, asked in zip(gradients, output_mask, strict=True))


@rule("aten._slow_conv2d_backward.grad_input", recorded=True)
def _slow_backward_into(*args: Any, **targets: Tensor) -> Any:
    found = aten._slow_conv2d_backward.output_mask(*args, [True] * 3)
    return tuple(write_out(target, one, args[:3]) for target, one in zip(targets.values(), found, strict=True))


@rule("aten._conv_depthwise2d.default", "aten.conv_depthwise3d.default")
def _depthwise(
    self: Tensor,
    weight: Tensor,
    kernel_size: Sequence[int],
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """Convolve each channel with its own filters, ``[N, C, *]`` by ``[C * m, 1, *]``, as C groups. CUDA has its own kernel."""
    return aten.convolution.default(self, weight, bias, stride, padding, dilation, False, [0] * len(stride), self.shape[1])


@rule("aten.conv_tbc.default", recorded=True)
def _over_time(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Any:
    """Convolve over time: ``[T, B, I]`` and ``[K, I, O]`` to ``[T', B, O]``."""
    if 0 in weight.shape[:2]:  # nothing is added to the bias
        sizes = [self.size(0) + 2 * pad - weight.size(0) + 1, self.size(1), weight.size(2)]
        return aten.clone.default(aten.expand.default(bias, sizes), memory_format=torch.contiguous_format)
    if self.dtype.is_complex:  # of which there is no convolution: a product for each step of the kernel, as eager's
        padded = aten.constant_pad_nd.default(self, [0, 0, 0, 0, pad, pad])
        steps = padded.size(0) - weight.size(0) + 1
        terms = (
            aten.matmul.default(aten.slice.Tensor(padded, 0, at, at + steps), aten.select.int(weight, 0, at))
            for at in range(weight.size(0))
        )
        return functools.reduce(aten.add.Tensor, terms, bias)
    images, kernel = aten.permute.default(self, [1, 2, 0]), aten.permute.default(weight, [2, 1, 0])
    result = aten.convolution.default(images, kernel, bias, [1], [pad], [1], False, [0], 1)
    return aten.clone.default(aten.permute.default(result, [2, 0, 1]), memory_format=torch.contiguous_format)


@rule("aten._nnpack_spatial_convolution.default", recorded=True)
def _nnpack(input: Tensor, weight: Tensor, bias: Tensor | None, padding: Sequence[int], stride: Sequence[int] = (1, 1)) -> Any:
    """Run what NNPACK accepts. Where it does not support the processor, eager refuses every call."""
    wrong_dtype = any(one is not None and one.dtype is not torch.float32 for one in (input, weight, bias))
    if wrong_dtype or not input.dim() == weight.dim() == 4 or input.size(1) != weight.size(1):
        return NotImplemented
    result = aten.convolution.default(input, weight, bias, _per_dim(stride, 2), _per_dim(padding, 2), [1, 1], False, [0, 0], 1)
    return in_format(result, torch.contiguous_format)


@rule("aten.im2col.default")
def _im2col(
    self: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    """Return the columns: a copy of a view of the padded image with all windows."""
    shape = self.shape
    rank = len(shape)
    if not self.dtype.is_floating_point or rank < 3 or rank > 4 or not all(shape[-3:]):
        return NotImplemented
    if not len(kernel_size) == len(dilation) == len(padding) == len(stride) == 2:
        return NotImplemented
    (tall, wide), (row_step, column_step), (above, beside), (down, across) = kernel_size, dilation, padding, stride
    if tall < 1 or wide < 1 or row_step < 1 or column_step < 1 or down < 1 or across < 1 or above < 0 or beside < 0:
        return NotImplemented
    rows = (shape[-2] + 2 * above - row_step * (tall - 1) - 1) // down + 1
    columns = (shape[-1] + 2 * beside - column_step * (wide - 1) - 1) // across + 1
    if rows < 1 or columns < 1:
        return NotImplemented
    if not self.numel():  # the columns, and the padded image, may be larger than any memory
        return aten.full.default([0, shape[-3] * tall * wide, rows * columns], 0, dtype=self.dtype, device=self.device)
    padded = aten.constant_pad_nd.default(self, [beside, beside, above, above]) if above or beside else self
    *outer, row, column = padded.stride()
    strides = [*outer, row_step * row, column_step * column, down * row, across * column]
    windows = aten.as_strided.default(padded, [*shape[:-2], tall, wide, rows, columns], strides)
    taps = aten.clone.default(windows, memory_format=torch.contiguous_format)
    return aten.view.default(taps, [*shape[:-3], shape[-3] * tall * wide, rows * columns])
