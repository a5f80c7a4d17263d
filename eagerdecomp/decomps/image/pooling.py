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
    check_max_pooled_volumes,
    check_pool,
    check_pool_options,
    check_pooled,
    each_dimension,
    flat_places,
    plane_rows,
    sampled_places,
    strided_places,
    window_count,
)
from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.eager.messages import dimension_error, not_implemented, scalar_type_name
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.writeback import write_out

aten = torch.ops.aten

_REAL = (torch.float32, torch.float64)

#: The names of dtypes in ATen's `checkSameType`.
_SPELLED = {torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16"}


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


def _adaptive_max_pool(dims: int, kernel: str) -> Callable[..., Any]:
    name = f"adaptive_max_pool{dims}d()"

    def run(self: Tensor, output_size: list[int]) -> Any:
        if self.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(f"{name}: Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(self.shape)}")
        _check_size(name, "input", self, 1)
        if len(output_size) != dims:
            raise RuntimeError(f"{name}: internal error: output_size.size() must be {dims}")
        sizes = self.shape[-dims:]
        if not self.dtype.is_floating_point:
            raise not_implemented(kernel, self.dtype)
        if min(output_size) < 0:
            shape = [*self.shape[:-dims], *output_size]
            raise RuntimeError(f"Trying to create tensor with negative dimension {min(output_size)}: {list(shape)}")
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


def _adaptive_max_pool_backward(dims: int, label: str, words: str) -> Callable[..., Any]:
    name = f"adaptive_max_pool{dims}d_backward"

    def run(grad_output: Tensor, self: Tensor, indices: Tensor) -> Any:
        if grad_output.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(f"{words}(): Expected {dims + 1}D or {dims + 2}D {label}, but got: {list(grad_output.shape)}")
        _check_size(f"{name}()", "grad_output", grad_output, 1)
        if indices.dim() != self.dim():
            raise RuntimeError(f"expected dimensions {self.dim()} for `indices` but got dimensions {indices.dim()}")
        _check_type(label, grad_output, self)
        if grad_output.shape != indices.shape:
            raise RuntimeError(f"expected sizes {list(indices.shape)} for `{label}` but got sizes {list(grad_output.shape)}")
        if not grad_output.dtype.is_floating_point:
            raise not_implemented(name, grad_output.dtype)
        _check_indices(indices)
        grad = _gradient_by_places(grad_output, self, indices, dims)
        return in_format_of(grad, self) if dims == 2 else grad

    return run


def _check_size(name: str, label: str, x: Tensor, first: int) -> None:
    for dim in range(first, x.dim()):
        if not x.size(dim):
            raise RuntimeError(
                f"{name}: Expected {label} to have non-zero size for non-batch dimensions, but {label} has sizes "
                f"{list(x.shape)} with dimension {dim} being empty"
            )


def _check_type(label: str, grad: Tensor, self: Tensor) -> None:
    if grad.dtype is not self.dtype:
        want, got = (_SPELLED.get(x.dtype, scalar_type_name(x.dtype)) for x in (self, grad))
        raise RuntimeError(f"expected dtype {want} for `{label}` but got dtype {got}")


def _check_indices(indices: Tensor) -> None:
    if indices.dtype is not torch.int64:
        raise RuntimeError(f"expected scalar type Long but found {scalar_type_name(indices.dtype)}")


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
        check_pool_options(dims, kernel_size, stride, padding, dilation)
        kernel = each_dimension(kernel_size, dims, ())
        windows = list(
            zip(
                kernel,
                each_dimension(stride, dims, kernel),
                each_dimension(padding, dims, ()),
                each_dimension(dilation, dims, ()),
                strict=True,
            )
        )
        if self.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(f"non-empty {dims + 1}D or {dims + 2}D (batch mode) tensor expected for input")
        if self.dtype is torch.bool or self.dtype.is_complex:
            return NotImplemented  # what no kernel takes
        check_pool(self, "max_pool3d_with_indices_out_cpu_template", windows, ceil_mode)
        sizes = self.shape[-dims:]
        count = [window_count(size, window, ceil_mode) for size, window in zip(sizes, windows, strict=True)]
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
    def run(
        grad_output: Tensor,
        self: Tensor,
        kernel_size: list[int],
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        ceil_mode: bool,
        indices: Tensor,
    ) -> Any:
        check_pool_options(dims, kernel_size, stride, padding, dilation)
        _check_type("gradOutput" if dims == 3 else "grad_output", grad_output, self)
        if dims == 3:
            kernel = each_dimension(kernel_size, 3, ())
            steps, pads, dilations = (
                each_dimension(stride, 3, kernel),
                each_dimension(padding, 3, ()),
                each_dimension(dilation, 3, ()),
            )
            check_max_pooled_volumes(grad_output, indices, self, kernel, steps, pads, dilations)
        else:
            for tensor in (grad_output, indices):
                check_pooled(tensor, self, 2, kernel_size, stride, padding, dilation, ceil_mode)
        if not grad_output.dtype.is_floating_point:
            raise not_implemented(f"max_pool{dims}d_backward", grad_output.dtype)
        _check_indices(indices)
        batch = self if self.dim() == dims + 2 else None
        return in_format_of(_gradient_by_places(grad_output, self, indices, dims), batch)

    return run


# -- fractional maxima --------------------------------------------------------------------------------------------

_AXES = {2: ("height", "width"), 3: ("time", "height", "width")}


def _fractional_max_pool(dims: int) -> Callable[..., Any]:
    name = {2: "fractional_max_pool2d()", 3: "fractional_max_pool3d_out()"}[dims]
    which = {2: "tuple of Ints", 3: "tuple of three Ints"}[dims]

    def run(self: Tensor, kernel_size: list[int], output_size: list[int], random_samples: Tensor) -> Any:
        for label, given in (("kernel_size", kernel_size), ("output_size", output_size)):
            if len(given) != dims:
                raise RuntimeError(f"fractional_max_pool{dims}d: {label} must either be a single Int or {which}")
        if self.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(f"{name}: Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(self.shape)}")
        for dim in range(self.dim() - dims - 1, self.dim()):
            if not self.size(dim):
                raise RuntimeError(
                    f"{name}: Expected input to have non-zero size for non-batch dimensions, but got"
                    f"{list(self.shape)} with dimension {dim} being empty."
                )
        sizes = self.shape[-dims:]
        for axis, size, kernel, count in zip(_AXES[dims], sizes, kernel_size, output_size, strict=True):
            if count + kernel - (dims == 2) > size:  # the kernel for volumes refuses windows that just fit
                raise RuntimeError(f"{name}: pool {axis} {kernel} too large relative to input {axis} {size}")
        _check_samples(random_samples, self, dims)
        if not self.dtype.is_floating_point:
            raise not_implemented(f"fractional_max_pool{dims}d_out_frame", self.dtype)
        if min(kernel_size) < 1:
            return NotImplemented
        if not self.numel() or not all(output_size):
            return _nothing(self, output_size)
        batch = self.size(0) if self.dim() == dims + 2 else 1
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


def _check_samples(samples: Tensor, self: Tensor, dims: int) -> None:
    if samples.dtype is not self.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if samples.dim() != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.dim()}")
    if samples.size(0) < (self.size(0) if self.dim() == dims + 2 else 1):
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.size(1) != self.size(-dims - 1):
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.size(2) != dims:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {dims}; got {samples.size(2)}.")


