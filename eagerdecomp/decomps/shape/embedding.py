"""Embeddings: look-ups, bags of them (sums, means, maxima), their gradients, and rows kept below a norm.

How many indices a batch holds differs from step to step, so the rules for bags are linked: they run as they are, under no key.
What eager asks of the numbers in `offsets` (that the first be 0, the last no more than there are indices) is not asked here: it
would read them at every call. And where eager's maximum of a bag passes over a NaN that is not its first, here the NaN wins.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import HALF
from eagerdecomp.rules.rule import Call, Rule, linked, own

__all__ = ["RULES"]

aten = torch.ops.aten

_SUM, _MEAN, _MAX = 0, 1, 2
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INDICES = (torch.int64, torch.int32)

_KERNELS = {
    "add_up": aten.index_put.default,
    "arange": aten.arange.start_step,
    "clamp": aten.clamp.default,
    "contiguous": aten.clone.default,
    "cumsum": aten.cumsum.default,
    "dense_backward": aten.embedding_dense_backward.default,
    "div": aten.div.Tensor,
    "eq": aten.eq.Tensor,
    "eq_scalar": aten.eq.Scalar,
    "expand": aten.expand.default,
    "full": aten.full.default,
    "gt": aten.gt.Scalar,
    "index": aten.index.Tensor,
    "mul": aten.mul.Tensor,
    "ne": aten.ne.Scalar,
    "pad": aten.constant_pad_nd.default,
    "rows": aten.index_select.default,
    "scatter_add": aten.scatter_add.default,
    "scatter_reduce": aten.scatter_reduce.two,
    "slice": aten.slice.Tensor,
    "sort": aten.sort.default,
    "sub": aten.sub.Tensor,
    "sub_scalar": aten.sub.Scalar,
    "full_like": aten.full_like.default,
    "sum": aten.sum.dim_IntList,
    "to": aten._to_copy.default,
    "unsqueeze": aten.unsqueeze.default,
    "where": aten.where.self,
}


def _bound(rule: Callable[..., Any]) -> Callable[[Call], Callable[..., Any]]:
    """A linked rule of a function whose first argument is the kernels."""

    def link(call: Call) -> Callable[..., Any]:
        kernels = SimpleNamespace(**{name: call(op) for name, op in _KERNELS.items()})

        def run(*args: Any, **kwargs: Any) -> Any:
            return rule(kernels, *args, **kwargs)

        return run

    return link


# -- checks -----------------------------------------------------------------------------------------------------------------


def _check_dtype(tensor: Tensor, name: str, position: int, allowed: tuple[torch.dtype, ...], by: str) -> None:
    if tensor.dtype not in allowed:
        names = "Long, Int" if allowed is _INDICES else "Half, BFloat16, Float, Double"
        raise RuntimeError(
            f"Expected tensor for argument #{position} '{name}' to have one of the following scalar types: {names}; "
            f"but got {tensor.type()} instead (while checking arguments for {by})"
        )


def _check_contiguous(tensor: Tensor, name: str) -> None:
    if not tensor.is_contiguous():
        raise RuntimeError(
            f"Expected contiguous tensor, but got non-contiguous tensor for argument #1 '{name}' (while checking arguments for "
            "embedding_bag)"
        )


def _check_bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, mode: int, per_sample_weights: Tensor | None, include_last_offset: bool
) -> None:
    if indices.dim() not in (1, 2):
        raise RuntimeError(f"input has to be a 1D or 2D Tensor, but got Tensor of dimension {indices.dim()}")
    if indices.dim() == 1 and offsets.dim() != 1:
        raise RuntimeError(f"offsets has to be a 1D Tensor, but got Tensor of dimension {offsets.dim()}")
    if mode not in (_SUM, _MEAN, _MAX):
        raise RuntimeError("`mode` must be sum, mean, or max.")
    _check_dtype(indices, "indices", 1, _INDICES, "embedding_bag")
    _check_dtype(offsets, "offsets", 1, _INDICES, "embedding_bag")
    _check_dtype(weight, "weight", 1, _FLOATS, "embedding_bag")
    if per_sample_weights is not None:
        if mode != _SUM:
            raise RuntimeError("embedding_bag: per_sample_weights only supported with mode='sum'")
        if per_sample_weights.dtype is not weight.dtype:
            raise RuntimeError(
                "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights'; "
                f"but type {weight.type()} does not equal {per_sample_weights.type()} (while checking arguments for embedding_bag)"
            )
        if per_sample_weights.dim() != 1 or per_sample_weights.numel() != indices.numel():
            raise RuntimeError("per_sample_weights must be one number for each index")
    if include_last_offset and not offsets.size(0):
        raise RuntimeError("include_last_offset: number of offset should be at least 1")


# -- bags -------------------------------------------------------------------------------------------------------------------


def _of_one_type(k: SimpleNamespace, indices: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    if indices.dtype is offsets.dtype:
        return indices, offsets
    wide = [x if x.dtype is torch.int64 else k.to(x, dtype=torch.int64) for x in (indices, offsets)]
    return wide[0], wide[1]


def _bag_of_each(k: SimpleNamespace, offsets: Tensor, count: int) -> Any:
    """The bag that each index is in: how many bags but the first, which begins at 0, begin at it or before."""
    later = k.slice(offsets, 0, 1, None)
    starts = later if offsets.dtype is torch.int64 else k.to(later, dtype=torch.int64)
    none = k.full([count + 1], 0, dtype=offsets.dtype, device=offsets.device)
    begun = k.scatter_add(none, 0, starts, k.full_like(later, 1))
    return k.slice(k.cumsum(begun, 0, dtype=offsets.dtype), 0, 0, count)


def _is_fast(weight: Tensor, mode: int, per_sample_weights: Tensor | None, padding_idx: int) -> bool:
    """Whether eager sums without asking for each index's bag, which it then does not answer either."""
    dense = weight.stride(1) == 1 and (per_sample_weights is None or per_sample_weights.stride(0) == 1)
    return mode == _SUM and dense and weight.dtype is not torch.float64 and padding_idx < 0


