"""Views and copies of parts: transposes, slices and their gradients, and ops that change a tensor's metadata in place.

All are linked, because sizes differ from step to step: a new index of `select_backward` takes 21 us, and torch's entry 800.
In-place ops compute the view, then `set_` the tensor to the same storage with the view's shape and strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.decomp_tables import reference
from eagerdecomp._torch.dispatcher import functional_trace_active
from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.eager.promotion import RARE
from eagerdecomp.eager.strides import view_strides, wrapped_dim
from eagerdecomp.rules.compute import Constant
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_ZERO = Constant(0)


def _restrided(view: OpOverload) -> Callable[..., Any]:
    """Return the rule of an in-place view op whose functional variant is `view`."""

    def restrided(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen = view(self, *args, **kwargs)
        if functional_trace_active():  # it can trace no storage; some devices have no kernel of this
            aten.set_.source_Tensor(self, seen)
        else:
            aten.set_.source_Storage_storage_offset(
                self, self.untyped_storage(), seen.storage_offset(), list(seen.shape), list(seen.stride())
            )
        return self

    return restrided


@rule("aten.transpose.int", keeps_lazy_bits=True)
def _transpose(self: Tensor, dim0: int, dim1: int) -> Any:
    rank = self.dim()
    if dim0 < 0 or dim1 < 0 or dim0 >= rank or dim1 >= rank:
        dim0, dim1 = wrapped_dim(dim0, rank), wrapped_dim(dim1, rank)
    if dim0 == dim1:
        return aten.alias.default(self)
    order = list(range(rank))
    order[dim0], order[dim1] = dim1, dim0
    return aten.permute.default(self, order)


@rule("aten.t.default", keeps_lazy_bits=True)
def _t(self: Tensor) -> Any:
    rank = self.dim()
    if rank > 2:
        return NotImplemented
    return aten.permute.default(self, [1, 0]) if rank == 2 else aten.alias.default(self)


@rule("aten.unbind.int", keeps_lazy_bits=True)
def _unbind(self: Tensor, dim: int = 0) -> Any:
    rank = self.dim()
    if not -rank <= dim < rank:
        return NotImplemented
    return [aten.select.int(self, dim, at) for at in range(self.size(dim))]


@rule("aten.split.Tensor", keeps_lazy_bits=True)
def _split(self: Tensor, split_size: int, dim: int = 0) -> Any:
    rank = self.dim()
    if split_size <= 0 or not -rank <= dim < rank:
        return NotImplemented
    size = self.size(dim)
    whole, rest = size // split_size, size % split_size  # sizes may be symbols, which take no divmod
    return aten.split_with_sizes.default(self, [split_size] * whole + ([rest] if rest or not size else []), dim)


@rule("aten.unfold.default", keeps_lazy_bits=True)
def _unfold(self: Tensor, dimension: int, size: int, step: int) -> Any:
    """Compute the strides here: torch's entry reads them while it is recorded, which takes a program for each length."""
    shape, strides = list(self.shape), list(self.stride())
    rank = len(shape)
    if not -rank <= dimension < rank or not 0 <= size <= shape[dimension] or step <= 0:
        return NotImplemented
    dimension %= rank  # both lists grow at their end
    shape[dimension] = (shape[dimension] - size) // step + 1
    strides.append(strides[dimension])
    strides[dimension] *= step
    shape.append(size)
    return aten.as_strided.default(self, shape, strides)


@rule("aten.repeat.default")
def _repeat(self: Tensor, repeats: Sequence[int]) -> Any:
    """Copy a view of stride 0 in front of each dimension. torch's C++ composition reads memory that it made by ops."""
    added = len(repeats) - self.dim()
    if added < 0 or any(count < 0 for count in repeats):
        return NotImplemented
    sizes, strides = [1] * added + list(self.shape), [0] * added + list(self.stride())
    pairs = [part for count, size in zip(repeats, sizes, strict=True) for part in (count, size)]
    view = aten.as_strided.default(self, pairs, [part for stride in strides for part in (0, stride)])
    copy = aten.clone.default(view, memory_format=torch.contiguous_format)
    return aten.view.default(copy, [count * size for count, size in zip(repeats, sizes, strict=True)])