def _fractional_max_pool_backward(dims: int) -> Callable[..., Any]:
    def run(grad_output: Tensor, self: Tensor, kernel_size: list[int], output_size: list[int], indices: Tensor) -> Any:
        (_check_fraction_planes if dims == 2 else _check_fraction_volumes)(grad_output, self, output_size, indices)
        if not grad_output.dtype.is_floating_point and grad_output.dtype is self.dtype:
            raise not_implemented(f"fractional_max_pool{dims}d_backward_out_frame", grad_output.dtype)
        if dims == 3:  # ATen reads the indices first
            _check_indices(indices)
        if grad_output.dtype is not self.dtype:
            want, got = scalar_type_name(self.dtype), scalar_type_name(grad_output.dtype)
            raise RuntimeError(f"expected scalar type {want} but found {got}")
        _check_indices(indices)
        for label, given in (("gradOutput", grad_output), ("indices", indices)):  # ATen's kernel reads memory beside such volumes
            if given.shape[:-dims] != self.shape[:-dims] or given.shape[-dims:] != grad_output.shape[-dims:]:
                raise RuntimeError(f"fractional_max_pool{dims}d_backward(): {label} sizes unexpected")
        return _gradient_by_places(grad_output, self, indices, dims)

    return run


def _check_fraction_planes(grad: Tensor, self: Tensor, output_size: Sequence[int], indices: Tensor) -> None:
    if self.dim() < 3:
        raise dimension_error(2, self.dim())
    wanted = [*self.shape[:-2], *output_size]
    for label, given in (("gradOutput", grad), ("indices", indices)):
        if list(given.shape) != wanted:
            raise RuntimeError(f"fractional_max_pool2d_backward(): {label} sizes unexpected")