def _embedding_bag(
    k: SimpleNamespace,
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
    """Output, bag of each index, size of each bag, and for maxima the index that gave each."""
    _check_bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset)
    indices, offsets = _of_one_type(k, indices, offsets)
    whole = {"dtype": offsets.dtype, "device": offsets.device}
    bags, count, width = offsets.size(0) - include_last_offset, indices.size(0), weight.size(1)
    each = _bag_of_each(k, k.slice(offsets, 0, 0, bags) if include_last_offset else offsets, count)
    # Padding goes to a bag of its own, after the others.
    seat = each
    if padding_idx >= 0:
        seat = k.where(k.eq_scalar(indices, padding_idx), k.full([], bags, **whole), each)
    if seat.dtype is not torch.int64:
        seat = k.to(seat, dtype=torch.int64)
    seats = bags + (padding_idx >= 0)
    rows = k.rows(weight, 0, indices)
    if rows.dtype in HALF and mode != _MAX:
        rows = k.to(rows, dtype=torch.float32)
    if per_sample_weights is not None:
        rows = k.mul(rows, k.unsqueeze(per_sample_weights, 1))
    start = k.full([seats, width], 0.0, dtype=rows.dtype, device=rows.device)
    sizes = k.full([bags], 0, **whole)
    if mode != _SUM and bags:
        sizes = k.add_up(k.full([seats], 0, **whole), [seat], k.full([], 1, **whole), True)
    chosen = None
    if not bags:
        output = start
        chosen = k.full([0, width], 0, **whole)
    elif mode == _MAX:
        output, chosen = _greatest(k, start, rows, seat, indices)
    else:
        output = k.add_up(start, [seat], rows, True)
    if seats > bags:
        output = k.slice(output, 0, 0, bags)
        sizes = k.slice(sizes, 0, 0, bags)
        chosen = None if chosen is None else k.slice(chosen, 0, 0, bags)
    if mode == _MEAN:
        output = k.div(output, k.unsqueeze(k.clamp(sizes, 1), 1))
    if output.dtype is not weight.dtype:
        output = k.to(output, dtype=weight.dtype)
    if _is_fast(weight, mode, per_sample_weights, padding_idx):
        each = k.full([0], 0, **whole)
    return output, each, sizes, chosen if mode == _MAX else k.contiguous(sizes)


