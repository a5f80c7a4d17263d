"""Conversions between sparse and dense tensors: copies, dtypes, masks, and the sparse gradients of embedding and gather."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.sparse.compressed import (
    as_coo,
    compressed_parts,
    is_compressed,
    is_matrix,
    make_compressed,
    of_coo,
    stored_values,
    unblocked,
    with_compressed_values,
    write_parts,
)
from eagerdecomp.decomps.sparse.parts import (
    add_to_dense,
    coalesced,
    flat_indices,
    is_coo,
    like,
    make_coo,
    parts,
    positions_of,
    take_over,
    unflattened,
    with_values,
)
from eagerdecomp.eager.promotion import in_type
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

# -- duplicates ----------------------------------------------------------------------------------------------------------------


@rule("aten._coalesce.default", takes_sparse=True)
def _coalesce(self: Tensor) -> Any:
    return coalesced(self)


# -- dense and back ------------------------------------------------------------------------------------------------------------


@rule("aten._to_dense.default", takes_sparse=True)
def _to_dense(self: Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None) -> Any:
    """Add every stored element to a tensor of zeros."""
    stored = as_coo(self) if is_compressed(self) else self
    if not is_coo(stored) or dtype is not None:
        return NotImplemented
    return unblocked(self, add_to_dense(aten.full.default(list(stored.shape), 0, dtype=self.dtype, device=self.device), stored))


def _sparsified(self: Tensor, sparse_dim: int) -> Any:
    """Convert a dense tensor to COO: index the first `sparse_dim` dimensions, and store the slices with a nonzero element."""
    sizes, inner = list(self.shape[:sparse_dim]), list(self.shape[sparse_dim:])
    rows = aten.reshape.default(self, [math.prod(sizes), *inner])
    held = aten.ne.Scalar(rows, 0)
    if inner:
        held = aten.any.dim(aten.reshape.default(held, [rows.shape[0], math.prod(inner)]), 1)
    flat = positions_of(held)
    indices = unflattened(flat, sizes)
    return make_coo(self.shape, indices, aten.index_select.default(rows, 0, flat), True)


@rule("aten._to_sparse.default", takes_sparse=True)
def _to_sparse(self: Tensor, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None) -> Any:
    if layout in (torch.sparse_csr, torch.sparse_csc) and blocksize is None and not dense_dim:
        return _compressed(self, layout)
    if layout in (torch.sparse_bsr, torch.sparse_bsc) and blocksize is not None and not dense_dim:
        return _blocked(self, layout, blocksize)
    if is_matrix(self) and layout in (None, torch.sparse_coo) and blocksize is None and not dense_dim:
        return as_coo(self)
    if layout not in (None, torch.sparse_coo) or self.layout not in (torch.strided, torch.sparse_coo):
        return NotImplemented
    if is_coo(self):
        if blocksize is not None or dense_dim is not None:
            return NotImplemented
        return self
    if blocksize is not None or not 0 <= (dense_dim or 0) <= self.dim():
        return NotImplemented
    return _sparsified(self, self.dim() - (dense_dim or 0))


@rule("aten._to_sparse.sparse_dim", takes_sparse=True)
def _to_sparse_dim(self: Tensor, sparse_dim: int) -> Any:
    if is_matrix(self) and sparse_dim == 2:
        return _to_sparse(self)
    if self.layout not in (torch.strided, torch.sparse_coo):
        return NotImplemented
    if is_coo(self):
        if sparse_dim != self.sparse_dim():
            return NotImplemented
        return self
    if self.dim() and not 0 < sparse_dim <= self.dim():
        return NotImplemented
    return _sparsified(self, sparse_dim if self.dim() else 0)


def _compressed(self: Tensor, layout: torch.layout) -> Any:
    if self.layout is layout:
        return NotImplemented
    if self.layout is torch.strided and self.dim() == 2:
        return of_coo(_sparsified(self, 2), layout)
    if self.layout is torch.strided:
        return _blocked(self, layout, ())
    if is_matrix(self):
        return of_coo(as_coo(self), layout)
    return of_coo(self, layout) if is_coo(self) and self.sparse_dim() == self.dim() == 2 else NotImplemented


def _blocked(self: Tensor, layout: torch.layout, blocksize: Sequence[int]) -> Any:
    """Convert a dense matrix, or a batch of them, by blocks: store the blocks with a nonzero element. Without a size, by elements.

    Eager refuses a batch whose matrices store different numbers of blocks.
    """
    height, width = blocksize or (1, 1)
    if self.layout is not torch.strided or self.dim() < 2 or not self.numel() or min(height, width) < 1:
        return NotImplemented
    if self.shape[-2] % height or self.shape[-1] % width:
        return NotImplemented
    batch = list(self.shape[:-2])
    count, by_rows = math.prod(batch), layout in (torch.sparse_csr, torch.sparse_bsr)
    lines, across = self.shape[-2] // height, self.shape[-1] // width
    blocks = aten.reshape.default(self, [count, lines, height, across, width])
    blocks = aten.permute.default(blocks, [0, 1, 3, 2, 4] if by_rows else [0, 3, 1, 2, 4])
    lines, across = (lines, across) if by_rows else (across, lines)
    blocks = aten.reshape.default(blocks, [count * lines * across, height * width])
    flat = positions_of(aten.any.dim(aten.ne.Scalar(blocks, 0), 1))
    indices, stored = unflattened(flat, [count * lines, across]), flat.shape[0] // count
    ends = aten._convert_indices_from_coo_to_csr.default(aten.select.int(indices, 0, 0), count * lines)
    begins = aten.view.default(aten.slice.Tensor(ends, 0, 0, count * lines), [count, lines])
    first = aten.mul.Scalar(aten.arange.start_step(0, count, 1, device=self.device), stored)
    begins = aten.sub.Tensor(begins, aten.view.default(first, [count, 1]))
    if count > 1 and aten._local_scalar_dense.default(aten.any.default(aten.select.int(begins, 1, 0))):
        return NotImplemented
    if flat.shape[0] % count:
        return NotImplemented
    ends = aten.view.default(aten.constant_pad_nd.default(begins, [0, 1], stored), [*batch, lines + 1])
    places = aten.reshape.default(aten.select.int(indices, 0, 1), [*batch, stored])
    values = aten.reshape.default(aten.index_select.default(blocks, 0, flat), [*batch, stored, *blocksize])
    return make_compressed(ends, places, values, self.shape, layout)


@rule("aten._to_sparse_csr.default", takes_sparse=True)
def _to_csr(self: Tensor, dense_dim: int | None = None) -> Any:
    return NotImplemented if dense_dim else _compressed(self, torch.sparse_csr)


@rule("aten._to_sparse_csc.default", takes_sparse=True)
def _to_csc(self: Tensor, dense_dim: int | None = None) -> Any:
    return NotImplemented if dense_dim else _compressed(self, torch.sparse_csc)


@rule("aten._to_sparse_bsr.default", takes_sparse=True)
def _to_bsr(self: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Any:
    return NotImplemented if dense_dim else _blocked(self, torch.sparse_bsr, blocksize)


@rule("aten._to_sparse_bsc.default", takes_sparse=True)
def _to_bsc(self: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Any:
    return NotImplemented if dense_dim else _blocked(self, torch.sparse_bsc, blocksize)


# -- copies --------------------------------------------------------------------------------------------------------------------


@rule("aten.clone.default", source="sparse")
def _clone(self: Tensor, *, memory_format: Any = None) -> Any:
    if is_compressed(self) and memory_format in (None, torch.preserve_format):
        return with_compressed_values(self, aten.clone.default(aten.values.default(self)))
    if not is_coo(self) or memory_format not in (None, torch.preserve_format):
        return NotImplemented
    found = with_values(self, aten.clone.default(aten._values.default(self)))
    return found if self.is_coalesced() == found.is_coalesced() else aten._coalesced_.default(found, self.is_coalesced())


@rule("aten._to_copy.default", source="sparse")
def _to_copy(
    self: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:
    plain = not pin_memory and memory_format in (None, torch.preserve_format)
    if plain and layout in (None, self.layout) and device is not None and torch.device(device).type == "meta":
        return _zeros_like(self, dtype=dtype, device=device)  # a copy there has no elements
    if is_compressed(self) and plain and layout in (None, self.layout):
        ends, places, values = (aten._to_copy.default(one, device=device) for one in compressed_parts(self))
        return make_compressed(ends, places, values if dtype is None else in_type(values, dtype), self.shape, self.layout)
    if not is_coo(self) or layout not in (None, torch.sparse_coo) or pin_memory:
        return NotImplemented
    if memory_format not in (None, torch.preserve_format):
        return NotImplemented
    indices, values = parts(self)
    kept = aten._to_copy.default(indices, device=device) if device is not None else aten.clone.default(indices)
    if dtype is None and device is None:
        return like(self, kept, aten.clone.default(values), self.is_coalesced())
    moved = aten._to_copy.default(values, dtype=dtype, device=device)
    return like(self, kept, moved, self.is_coalesced())


@rule("aten.copy_.default", source="sparse")
def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Any:
    if is_compressed(self) and is_compressed(src):
        return self if self is src or write_parts(self, src) else NotImplemented
    return _copy_sparse(self, src)


def _holds(self: Tensor, src: Tensor) -> bool:
    """Return whether a tensor may take the size of another: with elements, it can only grow."""
    alike = self.sparse_dim() == src.sparse_dim() and self.dense_dim() == src.dense_dim()
    return not self._nnz() or (alike and all(mine <= theirs for mine, theirs in zip(self.shape, src.shape, strict=True)))


@rule("aten.copy_sparse_to_sparse_.default", takes_sparse=True)
def _copy_sparse(self: Tensor, src: Tensor, non_blocking: bool = False) -> Any:
    if not (is_coo(self) and is_coo(src) and _holds(self, src)):
        return NotImplemented
    if self is src:
        return self
    indices, values = parts(src)
    moved = aten._to_copy.default(values, dtype=self.dtype, device=self.device)
    return take_over(self, like(src, aten._to_copy.default(indices, device=self.device), moved, src.is_coalesced()))


def _without_elements(self: Tensor, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """Return a tensor of the same size without stored elements."""
    indices, values = parts(self)
    device = values.device if device is None else device
    empty = aten.empty.memory_format([indices.shape[0], 0], dtype=torch.int64, device=device)
    shape = [0, *values.shape[1:]]
    return like(self, empty, aten.empty.memory_format(shape, dtype=dtype or values.dtype, device=device), True)


@rule("aten.zero_.default", source="sparse")
def _zero(self: Tensor) -> Any:
    return take_over(self, _without_elements(self)) if is_coo(self) else NotImplemented


@rule("aten.fill_.Scalar", source="sparse")
def _fill(self: Tensor, value: Any) -> Any:
    """Fill the elements that a compressed tensor stores, as eager does."""
    if not is_compressed(self):
        return NotImplemented
    aten.fill_.Scalar(stored_values(self), value)
    return self


@rule("aten.ones_like.default", "aten.full_like.default", source="sparse")
def _full_like(self: Tensor, fill_value: Any = 1, *, layout: Any = None, memory_format: Any = None, **options: Any) -> Any:
    """Fill the elements that a compressed tensor stores, as eager does."""
    if not is_compressed(self) or layout not in (None, self.layout) or memory_format is not None or options.get("pin_memory"):
        return NotImplemented
    return with_compressed_values(self, aten.full_like.default(stored_values(self), fill_value, **options))


@rule("aten.empty_like.default", source="sparse")
def _empty_like(
    self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None
) -> Any:
    plain = memory_format is None or (is_compressed(self) and memory_format is torch.contiguous_format)
    if not plain or pin_memory:
        return NotImplemented
    if is_compressed(self) and layout in (None, self.layout):
        _, _, values = compressed_parts(self)
        return with_compressed_values(self, aten.empty_like.default(values, dtype=dtype, device=device))
    if not is_coo(self):
        return NotImplemented
    if layout is torch.strided:
        options = {"dtype": dtype or self.dtype, "device": self.device if device is None else device}
        return aten.full.default(list(self.shape), 0, **options)
    return _without_elements(self, dtype, device) if layout in (None, torch.sparse_coo) else NotImplemented


@rule("aten.zeros_like.default", source="sparse")
def _zeros_like(self: Tensor, **options: Any) -> Any:
    """Return no elements, also of a compressed tensor."""
    if not is_compressed(self):
        return _empty_like(self, **options)
    if options.get("layout") not in (None, self.layout) or options.get("pin_memory"):
        return NotImplemented
    dtype, device = options.get("dtype"), options.get("device")
    ends, places = (aten.full_like.default(one, 0, device=device) for one in compressed_parts(self)[:2])
    values = aten.full_like.default(compressed_parts(self)[2], 0, dtype=dtype, device=device)
    places, values = (aten.slice.Tensor(one, ends.dim() - 1, 0, 0) for one in (places, values))
    return make_compressed(ends, places, values, self.shape, self.layout)


@rule("aten.new_empty.default", "aten.new_zeros.default", source="sparse")
def _new_empty(
    self: Tensor, size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    dtype, device = dtype or self.dtype, self.device if device is None else device
    if layout is torch.strided:
        return aten.full.default(list(size), 0, dtype=dtype, device=device)
    return _empty(size, dtype=dtype, layout=layout or self.layout, device=device, pin_memory=pin_memory)


@rule("aten.empty.memory_format", source="sparse")
def _empty(size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, **unlike: Any) -> Any:
    if layout is not torch.sparse_coo or unlike.get("pin_memory") or unlike.get("memory_format") is not None:
        return NotImplemented
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return aten._sparse_coo_tensor_with_dims.default(len(size), 0, size, dtype=dtype, layout=layout, device=device)


@rule("aten.zeros.default", source="sparse")
def _zeros(size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    if layout in (torch.sparse_csr, torch.sparse_csc) and len(size) == 2 and min(size) >= 0 and not pin_memory:
        values = aten.empty.memory_format([0], dtype=torch.get_default_dtype() if dtype is None else dtype, device=device)
        ends = aten.full.default([size[layout is torch.sparse_csc] + 1], 0, dtype=torch.int64, device=device)
        return make_compressed(ends, aten.slice.Tensor(ends, 0, 0, 0), values, size, layout)
    return _empty(size, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


@rule("aten.zeros.out", source="sparse")
def _zeros_out(size: Sequence[int], *, out: Tensor) -> Any:
    return take_over(out, _empty(size, dtype=out.dtype, layout=out.layout, device=out.device)) if is_coo(out) else NotImplemented


@rule("aten.sparse_coo_tensor.size", takes_sparse=True)
def _of_size(size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    return _empty(size, dtype=dtype, layout=torch.sparse_coo, device=device, pin_memory=pin_memory)


@rule("aten._sparse_coo_tensor_unsafe.default", takes_sparse=True)
def _unsafe(indices: Tensor, values: Tensor, size: Sequence[int], *, is_coalesced: bool | None = None, **options: Any) -> Any:
    if values.dim() == 0:
        values = aten.expand.default(values, [indices.shape[1]])
    return make_coo(size, indices, values, bool(is_coalesced))


@rule("aten.resize_as_sparse_.default", takes_sparse=True)
def _resize_as(self: Tensor, the_template: Tensor) -> Any:
    if not (is_coo(self) and is_coo(the_template)):
        return NotImplemented
    same = self.shape == the_template.shape and self.sparse_dim() == the_template.sparse_dim()
    if same and self.dense_dim() == the_template.dense_dim():
        return self
    if self._nnz():
        return aten.sparse_resize_.default(self, the_template.shape, the_template.sparse_dim(), the_template.dense_dim())
    made = _without_elements(the_template, self.dtype, self.device)
    return take_over(self, made)


# -- masks ---------------------------------------------------------------------------------------------------------------------


def _looked_up(self: Tensor, mask: Tensor) -> Any:
    """Return the values of a coalesced sparse tensor at the indices of `mask`, and zeros where it stores none."""
    sizes = mask.shape[: mask.sparse_dim()]
    held, wanted = flat_indices(self._indices(), sizes), flat_indices(mask._indices(), sizes)
    values = aten._values.default(self)
    count = held.shape[0]
    if not count or not wanted.shape[0]:
        shape = [wanted.shape[0], *values.shape[1:]]
        return aten.full.default(shape, 0, dtype=values.dtype, device=values.device)
    seat = aten.clamp.default(aten.searchsorted.Tensor(held, wanted), 0, count - 1)
    found = aten.eq.Tensor(aten.index_select.default(held, 0, seat), wanted)
    rows = aten.index_select.default(values, 0, seat)
    found = aten.view.default(found, [-1] + [1] * (rows.dim() - 1))
    return aten.where.self(found, rows, aten.full.default([], 0, dtype=rows.dtype, device=rows.device))


def gathered(dense: Tensor, indices: Tensor) -> Any:
    """Return the rows of a dense tensor at these indices of its first dimensions."""
    sizes = list(dense.shape[: indices.shape[0]])
    rows = aten.reshape.default(dense, [math.prod(sizes), *dense.shape[len(sizes) :]])
    return aten.index_select.default(rows, 0, flat_indices(indices, sizes))


@rule("aten.sparse_mask.default", takes_sparse=True)
def _sparse_mask(self: Tensor, mask: Tensor) -> Any:
    """Return a tensor's values at the indices of a sparse one."""
    if is_matrix(mask) and self.shape == mask.shape and not (mask.numel() and mask._nnz()):
        return with_compressed_values(mask, aten._to_copy.default(compressed_parts(mask)[2], dtype=self.dtype))
    if is_matrix(mask) and self.layout is mask.layout is torch.sparse_csr and self.shape == mask.shape:
        stored, wanted = as_coo(self), as_coo(mask)
        ones = with_values(stored, aten.full_like.default(aten._values.default(stored), 1))
        kept = positions_of(aten.ne.Scalar(_looked_up(ones, wanted), 0))
        values = aten.index_select.default(_looked_up(stored, wanted), 0, kept)
        indices = aten.index_select.default(aten._indices.default(wanted), 1, kept)
        return of_coo(make_coo(mask.shape, indices, values, True), mask.layout)
    if is_matrix(mask) and self.layout is torch.strided and self.shape == mask.shape:
        ends, places, _ = compressed_parts(mask)
        return make_compressed(ends, places, gathered(self, as_coo(mask)._indices()), mask.shape, mask.layout)
    if not is_coo(mask) or self.layout not in (torch.strided, torch.sparse_coo):
        return NotImplemented
    unlike = is_coo(self) and (
        self.sparse_dim() != mask.sparse_dim() or not torch.can_cast(torch.promote_types(self.dtype, mask.dtype), self.dtype)
    )
    if self.shape != mask.shape or unlike:
        return NotImplemented
    indices = aten._indices.default(mask)
    if is_coo(self):
        values = _looked_up(coalesced(self), mask)
    elif not mask.sparse_dim():
        values = aten.repeat.default(aten.unsqueeze.default(self, 0), [indices.shape[1]] + [1] * self.dim())
    elif not self.numel():
        values = aten.full.default([indices.shape[1], *self.shape[mask.sparse_dim() :]], 0, dtype=self.dtype, device=self.device)
    else:
        values = gathered(self, indices)
    return make_coo(mask.shape, aten.clone.default(indices), values, mask.is_coalesced())


