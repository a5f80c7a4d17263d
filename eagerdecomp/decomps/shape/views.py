"""Views and moves: transposes, cuts and their gradients, and ops that change a tensor's own metadata in place.

Sizes differ from step to step, so all are linked: they run as they are, under no key. The in-place ones take the view, then `set_`
the tensor to the same storage with the view's shape and strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.messages import not_implemented
from eagerdecomp.eager.promotion import RARE
from eagerdecomp.eager.strides import can_be_viewed
from eagerdecomp.rules.link import kept_number
from eagerdecomp.rules.rule import Call, Rule, linked

__all__ = ["RULES"]

aten = torch.ops.aten


def _restrided(view: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """The rule of an in-place view op whose functional op is `view`."""

    def link(call: Call) -> Callable[..., Any]:
        look, set_ = call(view), call(aten.set_.source_Storage_storage_offset)

        def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            seen = look(self, *args, **kwargs)
            set_(self, self.untyped_storage(), seen.storage_offset(), list(seen.shape), list(seen.stride()))
            return self

        return run

    return link


def _transpose(call: Call) -> Callable[..., Any]:
    permute, alias = call(aten.permute.default), call(aten.alias.default)

    def run(self: Tensor, dim0: int, dim1: int) -> Any:
        rank = self.dim()
        if dim0 < 0 or dim1 < 0 or dim0 >= rank or dim1 >= rank:
            dim0, dim1 = _wrapped(dim0, rank), _wrapped(dim1, rank)
        if dim0 == dim1:
            return alias(self)
        order = list(range(rank))
        order[dim0], order[dim1] = dim1, dim0
        return permute(self, order)

    return run


def _t(call: Call) -> Callable[..., Any]:
    permute, alias = call(aten.permute.default), call(aten.alias.default)

    def run(self: Tensor) -> Any:
        rank = self.dim()
        if rank > 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
        return permute(self, [1, 0]) if rank == 2 else alias(self)

    return run


def _unbind(call: Call) -> Callable[..., Any]:
    select, others = call(aten.select.int), call(aten.unbind.int)

    def run(self: Tensor, dim: int = 0) -> Any:
        rank = self.dim()
        if not -rank <= dim < rank:
            return others(self, dim)
        return [select(self, dim, at) for at in range(self.size(dim))]

    return run


def _split(call: Call) -> Callable[..., Any]:
    split_with_sizes, others = call(aten.split_with_sizes.default), call(aten.split.Tensor)

    def run(self: Tensor, split_size: int, dim: int = 0) -> Any:
        rank = self.dim()
        if split_size <= 0 or not -rank <= dim < rank:
            return others(self, split_size, dim)
        size = self.size(dim)
        whole, rest = size // split_size, size % split_size  # sizes may be symbols, which take no divmod
        return split_with_sizes(self, [split_size] * whole + ([rest] if rest or not size else []), dim)

    return run


def _unfold(call: Call) -> Callable[..., Any]:
    as_strided, others = call(aten.as_strided.default), call(aten.unfold.default)

    def run(self: Tensor, dimension: int, size: int, step: int) -> Any:
        shape, strides = list(self.shape), list(self.stride())
        rank = len(shape)
        if not -rank <= dimension < rank or not 0 <= size <= shape[dimension] or step <= 0:
            return others(self, dimension, size, step)
        dimension %= rank  # both lists grow at their end
        shape[dimension] = (shape[dimension] - size) // step + 1
        strides.append(strides[dimension])
        strides[dimension] *= step
        shape.append(size)
        return as_strided(self, shape, strides)

    return run


def _im2col(call: Call) -> Callable[..., Any]:
    """The windows are a view of the padded image, and the columns a copy of it."""
    pad, as_strided, clone = call(aten.constant_pad_nd.default), call(aten.as_strided.default), call(aten.clone.default)
    view, others = call(aten.view.default), call(aten.im2col.default)

    def run(
        self: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
    ) -> Any:
        shape = self.shape
        rank = len(shape)
        if not self.dtype.is_floating_point or not self.numel() or rank < 3 or rank > 4:
            return others(self, kernel_size, dilation, padding, stride)
        if not len(kernel_size) == len(dilation) == len(padding) == len(stride) == 2:
            return others(self, kernel_size, dilation, padding, stride)
        (tall, wide), (row_step, column_step), (above, beside), (down, across) = kernel_size, dilation, padding, stride
        if tall < 1 or wide < 1 or row_step < 1 or column_step < 1 or down < 1 or across < 1:
            return others(self, kernel_size, dilation, padding, stride)
        if above < 0 or beside < 0:
            raise RuntimeError(f"padding should be non-negative, but got pad_height: {above} pad_width: {beside}")
        rows = (shape[-2] + 2 * above - row_step * (tall - 1) - 1) // down + 1
        columns = (shape[-1] + 2 * beside - column_step * (wide - 1) - 1) // across + 1
        if rows < 1 or columns < 1:
            return others(self, kernel_size, dilation, padding, stride)
        padded = pad(self, [beside, beside, above, above]) if above or beside else self
        *outer, row, column = padded.stride()
        strides = [*outer, row_step * row, column_step * column, down * row, across * column]
        windows = as_strided(padded, [*shape[:-2], tall, wide, rows, columns], strides)
        taps = clone(windows, memory_format=torch.contiguous_format)
        return view(taps, [*shape[:-3], shape[-3] * tall * wide, rows * columns])

    return run


# -- their gradients, and other moves -------------------------------------------------------------------------------------------


def _select_backward(call: Call) -> Callable[..., Any]:
    full, select_scatter = call(aten.full.default), call(aten.select_scatter.default)

    def run(grad_output: Tensor, input_sizes: Sequence[int], dim: int, index: int) -> Any:
        zeros = full(input_sizes, 0, dtype=grad_output.dtype, device=grad_output.device)
        return select_scatter(zeros, grad_output, dim, index)

    return run


def _slice_backward(call: Call) -> Callable[..., Any]:
    """A slice by steps of one is padded with zeros."""
    full, slice_scatter, pad = call(aten.full.default), call(aten.slice_scatter.default), call(aten.constant_pad_nd.default)

    def run(grad_output: Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
        if step == 1 and grad_output.is_contiguous():
            rank = len(input_sizes)
            inner = rank - 1 - dim if dim >= 0 else -1 - dim
            size, count = input_sizes[dim], grad_output.size(dim)
            start = max(start + size, 0) if start < 0 else min(start, size)
            return pad(grad_output, [0] * (2 * inner) + [start, size - start - count])
        zeros = full(input_sizes, 0, dtype=grad_output.dtype, device=grad_output.device)
        return slice_scatter(zeros, grad_output, dim, start, end, step)

    return run


def _stack(call: Call) -> Callable[..., Any]:
    cat, view, unsqueeze, others = (
        call(aten.cat.default),
        call(aten.view.default),
        call(aten.unsqueeze.default),
        call(aten.stack.default),
    )

    def run(tensors: Sequence[Tensor], dim: int = 0) -> Any:
        shape = tensors[0].shape if tensors else torch.Size()
        rank, rows = len(shape), True
        for one in tensors:
            if one.shape != shape:
                return others(tensors, dim)
            if not one.is_contiguous():
                rows = False
        if not rank or not -rank <= dim + 1 <= rank + 1 or not (rows or rank < 4 or _any_row_major(tensors)):
            return others(tensors, dim)
        if dim < 0:
            dim += rank + 1
        if dim == rank or not rows:
            return cat([unsqueeze(one, dim) for one in tensors], dim)
        count = len(tensors)
        return view(cat(tensors, dim), [*shape[:dim], count, *shape[dim:]] if dim else [count, *shape])

    return run


def _reshape(call: Call) -> Callable[..., Any]:
    """A view where there is one, else a view of a copy."""
    view, clone = call(aten.view.default), call(aten.clone.default)

    def run(self: Tensor, shape: Sequence[int]) -> Any:
        if not self.is_contiguous() and not can_be_viewed(self, _inferred(self, shape)):
            return view(clone(self, memory_format=torch.contiguous_format), shape)
        return view(self, shape)  # which also tells what is wrong with a shape

    return run


def _pixel_shuffle(call: Call) -> Callable[..., Any]:
    view, permute, clone = call(aten.view.default), call(aten.permute.default), call(aten.clone.default)
    others = call(aten.pixel_shuffle.default)

    def run(self: Tensor, upscale_factor: int) -> Any:
        rank, factor = self.dim(), upscale_factor
        if rank >= 3 and factor <= 0:
            raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {factor}")
        if rank >= 3 and self.size(-3) % factor**2:
            raise RuntimeError(
                "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
                f"but input.size(-3)={self.size(-3)} is not divisible by {factor**2}"
            )
        if rank < 3 or not self.is_contiguous() or self.dtype in RARE:
            return others(self, factor)
        *batch, channels, height, width = self.shape
        lead, kept = len(batch), channels // factor**2
        apart = view(self, [*batch, kept, factor, factor, height, width])
        turned = permute(apart, [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2])
        # A copy in any case, as eager's kernel makes one.
        return view(clone(turned, memory_format=torch.contiguous_format), [*batch, kept, height * factor, width * factor])

    return run


def _pixel_unshuffle(call: Call) -> Callable[..., Any]:
    view, permute, clone = call(aten.view.default), call(aten.permute.default), call(aten.clone.default)
    others = call(aten.pixel_unshuffle.default)

    def run(self: Tensor, downscale_factor: int) -> Any:
        rank, factor = self.dim(), downscale_factor
        if rank >= 3 and factor <= 0:
            raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {factor}")
        for place, side in ((-2, "height"), (-1, "width")):
            if rank >= 3 and self.size(place) % factor:
                raise RuntimeError(
                    f"pixel_unshuffle expects {side} to be divisible by downscale_factor, "
                    f"but input.size({place})={self.size(place)} is not divisible by {factor}"
                )
        if rank >= 3 and not self.numel():
            return clone(self)  # eager's kernel leaves the shape of an empty tensor as it is
        if rank < 3 or not self.is_contiguous() or self.dtype in RARE:
            return others(self, factor)
        *batch, channels, height, width = self.shape
        lead, high, wide = len(batch), height // factor, width // factor
        apart = view(self, [*batch, channels, high, factor, wide, factor])
        turned = permute(apart, [*range(lead + 1), lead + 2, lead + 4, lead + 1, lead + 3])
        return view(clone(turned, memory_format=torch.contiguous_format), [*batch, channels * factor**2, high, wide])

    return run


def _inferred(self: Tensor, shape: Sequence[int]) -> Sequence[int]:
    """The shape with its -1 filled in, where that can be done."""
    if -1 not in shape:
        return shape
    others = -math.prod(shape)
    return [self.numel() // others if size == -1 and others > 0 else size for size in shape]


def _any_row_major(tensors: Sequence[Tensor]) -> bool:
    """Whether one of the tensors keeps eager from stacking into channels last."""
    return any(suggested_memory_format(one) is torch.contiguous_format for one in tensors)


def _roll(call: Call) -> Callable[..., Any]:
    """Each dimension is cut in two, which change places."""
    split_with_sizes, cat, clone = call(aten.split_with_sizes.default), call(aten.cat.default), call(aten.clone.default)
    others = call(aten.roll.default)

    def run(self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
        shape = self.shape
        rank = len(shape)
        if not shifts:
            raise RuntimeError("`shifts` required")
        if len(dims) != len(shifts) and (dims or len(shifts) != 1):
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
        if not dims or not rank:
            return others(self, shifts, dims)
        if not self.numel():
            return clone(self)
        for shift, at in zip(shifts, dims, strict=True):
            dim = at if 0 <= at < rank else _wrapped(at, rank)
            size = shape[dim]
            cut = -shift % size
            front, back = split_with_sizes(self, [cut, size - cut], dim)
            self = cat([back, front], dim)
        return self

    return run


_NO_TRIANGLES = RARE - {torch.complex32}


def _triangle(op: OpOverload, comparison: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """What lies on one side of a diagonal, and zeros: columns against the column that the diagonal has in their row."""

    kernel = op._schema.name.removeprefix("aten::")

    def link(call: Call) -> Callable[..., Any]:
        arange, unsqueeze, compare = call(aten.arange.start_step), call(aten.unsqueeze.default), call(comparison)
        where, zero, clone, others = call(aten.where.self), kept_number(call, 0), call(aten.clone.default), call(op)

        def run(self: Tensor, diagonal: int = 0) -> Any:
            shape = self.shape
            if len(shape) < 2:
                return others(self, diagonal)
            if self.dtype in _NO_TRIANGLES and self.numel():
                raise not_implemented(kernel, self.dtype)
            if not self.is_contiguous():
                self = clone(self, memory_format=torch.contiguous_format)  # eager's result is row-major whatever it is made of
            rows, columns = shape[-2:]
            device = self.device
            met = unsqueeze(arange(diagonal, diagonal + rows, device=device), 1)
            return where(compare(arange(0, columns, device=device), met), self, zero(self))

        return run

    return link


def _arange(call: Call) -> Callable[..., Any]:
    arange = call(aten.arange.start_step)
    return lambda end, **kwargs: arange(0, end, 1, **kwargs)


def _arange_start(call: Call) -> Callable[..., Any]:
    arange = call(aten.arange.start_step)
    return lambda start, end, **kwargs: arange(start, end, 1, **kwargs)


def _wrapped(dim: int, rank: int) -> int:
    """A dimension counted from the front. Raises ATen's error for one out of range; a scalar counts as of one dimension."""
    count = rank or 1
    if not -count <= dim < count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})")
    return dim + count if dim < 0 else dim


