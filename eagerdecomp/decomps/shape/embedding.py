"""Embeddings: lookups, bags (sums, means, maxima), their gradients, and renormalization of rows.

The number of indices differs from step to step, so the rules for bags are linked: they have no cache key. Two checks of eager are
omitted, because they would read data at every call: that the first of `offsets` is 0, and that the last is at most the number of
indices. In a maximum, a NaN always wins; eager ignores one that is not the first of its bag.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import HALF
from eagerdecomp.rules.link import link_on_call
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_SUM, _MEAN, _MAX = 0, 1, 2
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INDICES = (torch.int64, torch.int32)

# -- bags -------------------------------------------------------------------------------------------------------------------


def _are_bags(weight: Tensor, indices: Tensor, offsets: Tensor, mode: int, scales: Tensor | None) -> bool:
    if indices.dtype not in _INDICES or offsets.dtype not in _INDICES or weight.dtype not in _FLOATS or offsets.dim() != 1:
        return False
    if scales is None:
        return mode in (_SUM, _MEAN, _MAX)
    return mode == _SUM and scales.dtype is weight.dtype and scales.dim() == 1 and scales.numel() == indices.numel()


def _of_one_type(indices: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    if indices.dtype is offsets.dtype:
        return indices, offsets
    wide = [x if x.dtype is torch.int64 else aten._to_copy.default(x, dtype=torch.int64) for x in (indices, offsets)]
    return wide[0], wide[1]


def _bag_of_each(offsets: Tensor, count: int) -> Any:
    """Return the bag of each index: the number of bags, except the first, that begin at or before it."""
    later = aten.slice.Tensor(offsets, 0, 1, None)
    starts = later if offsets.dtype is torch.int64 else aten._to_copy.default(later, dtype=torch.int64)
    none = aten.full.default([count + 1], 0, dtype=offsets.dtype, device=offsets.device)
    begun = aten.scatter_add.default(none, 0, starts, aten.full_like.default(later, 1))
    return aten.slice.Tensor(aten.cumsum.default(begun, 0, dtype=offsets.dtype), 0, 0, count)


def _is_fast(weight: Tensor, mode: int, per_sample_weights: Tensor | None, padding_idx: int) -> bool:
    """Return whether eager sums without computing the bag of each index, which it then does not return."""
    dense = weight.stride(1) == 1 and (per_sample_weights is None or per_sample_weights.stride(0) == 1)
    return mode == _SUM and dense and weight.dtype is not torch.float64 and padding_idx < 0


@rule("aten._embedding_bag.default")
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Return the output, the bag of each index, the size of each bag, and for maxima the index of each maximum."""
    if not _are_bags(weight, indices, offsets, mode, per_sample_weights):
        return NotImplemented
    indices, offsets = _of_one_type(indices, offsets)
    whole = {"dtype": offsets.dtype, "device": offsets.device}
    bags, count, width = offsets.size(0) - include_last_offset, indices.size(0), weight.size(1)
    each = _bag_of_each(aten.slice.Tensor(offsets, 0, 0, bags) if include_last_offset else offsets, count)
    # Padding goes to a bag of its own, after the others.
    seat = each
    if padding_idx >= 0:
        seat = aten.where.self(aten.eq.Scalar(indices, padding_idx), aten.full.default([], bags, **whole), each)
    if seat.dtype is not torch.int64:
        seat = aten._to_copy.default(seat, dtype=torch.int64)
    seats = bags + (padding_idx >= 0)
    rows = aten.index_select.default(weight, 0, indices)
    if rows.dtype in HALF and mode != _MAX:
        rows = aten._to_copy.default(rows, dtype=torch.float32)
    if per_sample_weights is not None:
        rows = aten.mul.Tensor(rows, aten.unsqueeze.default(per_sample_weights, 1))
    start = aten.full.default([seats, width], 0.0, dtype=rows.dtype, device=rows.device)
    sizes = aten.full.default([bags], 0, **whole)
    if mode != _SUM and bags:
        sizes = aten.index_put.default(aten.full.default([seats], 0, **whole), [seat], aten.full.default([], 1, **whole), True)
    chosen = None
    if not bags:
        output = start
        chosen = aten.full.default([0, width], 0, **whole)
    elif mode == _MAX:
        output, chosen = _greatest(start, rows, seat, indices)
    else:
        output = aten.index_put.default(start, [seat], rows, True)
    if seats > bags:
        output = aten.slice.Tensor(output, 0, 0, bags)
        sizes = aten.slice.Tensor(sizes, 0, 0, bags)
        chosen = None if chosen is None else aten.slice.Tensor(chosen, 0, 0, bags)
    if mode == _MEAN:
        output = aten.div.Tensor(output, aten.unsqueeze.default(aten.clamp.default(sizes, 1), 1))
    if output.dtype is not weight.dtype:
        output = aten._to_copy.default(output, dtype=weight.dtype)
    if _is_fast(weight, mode, per_sample_weights, padding_idx):
        each = aten.full.default([0], 0, **whole)
    return output, each, sizes, chosen if mode == _MAX else aten.clone.default(sizes)