def _greatest(k: SimpleNamespace, start: Tensor, rows: Tensor, seat: Tensor, indices: Tensor) -> tuple[Any, Any]:
    """Each bag's greatest entries, and the first index that gave each; zeros for a bag of nothing."""
    count = rows.size(0)
    spread = k.expand(k.unsqueeze(seat, 1), list(rows.shape))
    output = k.scatter_reduce(start, 0, spread, rows, "amax", include_self=False)
    place = k.unsqueeze(k.arange(0, count, 1, device=rows.device), 1)
    none = k.full([], count, dtype=torch.int64, device=rows.device)
    place = k.where(k.eq(rows, k.rows(output, 0, seat)), place, none)
    first = k.full(list(start.shape), count, dtype=torch.int64, device=rows.device)
    first = k.scatter_reduce(first, 0, spread, place, "amin")
    return output, k.index(k.pad(indices, [0, 1], 0), [first])


def _forward_only(call: Call) -> Callable[..., Any]:
    """What training uses answers the same, but for the sizes of the bags of a sum: those are zeros, one for each offset."""
    embedding_bag, full = call(aten._embedding_bag.default), call(aten.full.default)

    def run(
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
        given = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
        output, each, sizes, chosen = embedding_bag(weight, indices, offsets, *given)
        if include_last_offset and mode == _SUM:
            sizes, chosen = (full(list(offsets.shape), 0, dtype=sizes.dtype, device=sizes.device) for _ in range(2))
        return output, each, sizes, chosen

    return run


# -- gradients of bags --------------------------------------------------------------------------------------------------------


def _backward(call: Call) -> Callable[..., Any]:
    k = SimpleNamespace(**{name: call(op) for name, op in _KERNELS.items()})
    dense = call(aten._embedding_bag_dense_backward.default)

    def run(
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
        indices, offsets = _of_one_type(k, indices, offsets)
        for name, tensor in (("indices", indices), ("offsets", offsets)):
            _check_dtype(tensor, name, 1, _INDICES, "embedding_bag")
            _check_contiguous(tensor, name)
        if indices.numel() and not offset2bag.numel():
            offset2bag = _bag_of_each(k, offsets, indices.size(0))
        scaling = (num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx)
        if sparse:
            given = (grad, indices, offsets, offset2bag, bag_size)
            return call(aten._embedding_bag_sparse_backward.default)(*given, *scaling)
        return dense(grad, indices, offset2bag, bag_size, maximum_indices, *scaling)

    return run


def _dense_backward(
    k: SimpleNamespace,
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
    _check_dtype(grad, "grad_", 1, _FLOATS, "embedding_bag")
    if mode == _MAX:
        # A bag of nothing has index 0 for its greatest, and no gradient.
        filled = k.unsqueeze(k.ne(bag_size, 0), 1)
        grad = k.where(filled, grad, k.full([], 0.0, dtype=grad.dtype, device=grad.device))
        if maximum_indices.dtype is not torch.int64:
            maximum_indices = k.to(maximum_indices, dtype=torch.int64)
        zeros = k.full([num_weights, grad.size(1)], 0.0, dtype=grad.dtype, device=grad.device)
        return k.scatter_add(zeros, 0, maximum_indices, grad)
    if mode == _MEAN:
        grad = k.div(grad, k.unsqueeze(k.clamp(bag_size, 1), 1))
    rows = k.rows(grad, 0, offset2bag)
    if per_sample_weights is not None:
        rows = k.mul(rows, k.unsqueeze(per_sample_weights, 1))
    result = k.dense_backward(rows, indices, num_weights, padding_idx, False)
    if scale_grad_by_freq and indices.numel():
        result = k.div(result, k.unsqueeze(_frequencies(k, indices, num_weights), 1))
    return result


def _frequencies(k: SimpleNamespace, indices: Tensor, num_weights: int) -> Any:
    """What eager divides each row's gradient by: for the n-th of the indices that occur, in order, how often the n-th smallest of
    *all* indices occurs. That is its own number only where no index occurs twice before it."""
    whole = {"dtype": torch.int64, "device": indices.device}
    count = k.add_up(k.full([num_weights], 0, **whole), [indices], k.full([], 1, **whole), True)
    occurs = k.gt(count, 0)
    rank = k.sub_scalar(k.cumsum(occurs, 0), 1)
    ordered = k.sort(indices)[0]
    # Rows before the first that occurs have rank -1: any number does, since their gradient is 0.
    return k.rows(count, 0, k.rows(ordered, 0, k.clamp(rank, 0)))


def _per_sample_weights_backward(
    k: SimpleNamespace,
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    if mode != _SUM:
        raise RuntimeError("embedding_bag_backward: per_sample_weights only supported for mode='sum'")
    indices, offsets = _of_one_type(k, indices, offsets)
    _check_dtype(indices, "indices", 1, _INDICES, "embedding_bag")
    _check_contiguous(indices, "indices")
    if indices.numel() and not offset2bag.numel():
        offset2bag = _bag_of_each(k, offsets, indices.size(0))
    pair = [k.rows(grad, 0, offset2bag), k.rows(weight, 0, indices)]
    if grad.dtype in HALF:
        pair = [k.to(x, dtype=torch.float32) for x in pair]
    result = k.sum(k.mul(*pair), [1])
    if padding_idx >= 0:
        zero = k.full([], 0.0, dtype=result.dtype, device=result.device)
        result = k.where(k.eq_scalar(indices, padding_idx), zero, result)
    return result if result.dtype is grad.dtype else k.to(result, dtype=grad.dtype)


# -- look-ups -----------------------------------------------------------------------------------------------------------------


def _embedding(call: Call) -> Callable[..., Any]:
    rows, reshape, view = call(aten.index_select.default), call(aten.reshape.default), call(aten.view.default)

    def run(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
        if weight.dim() != 2:
            raise RuntimeError("'weight' must be 2-D")
        _check_dtype(indices, "indices", 1, _INDICES, "embedding")
        if indices.dim() == 1:
            return rows(weight, 0, indices)
        return view(rows(weight, 0, reshape(indices, [-1])), [*indices.shape, weight.size(1)])

    return run


def _embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Any:
    """Rows whose norm is above `max_norm` are scaled down to it. An index that occurs twice writes the same row twice."""
    if self.dim() != 2:
        raise RuntimeError(
            f"Expected 2-dimensional tensor, but got {self.dim()}-dimensional tensor for argument #1 'self' "
            "(while checking arguments for embedding_renorm_)"
        )
    _check_dtype(indices, "indices", 2, _INDICES, "embedding_renorm_")
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        raise RuntimeError("norm(): input dtype should be either floating point or complex.")
    if indices.dim() != 1:
        indices = aten.reshape.default(indices, [-1])
    rows = aten.index.Tensor(self, [indices])
    norm = aten.linalg_vector_norm.default(rows, norm_type, [1], True)
    if self.dtype in HALF:
        norm, rows = (aten._to_copy.default(x, dtype=torch.float32) for x in (norm, rows))
    one = aten.full.default([], 1.0, dtype=norm.dtype, device=norm.device)
    limit = aten.full.default([], max_norm, dtype=norm.dtype, device=norm.device)
    scale = aten.where.self(aten.gt.Scalar(norm, max_norm), aten.div.Tensor(limit, aten.add.Scalar(norm, 1e-7)), one)
    scaled = aten.mul.Tensor(rows, scale)
    if scaled.dtype is not self.dtype:
        scaled = aten._to_copy.default(scaled, dtype=self.dtype)
    return aten.index_put.default(self, [indices], scaled)


RULES: tuple[Rule, ...] = (
    linked(aten._embedding_bag.default, _bound(_embedding_bag)),
    linked(aten._embedding_bag_forward_only.default, _forward_only),
    linked(aten._embedding_bag_backward.default, _backward),
    linked(aten._embedding_bag_dense_backward.default, _bound(_dense_backward)),
    linked(aten._embedding_bag_per_sample_weights_backward.default, _bound(_per_sample_weights_backward)),
    linked(aten.embedding.default, _embedding),
    own(aten.embedding_renorm.default, _embedding_renorm),
)