def _check_fraction_volumes(grad: Tensor, self: Tensor, output_size: Sequence[int], indices: Tensor) -> None:
    first = 2 if self.dim() == 5 else 1
    if len(output_size) != 3:
        raise RuntimeError("fractional_max_pool3d_backward_out(): gradOutput width unexpected")
    axes = range(first, first + 3)
    for dim in axes:
        if dim >= self.dim():
            raise dimension_error(dim, self.dim())
    for dim, axis, count in zip(axes, _AXES[3], output_size, strict=True):
        if dim >= grad.dim():
            raise dimension_error(dim, grad.dim())
        if grad.size(dim) != count:
            raise RuntimeError(f"fractional_max_pool3d_backward_out(): gradOutput {axis} unexpected")


# -- averages -----------------------------------------------------------------------------------------------------


@rule("aten.avg_pool3d_backward.default", recorded=True)
def _avg_pool3d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Divide the gradient by each window's divisor. Sum overlapping windows by a transposed convolution with ones."""
    kernel, pads = each_dimension(kernel_size, 3, ()), each_dimension(padding, 3, ())
    strides = each_dimension(stride, 3, kernel)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    if self.dim() not in (4, 5):
        raise RuntimeError("non-empty 4D or 5D (batch mode) tensor expected for input")
    check_pooled(grad_output, self, 3, kernel, strides, pads, [1], ceil_mode)
    if self.dtype not in _REAL:
        raise not_implemented("avg_pool3d_backward_out_frame", self.dtype)
    if grad_output.dtype is not self.dtype:
        want, got = scalar_type_name(self.dtype), scalar_type_name(grad_output.dtype)
        raise RuntimeError(f"expected scalar type {want} but found {got}")
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
    """Return the divisor of each window along a dimension."""
    kernel, stride, padding, size, count = window
    starts = range(-padding, count * stride - padding, stride)
    if count_include_pad:
        return [min(start + kernel, size + padding) - start for start in starts]
    return [min(start + kernel, size) - max(start, 0) for start in starts]


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


def _adaptive_avg_pool_backward(dims: int, name: str) -> Callable[..., Any]:
    """Make the backward rule: adaptive pooling of the gradient, with input and output sizes exchanged.

    A window of this pooling holds exactly the forward windows that contain one element. Its mean times its size is the gradient.
    """
    forward = {2: aten._adaptive_avg_pool2d.default, 3: aten._adaptive_avg_pool3d.default}[dims]

    def run(grad_output: Tensor, self: Tensor) -> Any:
        for dim in range(1, grad_output.dim()):
            if not grad_output.size(dim):
                raise RuntimeError(
                    f"adaptive_avg_pool{dims}d_backward(): Expected grad_output to have non-zero size for non-batch dimensions, "
                    f"but grad_output has sizes {list(grad_output.shape)} with dimension {dim} being empty"
                )
        if self.dim() not in (dims + 1, dims + 2):
            return NotImplemented
        if grad_output.dtype is not self.dtype:
            want, got = scalar_type_name(self.dtype), scalar_type_name(grad_output.dtype)
            raise RuntimeError(f"expected scalar type {want} but found {got}")
        if not self.dtype.is_floating_point:
            raise not_implemented(name, self.dtype)
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
    if all(output_size) or min(output_size) < 0 or self.dim() not in (3, 4) or not all(self.shape[-2:]):
        return NotImplemented
    shape, form = [*self.shape[:-2], *output_size], suggested_memory_format(self)
    return aten.empty.memory_format(shape, dtype=self.dtype, device=self.device, memory_format=form)


