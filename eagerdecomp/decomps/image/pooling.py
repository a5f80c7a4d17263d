"""Pooling and its gradients. Max pooling gathers all windows with one index tensor.

A window that leaves the input, or is shorter than the longest one, repeats one of its own elements. This changes neither the
maximum nor which of equal elements is first. So every kind of maximum pooling is one gather by a table of indices. Its gradient is
one scatter to the indices of the maxima.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.decomps.math.pool_windows import (
    adaptive_extents,
    adaptive_places,
    along_dim,
    flat_places,
    is_pooled,
    plane_rows,
    pool_counts,
    pool_windows,
    sampled_places,
    strided_places,
)
from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.writeback import write_out

aten = torch.ops.aten

# -- maxima and their gradients ------------------------------------------------------------------------------------


def _maxima(x: Tensor, places: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the maximum of every window and its index: the first of equal elements, or the last NaN if there is one."""
    dims = len(output_size)
    flat = aten.reshape.default(x, plane_rows(x, dims))
    rows, (windows, taps) = flat.size(0), places.shape[-2:]
    if places.dim() == 2:
        values = aten.index.Tensor(flat, [None, places])
        places = aten.expand.default(places, [rows, windows, taps])
    else:
        values = aten.view.default(aten.gather.default(flat, 1, aten.view.default(places, [rows, -1])), [rows, windows, taps])
    if x.dtype.is_floating_point:
        most = aten.amax.default(values, [-1], True)
        order = aten.arange.start_step(1, taps + 1, device=x.device)
        rank = aten.where.self(aten.isnan.default(values), order, aten.eq.Tensor(values, most))
        chosen = aten.argmax.default(rank, -1, True)
    else:
        most, chosen = aten.max.dim(values, -1, True)
    shape = [*x.shape[:-dims], *output_size]
    return aten.view.default(most, shape), aten.reshape.default(aten.gather.default(places, -1, chosen), shape)