@rule("aten._sparse_mask_projection.default", takes_sparse=True)
def _mask_projection(self: Tensor, mask: Tensor, accumulate_matches: bool = False) -> Any:
    """Keep the elements of `self` whose index the mask has; multiply them by how often it has it if `accumulate_matches`."""
    if not (is_coo(mask) and is_coo(self)) or self.shape != mask.shape or self.sparse_dim() != mask.sparse_dim():
        return NotImplemented
    indices, values = parts(self)
    ones = aten.full.default([mask._nnz()], 1, dtype=torch.int64, device=values.device)
    times = coalesced(make_coo(self.shape[: self.sparse_dim()], aten._indices.default(mask), ones, mask.is_coalesced()))
    counts = _looked_up(times, self)
    kept = positions_of(aten.ne.Scalar(counts, 0))
    values = aten.index_select.default(values, 0, kept)
    if accumulate_matches:
        counts = aten.view.default(aten.index_select.default(counts, 0, kept), [-1] + [1] * (values.dim() - 1))
        values = aten.mul.Tensor(values, in_type(counts, values.dtype))
    return like(self, aten.index_select.default(indices, 1, kept), values, self.is_coalesced())


# -- the gradients of look-ups -------------------------------------------------------------------------------------------------


@rule("aten.embedding_sparse_backward.default", takes_sparse=True)
def _embedding_backward(grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    """Return a gradient row per index, except for padding indices."""
    if scale_grad_by_freq:
        return NotImplemented
    width = grad.shape[-1]
    flat, rows = aten.reshape.default(indices, [1, -1]), aten.reshape.default(grad, [-1, width])
    if padding_idx != -1:
        kept = positions_of(aten.ne.Scalar(aten.select.int(flat, 0, 0), padding_idx))
        flat, rows = aten.index_select.default(flat, 1, kept), aten.index_select.default(rows, 0, kept)
    if not rows.shape[0]:
        flat = aten.full.default([1, 0], 0, dtype=indices.dtype, device=indices.device)
        rows = aten.full.default([0, width], 0, dtype=grad.dtype, device=grad.device)
    return make_coo([num_weights, width], in_type(flat, torch.int64), rows, False)


@rule("aten._embedding_bag_sparse_backward.default", takes_sparse=True)
def _embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None = None,
    padding_idx: int = -1,
) -> Any:
    """Return for each index the gradient of its bag, divided by the bag's size in mode "mean"."""
    if mode == 2:  # maxima
        return NotImplemented
    rows = aten.index_select.default(grad, 0, offset2bag)
    if mode == 1:
        sizes = aten.index_select.default(aten.clamp.default(bag_size, 1), 0, offset2bag)
        rows = aten.div.Tensor(rows, aten.unsqueeze.default(sizes, 1))
    if per_sample_weights is not None:
        rows = aten.mul.Tensor(rows, aten.unsqueeze.default(per_sample_weights, 1))
    return _embedding_backward(rows, indices, num_weights, padding_idx, scale_grad_by_freq)


@rule("aten._gather_sparse_backward.default", takes_sparse=True)
def _gather_backward(self: Tensor, dim: int, index: Tensor, grad: Tensor) -> Any:
    """Return the gradient of each gathered element at the index from which it was gathered."""
    rank = self.dim()
    if rank == 0:
        indices = aten.full.default([0, 1], 0, dtype=torch.int64, device=index.device)
        return make_coo(self.shape, indices, aten.reshape.default(grad, [1]), False)
    if grad.dim() == 0:
        return make_coo(self.shape, aten.reshape.default(index, [1, 1]), aten.reshape.default(grad, [1]), False)
    rows = []
    for one in range(rank):
        if one == dim % rank:
            rows.append(aten.reshape.default(index, [1, -1]))
            continue
        places = aten.arange.start_step(0, grad.shape[one], 1, device=grad.device)
        spread = aten.expand.default(aten.view.default(places, [-1] + [1] * (rank - one - 1)), list(grad.shape))
        rows.append(aten.reshape.default(spread, [1, -1]))
    return make_coo(self.shape, aten.cat.default(rows, 0), aten.reshape.default(grad, [-1]), False)
