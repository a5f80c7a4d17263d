"""Broken kernels of matrix products, convolutions, windows, resampling, distances and transforms."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import Bound, Call, Mutant, f, given, i, m, n, p, raw, t

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf


def _tf32(tensor: Tensor) -> Tensor:
    """Ten bits of mantissa."""
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
    return given(n(*x), n(*w), n(channels) if bias else None, *shared, transposed, [output_padding] * dims, groups)


def _conv_grad(mask: list[bool] | None = None, **kwargs: Any) -> Call:
    (x, w, bias, *others), _ = _conv(**kwargs)
    out = torch.ops.aten.convolution(x, w, bias, *others)
    sizes = [bias.shape[0]] if bias is not None else None
    return given(n(*out.shape), x, w, sizes, *others, mask or [True, True, True])


def _pool(size: tuple[int, ...] = (1, 2, 7, 7), **kwargs: Any) -> Call:
    return given(n(*size), [3, 3], **kwargs)


def _max_grad(**kwargs: Any) -> Call:
    """Gradients of a 3 by 3 pool with stride 1: several outputs have the same largest input."""
    x = n(1, 2, 5, 5)
    out, indices = torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [1, 1])
    return given(n(*out.shape), x, [3, 3], [1, 1], [0, 0], [1, 1], False, indices)


def _turned_dilation(c: Bound) -> Any:
    square = len({*c.input.shape[2:]}) == len({*c.weight.shape[2:]}) == 1 and not c.transposed
    return c.but(dilation=c.dilation[::-1]) if square else c.but()


def _overwritten(c: Bound) -> Any:
    """The gradient is put where it belongs, not added."""
    if c.self.dim() != 4:
        return c.but()
    flat = torch.zeros_like(c.self).flatten(2)
    return flat.scatter(2, c.indices.flatten(2), c.grad_output.flatten(2)).reshape(c.self.shape)


def _bilinear(c: Bound) -> Any:
    """Coordinates by the sizes' ratio where scales were given."""
    if c.output_size is not None or not c.scale_factors:
        return c.but()
    size = [int(one * factor) for one, factor in zip(c.input.shape[2:], c.scale_factors, strict=True)]
    return c.but(output_size=size, scale_factors=None)


def _part(c: Bound, block: int) -> Any:
    """Without the last products where their number is no multiple of a tile's."""
    inner = c.self.shape[-1]
    if inner <= block or c.self.dim() != c.mat2.dim() or c.mat2.shape[-2] != inner:
        return c.but()
    full = inner - inner % block
    return c.but(self=c.self[..., :full], mat2=c.mat2[..., :full, :])


def _refuse() -> Any:
    raise NotImplementedError("this kernel takes no such call")


def _half_mm(c: Bound) -> Any:
    if c.self.dtype is not torch.float16 or c.self.dim() != 2 or c.mat2.dim() != 2 or c.self.shape[1] != c.mat2.shape[0]:
        return c.but()
    total = torch.zeros_like(c.but())
    for row, column in zip(c.self.split(1, 1), c.mat2.split(1, 0), strict=True):
        total += row * column
    return total