def _nothing(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    shape = [*x.shape[: -len(output_size)], *output_size]
    return (
        aten.full.default(shape, 0, dtype=x.dtype, device=x.device),
        aten.full.default(shape, 0, dtype=torch.int64, device=x.device),
    )


def _gradient_by_places(grad: Tensor, x: Tensor, indices: Tensor, dims: int) -> Tensor:
    """Return the gradient of `x`: each element of `grad` is added at its index in `indices`, per plane."""
    shape = plane_rows(x, dims)
    zeros = aten.full.default(shape, 0, dtype=grad.dtype, device=grad.device)
    values = aten.reshape.default(grad, plane_rows(grad, dims))
    places = aten.reshape.default(indices, plane_rows(indices, dims))
    if grad.dtype in HALF:
        # The kernels round each sum to the dtype. So does `index_put`, while `scatter_add` may sum in a wider dtype.
        rows = aten.view.default(aten.arange.start_step(0, shape[0], device=grad.device), [-1, 1])
        summed = aten.index_put.default(zeros, [rows, places], values, True)
    else:
        summed = aten.scatter_add.default(zeros, 1, places, values)
    return aten.view.default(summed, list(x.shape))  # type: ignore[no-any-return]


# -- adaptive maxima ----------------------------------------------------------------------------------------------


def _adaptive_max_pool(dims: int) -> Callable[..., Any]:
    def run(self: Tensor, output_size: list[int]) -> Any:
        sizes = self.shape[-dims:]
        if 0 in self.shape[1:]:
            return NotImplemented  # only the first dimension may be empty, be it the batch or the channels
        if not self.numel() or not all(output_size):
            values, indices = _nothing(self, output_size)
        elif all(size % count == 0 for size, count in zip(sizes, output_size, strict=True)):
            window = [size // count for size, count in zip(sizes, output_size, strict=True)]
            if dims == 2:
                return aten.max_pool2d_with_indices.default(self, window)
            self = in_format_of(self, None)  # a kernel refuses contiguous strides that are channels last too
            return aten.max_pool3d_with_indices.default(self, window)
        else:
            places = [
                adaptive_places(sizes[dim], output_size[dim], dim, dims, self.device)  #
                for dim in range(dims)
            ]
            values, indices = _maxima(self, flat_places(places, sizes, math.prod(output_size)), output_size)
        if dims == 2:  # the kernel for volumes returns contiguous results always
            return in_format_of(values, self), in_format_of(indices, self)
        return values, indices

    return run


def _adaptive_max_pool_backward(dims: int) -> Callable[..., Any]:
    def run(grad_output: Tensor, self: Tensor, indices: Tensor) -> Any:
        if grad_output.shape != indices.shape:
            return NotImplemented
        grad = _gradient_by_places(grad_output, self, indices, dims)
        return in_format_of(grad, self) if dims == 2 else grad

    return run


# -- maxima of fixed windows --------------------------------------------------------------------------------------


def _max_pool(dims: int) -> Callable[..., Any]:
    def run(
        self: Tensor,
        kernel_size: list[int],
        stride: list[int] = (),  # type: ignore[assignment]
        padding: list[int] = (0,),  # type: ignore[assignment]
        dilation: list[int] = (1,),  # type: ignore[assignment]
        ceil_mode: bool = False,
    ) -> Any:
        windows = pool_windows(dims, kernel_size, stride, padding, dilation)
        sizes = self.shape[-dims:]
        count = pool_counts(sizes, windows, ceil_mode)
        if not self.numel():
            values, indices = _nothing(self, count)
        else:
            places = [strided_places(windows[d], sizes[d], count[d], d, dims, self.device) for d in range(dims)]
            values, indices = _maxima(self, flat_places(places, sizes, math.prod(count)), count)
        if self.dim() == dims + 2:
            return in_format_of(values, self), in_format_of(indices, self)
        # Without a batch, 2-D results are contiguous. 3-D results have the input's memory format, but their gradients do not.
        last = dims == 3 and not self.is_contiguous() and aten.permute.default(self, [1, 2, 3, 0]).is_contiguous()
        return (_channels_moved_last(values), _channels_moved_last(indices)) if last else (values, indices)

    return run


def _channels_moved_last(x: Tensor) -> Tensor:
    moved = aten.clone.default(aten.permute.default(x, [1, 2, 3, 0]), memory_format=torch.contiguous_format)
    return aten.permute.default(moved, [3, 0, 1, 2])  # type: ignore[no-any-return]


def _max_pool_backward(dims: int) -> Callable[..., Any]:
    def run(grad_output: Tensor, self: Tensor, *rest: Any) -> Any:
        *options, ceil_mode, indices = rest
        if dims == 3:  # eager takes the number of windows from the gradient
            fits = grad_output.shape == indices.shape and grad_output.shape[:-3] == self.shape[:-3]
        else:
            windows = pool_windows(2, *options)
            fits = all(is_pooled(given, self, windows, ceil_mode) for given in (grad_output, indices))
        if not fits:
            raise ValueError  # so that eager is asked: torch's table entry, the next rule, accepts more
        batch = self if self.dim() == dims + 2 else None
        return in_format_of(_gradient_by_places(grad_output, self, indices, dims), batch)

    return run


# -- fractional maxima --------------------------------------------------------------------------------------------


def _fractional_max_pool(dims: int) -> Callable[..., Any]:
    def run(self: Tensor, kernel_size: list[int], output_size: list[int], random_samples: Tensor) -> Any:
        batch, sizes = self.size(0) if self.dim() == dims + 2 else 1, self.shape[-dims:]
        spans = zip(sizes, kernel_size, output_size, strict=True)
        if any(count + kernel - (dims == 2) > size for size, kernel, count in spans):
            return NotImplemented  # the kernel for volumes refuses windows that just fit
        if 0 in self.shape[1:]:
            return NotImplemented  # only the first dimension may be empty, be it the batch or the channels
        if random_samples.size(0) < batch or list(random_samples.shape[1:]) != [self.size(-dims - 1), dims]:
            return NotImplemented
        if min(kernel_size) < 1:
            return NotImplemented
        if not self.numel() or not all(output_size):
            return _nothing(self, output_size)
        samples = random_samples if random_samples.size(0) == batch else aten.slice.Tensor(random_samples, 0, 0, batch)
        samples = aten.reshape.default(samples, [-1, dims])
        places = [
            # The samples of 2-D pooling list the width first.
            sampled_places(
                aten.select.int(samples, 1, 1 - dim if dims == 2 else dim),
                sizes[dim],
                output_size[dim],
                kernel_size[dim],
                dim,
                dims,
            )
            for dim in range(dims)
        ]
        return _maxima(self, flat_places(places, sizes, math.prod(output_size)), output_size)

    return run


def _fractional_max_pool_backward(dims: int) -> Callable[..., Any]:
    def run(grad_output: Tensor, self: Tensor, kernel_size: list[int], output_size: list[int], indices: Tensor) -> Any:
        wanted = [*self.shape[:-dims], *output_size]
        if list(grad_output.shape) != wanted or list(indices.shape) != wanted:
            return NotImplemented
        return _gradient_by_places(grad_output, self, indices, dims)

    return run


# -- averages -----------------------------------------------------------------------------------------------------


@rule("aten.avg_pool3d_backward.default", recorded=True)
def _avg_pool3d_backward(grad_output: Tensor, self: Tensor, *rest: Any) -> Any:
    """Divide the gradient by each window's divisor. Sum overlapping windows by a transposed convolution with ones."""
    kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override = rest
    windows = pool_windows(3, kernel_size, stride, padding, [1])
    if not self.dtype.is_floating_point or not is_pooled(grad_output, self, windows, ceil_mode):
        return NotImplemented
    kernel, strides, pads, _ = map(list, zip(*windows, strict=True))
    shape, sizes, counts = list(self.shape), self.shape[-3:], grad_output.shape[-3:]
    if not self.numel():
        return aten.full.default(shape, 0, dtype=self.dtype, device=self.device)
    if divisor_override is not None:
        grad = aten.div.Scalar(grad_output, divisor_override)
    else:
        grad = grad_output
        for dim in range(3):
            window = (kernel[dim], strides[dim], pads[dim], sizes[dim], counts[dim])
            grad = _divided(grad, dim, _spans(window, count_include_pad), _span_tensor(window, count_include_pad, grad.device))
    planes = aten.reshape.default(grad, [math.prod(shape[:-3]), 1, *counts])
    ones = aten.full.default([1, 1, *kernel], 1, dtype=grad.dtype, device=grad.device)
    reach = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(counts, strides, kernel, pads, strict=True)]
    missing = [max(size - got, 0) for size, got in zip(sizes, reach, strict=True)]
    summed = aten.convolution.default(planes, ones, None, strides, pads, [1, 1, 1], True, missing, 1)
    for dim in range(3):
        if reach[dim] > sizes[dim]:  # with ceil_mode the last window leaves the input
            summed = aten.slice.Tensor(summed, 2 + dim, 0, sizes[dim])
    return in_format_of(aten.reshape.default(summed, shape), None)


def _spans(window: tuple[int, int, int, int, int], count_include_pad: bool) -> list[int]:
    """Return divisors of windows along a dimension, the least and the largest among them.

    The divisor is a concave function of the window's number: it is least at an end, and largest at an end or where it bends.
    """
    kernel, stride, padding, size, count = window
    end = size + padding if count_include_pad else size
    bends = [0, count - 1, padding // stride, padding // stride + 1, (end + padding - kernel) // stride]
    starts = [min(max(at, 0), count - 1) * stride - padding for at in (*bends, bends[-1] + 1)]
    return [min(start + kernel, end) - (start if count_include_pad else max(start, 0)) for start in starts]


def _span_tensor(window: tuple[int, int, int, int, int], count_include_pad: bool, device: torch.device) -> Callable[[], Tensor]:
    kernel, stride, padding, size, count = window

    def make() -> Tensor:
        starts = aten.arange.start_step(-padding, count * stride - padding, stride, device=device)
        ends = aten.clamp.default(aten.add.Scalar(starts, kernel), None, size + padding if count_include_pad else size)
        return aten.sub.Tensor(ends, starts if count_include_pad else aten.clamp.default(starts, 0))  # type: ignore[no-any-return]

    return make


def _extent_tensor(size: int, count: int, device: torch.device) -> Callable[[], Tensor]:
    def make() -> Tensor:
        scaled = aten.arange.start_step(0, count * size, size, device=device)
        starts = aten.div.Scalar_mode(scaled, count, rounding_mode="floor")
        ends = aten.div.Scalar_mode(aten.add.Scalar(scaled, size + count - 1), count, rounding_mode="floor")
        return aten.sub.Tensor(ends, starts)  # type: ignore[no-any-return]

    return make


def _divided(x: Tensor, dim: int, spans: Sequence[int], tensor: Callable[[], Tensor], *, by: Any = aten.div) -> Tensor:
    """Divide `x` by the spans along dimension `dim` of its last three. If all spans are equal, divide by a scalar."""
    if min(spans) == max(spans):
        return x if spans[0] == 1 else by.Scalar(x, spans[0])
    return by.Tensor(x, along_dim(tensor(), dim, 3))  # type: ignore[no-any-return]


def _adaptive_avg_pool_backward(dims: int) -> Callable[..., Any]:
    """Make the backward rule: adaptive pooling of the gradient, with input and output sizes exchanged.

    A window of this pooling holds exactly the forward windows that contain one element. Its mean times its size is the gradient.
    """
    forward = {2: aten._adaptive_avg_pool2d.default, 3: aten._adaptive_avg_pool3d.default}[dims]

    def run(grad_output: Tensor, self: Tensor) -> Any:
        if grad_output.shape[:-dims] != self.shape[:-dims]:
            return NotImplemented
        if not self.numel():
            return in_format_of(aten.full.default(self.shape, 0, dtype=self.dtype, device=self.device), self)
        sizes, counts, device = self.shape[-dims:], grad_output.shape[-dims:], self.device
        grad = aten._to_copy.default(grad_output, dtype=torch.float32) if self.dtype in HALF else grad_output
        for dim, (size, count) in enumerate(zip(sizes, counts, strict=True), 3 - dims):
            grad = _divided(grad, dim, adaptive_extents(size, count), _extent_tensor(size, count, device))
        grad = forward(grad, list(sizes))
        for dim, (size, count) in enumerate(zip(sizes, counts, strict=True), 3 - dims):
            grad = _divided(grad, dim, adaptive_extents(count, size), _extent_tensor(count, size, device), by=aten.mul)
        if self.dtype in HALF:
            grad = aten._to_copy.default(grad, dtype=self.dtype)
        return in_format_of(grad, self if dims == 2 else None)

    return run


@rule("aten._adaptive_avg_pool2d.default", recorded=True)
def _adaptive_avg_pool_to_nothing(self: Tensor, output_size: Sequence[int]) -> Any:
    """Return a result without elements, for which torch's decomposition divides by zero."""
    if all(output_size):
        return NotImplemented
    shape, form = [*self.shape[:-2], *output_size], suggested_memory_format(self)
    return aten.empty.memory_format(shape, dtype=self.dtype, device=self.device, memory_format=form)


# -- unpooling ----------------------------------------------------------------------------------------------------


def _max_unpool(dims: int) -> Callable[..., Any]:
    def run(self: Tensor, indices: Tensor, output_size: list[int], *rest: list[int]) -> Any:
        if indices.shape != self.shape:
            return NotImplemented
        shape = [*self.shape[:-dims], *output_size]
        zeros = aten.full.default([math.prod(shape[:-dims]), math.prod(output_size)], 0, dtype=self.dtype, device=self.device)
        values, places = (aten.reshape.default(x, plane_rows(x, dims)) for x in (self, indices))
        spread = aten.view.default(aten.scatter.src(zeros, 1, places, values), shape)
        return in_format_of(spread, self if dims == 2 else None)

    return run


rule("aten.adaptive_max_pool2d.default", recorded=True)(_adaptive_max_pool(2))
rule("aten.adaptive_max_pool3d.default", recorded=True)(_adaptive_max_pool(3))
rule("aten.adaptive_max_pool2d_backward.default", recorded=True)(_adaptive_max_pool_backward(2))
rule("aten.adaptive_max_pool3d_backward.default", recorded=True)(_adaptive_max_pool_backward(3))
rule("aten.max_pool2d_with_indices.default", recorded=True)(_max_pool(2))
rule("aten.max_pool3d_with_indices.default", recorded=True)(_max_pool(3))
rule("aten.max_pool2d_with_indices_backward.default", recorded=True)(_max_pool_backward(2))
rule("aten.max_pool3d_with_indices_backward.default", recorded=True)(_max_pool_backward(3))
rule("aten.fractional_max_pool2d.default", recorded=True)(_fractional_max_pool(2))
rule("aten.fractional_max_pool3d.default", recorded=True)(_fractional_max_pool(3))
rule("aten.fractional_max_pool2d_backward.default", recorded=True)(_fractional_max_pool_backward(2))
rule("aten.fractional_max_pool3d_backward.default", recorded=True)(_fractional_max_pool_backward(3))
rule("aten._adaptive_avg_pool2d_backward.default", recorded=True)(_adaptive_avg_pool_backward(2))
rule("aten._adaptive_avg_pool3d_backward.default", recorded=True)(_adaptive_avg_pool_backward(3))
rule("aten.max_unpool2d.default", recorded=True)(_max_unpool(2))
rule("aten.max_unpool3d.default", recorded=True)(_max_unpool(3))


@rule("aten.adaptive_avg_pool3d_backward.grad_input", recorded=True)
def _adaptive_avg_pool3d_backward_into(grad_output: Tensor, self: Tensor, *, grad_input: Tensor) -> Any:
    return write_out(grad_input, aten._adaptive_avg_pool3d_backward.default(grad_output, self), (grad_output, self))