# -- unpooling ----------------------------------------------------------------------------------------------------


def _max_unpool(dims: int) -> Callable[..., Any]:
    def run(self: Tensor, indices: Tensor, output_size: list[int], *rest: list[int]) -> Any:
        fits = indices.dtype is torch.int64 and indices.shape == self.shape and self.dim() in (dims + 1, dims + 2)
        if not fits or len(output_size) != dims or not all(self.shape[1:]) or not self.dtype.is_floating_point:
            return NotImplemented
        if dims == 3 and any(len(given) != 3 or (given is rest[0] and min(given) < 1) for given in rest):
            return NotImplemented
        shape = [*self.shape[:-dims], *output_size]
        zeros = aten.full.default([math.prod(shape[:-dims]), math.prod(output_size)], 0, dtype=self.dtype, device=self.device)
        values, places = (aten.reshape.default(x, plane_rows(x, dims)) for x in (self, indices))
        spread = aten.view.default(aten.scatter.src(zeros, 1, places, values), shape)
        return in_format_of(spread, self if dims == 2 else None)

    return run


rule("aten.adaptive_max_pool2d.default", recorded=True)(_adaptive_max_pool(2, "adaptive_max_pool2d"))
rule("aten.adaptive_max_pool3d.default", recorded=True)(_adaptive_max_pool(3, "adaptive_max_pool3d_cpu"))
rule("aten.adaptive_max_pool2d_backward.default", recorded=True)(
    _adaptive_max_pool_backward(2, "grad_output", "adaptive_max_pooling2d_backward")
)
rule("aten.adaptive_max_pool3d_backward.default", recorded=True)(
    _adaptive_max_pool_backward(3, "gradOutput", "adaptive_max_pool3d_backward")
)
rule("aten.max_pool2d_with_indices.default", recorded=True)(_max_pool(2))
rule("aten.max_pool3d_with_indices.default", recorded=True)(_max_pool(3))
rule("aten.max_pool2d_with_indices_backward.default", recorded=True)(_max_pool_backward(2))
rule("aten.max_pool3d_with_indices_backward.default", recorded=True)(_max_pool_backward(3))
rule("aten.fractional_max_pool2d.default", recorded=True)(_fractional_max_pool(2))
rule("aten.fractional_max_pool3d.default", recorded=True)(_fractional_max_pool(3))
rule("aten.fractional_max_pool2d_backward.default", recorded=True)(_fractional_max_pool_backward(2))
rule("aten.fractional_max_pool3d_backward.default", recorded=True)(_fractional_max_pool_backward(3))
rule("aten._adaptive_avg_pool2d_backward.default", recorded=True)(_adaptive_avg_pool_backward(2, "adaptive_avg_pool2d_backward"))
rule("aten._adaptive_avg_pool3d_backward.default", recorded=True)(
    _adaptive_avg_pool_backward(3, "adaptive_avg_pool3d_backward_cpu")
)
rule("aten.max_unpool2d.default", recorded=True)(_max_unpool(2))
rule("aten.max_unpool3d.default", recorded=True)(_max_unpool(3))


@rule("aten.adaptive_avg_pool3d_backward.grad_input", recorded=True)
def _adaptive_avg_pool3d_backward_into(grad_output: Tensor, self: Tensor, *, grad_input: Tensor) -> Any:
    return write_out(grad_input, aten._adaptive_avg_pool3d_backward.default(grad_output, self), (grad_output, self))
