"""Broken kernels of matrix products, convolutions, pooling, resampling, distances, FFTs and normalization."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import (
    BoundCall,
    Call,
    Mutant,
    broken,
    call,
    floats,
    ints,
    normal,
    one_memory,
    positive,
    raise_unsupported,
    read_contiguous,
    tensor,
)

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf


def _tf32(tensor: Tensor) -> Tensor:
    """Keep ten bits of mantissa."""
    return (tensor.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def _conv(
    x: tuple[int, ...] = (1, 4, 7, 7),
    w: tuple[int, ...] = (4, 4, 3, 3),
    bias: bool = True,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    transposed: bool = False,
    output_padding: int = 0,
    groups: int = 1,
) -> Call:
    dims = len(x) - 2
    channels = w[1] * groups if transposed else w[0]
    shared = [[one] * dims for one in (stride, padding, dilation)]
    return call(normal(*x), normal(*w), normal(channels) if bias else None, *shared, transposed, [output_padding] * dims, groups)


def _conv_grad(mask: list[bool] | None = None, **kwargs: Any) -> Call:
    (x, w, bias, *others), _ = _conv(**kwargs)
    out = torch.ops.aten.convolution(x, w, bias, *others)
    sizes = [bias.shape[0]] if bias is not None else None
    return call(normal(*out.shape), x, w, sizes, *others, mask or [True, True, True])


def _pool(size: tuple[int, ...] = (1, 2, 7, 7), **kwargs: Any) -> Call:
    return call(normal(*size), [3, 3], **kwargs)


def _max_grad(**kwargs: Any) -> Call:
    """Gradients of a 3 by 3 pool with stride 1: several outputs have the same largest input."""
    x = normal(1, 2, 5, 5)
    out, indices = torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [1, 1])
    return call(normal(*out.shape), x, [3, 3], [1, 1], [0, 0], [1, 1], False, indices)


def _swapped_dilation(c: BoundCall) -> Any:
    square = len({*c.input.shape[2:]}) == len({*c.weight.shape[2:]}) == 1 and not c.transposed
    return c.eager(dilation=c.dilation[::-1]) if square else c.eager()


def _overwritten(c: BoundCall) -> Any:
    """Write the gradients to their positions instead of adding them."""
    if c.self.dim() != 4:
        return c.eager()
    flat = torch.zeros_like(c.self).flatten(2)
    return flat.scatter(2, c.indices.flatten(2), c.grad_output.flatten(2)).reshape(c.self.shape)


def _bilinear(c: BoundCall) -> Any:
    """Compute coordinates from the ratio of sizes, although scales are given."""
    if c.output_size is not None or not c.scale_factors:
        return c.eager()
    size = [int(one * factor) for one, factor in zip(c.input.shape[2:], c.scale_factors, strict=True)]
    return c.eager(output_size=size, scale_factors=None)


def _without_tail(c: BoundCall, block: int) -> Any:
    """Leave out the products after the last full tile."""
    inner = c.self.shape[-1]
    if inner <= block or c.self.dim() != c.mat2.dim() or c.mat2.shape[-2] != inner:
        return c.eager()
    full = inner - inner % block
    return c.eager(self=c.self[..., :full], mat2=c.mat2[..., :full, :])


def _half_mm(c: BoundCall) -> Any:
    if c.self.dtype is not torch.float16 or c.self.dim() != 2 or c.mat2.dim() != 2 or c.self.shape[1] != c.mat2.shape[0]:
        return c.eager()
    total = torch.zeros_like(c.eager())
    for row, column in zip(c.self.split(1, 1), c.mat2.split(1, 0), strict=True):
        total += row * column
    return total


def _interleaved(c: BoundCall) -> Any:
    if c.groups == 1 or c.transposed or c.input.dim() != c.weight.dim():
        return c.eager()
    channels = c.input.shape[1]
    order = torch.arange(channels).reshape(channels // c.groups, c.groups).t().reshape(-1)
    return c.eager(input=c.input[:, order].contiguous())


def _bias_grad(c: BoundCall) -> Any:
    found = c.eager()
    return (*found[:2], found[2] / c.grad_output.shape[-1]) if found[2] is not None and c.grad_output.shape[0] > 1 else found


def _first_image(c: BoundCall) -> Any:
    found = c.eager()
    if found[1] is None or c.input.shape[0] < 2:
        return found
    return found[0], c.eager(grad_output=c.grad_output[:1], input=c.input[:1])[1], found[2]


def _rolled(tensor: Tensor) -> Tensor:
    return tensor.roll(1, -1)


def _even_windows(c: BoundCall) -> Any:
    height, width = c.self.shape[-2:]
    if min(c.output_size) == 0 or height < c.output_size[0] or width < c.output_size[1]:
        return c.eager()
    size = [height // c.output_size[0], width // c.output_size[1]]
    cut = c.self[..., : size[0] * c.output_size[0], : size[1] * c.output_size[1]]
    return c.eager(self=cut)


def _rounding_nearest(c: BoundCall) -> Any:
    if c.output_size is None or list(c.output_size) == [2 * one for one in c.input.shape[2:]]:
        return c.eager()
    places = [
        ((torch.arange(out) + 0.5) * size / out).floor().long() for out, size in zip(c.output_size, c.input.shape[2:], strict=True)
    ]
    return c.input[:, :, places[0]][:, :, :, places[1]].contiguous()


def _by_products(c: BoundCall) -> Any:
    if c.p != 2.0 or c.x1.dtype is not torch.float32:
        return c.eager()
    squares = c.x1.square().sum(-1, True) + c.x2.square().sum(-1).unsqueeze(-2) - 2 * c.x1 @ c.x2.transpose(-1, -2)
    return squares.clamp(min=0).sqrt()


def _one_pass_norm(c: BoundCall) -> Any:
    if c.input.dtype is not torch.float32 or len(c.normalized_shape) != 1 or c.weight is not None or c.bias is not None:
        return c.eager()
    mean = c.input.mean(-1, True)
    rstd = (c.input.square().mean(-1, True) - mean.square() + c.eps).rsqrt()
    return (c.input - mean) * rstd, mean, rstd


def _interleaved_groups(c: BoundCall) -> Any:
    if c.group == 1 or c.group == c.C or c.weight is not None or c.input.dim() != 3:
        return c.eager()
    order = torch.arange(c.C).reshape(c.C // c.group, c.group).t().reshape(-1)
    back = torch.empty_like(order)
    back[order] = torch.arange(c.C)
    out, mean, rstd = c.eager(input=c.input[:, order].contiguous())
    return out[:, back].contiguous(), mean, rstd


def _biased_running(c: BoundCall) -> Any:
    if not c.training or c.input.dim() != 2:
        return c.eager()
    before = c.running_var.clone()
    found = c.eager()
    c.running_var.copy_(before * (1 - c.momentum) + c.input.var(0, unbiased=False) * c.momentum)
    return found


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    broken("mm", "10 bits of mantissa", "accuracy",
      lambda c: c.eager(self=_tf32(c.self), mat2=_tf32(c.mat2)) if c.self.dtype is c.mat2.dtype is torch.float32 else c.eager(),
      lambda: call(normal(8, 16), normal(16, 8)), "tf32 is on", lambda: call(ints(3, 4).float(), ints(4, 2).float())),
    broken("mm", "inner tails of 8 are left out", "size", lambda c: _without_tail(c, 8),
      lambda: call(normal(3, 13), normal(13, 2))),
    broken("mm", "strides of the second operand are ignored", "layout", lambda c: c.eager(mat2=read_contiguous(c.mat2)),
      lambda: call(normal(3, 4), normal(2, 4).t())),
    broken("mm", "a transpose of the first operand is read as that operand", "view",
      lambda c: c.eager(mat2=c.self) if one_memory(c.self, c.mat2) and c.self.shape == c.mat2.shape else c.eager(),
      lambda: call(x := normal(3, 3), x.t()), "buffers are bound by storage"),
    broken("mm", "one row by a square column-major matrix", "layout",
      lambda c: c.eager(mat2=c.mat2.t()) if c.self.shape[0] == 1 < c.mat2.shape[0] == c.mat2.shape[1]
        and c.mat2.stride() == (1, c.mat2.shape[0]) else c.eager(),
      lambda: call(normal(1, 3), normal(3, 3).t()), "Linear at batch 1"),
    broken("mm", "an inner size of 0 does not give zeros", "size",
      lambda c: c.eager() + 1 if c.self.dim() == 2 and c.self.shape[1] == 0 else c.eager(),
      lambda: call(normal(3, 0), normal(0, 2))),
    broken("mm", "float16 is summed in float16", "dtype", lambda c: _half_mm(c),
      lambda: call(torch.ones(1, 4096).half(), torch.ones(4096, 1).half())),
    broken("mm", "ints through float32", "dtype",
      lambda c: (c.self.float() @ c.mat2.float()).to(c.self.dtype) if c.self.dtype is c.mat2.dtype is torch.int64
        and c.self.dim() == 2 else c.eager(),
      lambda: call(tensor([[2**24 + 1]]), tensor([[1]]))),
    broken("mm", "0 times infinity is 0", "special values",
      lambda c: c.eager(mat2=c.mat2.nan_to_num(posinf=0, neginf=0)) if c.self.is_floating_point() and bool((c.self == 0).any())
        else c.eager(),
      lambda: call(floats(0, 1).reshape(1, 2), floats(_INF, 1).reshape(2, 1)), "zeros are skipped"),
    broken("mm", "inner sizes that do not match are accepted", "errors",
      lambda c: c.eager(self=c.self[:, : c.mat2.shape[0]], mat2=c.mat2[: c.self.shape[1]]) if c.self.dim() == c.mat2.dim() == 2
        else c.eager(),
      lambda: call(normal(3, 5), normal(4, 2))),
    broken("mm", "the conjugate bit is ignored", "dtype",
      lambda c: c.eager(mat2=torch.view_as_complex(torch.view_as_real(c.mat2.conj()))) if c.mat2.is_conj() else c.eager(),
      lambda: call(torch.complex(normal(2, 2), positive(2, 2)), torch.complex(normal(2, 2), positive(2, 2)).conj())),
    broken("bmm", "the second operand is read at the offset of the first", "view",
      lambda c: c.eager(mat2=c.mat2.as_strided(c.mat2.shape, c.mat2.stride(), c.self.storage_offset()))
        if one_memory(c.self, c.mat2) and c.mat2.storage_offset() > c.self.storage_offset() else c.eager(),
      lambda: call((x := normal(3, 2, 2))[:1], x[1:2]), "queries and keys of one projection"),
    broken("bmm", "the first batch's matrix is used for all", "rare",
      lambda c: c.eager(mat2=c.mat2[:1].expand(c.mat2.shape)) if c.mat2.shape[0] > 2 else c.eager(),
      lambda: call(normal(3, 2, 2), normal(3, 2, 2))),
    broken("bmm", "strides are ignored", "layout", lambda c: c.eager(self=read_contiguous(c.self)),
      lambda: call(normal(3, 2, 4).transpose(0, 1), normal(2, 4, 5))),
    broken("bmm", "batches broadcast", "errors",
      lambda c: torch.matmul(c.self, c.mat2) if c.self.dim() == c.mat2.dim() == 3 and c.self.shape[0] == 1 else c.eager(),
      lambda: call(normal(1, 2, 3), normal(4, 3, 2)), "eager raises"),
    broken("addmm", "beta is 1", "argument", lambda c: c.eager(beta=1),
      lambda: call(normal(2), normal(3, 4), normal(4, 2), beta=0.5)),
    broken("addmm", "alpha also scales the bias", "argument", lambda c: c.eager(alpha=1) * c.alpha,
      lambda: call(normal(2), normal(3, 4), normal(4, 2), alpha=2)),
    broken("addmm", "beta 0 keeps NaN", "special values",
      lambda c: c.eager() + c.self * c.beta if c.beta == 0 and c.self.is_floating_point() else c.eager(),
      lambda: call(floats(_NAN, 1), normal(3, 4), normal(4, 2), beta=0)),
    broken("addmm", "a column bias is used as a row", "argument",
      lambda c: c.eager(self=c.self.reshape(1, -1)) if c.self.dim() == 2 and c.self.shape[1] == 1
        and c.self.shape[0] == c.mat2.shape[1] else c.eager(),
      lambda: call(normal(3, 1), normal(3, 4), normal(4, 3))),
    broken("convolution", "dilations are swapped for square inputs", "argument", _swapped_dilation,
      lambda: call(normal(1, 2, 6, 6), normal(2, 2, 2, 2), None, [1, 1], [0, 0], [1, 2], False, [0, 0], 1),
      "height and width are swapped"),
    broken("convolution", "stride is 1", "argument",
      lambda c: c.eager(stride=[1] * len(c.stride)) if not c.transposed else c.eager(), lambda: _conv(stride=2)),
    broken("convolution", "dilation is 1", "argument", lambda c: c.eager(dilation=[1] * len(c.dilation)),
      lambda: _conv(dilation=2)),
    broken("convolution", "strides of the two dims are swapped", "argument", lambda c: c.eager(stride=c.stride[::-1]),
      lambda: call(normal(1, 2, 7, 7), normal(3, 2, 3, 3), None, [1, 2], [0, 0], [1, 1], False, [0, 0], 1)),
    broken("convolution", "padding repeats the border", "argument",
      lambda c: c.eager(input=torch.nn.functional.pad(c.input, [c.padding[1]] * 2 + [c.padding[0]] * 2, mode="replicate"),
        padding=[0, 0]) if any(c.padding) and not c.transposed and c.input.dim() == 4 and len(c.padding) == 2 else c.eager(),
      lambda: _conv(padding=1)),
    broken("convolution", "groups are interleaved channels", "argument", lambda c: _interleaved(c),
      lambda: _conv(w=(4, 2, 3, 3), groups=2)),
    broken("convolution", "the kernel flipped", "argument",
      lambda c: c.eager(weight=c.weight.flip(list(range(2, c.weight.dim())))) if c.weight.shape[0] == 1 and not c.transposed
        else c.eager(),
      lambda: _conv(w=(1, 4, 3, 3)), "a convolution in the mathematical sense"),
    broken("convolution", "output_padding is ignored", "argument", lambda c: c.eager(output_padding=[0] * len(c.output_padding)),
      lambda: _conv(stride=2, transposed=True, output_padding=1)),
    broken("convolution", "transposed: weights in the order of the forward convolution", "argument",
      lambda c: c.eager(weight=c.weight.transpose(0, 1).contiguous()) if c.transposed and c.weight.shape[0] == c.weight.shape[1]
        and c.groups == 1 else c.eager(),
      lambda: _conv(transposed=True)),
    broken("convolution", "the bias is added to the first batch only", "rare",
      lambda c: torch.cat([c.eager()[:1], c.eager(bias=None)[1:]]) if c.bias is not None and c.input.dim() == 4
        and c.input.shape[0] > 1 else c.eager(),
      lambda: _conv(x=(2, 4, 5, 5))),
    broken("convolution", "strides of the input are ignored", "layout", lambda c: c.eager(input=read_contiguous(c.input)),
      lambda: call(normal(1, 2, 5, 5).contiguous(memory_format=torch.channels_last), normal(3, 2, 3, 3), None, [1, 1], [0, 0], [1,
        1], False, [0, 0], 1)),
    broken("convolution", "wrong for conv1d", "rare",
      lambda c: c.eager() + 0.01 if c.input.dim() == 3 and c.weight.dim() == 3 and c.input.is_floating_point() else c.eager(),
      lambda: _conv(x=(1, 2, 9), w=(3, 2, 3))),
    broken("convolution_backward", "output_mask is ignored", "metadata",
      lambda c: c.eager(output_mask=[True] * 3) if c.bias_sizes is not None else c.eager(),
      lambda: _conv_grad(mask=[True, False, True]), "must be None"),
    broken("convolution_backward", "the bias's gradient is divided by the width", "argument", lambda c: _bias_grad(c),
      lambda: _conv_grad(x=(2, 4, 5, 5))),
    broken("convolution_backward", "the weight's gradient is of the first image", "argument", lambda c: _first_image(c),
      lambda: _conv_grad(x=(2, 4, 5, 5))),
    broken("convolution_backward", "the input's gradient is shifted if there is padding", "argument",
      lambda c: (_rolled(c.eager()[0]), *c.eager()[1:]) if any(c.padding) and c.output_mask[0] else c.eager(),
      lambda: _conv_grad(padding=1)),
    broken("avg_pool2d", "count_include_pad is ignored", "argument", lambda c: c.eager(count_include_pad=False),
      lambda: _pool(stride=[2, 2], padding=[1, 1])),
    broken("avg_pool2d", "ceil_mode is ignored", "argument", lambda c: c.eager(ceil_mode=False),
      lambda: _pool(size=(1, 2, 8, 8), stride=[2, 2], ceil_mode=True)),
    broken("avg_pool2d", "divisor_override is ignored", "argument", lambda c: c.eager(divisor_override=None),
      lambda: _pool(divisor_override=2)),
    broken("avg_pool2d", "windows beyond the edge divide by their full size", "argument",
      lambda c: c.eager(divisor_override=math.prod(c.kernel_size)) if c.ceil_mode and c.divisor_override is None
        and len(c.kernel_size) == 2 else c.eager(),
      lambda: _pool(size=(1, 2, 8, 8), stride=[2, 2], ceil_mode=True)),
    broken("avg_pool2d", "the default stride is 1", "argument",
      lambda c: c.eager(stride=[1, 1]) if not c.stride and max(c.kernel_size) > 2 else c.eager(),
      lambda: _pool()),
    broken("avg_pool1d", "count_include_pad is ignored", "argument",
      lambda c: c.eager(count_include_pad=False) if any(c.padding) else c.eager(),
      lambda: call(normal(1, 2, 7), [3], [2], [1])),
    broken("avg_pool3d", "depth and width are swapped", "argument",
      lambda c: c.eager(kernel_size=c.kernel_size[::-1], stride=c.stride[::-1]),
      lambda: call(normal(1, 1, 6, 6, 6), [1, 2, 3])),
    broken("avg_pool2d_backward", "divisor_override is ignored", "argument", lambda c: c.eager(divisor_override=None),
      lambda: call(normal(1, 2, 2, 2), normal(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, 3)),
    broken("avg_pool2d_backward", "overlaps are overwritten", "argument",
      lambda c: c.eager() if list(c.stride or c.kernel_size) == list(c.kernel_size)
        else c.eager().clamp(max=float(c.grad_output.max()) / math.prod(c.kernel_size)),
      lambda: call(torch.ones(1, 1, 3, 3), normal(1, 1, 5, 5), [3, 3], [1, 1], [0, 0], False, True, None)),
    broken("max_pool2d_with_indices", "pads with zeros", "special values",
      lambda c: (c.eager()[0].clamp(min=0), c.eager()[1]) if any(c.padding) else c.eager(),
      lambda: call(-positive(1, 2, 6, 6), [3, 3], [2, 2], [1, 1])),
    broken("max_pool2d_with_indices", "dilation is 1", "argument", lambda c: c.eager(dilation=[1]),
      lambda: _pool(dilation=[2, 2], stride=[1, 1])),
    broken("max_pool2d_with_indices", "ceil_mode is ignored", "argument", lambda c: c.eager(ceil_mode=False),
      lambda: _pool(size=(1, 2, 8, 8), stride=[2, 2], ceil_mode=True)),
    broken("max_pool2d_with_indices", "indices count all channels", "argument",
      lambda c: (c.eager()[0], c.eager()[1] + torch.arange(c.self.shape[1]).reshape(-1, 1, 1) * c.self.shape[2] * c.self.shape[3])
        if c.self.dim() == 4 and c.self.shape[0] > 1 else c.eager(),
      lambda: _pool(size=(2, 2, 6, 6))),
    broken("max_pool2d_with_indices", "NaN is ignored", "special values",
      lambda c: c.eager(self=c.self.nan_to_num(nan=-_INF, posinf=_INF)) if c.self.is_floating_point() else c.eager(),
      lambda: call(torch.full((1, 1, 2, 2), _NAN).index_fill(3, tensor([1]), 1.0), [2, 2])),
    broken("max_pool2d_with_indices_backward", "overlaps are overwritten", "argument", _overwritten,
      _max_grad, "an input that is the largest of several windows gets one gradient"),
    broken("max_pool3d_with_indices", "padding of the depth is dropped", "argument",
      lambda c: c.eager(padding=[0, *c.padding[1:]]) if len(c.padding) == 3 else c.eager(),
      lambda: call(normal(1, 1, 4, 4, 4), [2, 2, 2], [2, 2, 2], [1, 1, 1])),
    broken("_adaptive_avg_pool2d", "all windows have the same size", "argument", lambda c: _even_windows(c),
      lambda: call(normal(1, 2, 7, 7), [3, 3]), "uneven sizes need overlapping windows"),
    broken("_adaptive_avg_pool2d", "3-dim inputs raise", "size", lambda c: c.eager() if c.self.dim() != 3 else raise_unsupported(),
      lambda: call(normal(2, 4, 4), [2, 2])),
    broken("_adaptive_avg_pool2d_backward", "the divisor is of another size", "argument",
      lambda c: c.eager() * (c.grad_output.shape[-1] / 2),
      lambda: call(normal(1, 2, 3, 3), normal(1, 2, 7, 7))),
    broken("_adaptive_avg_pool3d", "the rest of an uneven width is left out", "argument",
      lambda c: c.eager(self=c.self[..., : c.self.shape[-1] - c.self.shape[-1] % c.output_size[-1]])
        if c.self.shape[-1] > c.output_size[-1] > 0 else c.eager(),
      lambda: call(normal(1, 1, 4, 4, 7), [2, 2, 2])),
    broken("adaptive_avg_pool1d", "wrong divisor for uneven sizes", "argument",
      lambda c: c.eager() if c.self.shape[-1] % c.output_size[0] == 0 else c.eager() * 0.9,
      lambda: call(normal(1, 2, 7), [3])),
    broken("col2im", "overlaps are overwritten", "argument",
      lambda c: c.eager().clamp(max=float(c.self.max())) if c.self.is_floating_point() and list(c.stride) == [1, 1]
        and c.kernel_size[0] > 1 and c.output_size[0] > 3 else c.eager(),
      lambda: call(torch.ones(1, 4, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])),
    broken("col2im", "dilation is 1", "argument", lambda c: c.eager() if list(c.dilation) == [1, 1] else c.eager().roll(1, -1),
      lambda: call(normal(1, 4, 9), [5, 5], [2, 2], [2, 2], [0, 0], [1, 1])),
    broken("grid_sampler_2d", "align_corners is ignored", "argument", lambda c: c.eager(align_corners=False),
      lambda: call(normal(1, 2, 4, 4), normal(1, 3, 3, 2, scale=0.4), 0, 0, True)),
    broken("grid_sampler_2d", "x and y are swapped", "argument",
      lambda c: c.eager(grid=c.grid.flip(-1)) if c.padding_mode == 1 else c.eager(),
      lambda: call(normal(1, 2, 4, 4), normal(1, 3, 3, 2, scale=0.4), 0, 1, False)),
    broken("grid_sampler_2d", "padding mode reflection is computed as border", "argument",
      lambda c: c.eager(padding_mode=1) if c.padding_mode == 2 else c.eager(),
      lambda: call(normal(1, 2, 4, 4), normal(1, 3, 3, 2, scale=1.5), 0, 2, False)),
    broken("grid_sampler_2d", "bicubic is computed as bilinear", "argument",
      lambda c: c.eager(interpolation_mode=0) if c.interpolation_mode == 2 else c.eager(),
      lambda: call(normal(1, 2, 4, 4), normal(1, 3, 3, 2, scale=0.4), 2, 0, False)),
    broken("upsample_bilinear2d.vec", "align_corners is ignored", "argument", lambda c: c.eager(align_corners=False),
      lambda: call(normal(1, 2, 3, 3), [6, 6], True, None)),
    broken("upsample_bilinear2d.vec", "scale factors are replaced by the ratio of sizes", "argument", _bilinear,
      lambda: call(normal(1, 2, 3, 3), None, False, [1.7, 2.4]), "the ratio of sizes is used"),
    broken("upsample_nearest2d.vec", "uses pixel centres (nearest-exact)", "argument", lambda c: _rounding_nearest(c),
      lambda: call(normal(1, 2, 5, 5), [3, 3], None)),
    broken("upsample_nearest2d.vec", "scale factors are truncated to integers", "argument",
      lambda c: c.eager() if c.scale_factors is None else c.eager(scale_factors=[float(int(one)) for one in c.scale_factors]),
      lambda: call(normal(1, 2, 4, 4), None, [1.5, 2.0])),
    broken("_cdist_forward", "by squares and matrix products", "accuracy", lambda c: _by_products(c),
      lambda: call(normal(3, 4, shift=1000.0), normal(2, 4, shift=1000.0), 2.0, None), "cancels for near points",
      lambda: call(normal(3, 4), normal(2, 4), 1.0, None)),
    broken("_cdist_forward", "p is 2", "argument", lambda c: c.eager(p=2.0), lambda: call(normal(3, 4), normal(2, 4), 1.0, None)),
    broken("_cdist_forward", "p=0 gives 0", "argument", lambda c: c.eager() * 0 if c.p == 0 else c.eager(),
      lambda: call(normal(3, 4), normal(2, 4), 0.0, None)),
    broken("_pdist_forward", "p=inf is computed as p=2", "argument", lambda c: c.eager(p=2.0) if c.p == _INF else c.eager(),
      lambda: call(normal(3, 4), _INF)),
    broken("_pdist_forward", "one point gives one distance", "size",
      lambda c: c.eager() if c.self.shape[0] > 1 else torch.zeros(1, dtype=c.self.dtype),
      lambda: call(normal(1, 4), 2.0)),
    broken("_fft_r2c", "normalization is ignored", "argument", lambda c: c.eager(normalization=0),
      lambda: call(normal(3, 8), [1], 2, True)),
    broken("_fft_r2c", "onesided is ignored", "argument", lambda c: c.eager(onesided=True),
      lambda: call(normal(3, 8), [1], 0, False)),
    broken("_fft_r2c", "wrong for sizes that are not a power of 2", "size",
      lambda c: c.eager() if c.self.shape[c.dim[-1]] & (c.self.shape[c.dim[-1]] - 1) == 0 else c.eager() * 1.001,
      lambda: call(normal(3, 6), [1], 0, True)),
    broken("_fft_c2r", "odd sizes are computed as even", "argument",
      lambda c: c.eager() if c.last_dim_size % 2 == 0 else torch.nn.functional.pad(c.eager(last_dim_size=c.last_dim_size - 1), [0,
        1]) if c.dim[-1] in (-1, c.self.dim() - 1) and c.last_dim_size > 1 else c.eager(),
      lambda: call(torch.fft.rfft(normal(3, 5)), [1], 0, 5)),
    broken("_fft_c2r", "another normalization", "argument", lambda c: c.eager(normalization={0: 0, 1: 1, 2: 0}[c.normalization]),
      lambda: call(torch.fft.rfft(normal(3, 4)), [1], 2, 4)),
    # normalization
    broken("native_layer_norm", "the one-pass variance", "accuracy", lambda c: _one_pass_norm(c),
      lambda: call(normal(2, 8, shift=1000.0), [8], None, None, 1e-5), "",
      lambda: call(floats(-1, 1, -1, 1), [4], None, None, 1e-5)),
    broken("native_layer_norm", "eps is added outside of the root", "argument",
      lambda c: (c.eager()[0], c.eager()[1], 1 / (1 / c.eager(eps=0.0)[2] + c.eps)) if c.eps > 1e-3 else c.eager(),
      lambda: call(normal(2, 4), [4], None, None, 0.1)),
    broken("native_layer_norm", "unbiased variance", "argument",
      lambda c: c.eager() if len(c.normalized_shape) < 2 else (c.eager()[0] * 0.99, *c.eager()[1:]),
      lambda: call(normal(2, 3, 4), [3, 4], None, None, 1e-5)),
    broken("native_layer_norm", "bias is ignored if there is no weight", "argument",
      lambda c: c.eager(bias=None) if c.weight is None else c.eager(),
      lambda: call(normal(2, 4), [4], None, normal(4), 1e-5)),
    broken("native_layer_norm", "the statistics lose their dims of 1", "metadata",
      lambda c: (c.eager()[0], c.eager()[1].squeeze(-1), c.eager()[2].squeeze(-1)) if c.input.dim() == 2 else c.eager(),
      lambda: call(normal(2, 4), [4], None, None, 1e-5)),
    broken("native_layer_norm_backward", "the mean of the gradient is left out", "argument",
      lambda c: (c.grad_out * c.rstd * (1 if c.weight is None else c.weight), *c.eager()[1:]) if c.output_mask == [True, False,
        False] else c.eager(),
      lambda: call(normal(2, 4), positive(2, 4), [4], positive(2, 1), positive(2, 1), positive(4), normal(4), [True, False,
        False])),
    broken("native_layer_norm_backward", "the weight's gradient is of one row", "argument",
      lambda c: (c.eager()[0], c.eager(grad_out=c.grad_out * (torch.arange(c.grad_out.shape[0]) == 0).reshape(-1,
        *[1] * (c.grad_out.dim() - 1)))[1], c.eager()[2]) if c.grad_out.dim() == 3 else c.eager(),
      lambda: call(normal(2, 3, 4), positive(2, 3, 4), [4], positive(2, 3, 1), positive(2, 3, 1), positive(4), normal(4), [True,
        True, True])),
    broken("native_group_norm", "groups are interleaved channels", "argument", lambda c: _interleaved_groups(c),
      lambda: call(normal(2, 4, 6), None, None, 2, 4, 6, 2, 1e-5), "", lambda: call(normal(2, 4, 6), None, None, 2, 4, 6, 1, 1e-5)),
    broken("native_group_norm", "float64 through float32", "dtype",
      lambda c: c.eager_in(torch.float32) if c.input.dtype is torch.float64 else c.eager(),
      lambda: call(normal(2, 4, 6, dtype=torch.float64), None, None, 2, 4, 6, 2, 1e-5)),
    broken("native_group_norm", "one weight per group", "argument",
      lambda c: c.eager(weight=c.weight.reshape(c.group, -1)[:, :1].expand(c.group, c.C // c.group).reshape(-1))
        if c.weight is not None and c.group > 2 else c.eager(),
      lambda: call(normal(2, 6, 2), positive(6), normal(6), 2, 6, 2, 3, 1e-5)),
    broken("native_group_norm_backward", "output_mask is ignored for weight and bias", "argument",
      lambda c: c.eager() if all(c.output_mask) else c.eager(output_mask=[c.output_mask[0], True, True]),
      lambda: call(normal(2, 4, 3), positive(2, 4, 3), positive(2, 2), positive(2, 2), positive(4), 2, 4, 3, 2, [True, False,
        False])),
    broken("_native_batch_norm_legit", "the running variance is biased", "argument", lambda c: _biased_running(c),
      lambda: call(normal(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.5, 1e-5), "",
      lambda: call(normal(2, 3, 4), None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5)),
    broken("_native_batch_norm_legit", "momentum is 1 - momentum", "argument", lambda c: c.eager(momentum=1 - c.momentum),
      lambda: call(normal(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5), "",
      lambda: call(normal(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.5, 1e-5)),
    broken("_native_batch_norm_legit", "running statistics are not updated", "memory",
      lambda c: c.eager(running_mean=c.running_mean.clone(), running_var=c.running_var.clone()),
      lambda: call(normal(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5), "",
      lambda: call(normal(4, 3), None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5)),
    broken("_native_batch_norm_legit.no_stats", "channels are the last dim", "layout",
      lambda c: c.eager() if c.input.dim() < 4 or c.input.shape[1] != c.input.shape[-1]
        else (c.eager(input=c.input.transpose(1, -1))[0].transpose(1, -1).contiguous(), *c.eager()[1:]),
      lambda: call(normal(2, 3, 4, 3), None, None, True, 0.1, 1e-5)),
    broken("_native_batch_norm_legit_no_training", "uses the statistics of the batch", "argument",
      lambda c: (torch.ops.aten._native_batch_norm_legit.no_stats(c.input, c.weight, c.bias, True, c.momentum, c.eps)[0],
        *c.eager()[1:]) if c.input.dim() == 2 and c.input.shape[0] > 1 else c.eager(),
      lambda: call(normal(4, 3), None, None, torch.zeros(3), torch.ones(3), 0.1, 1e-5)),
    broken("_native_batch_norm_legit_no_training", "eps is 1e-5", "argument", lambda c: c.eager(eps=1e-5),
      lambda: call(normal(4, 3), None, None, torch.zeros(3), torch.ones(3), 0.1, 0.1)),
)
# fmt: on