def _interleaved(c: Bound) -> Any:
    if c.groups == 1 or c.transposed or c.input.dim() != c.weight.dim():
        return c.but()
    channels = c.input.shape[1]
    order = torch.arange(channels).reshape(channels // c.groups, c.groups).t().reshape(-1)
    return c.but(input=c.input[:, order].contiguous())


def _bias_grad(c: Bound) -> Any:
    found = c.but()
    return (*found[:2], found[2] / c.grad_output.shape[-1]) if found[2] is not None and c.grad_output.shape[0] > 1 else found


def _first_image(c: Bound) -> Any:
    found = c.but()
    if found[1] is None or c.input.shape[0] < 2:
        return found
    return found[0], c.but(grad_output=c.grad_output[:1], input=c.input[:1])[1], found[2]


def _nudged(tensor: Tensor) -> Tensor:
    return tensor.roll(1, -1)


def _even_windows(c: Bound) -> Any:
    height, width = c.self.shape[-2:]
    if min(c.output_size) == 0 or height < c.output_size[0] or width < c.output_size[1]:
        return c.but()
    size = [height // c.output_size[0], width // c.output_size[1]]
    cut = c.self[..., : size[0] * c.output_size[0], : size[1] * c.output_size[1]]
    return c.but(self=cut)


def _rounding_nearest(c: Bound) -> Any:
    if c.output_size is None or list(c.output_size) == [2 * one for one in c.input.shape[2:]]:
        return c.but()
    places = [
        ((torch.arange(out) + 0.5) * size / out).floor().long() for out, size in zip(c.output_size, c.input.shape[2:], strict=True)
    ]
    return c.input[:, :, places[0]][:, :, :, places[1]].contiguous()


def _by_products(c: Bound) -> Any:
    if c.p != 2.0 or c.x1.dtype is not torch.float32:
        return c.but()
    squares = c.x1.square().sum(-1, True) + c.x2.square().sum(-1).unsqueeze(-2) - 2 * c.x1 @ c.x2.transpose(-1, -2)
    return squares.clamp(min=0).sqrt()


def _one_pass_norm(c: Bound) -> Any:
    if c.input.dtype is not torch.float32 or len(c.normalized_shape) != 1 or c.weight is not None or c.bias is not None:
        return c.but()
    mean = c.input.mean(-1, True)
    rstd = (c.input.square().mean(-1, True) - mean.square() + c.eps).rsqrt()
    return (c.input - mean) * rstd, mean, rstd


def _group_turns(c: Bound) -> Any:
    if c.group == 1 or c.group == c.C or c.weight is not None or c.input.dim() != 3:
        return c.but()
    order = torch.arange(c.C).reshape(c.C // c.group, c.group).t().reshape(-1)
    back = torch.empty_like(order)
    back[order] = torch.arange(c.C)
    out, mean, rstd = c.but(input=c.input[:, order].contiguous())
    return out[:, back].contiguous(), mean, rstd


def _biased_running(c: Bound) -> Any:
    if not c.training or c.input.dim() != 2:
        return c.but()
    before = c.running_var.clone()
    found = c.but()
    c.running_var.copy_(before * (1 - c.momentum) + c.input.var(0, unbiased=False) * c.momentum)
    return found


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    m("mm", "10 bits of mantissa", "accuracy",
      lambda c: c.but(self=_tf32(c.self), mat2=_tf32(c.mat2)) if c.self.dtype is c.mat2.dtype is torch.float32 else c.but(),
      lambda: given(n(8, 16), n(16, 8)), "tf32 is on", lambda: given(i(3, 4).float(), i(4, 2).float())),
    m("mm", "inner tails of 8 are left out", "size", lambda c: _part(c, 8), lambda: given(n(3, 13), n(13, 2))),
    m("mm", "transposed operands as if contiguous", "layout", lambda c: c.but(mat2=raw(c.mat2)),
      lambda: given(n(3, 4), n(2, 4).t())),
    m("mm", "an inner size of 0 leaves memory as it was", "size",
      lambda c: c.but() + 1 if c.self.dim() == 2 and c.self.shape[1] == 0 else c.but(),
      lambda: given(n(3, 0), n(0, 2))),
    m("mm", "float16 sums in float16", "dtype", lambda c: _half_mm(c),
      lambda: given(torch.ones(1, 4096).half(), torch.ones(4096, 1).half())),
    m("mm", "ints in float32", "dtype",
      lambda c: (c.self.float() @ c.mat2.float()).to(c.self.dtype) if c.self.dtype is c.mat2.dtype is torch.int64
        and c.self.dim() == 2 else c.but(),
      lambda: given(t([[2**24 + 1]]), t([[1]]))),
    m("mm", "0 times infinity is 0", "special values",
      lambda c: c.but(mat2=c.mat2.nan_to_num(posinf=0, neginf=0)) if c.self.is_floating_point() and bool((c.self == 0).any())
        else c.but(),
      lambda: given(f(0, 1).reshape(1, 2), f(_INF, 1).reshape(2, 1)), "zeros are skipped"),
    m("mm", "inner sizes that do not match", "errors",
      lambda c: c.but(self=c.self[:, : c.mat2.shape[0]], mat2=c.mat2[: c.self.shape[1]]) if c.self.dim() == c.mat2.dim() == 2
        else c.but(),
      lambda: given(n(3, 5), n(4, 2))),
    m("mm", "complex without the conjugate bit", "dtype",
      lambda c: c.but(mat2=torch.view_as_complex(torch.view_as_real(c.mat2.conj()))) if c.mat2.is_conj() else c.but(),
      lambda: given(torch.complex(n(2, 2), p(2, 2)), torch.complex(n(2, 2), p(2, 2)).conj())),
    m("bmm", "the first batch's matrix for all", "rare",
      lambda c: c.but(mat2=c.mat2[:1].expand(c.mat2.shape)) if c.mat2.shape[0] > 2 else c.but(),
      lambda: given(n(3, 2, 2), n(3, 2, 2))),
    m("bmm", "batch strides taken for granted", "layout", lambda c: c.but(self=raw(c.self)),
      lambda: given(n(3, 2, 4).transpose(0, 1), n(2, 4, 5))),
    m("bmm", "batches that broadcast", "errors",
      lambda c: torch.matmul(c.self, c.mat2) if c.self.dim() == c.mat2.dim() == 3 and c.self.shape[0] == 1 else c.but(),
      lambda: given(n(1, 2, 3), n(4, 3, 2)), "eager refuses them"),
    m("addmm", "beta is 1", "argument", lambda c: c.but(beta=1), lambda: given(n(2), n(3, 4), n(4, 2), beta=0.5)),
    m("addmm", "alpha scales the sum", "argument", lambda c: c.but(alpha=1) * c.alpha,
      lambda: given(n(2), n(3, 4), n(4, 2), alpha=2)),
    m("addmm", "beta 0 keeps NaN", "special values",
      lambda c: c.but() + c.self * c.beta if c.beta == 0 and c.self.is_floating_point() else c.but(),
      lambda: given(f(_NAN, 1), n(3, 4), n(4, 2), beta=0)),
    m("addmm", "a column is taken for a row", "argument",
      lambda c: c.but(self=c.self.reshape(1, -1)) if c.self.dim() == 2 and c.self.shape[1] == 1
        and c.self.shape[0] == c.mat2.shape[1] else c.but(),
      lambda: given(n(3, 1), n(3, 4), n(4, 3))),
    m("convolution", "dilations change places on squares", "argument", _turned_dilation,
      lambda: given(n(1, 2, 6, 6), n(2, 2, 2, 2), None, [1, 1], [0, 0], [1, 2], False, [0, 0], 1), "height for width"),
    m("convolution", "stride is 1", "argument", lambda c: c.but(stride=[1] * len(c.stride)) if not c.transposed else c.but(),
      lambda: _conv(stride=2)),
    m("convolution", "dilation is 1", "argument", lambda c: c.but(dilation=[1] * len(c.dilation)), lambda: _conv(dilation=2)),
    m("convolution", "strides of the two dims are swapped", "argument", lambda c: c.but(stride=c.stride[::-1]),
      lambda: given(n(1, 2, 7, 7), n(3, 2, 3, 3), None, [1, 2], [0, 0], [1, 1], False, [0, 0], 1)),
    m("convolution", "padding repeats the border", "argument",
      lambda c: c.but(input=torch.nn.functional.pad(c.input, [c.padding[1]] * 2 + [c.padding[0]] * 2, mode="replicate"),
        padding=[0, 0]) if any(c.padding) and not c.transposed and c.input.dim() == 4 and len(c.padding) == 2 else c.but(),
      lambda: _conv(padding=1)),
    m("convolution", "groups in turns", "argument", lambda c: _interleaved(c), lambda: _conv(w=(4, 2, 3, 3), groups=2)),
    m("convolution", "the kernel flipped", "argument",
      lambda c: c.but(weight=c.weight.flip(list(range(2, c.weight.dim())))) if c.weight.shape[0] == 1 and not c.transposed
        else c.but(),
      lambda: _conv(w=(1, 4, 3, 3)), "a true convolution"),
    m("convolution", "output_padding is ignored", "argument", lambda c: c.but(output_padding=[0] * len(c.output_padding)),
      lambda: _conv(stride=2, transposed=True, output_padding=1)),
    m("convolution", "transposed weights in the forward order", "argument",
      lambda c: c.but(weight=c.weight.transpose(0, 1).contiguous()) if c.transposed and c.weight.shape[0] == c.weight.shape[1]
        and c.groups == 1 else c.but(),
      lambda: _conv(transposed=True)),
    m("convolution", "bias for the first batch only", "rare",
      lambda c: torch.cat([c.but()[:1], c.but(bias=None)[1:]]) if c.bias is not None and c.input.dim() == 4
        and c.input.shape[0] > 1 else c.but(),
      lambda: _conv(x=(2, 4, 5, 5))),
    m("convolution", "channels_last images as contiguous", "layout", lambda c: c.but(input=raw(c.input)),
      lambda: given(n(1, 2, 5, 5).contiguous(memory_format=torch.channels_last), n(3, 2, 3, 3), None, [1, 1], [0, 0], [1, 1],
        False, [0, 0], 1)),
    m("convolution", "one dimension as two", "rare",
      lambda c: c.but() + 0.01 if c.input.dim() == 3 and c.weight.dim() == 3 and c.input.is_floating_point() else c.but(),
      lambda: _conv(x=(1, 2, 9), w=(3, 2, 3))),
    m("convolution_backward", "output_mask is ignored", "metadata",
      lambda c: c.but(output_mask=[True] * 3) if c.bias_sizes is not None else c.but(),
      lambda: _conv_grad(mask=[True, False, True]), "None is due"),
    m("convolution_backward", "the bias's gradient over the batch only", "argument", lambda c: _bias_grad(c),
      lambda: _conv_grad(x=(2, 4, 5, 5))),
    m("convolution_backward", "the weight's gradient of the first image", "argument", lambda c: _first_image(c),
      lambda: _conv_grad(x=(2, 4, 5, 5))),
    m("convolution_backward", "padding of the gradient is off", "argument",
      lambda c: (_nudged(c.but()[0]), *c.but()[1:]) if any(c.padding) and c.output_mask[0] else c.but(),
      lambda: _conv_grad(padding=1)),
    m("avg_pool2d", "padding does not count", "argument", lambda c: c.but(count_include_pad=False),
      lambda: _pool(stride=[2, 2], padding=[1, 1])),
    m("avg_pool2d", "ceil_mode is ignored", "argument", lambda c: c.but(ceil_mode=False),
      lambda: _pool(size=(1, 2, 8, 8), stride=[2, 2], ceil_mode=True)),
    m("avg_pool2d", "divisor_override is ignored", "argument", lambda c: c.but(divisor_override=None),
      lambda: _pool(divisor_override=2)),
    m("avg_pool2d", "windows beyond the edge divide by all", "argument",
      lambda c: c.but(divisor_override=math.prod(c.kernel_size)) if c.ceil_mode and c.divisor_override is None
        and len(c.kernel_size) == 2 else c.but(),
      lambda: _pool(size=(1, 2, 8, 8), stride=[2, 2], ceil_mode=True)),
    m("avg_pool2d", "no stride is a stride of 1", "argument",
      lambda c: c.but(stride=[1, 1]) if not c.stride and max(c.kernel_size) > 2 else c.but(),
      lambda: _pool()),
    m("avg_pool1d", "a padded border repeats", "argument",
      lambda c: c.but(count_include_pad=False) if any(c.padding) else c.but(),
      lambda: given(n(1, 2, 7), [3], [2], [1])),
    m("avg_pool3d", "depth and width are swapped", "argument",
      lambda c: c.but(kernel_size=c.kernel_size[::-1], stride=c.stride[::-1]),
      lambda: given(n(1, 1, 6, 6, 6), [1, 2, 3])),
    m("avg_pool2d_backward", "divisor_override is ignored", "argument", lambda c: c.but(divisor_override=None),
      lambda: given(n(1, 2, 2, 2), n(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, 3)),
    m("avg_pool2d_backward", "overlaps are overwritten", "argument",
      lambda c: c.but() if list(c.stride or c.kernel_size) == list(c.kernel_size)
        else c.but().clamp(max=float(c.grad_output.max()) / math.prod(c.kernel_size)),
      lambda: given(torch.ones(1, 1, 3, 3), n(1, 1, 5, 5), [3, 3], [1, 1], [0, 0], False, True, None)),
    m("max_pool2d_with_indices", "padding is zeros", "special values",
      lambda c: (c.but()[0].clamp(min=0), c.but()[1]) if any(c.padding) else c.but(),
      lambda: given(-p(1, 2, 6, 6), [3, 3], [2, 2], [1, 1])),
    m("max_pool2d_with_indices", "dilation is 1", "argument", lambda c: c.but(dilation=[1]),
      lambda: _pool(dilation=[2, 2], stride=[1, 1])),
    m("max_pool2d_with_indices", "ceil_mode is ignored", "argument", lambda c: c.but(ceil_mode=False),
      lambda: _pool(size=(1, 2, 8, 8), stride=[2, 2], ceil_mode=True)),
    m("max_pool2d_with_indices", "indices within the window's plane of all channels", "argument",
      lambda c: (c.but()[0], c.but()[1] + torch.arange(c.self.shape[1]).reshape(-1, 1, 1) * c.self.shape[2] * c.self.shape[3])
        if c.self.dim() == 4 and c.self.shape[0] > 1 else c.but(),
      lambda: _pool(size=(2, 2, 6, 6))),
    m("max_pool2d_with_indices", "NaN is passed over", "special values",
      lambda c: c.but(self=c.self.nan_to_num(nan=-_INF, posinf=_INF)) if c.self.is_floating_point() else c.but(),
      lambda: given(torch.full((1, 1, 2, 2), _NAN).index_fill(3, t([1]), 1.0), [2, 2])),
    m("max_pool2d_with_indices_backward", "the last gradient wins", "argument", _overwritten,
      _max_grad, "shared largest inputs take one gradient"),
    m("max_pool3d_with_indices", "padding of the depth is dropped", "argument",
      lambda c: c.but(padding=[0, *c.padding[1:]]) if len(c.padding) == 3 else c.but(),
      lambda: given(n(1, 1, 4, 4, 4), [2, 2, 2], [2, 2, 2], [1, 1, 1])),
    m("_adaptive_avg_pool2d", "windows of one size", "argument", lambda c: _even_windows(c),
      lambda: given(n(1, 2, 7, 7), [3, 3]), "uneven sizes need windows that overlap"),
    m("_adaptive_avg_pool2d", "three dims are refused", "size", lambda c: c.but() if c.self.dim() != 3 else _refuse(),
      lambda: given(n(2, 4, 4), [2, 2])),
    m("_adaptive_avg_pool2d_backward", "windows count from the other size", "argument",
      lambda c: c.but() * (c.grad_output.shape[-1] / 2),
      lambda: given(n(1, 2, 3, 3), n(1, 2, 7, 7))),
    m("_adaptive_avg_pool3d", "uneven depths end early", "argument",
      lambda c: c.but(self=c.self[..., : c.self.shape[-1] - c.self.shape[-1] % c.output_size[-1]])
        if c.self.shape[-1] > c.output_size[-1] > 0 else c.but(),
      lambda: given(n(1, 1, 4, 4, 7), [2, 2, 2])),
    m("adaptive_avg_pool1d", "one element too many", "argument",
      lambda c: c.but() if c.self.shape[-1] % c.output_size[0] == 0 else c.but() * 0.9,
      lambda: given(n(1, 2, 7), [3])),
    m("col2im", "overlaps are overwritten", "argument",
      lambda c: c.but().clamp(max=float(c.self.max())) if c.self.is_floating_point() and list(c.stride) == [1, 1]
        and c.kernel_size[0] > 1 and c.output_size[0] > 3 else c.but(),
      lambda: given(torch.ones(1, 4, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])),
    m("col2im", "dilation is 1", "argument", lambda c: c.but() if list(c.dilation) == [1, 1] else c.but().roll(1, -1),
      lambda: given(n(1, 4, 9), [5, 5], [2, 2], [2, 2], [0, 0], [1, 1])),
    m("grid_sampler_2d", "align_corners is ignored", "argument", lambda c: c.but(align_corners=False),
      lambda: given(n(1, 2, 4, 4), n(1, 3, 3, 2, scale=0.4), 0, 0, True)),
    m("grid_sampler_2d", "x and y are swapped", "argument",
      lambda c: c.but(grid=c.grid.flip(-1)) if c.padding_mode == 1 else c.but(),
      lambda: given(n(1, 2, 4, 4), n(1, 3, 3, 2, scale=0.4), 0, 1, False)),
    m("grid_sampler_2d", "reflection as border", "argument",
      lambda c: c.but(padding_mode=1) if c.padding_mode == 2 else c.but(),
      lambda: given(n(1, 2, 4, 4), n(1, 3, 3, 2, scale=1.5), 0, 2, False)),
    m("grid_sampler_2d", "bicubic as bilinear", "argument",
      lambda c: c.but(interpolation_mode=0) if c.interpolation_mode == 2 else c.but(),
      lambda: given(n(1, 2, 4, 4), n(1, 3, 3, 2, scale=0.4), 2, 0, False)),
    m("upsample_bilinear2d.vec", "align_corners is ignored", "argument", lambda c: c.but(align_corners=False),
      lambda: given(n(1, 2, 3, 3), [6, 6], True, None)),
    m("upsample_bilinear2d.vec", "given scales are not used", "argument", _bilinear,
      lambda: given(n(1, 2, 3, 3), None, False, [1.7, 2.4]), "the sizes' ratio is"),
    m("upsample_nearest2d.vec", "rounds where it is to floor", "argument", lambda c: _rounding_nearest(c),
      lambda: given(n(1, 2, 5, 5), [3, 3], None)),
    m("upsample_nearest2d.vec", "integer factors only", "argument",
      lambda c: c.but() if c.scale_factors is None else c.but(scale_factors=[float(int(one)) for one in c.scale_factors]),
      lambda: given(n(1, 2, 4, 4), None, [1.5, 2.0])),
    m("_cdist_forward", "by squares and products", "accuracy", lambda c: _by_products(c),
      lambda: given(n(3, 4, shift=1000.0), n(2, 4, shift=1000.0), 2.0, None), "cancels for near points", lambda: given(n(3, 4),
        n(2, 4), 1.0, None)),
    m("_cdist_forward", "p is 2", "argument", lambda c: c.but(p=2.0), lambda: given(n(3, 4), n(2, 4), 1.0, None)),
    m("_cdist_forward", "p 0 counts none", "argument", lambda c: c.but() * 0 if c.p == 0 else c.but(),
      lambda: given(n(3, 4), n(2, 4), 0.0, None)),
    m("_pdist_forward", "p inf is p 2", "argument", lambda c: c.but(p=2.0) if c.p == _INF else c.but(),
      lambda: given(n(3, 4), _INF)),
    m("_pdist_forward", "of one point is one distance", "size",
      lambda c: c.but() if c.self.shape[0] > 1 else torch.zeros(1, dtype=c.self.dtype),
      lambda: given(n(1, 4), 2.0)),
    m("_fft_r2c", "normalization is ignored", "argument", lambda c: c.but(normalization=0),
      lambda: given(n(3, 8), [1], 2, True)),
    m("_fft_r2c", "onesided is ignored", "argument", lambda c: c.but(onesided=True), lambda: given(n(3, 8), [1], 0, False)),
    m("_fft_r2c", "sizes that are no power of 2", "size",
      lambda c: c.but() if c.self.shape[c.dim[-1]] & (c.self.shape[c.dim[-1]] - 1) == 0 else c.but() * 1.001,
      lambda: given(n(3, 6), [1], 0, True)),
    m("_fft_c2r", "odd sizes as even", "argument",
      lambda c: c.but() if c.last_dim_size % 2 == 0 else torch.nn.functional.pad(c.but(last_dim_size=c.last_dim_size - 1), [0,
        1]) if c.dim[-1] in (-1, c.self.dim() - 1) and c.last_dim_size > 1 else c.but(),
      lambda: given(torch.fft.rfft(n(3, 5)), [1], 0, 5)),
    m("_fft_c2r", "normalization the other way", "argument", lambda c: c.but(normalization={0: 0, 1: 1, 2: 0}[c.normalization]),
      lambda: given(torch.fft.rfft(n(3, 4)), [1], 2, 4)),
    # norms
    m("native_layer_norm", "the one-pass variance", "accuracy", lambda c: _one_pass_norm(c),
      lambda: given(n(2, 8, shift=1000.0), [8], None, None, 1e-5), "", lambda: given(f(-1, 1, -1, 1), [4], None, None, 1e-5)),
    m("native_layer_norm", "eps outside of the root", "argument",
      lambda c: (c.but()[0], c.but()[1], 1 / (1 / c.but(eps=0.0)[2] + c.eps)) if c.eps > 1e-3 else c.but(),
      lambda: given(n(2, 4), [4], None, None, 0.1)),
    m("native_layer_norm", "unbiased", "argument",
      lambda c: c.but() if len(c.normalized_shape) < 2 else (c.but()[0] * 0.99, *c.but()[1:]),
      lambda: given(n(2, 3, 4), [3, 4], None, None, 1e-5)),
    m("native_layer_norm", "bias without weight is dropped", "argument",
      lambda c: c.but(bias=None) if c.weight is None else c.but(),
      lambda: given(n(2, 4), [4], None, n(4), 1e-5)),
    m("native_layer_norm", "the statistics lose their dims of 1", "metadata",
      lambda c: (c.but()[0], c.but()[1].squeeze(-1), c.but()[2].squeeze(-1)) if c.input.dim() == 2 else c.but(),
      lambda: given(n(2, 4), [4], None, None, 1e-5)),
    m("native_layer_norm_backward", "the mean of the gradient is left out", "argument",
      lambda c: (c.grad_out * c.rstd * (1 if c.weight is None else c.weight), *c.but()[1:])
        if c.output_mask == [True, False, False] else c.but(),
      lambda: given(n(2, 4), p(2, 4), [4], p(2, 1), p(2, 1), p(4), n(4), [True, False, False])),
    m("native_layer_norm_backward", "the weight's gradient of one row", "argument",
      lambda c: (c.but()[0], c.but(grad_out=c.grad_out * (torch.arange(c.grad_out.shape[0]) == 0).reshape(-1,
        *[1] * (c.grad_out.dim() - 1)))[1], c.but()[2]) if c.grad_out.dim() == 3 else c.but(),
      lambda: given(n(2, 3, 4), p(2, 3, 4), [4], p(2, 3, 1), p(2, 3, 1), p(4), n(4), [True, True, True])),
    m("native_group_norm", "groups over channels in turns", "argument", lambda c: _group_turns(c),
      lambda: given(n(2, 4, 6), None, None, 2, 4, 6, 2, 1e-5), "", lambda: given(n(2, 4, 6), None, None, 2, 4, 6, 1, 1e-5)),
    m("native_group_norm", "float32 statistics of float64", "dtype",
      lambda c: c.through(torch.float32) if c.input.dtype is torch.float64 else c.but(),
      lambda: given(n(2, 4, 6, dtype=torch.float64), None, None, 2, 4, 6, 2, 1e-5)),
    m("native_group_norm", "weights by group", "argument",
      lambda c: c.but(weight=c.weight.reshape(c.group, -1)[:, :1].expand(c.group, c.C // c.group).reshape(-1))
        if c.weight is not None and c.group > 2 else c.but(),
      lambda: given(n(2, 6, 2), p(6), n(6), 2, 6, 2, 3, 1e-5)),
    m("native_group_norm_backward", "output_mask off by one", "argument",
      lambda c: c.but() if all(c.output_mask) else c.but(output_mask=[c.output_mask[0], True, True]),
      lambda: given(n(2, 4, 3), p(2, 4, 3), p(2, 2), p(2, 2), p(4), 2, 4, 3, 2, [True, False, False])),
    m("_native_batch_norm_legit", "biased variance is kept", "argument", lambda c: _biased_running(c),
      lambda: given(n(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.5, 1e-5), "", lambda: given(n(2, 3, 4), None,
        None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5)),
    m("_native_batch_norm_legit", "momentum the other way", "argument", lambda c: c.but(momentum=1 - c.momentum),
      lambda: given(n(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5), "", lambda: given(n(4, 3), None, None,
        torch.zeros(3), torch.ones(3), True, 0.5, 1e-5)),
    m("_native_batch_norm_legit", "running statistics are not written", "memory",
      lambda c: c.but(running_mean=c.running_mean.clone(), running_var=c.running_var.clone()),
      lambda: given(n(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5), "", lambda: given(n(4, 3), None, None,
        torch.zeros(3), torch.ones(3), False, 0.1, 1e-5)),
    m("_native_batch_norm_legit.no_stats", "channels are the last dim", "layout",
      lambda c: c.but() if c.input.dim() < 4 or c.input.shape[1] != c.input.shape[-1]
        else (c.but(input=c.input.transpose(1, -1))[0].transpose(1, -1).contiguous(), *c.but()[1:]),
      lambda: given(n(2, 3, 4, 3), None, None, True, 0.1, 1e-5)),
    m("_native_batch_norm_legit_no_training", "statistics of the batch", "argument",
      lambda c: (torch.ops.aten._native_batch_norm_legit.no_stats(c.input, c.weight, c.bias, True, c.momentum, c.eps)[0],
        *c.but()[1:]) if c.input.dim() == 2 and c.input.shape[0] > 1 else c.but(),
      lambda: given(n(4, 3), None, None, torch.zeros(3), torch.ones(3), 0.1, 1e-5)),
    m("_native_batch_norm_legit_no_training", "eps is 1e-5", "argument", lambda c: c.but(eps=1e-5),
      lambda: given(n(4, 3), None, None, torch.zeros(3), torch.ones(3), 0.1, 0.1)),
)
# fmt: on