@link_on_call  # sums and means need no `scatter_reduce`
def _greatest(start: Tensor, rows: Tensor, seat: Tensor, indices: Tensor) -> tuple[Any, Any]:
    """Return the maxima of each bag, and the first index of each; zeros for an empty bag."""
    count = rows.size(0)
    spread = aten.expand.default(aten.unsqueeze.default(seat, 1), list(rows.shape))
    output = aten.scatter_reduce.two(start, 0, spread, rows, "amax", include_self=False)
    place = aten.unsqueeze.default(aten.arange.start_step(0, count, 1, device=rows.device), 1)
    none = aten.full.default([], count, dtype=torch.int64, device=rows.device)
    place = aten.where.self(aten.eq.Tensor(rows, aten.index_select.default(output, 0, seat)), place, none)
    first = aten.full.default(list(start.shape), count, dtype=torch.int64, device=rows.device)
    first = aten.scatter_reduce.two(first, 0, spread, place, "amin")
    return output, aten.index.Tensor(aten.constant_pad_nd.default(indices, [0, 1], 0), [first])


@rule("aten._embedding_bag_forward_only.default")
def _forward_only(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Return the training op's results. With `include_last_offset`, the last two results of a sum are zeros, one per offset."""
    given = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    output, each, sizes, chosen = aten._embedding_bag.default(weight, indices, offsets, *given)
    if include_last_offset and mode == _SUM:
        sizes, chosen = (aten.full.default(list(offsets.shape), 0, dtype=sizes.dtype, device=sizes.device) for _ in range(2))
    return output, each, sizes, chosen


# -- gradients of bags --------------------------------------------------------------------------------------------------------


@rule("aten._embedding_bag_backward.default")
def _embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    if any(x.dtype not in _INDICES or not x.is_contiguous() for x in (indices, offsets)):
        return NotImplemented
    indices, offsets = _of_one_type(indices, offsets)
    if indices.numel() and not offset2bag.numel():
        offset2bag = _bag_of_each(offsets, indices.size(0))
    scaling = (num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx)
    if sparse:
        given = (grad, indices, offsets, offset2bag, bag_size)
        return _sparse_backward(*given, *scaling)
    return aten._embedding_bag_dense_backward.default(grad, indices, offset2bag, bag_size, maximum_indices, *scaling)


@link_on_call
def _sparse_backward(*args: Any) -> Any:
    return aten._embedding_bag_sparse_backward.default(*args)


@rule("aten._embedding_bag_dense_backward.default")
def _dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    if grad.dtype not in _FLOATS:
        return NotImplemented
    if mode == _MAX:
        # The maximum of an empty bag has index 0, but no gradient.
        filled = aten.unsqueeze.default(aten.ne.Scalar(bag_size, 0), 1)
        grad = aten.where.self(filled, grad, aten.full.default([], 0.0, dtype=grad.dtype, device=grad.device))
        if maximum_indices.dtype is not torch.int64:
            maximum_indices = aten._to_copy.default(maximum_indices, dtype=torch.int64)
        zeros = aten.full.default([num_weights, grad.size(1)], 0.0, dtype=grad.dtype, device=grad.device)
        return aten.scatter_add.default(zeros, 0, maximum_indices, grad)
    if mode == _MEAN:
        grad = aten.div.Tensor(grad, aten.unsqueeze.default(aten.clamp.default(bag_size, 1), 1))
    rows = aten.index_select.default(grad, 0, offset2bag)
    if per_sample_weights is not None:
        rows = aten.mul.Tensor(rows, aten.unsqueeze.default(per_sample_weights, 1))
    result = aten.embedding_dense_backward.default(rows, indices, num_weights, padding_idx, False)
    if scale_grad_by_freq and indices.numel():
        result = aten.div.Tensor(result, aten.unsqueeze.default(_frequencies(indices, num_weights), 1))
    return result


def _frequencies(indices: Tensor, num_weights: int) -> Any:
    """Return the divisor of each row's gradient in eager.

    For the n-th smallest of the distinct indices, eager divides by how often the n-th smallest of *all* indices occurs. That is the
    row's own count only if no smaller index occurs twice.
    """
    whole = {"dtype": torch.int64, "device": indices.device}
    count = aten.index_put.default(aten.full.default([num_weights], 0, **whole), [indices], aten.full.default([], 1, **whole), True)
    occurs = aten.gt.Scalar(count, 0)
    rank = aten.sub.Scalar(aten.cumsum.default(occurs, 0), 1)
    ordered = aten.sort.default(indices)[0]
    # Rows before the first one that occurs have rank -1. They may have any divisor, because their gradient is 0.
    return aten.index_select.default(count, 0, aten.index_select.default(ordered, 0, aten.clamp.default(rank, 0)))


@rule("aten._embedding_bag_per_sample_weights_backward.default")
def _per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    if mode != _SUM or indices.dtype not in _INDICES or not indices.is_contiguous():
        return NotImplemented
    indices, offsets = _of_one_type(indices, offsets)
    if indices.numel() and not offset2bag.numel():
        offset2bag = _bag_of_each(offsets, indices.size(0))
    pair = [aten.index_select.default(grad, 0, offset2bag), aten.index_select.default(weight, 0, indices)]
    if grad.dtype in HALF:
        pair = [aten._to_copy.default(x, dtype=torch.float32) for x in pair]
    result = aten.sum.dim_IntList(aten.mul.Tensor(*pair), [1])
    if padding_idx >= 0:
        zero = aten.full.default([], 0.0, dtype=result.dtype, device=result.device)
        result = aten.where.self(aten.eq.Scalar(indices, padding_idx), zero, result)
    return result if result.dtype is grad.dtype else aten._to_copy.default(result, dtype=grad.dtype)


# -- look-ups -----------------------------------------------------------------------------------------------------------------


@rule("aten.embedding.default")
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    if weight.dim() != 2 or indices.dtype not in _INDICES:
        return NotImplemented
    if indices.dim() == 1:
        return aten.index_select.default(weight, 0, indices)
    return aten.view.default(
        aten.index_select.default(weight, 0, aten.reshape.default(indices, [-1])), [*indices.shape, weight.size(1)]
    )


@rule("aten.embedding_renorm.default", recorded=True)
def _embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Any:
    """Scale rows whose norm is above `max_norm` down to it. An index that occurs twice writes the same row twice."""
    if indices.dim() != 1:
        indices = aten.reshape.default(indices, [-1])
    rows = aten.index.Tensor(self, [indices])
    norm = aten.linalg_vector_norm.default(rows, norm_type, [1], True)
    one = aten.full.default([], 1.0, dtype=norm.dtype, device=norm.device)
    limit = aten.full.default([], max_norm, dtype=norm.dtype, device=norm.device)
    scale = aten.where.self(aten.gt.Scalar(norm, max_norm), aten.div.Tensor(limit, aten.add.Scalar(norm, 1e-7)), one)
    return aten.index_put.default(self, [indices], aten.mul.Tensor(rows, scale))