def _copied(view: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """The rule of an op that answers a copy of what a view would show."""

    def rule(call: Call) -> Callable[..., Any]:
        look, clone = call(view), call(aten.clone.default)

        def run(*args: Any, **kwargs: Any) -> Any:
            seen = look(*args, **kwargs)
            if isinstance(seen, (list, tuple)):
                return [clone(one, memory_format=torch.contiguous_format) for one in seen]
            return clone(seen, memory_format=torch.contiguous_format)

        return run

    return rule


#: Of the ops that functionalization puts in the place of views, those that torch's tables lack.
_COPIES = {
    aten._reshape_alias_copy.default: aten.as_strided.default,
    aten.select_copy.int: aten.select.int,
    aten.slice_copy.Tensor: aten.slice.Tensor,
    aten.split_copy.Tensor: aten.split.Tensor,
    aten.detach_copy.default: aten.detach.default,
    aten.view_as_real_copy.default: aten.view_as_real.default,
    aten.view_as_complex_copy.default: aten.view_as_complex.default,
    aten._neg_view_copy.default: aten._neg_view.default,
    aten._conj_copy.default: aten._conj.default,
}


def _lazy_clone(call: Call) -> Callable[..., Any]:
    """A copy of the whole storage, seen with the same strides and offset, as eager makes one when either tensor is written.

    Whole, since the size of a storage is not part of a program's key.
    """
    clone, strided, others = call(aten.clone.default), call(aten.as_strided.default), call(aten._lazy_clone.default)

    def run(self: Tensor) -> Any:
        if self.layout is not torch.strided:
            return others(self)
        held = self.untyped_storage().nbytes() // self.element_size()
        if self.is_conj() or self.is_neg() or (held == self.numel() and self.is_contiguous()):
            return clone(self)  # eager resolves conjugates and negatives before it
        return strided(clone(strided(self, [held], [1], 0)), list(self.shape), list(self.stride()), self.storage_offset())

    return run


RULES: tuple[Rule, ...] = (
    linked(aten._lazy_clone.default, _lazy_clone, whole=True),
    linked(aten.unbind.int, _unbind, keeps_lazy_bits=True),
    linked(aten.split.Tensor, _split, keeps_lazy_bits=True),
    linked(aten.unfold.default, _unfold, keeps_lazy_bits=True),
    linked(aten.im2col.default, _im2col),
    linked(aten.select_backward.default, _select_backward),
    linked(aten.slice_backward.default, _slice_backward),
    linked(aten.stack.default, _stack),
    linked(aten.reshape.default, _reshape, whole=True),
    linked(aten.pixel_shuffle.default, _pixel_shuffle),
    linked(aten.pixel_unshuffle.default, _pixel_unshuffle),
    linked(aten.roll.default, _roll),
    linked(aten.tril.default, _triangle(aten.tril.default, aten.le.Tensor)),
    linked(aten.triu.default, _triangle(aten.triu.default, aten.ge.Tensor)),
    linked(aten.arange.default, _arange),
    linked(aten.arange.start, _arange_start),
    linked(aten.t.default, _t, keeps_lazy_bits=True),
    linked(aten.transpose.int, _transpose, keeps_lazy_bits=True),
    linked(aten.lift_fresh_copy.default, lambda call: call(aten.clone.default)),
    *(linked(op, _copied(view)) for op, view in _COPIES.items()),
    linked(aten._unsafe_view.default, lambda call: call(aten.view.default), keeps_lazy_bits=True),
    *tuple(
        linked(op, _restrided(view), keeps_lazy_bits=True)
        for op, view in (
            (aten.t_.default, aten.t.default),
            (aten.transpose_.default, aten.transpose.int),
            (aten.squeeze_.default, aten.squeeze.default),
            (aten.squeeze_.dim, aten.squeeze.dim),
            (aten.squeeze_.dims, aten.squeeze.dims),
            (aten.unsqueeze_.default, aten.unsqueeze.default),
            (aten.as_strided_.default, aten.as_strided.default),
        )
    ),
)