@rule("aten.native_channel_shuffle.default", "aten.channel_shuffle.default")
def _channel_shuffle(self: Tensor, groups: int) -> Any:
    """Copy if there is one channel per group, or one group.

    The order does not change then, and views would share the input's memory.
    """
    shape = list(self.shape)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        return NotImplemented
    if not self.numel():
        return aten.alias.default(self)
    if self.dtype in RARE:
        return NotImplemented
    if groups in (1, shape[1]):
        return aten.clone.default(self, memory_format=suggested_memory_format(self))
    grouped = aten.reshape.default(self, [shape[0], groups, shape[1] // groups, *shape[2:]])
    return in_format_of(aten.reshape.default(aten.transpose.int(grouped, 1, 2), shape), self)


# -- their gradients, and other moves -------------------------------------------------------------------------------------------


@rule("aten.select_backward.default")
def _select_backward(grad_output: Tensor, input_sizes: Sequence[int], dim: int, index: int) -> Any:
    zeros = aten.full.default(input_sizes, 0, dtype=grad_output.dtype, device=grad_output.device)
    return aten.select_scatter.default(zeros, grad_output, dim, index)


@rule("aten.slice_backward.default")
def _slice_backward(grad_output: Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
    """Pad the gradient of a slice with step 1 with zeros."""
    if step == 1 and grad_output.is_contiguous():
        rank = len(input_sizes)
        inner = rank - 1 - dim if dim >= 0 else -1 - dim
        size, count = input_sizes[dim], grad_output.size(dim)
        start = max(start + size, 0) if start < 0 else min(start, size)
        end = max(end + size, 0) if end < 0 else min(end, size)  # sizes may be symbols, which are no indices of a slice
        if count != max(end - start, 0):
            return NotImplemented
        return aten.constant_pad_nd.default(grad_output, [0] * (2 * inner) + [start, size - start - count])
    zeros = aten.full.default(input_sizes, 0, dtype=grad_output.dtype, device=grad_output.device)
    return aten.slice_scatter.default(zeros, grad_output, dim, start, end, step)


@rule("aten.reshape.default", whole=True)
def _reshape(self: Tensor, shape: Sequence[int]) -> Any:
    """Return a view if one exists, else a view of a copy."""
    if not self.is_contiguous() and view_strides(self, _inferred(self, shape)) is None:
        return aten.view.default(aten.clone.default(self, memory_format=torch.contiguous_format), shape)
    return aten.view.default(self, shape)


def _is_channels_last(x: Tensor) -> bool:
    """Return whether eager's kernels return channels last for `x`, which may be contiguous too if it has one channel."""
    return suggested_memory_format(x) is not torch.contiguous_format


@rule("aten.pixel_shuffle.default")
def _pixel_shuffle(self: Tensor, upscale_factor: int) -> Any:
    rank, factor = self.dim(), upscale_factor
    if rank < 3 or factor <= 0 or self.size(-3) % factor**2:
        return NotImplemented
    if not self.is_contiguous() or _is_channels_last(self) or self.dtype in RARE:
        return aten.pixel_shuffle.default(self, factor)
    *batch, channels, height, width = self.shape
    lead, kept = len(batch), channels // factor**2
    apart = aten.view.default(self, [*batch, kept, factor, factor, height, width])
    turned = aten.permute.default(apart, [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2])
    # A copy in any case, as eager's kernel makes one.
    return aten.view.default(
        aten.clone.default(turned, memory_format=torch.contiguous_format), [*batch, kept, height * factor, width * factor]
    )


@rule("aten.pixel_unshuffle.default")
def _pixel_unshuffle(self: Tensor, downscale_factor: int) -> Any:
    rank, factor = self.dim(), downscale_factor
    if rank < 3 or factor <= 0 or self.size(-2) % factor or self.size(-1) % factor:
        return NotImplemented
    if not self.numel():
        return aten.clone.default(self)  # eager's kernel leaves the shape of an empty tensor as it is
    if not self.is_contiguous() or _is_channels_last(self) or self.dtype in RARE:
        return aten.pixel_unshuffle.default(self, factor)
    *batch, channels, height, width = self.shape
    lead, high, wide = len(batch), height // factor, width // factor
    apart = aten.view.default(self, [*batch, channels, high, factor, wide, factor])
    turned = aten.permute.default(apart, [*range(lead + 1), lead + 2, lead + 4, lead + 1, lead + 3])
    return aten.view.default(
        aten.clone.default(turned, memory_format=torch.contiguous_format), [*batch, channels * factor**2, high, wide]
    )


def _inferred(self: Tensor, shape: Sequence[int]) -> Sequence[int]:
    """Return the shape with its -1 replaced, if that is possible."""
    if -1 not in shape:
        return shape
    others = -math.prod(shape)
    return [self.numel() // others if size == -1 and others > 0 else size for size in shape]


@rule("aten.roll.default")
def _roll(self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Cut each dimension in two parts and swap them. Without dimensions, the tensor is a row of all its elements."""
    shape = self.shape
    rank = len(shape)
    if not dims and len(shifts) == 1 and rank and self.numel():
        return aten.view.default(_roll(aten.reshape.default(self, [-1]), shifts, [0]), shape)
    if not dims or not rank or len(dims) != len(shifts):
        return NotImplemented
    if not self.numel():
        return aten.clone.default(self)
    for shift, at in zip(shifts, dims, strict=True):
        dim = at if 0 <= at < rank else wrapped_dim(at, rank)
        size = shape[dim]
        cut = -shift % size
        front, back = aten.split_with_sizes.default(self, [cut, size - cut], dim)
        self = aten.cat.default([back, front], dim)
    return self


_NO_TRIANGLES = RARE - {torch.complex32}

#: A triangle with at least this many rows is written in place by blocks.
_ROWS_IN_BLOCKS = 256


def _triangle(op: OpOverload, comparison: OpOverload) -> Callable[..., Any]:
    """Return a rule that keeps the elements on one side of a diagonal, and sets the others to 0.

    It compares each column with the diagonal's column in that row.
    """

    def triangle(self: Tensor, diagonal: int = 0) -> Any:
        shape = self.shape
        if len(shape) < 2:
            return op(self, diagonal)
        if self.dtype in _NO_TRIANGLES and self.numel():
            return NotImplemented
        if not self.is_contiguous():
            # Eager's result is contiguous for any input strides.
            self = aten.clone.default(self, memory_format=torch.contiguous_format)
        rows, columns = shape[-2:]
        device = self.device
        seen = aten.unsqueeze.default(aten.arange.start_step(diagonal, diagonal + rows, device=device), 1)
        return aten.where.self(comparison(aten.arange.start_step(0, columns, device=device), seen), self, _ZERO(self))

    return triangle


def _triangle_in_place(op: OpOverload, lower: bool) -> Callable[..., Any]:
    """Write zeros to the other side of the diagonal, by blocks of rows; kept elements are neither read nor written.

    `op` handles few rows.
    """

    def triangle(self: Tensor, diagonal: int = 0) -> Any:
        if self.dim() < 2 or self.size(-2) < _ROWS_IN_BLOCKS or not self.is_contiguous() or self.dtype in _NO_TRIANGLES:
            return NotImplemented
        rows, columns = self.shape[-2:]
        step = -(-rows // 8)
        for start in range(0, rows, step):
            end = min(start + step, rows)
            block = aten.slice.Tensor(self, -2, start, end)
            # In the columns from `low` to `high`, some rows of the block keep their element, and others get 0.
            low, high = (min(max(row + diagonal + lower, 0), columns) for row in (start, end - 1))
            lost = (high, columns) if lower else (0, low)
            if lost[0] < lost[1]:
                aten.copy_.default(aten.slice.Tensor(block, -1, *lost), _ZERO(self))
            if low < high:
                part = aten.slice.Tensor(block, -1, low, high)
                aten.copy_.default(part, op(part, start + diagonal - low))
        return self

    return triangle


def _copied(view: OpOverload) -> Callable[..., Any]:
    """Return the rule of an op that returns a copy of a view."""

    def copied(*args: Any, **kwargs: Any) -> Any:
        seen = view(*args, **kwargs)
        if isinstance(seen, (list, tuple)):
            return [aten.clone.default(one, memory_format=torch.contiguous_format) for one in seen]
        return aten.clone.default(seen, memory_format=torch.contiguous_format)

    return copied


#: Copies that functionalization calls instead of views, if torch's tables lack them -> the view.
_COPIES = {
    "_reshape_alias_copy.default": "as_strided.default",
    "select_copy.int": "select.int",
    "slice_copy.Tensor": "slice.Tensor",
    "split_copy.Tensor": "split.Tensor",
    "detach_copy.default": "detach.default",
    "view_as_real_copy.default": "view_as_real.default",
    "view_as_complex_copy.default": "view_as_complex.default",
    "_neg_view_copy.default": "_neg_view.default",
    "_conj_copy.default": "_conj.default",
}


@rule("aten.lift.default")
def _lift(self: Tensor) -> Tensor:
    """Return the tensor itself, as eager does; torch's table entry returns an alias."""
    return self


@rule("aten.lift_fresh_copy.default")
def _lift_fresh_copy(self: Tensor) -> Any:
    return aten.clone.default(self, memory_format=torch.contiguous_format)


@rule("aten._unsafe_view.default", keeps_lazy_bits=True)
def _unsafe_view(self: Tensor, size: Sequence[int]) -> Any:
    return aten.view.default(self, size)


@rule("aten._lazy_clone.default", whole=True)
def _lazy_clone(self: Tensor) -> Any:
    """Return a copy of the whole storage with the same strides and offset. Eager makes this copy when either tensor is written.

    Programs contain the op as one call (`whole`), because the size of a storage is not part of their key.
    """
    if self.layout is not torch.strided:
        return NotImplemented
    held = self.untyped_storage().nbytes() // self.element_size()
    if self.is_conj() or self.is_neg() or (held == self.numel() and self.is_contiguous()):
        return aten.clone.default(self)  # eager resolves conjugates and negatives before it
    return aten.as_strided.default(
        aten.clone.default(aten.as_strided.default(self, [held], [1], 0)),
        list(self.shape),
        list(self.stride()),
        self.storage_offset(),
    )


@rule("aten.view_copy.default")
def _view_copy(self: Tensor, size: list[int]) -> Tensor:
    """Accept strides for which no view exists, as eager's `view_copy` does. torch's table entries reject them."""
    return aten.view.default(aten.clone.default(self, memory_format=torch.contiguous_format), size)  # type: ignore[no-any-return]


@rule("aten.as_strided.default", recorded=True)
def _as_strided(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Any:
    """Decompose by torch's reference, which is in no table.

    `prims.as_strided` declares a write, so torch's fallback for lazy bits would pass it a copy.
    """
    offset = self.storage_offset() if storage_offset is None else storage_offset
    flips = [flip for flip, lazy in ((aten._conj.default, self.is_conj()), (aten._neg_view.default, self.is_neg())) if lazy]
    for flip in flips:
        self = flip(self)
    found = _strided(self, size, stride, offset)
    for flip in flips:
        found = flip(found)
    return found


@rule("aten.view.default", recorded=True)
def _view(self: Tensor, size: list[int]) -> Any:
    """Resolve conj and neg bits first, because torch's reference calls `prims.as_strided` for some shapes (`_as_strided`)."""
    if self.is_conj():
        return aten._conj.default(aten.view.default(aten._conj.default(self), size))
    return aten._neg_view.default(aten.view.default(aten._neg_view.default(self), size)) if self.is_neg() else NotImplemented


def _strided(self: Tensor, size: list[int], stride: list[int], offset: int | torch.SymInt) -> Any:
    """Avoid `prims.as_strided` for 0-dim results, for which it fails because it multiplies no sizes."""
    if size:
        return reference("as_strided")(self, size, stride, offset)
    return aten.squeeze.dim(reference("as_strided")(self, [1], [1], offset), 0)


rule("aten.tril_.default")(_triangle_in_place(op_called("aten.tril.default"), True))
rule("aten.triu_.default")(_triangle_in_place(op_called("aten.triu.default"), False))
rule("aten.tril.default")(_triangle(op_called("aten.tril.default"), op_called("aten.le.Tensor")))
rule("aten.triu.default")(_triangle(op_called("aten.triu.default"), op_called("aten.ge.Tensor")))
for name, view in _COPIES.items():
    rule(f"aten.{name}")(_copied(op_called(f"aten.{view}")))

for name, view in (
    ("t_.default", "t.default"),
    ("transpose_.default", "transpose.int"),
    ("squeeze_.default", "squeeze.default"),
    ("squeeze_.dim", "squeeze.dim"),
    ("squeeze_.dims", "squeeze.dims"),
    ("unsqueeze_.default", "unsqueeze.default"),
    ("as_strided_.default", "as_strided.default"),
):
    rule(f"aten.{name}", keeps_lazy_bits=True)(_restrided(op_called(f"aten.{view}")))
