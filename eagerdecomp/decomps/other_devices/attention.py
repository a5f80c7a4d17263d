"""Fused attention as in CUDA's kernels: flash, memory-efficient and cuDNN's attention, and the op that devices override.

All ops are one problem: queries ``[B, H, L, D]``, keys and values with ``H`` heads or with fewer that groups of query heads share,
a bias, a mask of keys per query, and dropout. Concatenated sequences are one batch in which a query sees only the keys of its own
sequence.

Formulas: Dao 2023, "FlashAttention-2", sections 2.2 and 2.3. Forward saves the log-sum-exp of each row, from which backward
recomputes the weights. Dropout is recomputed from its seed (`philox_uniform`); its bits differ from CUDA's.

If the scores need more than `LARGEST_SCORES` bytes, queries are computed in blocks.

A row that sees no key returns zeros, and infinity as its log-sum-exp, as in CUDA's kernels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.attention_heads import as_rows, largest_block, scaling_of, with_strides_of
from eagerdecomp.decomps.math.philox import philox_uniform
from eagerdecomp.eager.promotion import in_type, number_like, wide_type, widened
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


@dataclass(frozen=True)
class _Seen:
    """The keys that each query sees, by positions in its sequence. `lower_right` aligns the last query with the last key.

    `block` are the first and last + 1 of the rows that are asked for, of all.
    """

    causal: bool = False
    lower_right: bool = False
    left: int | None = None
    right: int | None = None
    rows: Tensor | None = None
    columns: Tensor | None = None
    row_lengths: Tensor | None = None
    column_lengths: Tensor | None = None
    row_sequences: Tensor | None = None
    column_sequences: Tensor | None = None
    block: tuple[int, int] | None = None

    def distance(self, length: int, keys: int, device: torch.device) -> Any:
        """Return query position minus key position: ``[L, S]``, or ``[B, 1, L, S]`` if lengths differ by batch."""
        rows = self.rows if self.rows is not None else aten.arange.start_step(0, length, 1, device=device)
        columns = self.columns if self.columns is not None else aten.arange.start_step(0, keys, 1, device=device)
        rows = aten.unsqueeze.default(rows, -1)
        if self.lower_right:
            rows_in: Any = length if self.row_lengths is None else aten.unsqueeze.default(self.row_lengths, -1)
            keys_in: Any = keys if self.column_lengths is None else self.column_lengths
            if isinstance(keys_in, int) and isinstance(rows_in, int):
                rows = aten.add.Scalar(rows, keys_in - rows_in)
            else:
                rows = aten.add.Tensor(rows, _minus(keys_in, rows_in, rows))
        return aten.sub.Tensor(self._of_block(rows), columns)

    def _of_block(self, rows: Tensor) -> Any:
        return rows if self.block is None else aten.slice.Tensor(rows, -2, *self.block)

    def mask(self, length: int, keys: int, device: torch.device) -> Tensor | None:
        """Return a mask that is True where a query sees a key, or None if every query sees every key."""
        right = 0 if self.causal else self.right
        found: Tensor | None = None
        if right is not None or self.left is not None:
            behind = self.distance(length, keys, device)
            if right is not None:
                found = aten.ge.Scalar(behind, -right)
            if self.left is not None:
                found = _both(found, aten.le.Scalar(behind, self.left))
        if self.row_sequences is not None and self.column_sequences is not None:
            found = _both(
                found, aten.eq.Tensor(self._of_block(aten.unsqueeze.default(self.row_sequences, -1)), self.column_sequences)
            )
        if self.column_lengths is not None:
            columns = self.columns if self.columns is not None else aten.arange.start_step(0, keys, 1, device=device)
            found = _both(found, aten.lt.Tensor(columns, self.column_lengths))
        return found


def _minus(left: Any, right: Any, like: Tensor) -> Any:
    if isinstance(left, int):
        left = aten.full.default([], left, dtype=like.dtype, device=like.device)
    return aten.sub.Scalar(left, right) if isinstance(right, int) else aten.sub.Tensor(left, right)


def _both(first: Tensor | None, second: Tensor) -> Any:
    return second if first is None else aten.logical_and.default(first, second)


@dataclass(frozen=True)
class _Problem:
    """Attention of ``[B, H, L, D]`` queries over ``[B, G, S, D]`` keys and ``[B, G, S, V]`` values.

    `length` is the number of queries of which these are a block.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    seen: _Seen = _Seen()
    bias: Tensor | None = None
    dropout_p: float = 0.0
    seed: Tensor | None = None
    offset: Tensor | None = None
    length: int | None = None

    @property
    def groups(self) -> int:
        return self.key.size(1)

    @property
    def shape(self) -> list[int]:
        """Return the shape of the scores, ``[B, H, L, S]``."""
        return [*self.query.shape[:3], self.key.size(2)]

    def blocks(self) -> list[tuple[_Problem, Callable[[Tensor], Any]]]:
        """Return problems whose scores fit the memory, each with a function that cuts its rows from ``[B, H, L, *]``.

        An empty list if those of the problem itself do, or if it is a block.
        """
        size, length = largest_block(self.query, self.key) if self.length is None else 0, self.shape[2]
        return [self._block(start, min(start + size, length)) for start in range(0, length, size)] if size else []

    def _block(self, start: int, end: int) -> tuple[_Problem, Callable[[Tensor], Any]]:
        def cut(x: Tensor) -> Any:
            return aten.slice.Tensor(x, 2, start, end)

        bias, offset, (batch, heads, length, keys) = self.bias, self.offset, self.shape
        if bias is not None and _has_rows(bias):
            bias = aten.slice.Tensor(bias, -2, start, end)
        if self.dropout_p and offset is not None:
            offset = aten.add.Scalar(offset, batch * heads * start * keys)  # numbers that no other block draws
        seen = replace(self.seen, block=(start, end))
        return replace(self, query=cut(self.query), bias=bias, offset=offset, seen=seen, length=length), cut

    def by_group(self, x: Tensor) -> Any:
        """Reshape ``[B, H, L, *]`` to a matrix per group."""
        batch, heads, length, width = x.shape
        return aten.reshape.default(x, [batch * self.groups, heads // self.groups * length, width])

    def scores(self) -> Any:
        """Return the scores with bias and mask, ``[B, H, L, S]``."""
        rows, keys = aten.mul.Scalar(as_rows(self.query, self.groups), self.scale), as_rows(self.key, self.groups)
        scores = aten.view.default(aten.bmm.default(rows, aten.permute.default(keys, [0, 2, 1])), self.shape)
        if self.bias is not None:
            scores = aten.add.Tensor(scores, widened(self.bias))
        mask = self.seen.mask(self.shape[2] if self.length is None else self.length, self.shape[3], self.query.device)
        if mask is not None:
            scores = aten.where.self(mask, scores, number_like(scores, -math.inf))
        return scores

    def kept(self) -> Tensor | None:
        """Return the dropout factor of each weight, or None without dropout."""
        if not self.dropout_p:
            return None
        size, dtype = math.prod(self.shape), wide_type(self.query.dtype)
        if self.dropout_p >= 1:
            return aten.full.default(self.shape, 0, dtype=dtype, device=self.query.device)  # type: ignore[no-any-return]
        assert self.seed is not None
        assert self.offset is not None
        drawn = aten.ge.Scalar(philox_uniform(size, self.seed, self.offset), self.dropout_p)
        kept = aten.mul.Scalar(in_type(drawn, dtype), 1 / (1 - self.dropout_p))
        return aten.view.default(kept, self.shape)  # type: ignore[no-any-return]


def _forward(problem: _Problem) -> tuple[Tensor, Tensor]:
    """Return the output ``[B, H, L, V]`` and the log-sum-exp ``[B, H, L]``, both in the compute dtype."""
    if blocks := problem.blocks():
        outs, sums = zip(*(_forward(block) for block, _ in blocks), strict=True)
        return aten.cat.default(list(outs), 2), aten.cat.default(list(sums), 2)
    scores = problem.scores()
    top = aten.amax.default(scores, [-1], True)
    top = aten.where.self(aten.eq.Scalar(top, -math.inf), number_like(top, 0), top)
    weights = aten.exp.default(aten.sub.Tensor(scores, top))
    total = aten.sum.dim_IntList(weights, [-1], True)
    none = aten.eq.Scalar(total, 0)
    logsumexp = aten.where.self(none, number_like(top, math.inf), aten.add.Tensor(top, aten.log.default(total)))
    weights = aten.div.Tensor(weights, aten.where.self(none, number_like(total, 1), total))
    kept = problem.kept()
    if kept is not None:
        weights = aten.mul.Tensor(weights, kept)
    out = aten.bmm.default(problem.by_group(weights), as_rows(problem.value, problem.groups))
    shape = [*problem.shape[:3], problem.value.size(3)]
    return aten.view.default(out, shape), aten.squeeze.dim(logsumexp, -1)


def _backward(
    problem: _Problem, grad_out: Tensor, out: Tensor, logsumexp: Tensor, *, of_bias: bool = False
) -> tuple[Tensor, Tensor, Tensor, Any]:
    """Return the gradients of query, key and value, in the compute dtype, and with `of_bias` that of the bias, in its own."""
    if blocks := problem.blocks():
        found = [_backward(block, *map(cut, (grad_out, out, logsumexp)), of_bias=of_bias) for block, cut in blocks]
        query, key, value, bias = zip(*found, strict=True)
        biased = _gathered(bias, problem.bias) if of_bias and problem.bias is not None else None
        return aten.cat.default(list(query), 2), _added(key), _added(value), biased
    by_group = problem.by_group
    weights = aten.exp.default(aten.sub.Tensor(problem.scores(), aten.unsqueeze.default(logsumexp, -1)))
    grad, values = widened(grad_out), as_rows(problem.value, problem.groups)
    grad_weights = aten.view.default(aten.bmm.default(by_group(grad), aten.permute.default(values, [0, 2, 1])), problem.shape)
    kept = problem.kept()
    used = weights if kept is None else aten.mul.Tensor(weights, kept)
    if kept is not None:
        grad_weights = aten.mul.Tensor(grad_weights, kept)
    inner = aten.sum.dim_IntList(aten.mul.Tensor(grad, widened(out)), [-1], True)
    grad_scores = aten.mul.Tensor(weights, aten.sub.Tensor(grad_weights, inner))
    rows, turned = by_group(grad_scores), aten.permute.default(by_group(grad_scores), [0, 2, 1])
    grad_query = aten.mul.Scalar(aten.bmm.default(rows, as_rows(problem.key, problem.groups)), problem.scale)
    grad_key = aten.mul.Scalar(aten.bmm.default(turned, as_rows(problem.query, problem.groups)), problem.scale)
    grad_value = aten.bmm.default(aten.permute.default(by_group(used), [0, 2, 1]), by_group(grad))
    return (
        aten.view.default(grad_query, list(problem.query.shape)),
        aten.view.default(grad_key, list(problem.key.shape)),
        aten.view.default(grad_value, list(problem.value.shape)),
        _bias_gradient(grad_scores, problem.bias) if of_bias and problem.bias is not None else None,
    )


def _has_rows(bias: Tensor) -> bool:
    return bias.dim() > 1 and bias.size(-2) != 1


def _added(parts: Sequence[Tensor]) -> Any:
    return functools.reduce(aten.add.Tensor, parts)


def _gathered(parts: Sequence[Tensor], bias: Tensor) -> Any:
    """Return the gradient of a bias from those of blocks."""
    return aten.cat.default(list(parts), -2) if _has_rows(bias) else _added(parts)


def _bias_gradient(grad_scores: Tensor, bias: Tensor) -> Any:
    """Sum the gradient of the scores over the dimensions in which the bias was broadcast."""
    extra = grad_scores.dim() - bias.dim()
    dims = [*range(extra), *(extra + dim for dim, size in enumerate(bias.shape) if size != grad_scores.size(extra + dim))]
    summed = aten.sum.dim_IntList(grad_scores, dims, True) if dims else grad_scores
    return in_type(aten.view.default(summed, list(bias.shape)), bias.dtype)


def _seeds(dropout_p: float, like: Tensor) -> tuple[Any, Any]:
    """Return a seed and an offset for the dropout of a call, as 0-dim int64 tensors.

    Without dropout, return zeros and draw no random numbers.
    """
    if not dropout_p:
        zero = aten.full.default([], 0, dtype=torch.int64, device=like.device)
        return zero, aten.clone.default(zero)
    drawn = aten.randint.low(0, 2**62, [2], dtype=torch.int64, device=like.device)
    return aten.select.int(drawn, 0, 0), aten.select.int(drawn, 0, 1)


def _with_strides_of(x: Tensor, like: Tensor) -> Any:
    """Return `x` in the dtype of `like`, with its dimensions in the same memory order."""
    if list(x.shape) == list(like.shape):
        return with_strides_of(x, like)
    order = sorted(range(x.dim()), key=lambda dim: like.stride(dim), reverse=True)
    back = sorted(range(x.dim()), key=order.index)
    turned = aten.permute.default(in_type(x, like.dtype), order)
    return aten.permute.default(aten.clone.default(turned, memory_format=torch.contiguous_format), back)


# -- flash attention ----------------------------------------------------------------------------------------------------------


def _flash_state(seed: Any, offset: Any) -> tuple[Any, Any]:
    """Return the RNG state as CUDA's kernels save it: seed and offset in one tensor, and an unused tensor."""
    both = aten.stack.default([seed, offset])
    unused = aten.full.default([], 0, dtype=torch.int64, device=both.device)
    return aten._to_copy.default(both, dtype=torch.uint64), aten._to_copy.default(unused, dtype=torch.uint64)


def _flash_seeds(dropout_p: float, state: Tensor) -> tuple[Any, Any]:
    if not dropout_p:
        return None, None
    both = aten._to_copy.default(state, dtype=torch.int64)
    return aten.select.int(both, 0, 0), aten.select.int(both, 0, 1)


def _descaled(x: Tensor, scale: Tensor | None) -> Tensor:
    """Multiply float8 elements by the scale of their head, ``[B, G]``; return bfloat16. Other dtypes are returned unchanged."""
    if x.dtype is not torch.float8_e4m3fn:
        return x
    wide = aten._to_copy.default(x, dtype=torch.float32)
    if scale is not None:
        wide = aten.mul.Tensor(wide, aten.view.default(scale, [*scale.shape, 1, 1]))
    return aten._to_copy.default(wide, dtype=torch.bfloat16)  # type: ignore[no-any-return]


@rule("aten._scaled_dot_product_flash_attention.default", recorded=True)
def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Compute attention. The causal mask is aligned at the lower right if lengths differ, as in FlashAttention-2."""
    seed, offset = _seeds(dropout_p, query)
    seen = _Seen(is_causal, lower_right=True)
    problem = _Problem(query, key, value, scaling_of(query, scale), seen, None, dropout_p, seed, offset)
    out, logsumexp = _forward(problem)
    state, unused = _flash_state(seed, offset)
    empty = aten.full.default([0], 0, dtype=query.dtype, device=query.device)
    return with_strides_of(out, query), logsumexp, None, None, query.size(2), key.size(2), state, unused, empty


@rule("aten._scaled_dot_product_flash_attention.quantized", recorded=True)
def _flash_quantized(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    q_descale: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    operands = _descaled(query, q_descale), _descaled(key, k_descale), _descaled(value, v_descale)
    return _flash(*operands, dropout_p, is_causal, return_debug_mask, scale=scale)


@rule("aten._scaled_dot_product_flash_attention_backward.default", recorded=True)
def _flash_backward(
    grad_out: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> Any:
    if grad_out is None:  # autograd's undefined gradient
        return None, None, None
    seen, (seed, offset) = _Seen(is_causal, lower_right=True), _flash_seeds(dropout_p, philox_seed)
    problem = _Problem(query, key, value, scaling_of(query, scale), seen, None, dropout_p, seed, offset)
    grads = _backward(problem, grad_out, out, logsumexp)
    return tuple(with_strides_of(grad, like) for grad, like in zip(grads, (query, key, value), strict=False))


# -- flash attention of sequences end to end ----------------------------------------------------------------------------------


def _sequences(cum_seq: Tensor, total: int) -> tuple[Any, Any, Any]:
    """Return, for each row of concatenated sequences, its sequence, its position there, and the sequence's length."""
    starts = in_type(cum_seq, torch.int64)
    places = aten.arange.start_step(0, total, 1, device=cum_seq.device)
    count = cum_seq.size(0) - 1
    of = aten.searchsorted.Tensor(starts, places, right=True)
    of = aten.clamp.default(aten.sub.Scalar(of, 1), 0, max(count - 1, 0))
    first, end = (aten.index.Tensor(starts, [at]) for at in (of, aten.add.Scalar(of, 1)))
    return of, aten.sub.Tensor(places, first), aten.sub.Tensor(end, first)


def _packed(
    query: Tensor,
    key: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    is_causal: bool,
    left: int | None,
    right: int | None,
    used: Tensor | None,
) -> _Seen:
    """Return which keys are seen, for ``[B, L, H, D]``, or ``[total, H, D]`` with offsets."""
    left, right = (None if one is None or one < 0 else one for one in (left, right))
    if cum_seq_q is None or cum_seq_k is None:
        lengths = None if used is None else aten.view.default(in_type(used, torch.int64), [-1, 1, 1, 1])
        return _Seen(is_causal, True, left, right, column_lengths=lengths)
    row_of, rows, row_lengths = _sequences(cum_seq_q, query.size(0))
    column_of, columns, column_lengths = _sequences(cum_seq_k, key.size(0))
    if used is not None:
        column_lengths = aten.index.Tensor(in_type(used, torch.int64), [column_of])
    in_rows = aten.sub.Tensor(aten.slice.Tensor(cum_seq_k, 0, 1), aten.slice.Tensor(cum_seq_k, 0, 0, -1))
    keys_of_row = aten.index.Tensor(in_type(used if used is not None else in_rows, torch.int64), [row_of])
    # Align the last query of each sequence with the last key of the same sequence.
    shifted = aten.add.Tensor(rows, aten.sub.Tensor(keys_of_row, row_lengths))
    return _Seen(is_causal, False, left, right, shifted, columns, None, column_lengths, row_of, column_of)


def _slopes(slopes: Tensor | None, seen: _Seen, length: int, keys: int, device: torch.device) -> Any:
    """Return the bias of ALiBi (Press, Smith and Lewis 2022): minus the distance to the key times the slope of the head."""
    if slopes is None:
        return None
    away = in_type(aten.abs.default(seen.distance(length, keys, device)), slopes.dtype)
    return aten.neg.default(aten.mul.Tensor(aten.view.default(slopes, [*slopes.shape, 1, 1]), away))


def _unpacked(x: Tensor) -> Any:
    """Permute ``[B, L, H, D]`` or ``[total, H, D]`` to ``[B, H, L, D]``."""
    return aten.transpose.int(aten.unsqueeze.default(x, 0) if x.dim() == 3 else x, 1, 2)


def _repacked(x: Tensor, like: Tensor) -> Any:
    turned = aten.clone.default(aten.transpose.int(x, 1, 2), memory_format=torch.contiguous_format)
    return with_strides_of(aten.view.default(turned, list(like.shape)), like)


@rule("aten._flash_attention_forward.default", recorded=True)
def _flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """Compute attention of ``[B, L, H, D]``, or of ``[total, H, D]`` with sequence offsets.

    Pages of keys (`block_table`) are joined first, for batches without key offsets.
    """
    if block_table is not None:
        if cum_seq_k is not None:
            return NotImplemented
        batch, pages = block_table.shape
        key, value = (
            aten.reshape.default(aten.index.Tensor(x, [block_table]), [batch, pages * x.size(1), *x.shape[2:]])
            for x in (key, value)
        )
    if (cum_seq_q is None) is not (cum_seq_k is None):
        return NotImplemented
    seed, offset = _seeds(dropout_p, query)
    seen = _packed(query, key, cum_seq_q, cum_seq_k, is_causal, window_size_left, window_size_right, seqused_k)
    operands = _unpacked(query), _unpacked(key), _unpacked(value)
    bias = _slopes(alibi_slopes, seen, operands[0].size(2), operands[1].size(2), query.device)
    out, logsumexp = _forward(_Problem(*operands, scaling_of(operands[0], scale), seen, bias, dropout_p, seed, offset))
    if cum_seq_q is not None:
        logsumexp = aten.view.default(logsumexp, list(logsumexp.shape[1:]))
    state, unused = _flash_state(seed, offset)
    empty = aten.full.default([0], 0, dtype=query.dtype, device=query.device)
    return _repacked(out, query), logsumexp, state, unused, empty


@rule("aten._flash_attention_forward.quantized", recorded=True)
def _flash_forward_quantized(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    q_descale: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    **options: Any,
) -> Any:
    """Multiply float8 operands by their scales, then compute attention.

    Scales are per batch and head. Concatenated sequences have no batch, so float8 with offsets is declined.
    """
    if cum_seq_q is not None and query.dtype is torch.float8_e4m3fn:
        return NotImplemented
    operands = (
        aten.transpose.int(_descaled(aten.transpose.int(query, 1, 2), q_descale), 1, 2),
        aten.transpose.int(_descaled(aten.transpose.int(key, 1, 2), k_descale), 1, 2),
        aten.transpose.int(_descaled(aten.transpose.int(value, 1, 2), v_descale), 1, 2),
    )
    return _flash_forward(*operands, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, **options)


@rule("aten._flash_attention_forward_no_dropout_inplace.default", recorded=True)
def _flash_forward_into(out: Tensor, query: Tensor, *rest: Any, **options: Any) -> Any:
    """Write the attention output into `out` and return the log-sum-exp."""
    found, logsumexp, *_ = _flash_forward(query, *rest, **options)
    aten.copy_.default(out, found)
    return logsumexp


@rule("aten._flash_attention_backward.default", recorded=True)
def _flash_packed_backward(
    grad_out: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> Any:
    if grad_out is None:  # autograd's undefined gradient
        return None, None, None
    seed, offset = _flash_seeds(dropout_p, rng_state)
    seen = _packed(query, key, cum_seq_q, cum_seq_k, is_causal, window_size_left, window_size_right, None)
    operands = _unpacked(query), _unpacked(key), _unpacked(value)
    problem = _Problem(*operands, scaling_of(operands[0], scale), seen, None, dropout_p, seed, offset)
    kept = aten.unsqueeze.default(logsumexp, 0) if logsumexp.dim() == 2 else logsumexp
    grads = _backward(problem, _unpacked(grad_out), _unpacked(out), kept)
    return tuple(_repacked(grad, like) for grad, like in zip(grads, (query, key, value), strict=False))


# -- memory-efficient attention -----------------------------------------------------------------------------------------------

#: The log-sum-exp is padded with infinity to a multiple of this many rows.
_ROWS = 32

#: `custom_mask_type`: 0 is none, 1 is causal from the top left, 2 is causal from the bottom right.
_TOP_LEFT, _BOTTOM_RIGHT = 1, 2


def _filled_up(logsumexp: Tensor, wanted: bool) -> Any:
    """Pad ``[B, H, L]`` to a multiple of 32 rows. Return an empty tensor if it is not `wanted`."""
    batch, heads, length = logsumexp.shape
    if not wanted:
        return aten.full.default([batch, heads, 0], 0, dtype=logsumexp.dtype, device=logsumexp.device)
    return aten.constant_pad_nd.default(logsumexp, [0, -length % _ROWS], math.inf)


def _aligned(x: Tensor) -> Any:
    """Return the gradient of a bias with the strides of CUDA's kernels: rows padded to a multiple of 16."""
    last = x.size(-1)
    return x if last % 16 == 0 else aten.slice.Tensor(aten.constant_pad_nd.default(x, [0, -last % 16]), -1, 0, last)


@rule("aten._scaled_dot_product_efficient_attention.default", recorded=True)
def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    seed, offset = _seeds(dropout_p, query)
    problem = _Problem(query, key, value, scaling_of(query, scale), _Seen(is_causal), attn_bias, dropout_p, seed, offset)
    out, logsumexp = _forward(problem)
    return _heads_inside(out, query.dtype), _filled_up(logsumexp, compute_log_sumexp), seed, offset


def _heads_inside(x: Tensor, dtype: torch.dtype) -> Any:
    """Return ``[B, H, L, D]`` with the memory order ``[B, L, H, D]``."""
    turned = aten.permute.default(in_type(x, dtype), [0, 2, 1, 3])
    return aten.permute.default(aten.clone.default(turned, memory_format=torch.contiguous_format), [0, 2, 1, 3])


@rule("aten._scaled_dot_product_efficient_attention_backward.default", recorded=True)
def _efficient_backward(
    grad_out_: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    if grad_out_ is None:
        return None, None, None, None
    problem = _Problem(
        query, key, value, scaling_of(query, scale), _Seen(is_causal), attn_bias, dropout_p, philox_seed, philox_offset
    )
    kept = aten.slice.Tensor(logsumexp, 2, 0, query.size(2))
    *grads, found = _backward(problem, grad_out_, out, kept, of_bias=grad_input_mask[3])
    of_bias = None if found is None else _aligned(found)
    return (*(_heads_inside(grad, like.dtype) for grad, like in zip(grads, (query, key, value), strict=True)), of_bias)


def _efficient_seen(
    mask_type: int,
    query: Tensor,
    key: Tensor,
    cu_q: Tensor | None,
    cu_k: Tensor | None,
    seqlen_k: Tensor | None,
    window: int | None,
) -> Any:
    """Return which keys are seen, for ``[B, L, H, D]``, or ``[1, total, H, D]`` with offsets."""
    left = None if not window else window - 1  # a window counts the query's own place
    causal, lower_right = mask_type in (_TOP_LEFT, _BOTTOM_RIGHT), mask_type == _BOTTOM_RIGHT
    if cu_q is None or cu_k is None:
        lengths = None if seqlen_k is None else aten.view.default(in_type(seqlen_k, torch.int64), [-1, 1, 1, 1])
        return _Seen(causal, lower_right, left, None, column_lengths=lengths)
    row_of, rows, row_lengths = _sequences(cu_q, query.size(1))
    column_of, columns, column_lengths = _sequences(cu_k, key.size(1))
    if lower_right:
        keys_in = aten.sub.Tensor(aten.slice.Tensor(cu_k, 0, 1), aten.slice.Tensor(cu_k, 0, 0, -1))
        keys_of_row = aten.index.Tensor(in_type(keys_in, torch.int64), [row_of])
        rows = aten.add.Tensor(rows, aten.sub.Tensor(keys_of_row, row_lengths))
    return _Seen(causal, False, left, None, rows, columns, None, column_lengths, row_of, column_of)


@rule("aten._efficient_attention_forward.default", recorded=True)
def _efficient_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    window_size: int | None = None,
) -> Any:
    """Compute attention of ``[B, L, H, D]``, or of ``[1, total, H, D]`` with sequence offsets."""
    if bias is not None and cu_seqlens_q is not None:
        return NotImplemented
    seed, offset = _seeds(dropout_p, query)
    seen = _efficient_seen(custom_mask_type, query, key, cu_seqlens_q, cu_seqlens_k, seqlen_k, window_size)
    operands = _unpacked(query), _unpacked(key), _unpacked(value)
    out, logsumexp = _forward(_Problem(*operands, scaling_of(operands[0], scale), seen, bias, dropout_p, seed, offset))
    most_q, most_k = query.size(1), key.size(1) if max_seqlen_k is None else max_seqlen_k
    if cu_seqlens_q is not None and max_seqlen_q is not None:
        most_q = max_seqlen_q
        logsumexp = _apart(logsumexp, cu_seqlens_q, most_q)
    out = aten.clone.default(aten.transpose.int(out, 1, 2), memory_format=torch.contiguous_format)
    kept = _filled_up(logsumexp, compute_log_sumexp)
    return in_type(out, query.dtype), kept, seed, offset, most_q, most_k


def _apart(logsumexp: Tensor, cu_seqlens: Tensor, most: int) -> Any:
    """Split ``[1, H, total]`` into ``[sequences, H, most]``, padded with infinity."""
    starts = in_type(cu_seqlens, torch.int64)
    first = aten.unsqueeze.default(aten.slice.Tensor(starts, 0, 0, -1), 1)
    end = aten.unsqueeze.default(aten.slice.Tensor(starts, 0, 1), 1)
    places = aten.add.Tensor(first, aten.arange.start_step(0, most, 1, device=starts.device))
    beyond = aten.ge.Tensor(places, end)
    places = aten.where.self(beyond, aten.full.default([], 0, dtype=torch.int64, device=starts.device), places)
    found = aten.index.Tensor(aten.permute.default(logsumexp, [2, 0, 1]), [places])  # [sequences, most, 1, H]
    found = aten.permute.default(aten.squeeze.dim(found, 2), [0, 2, 1])
    return aten.where.self(aten.unsqueeze.default(beyond, 1), number_like(found, math.inf), found)


def _together(logsumexp: Tensor, cu_seqlens: Tensor, total: int) -> Any:
    """Concatenate ``[sequences, H, most]`` to ``[1, H, total]``."""
    of, places, _ = _sequences(cu_seqlens, total)
    found = aten.index.Tensor(aten.permute.default(logsumexp, [0, 2, 1]), [of, places])  # [total, H]
    return aten.unsqueeze.default(aten.permute.default(found, [1, 0]), 0)


@rule("aten._efficient_attention_backward.default", recorded=True)
def _efficient_packed_backward(
    grad_out_: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    logsumexp: Tensor,
    dropout_p: float,
    philox_seed: Tensor,
    philox_offset: Tensor,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    num_splits_key: int | None = None,
    window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> Any:
    if grad_out_ is None:
        return None, None, None, None
    if shared_storage_dqdkdv:
        return NotImplemented
    seen = _efficient_seen(custom_mask_type, query, key, cu_seqlens_q, cu_seqlens_k, None, window_size)
    operands = _unpacked(query), _unpacked(key), _unpacked(value)
    kept = (
        aten.slice.Tensor(logsumexp, 2, 0, query.size(1))
        if cu_seqlens_q is None
        else _together(logsumexp, cu_seqlens_q, query.size(1))
    )
    scaling = scaling_of(operands[0], scale)
    problem = _Problem(*operands, scaling, seen, bias, dropout_p, philox_seed, philox_offset)
    *grads, found = _backward(problem, _unpacked(grad_out_), _unpacked(out), kept, of_bias=bias_requires_grad)
    of_bias = None if found is None else _aligned(found)
    return (*(_repacked(grad, like) for grad, like in zip(grads, (query, key, value), strict=True)), of_bias)


# -- cuDNN's, and the one that a device overrides -----------------------------------------------------------------------------


@rule("aten._scaled_dot_product_cudnn_attention.default", recorded=True)
def _cudnn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    seed, offset = _seeds(dropout_p, query)
    problem = _Problem(query, key, value, scaling_of(query, scale), _Seen(is_causal), attn_bias, dropout_p, seed, offset)
    out, logsumexp = _forward(problem)
    kept = aten.unsqueeze.default(logsumexp, -1)
    return _with_strides_of(out, query), kept, None, None, query.size(2), key.size(2), seed, offset, None


@rule("aten._scaled_dot_product_cudnn_attention_backward.default", recorded=True)
def _cudnn_backward(
    grad_out: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> Any:
    if grad_out is None:
        return None, None, None
    problem = _Problem(
        query, key, value, scaling_of(query, scale), _Seen(is_causal), attn_bias, dropout_p, philox_seed, philox_offset
    )
    grads = _backward(problem, grad_out, out, aten.squeeze.dim(logsumexp, -1))
    return tuple(with_strides_of(grad, like) for grad, like in zip(grads, (query, key, value), strict=False))


@rule("aten._cudnn_attention_forward.default", recorded=True)
def _cudnn_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
    seqused_k: Tensor | None = None,  # since torch 2.15, as is the next
    block_table: Tensor | None = None,
) -> Any:
    """Compute attention of batches. Concatenated sequences are declined; `_flash_attention_forward` supports them."""
    if any(one is not None for one in (cum_seq_q, cum_seq_k, seqused_k, block_table)):
        return NotImplemented
    return _cudnn(query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, return_debug_mask, scale=scale)


@rule("aten._cudnn_attention_forward_no_dropout_inplace.default", recorded=True)
def _cudnn_forward_into(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
) -> Any:
    """Compute attention of concatenated sequences like flash attention, but aligned at the first query and key."""
    if cum_seq_k is None or block_table is not None:
        return NotImplemented
    row_of, rows, _ = _sequences(cum_seq_q, query.size(0))
    column_of, columns, lengths = _sequences(cum_seq_k, key.size(0))
    if seqused_k is not None:
        lengths = aten.index.Tensor(in_type(seqused_k, torch.int64), [column_of])
    seen = _Seen(is_causal, False, None, None, rows, columns, None, lengths, row_of, column_of)
    operands = _unpacked(query), _unpacked(key), _unpacked(value)
    found, logsumexp = _forward(_Problem(*operands, scaling_of(operands[0], scale), seen))
    aten.copy_.default(out, _repacked(found, out))
    return aten.view.default(logsumexp, list(logsumexp.shape[1:]))


@rule("aten._cudnn_attention_backward.default", recorded=True)
def _cudnn_forward_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    *rest: Any,
    scale: float | None = None,
) -> Any:
    if cum_seq_q is not None or cum_seq_k is not None:
        return NotImplemented
    return _cudnn_backward(
        grad_out, query, key, value, out, logsumexp, philox_seed, philox_offset, attn_bias, None, None, *rest, scale=scale
    )


def _of_batch(x: Tensor) -> Any:
    return aten.unsqueeze.default(x, 0) if x.dim() == 3 else x


@rule("aten._scaled_dot_product_fused_attention_overrideable.default", recorded=True)
def _overrideable(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Compute attention of ``[B, H, L, D]`` or ``[H, L, D]``."""
    seed, offset = _seeds(dropout_p, query)
    operands = _of_batch(query), _of_batch(key), _of_batch(value)
    scaling = scaling_of(operands[0], scale)
    out, logsumexp = _forward(_Problem(*operands, scaling, _Seen(is_causal), attn_bias, dropout_p, seed, offset))
    if query.dim() == 3:
        out = aten.squeeze.dim(out, 0)
    return _with_strides_of(out, query), logsumexp, None, None, query.size(-2), key.size(-2), seed, offset, None


@rule("aten._scaled_dot_product_fused_attention_overrideable_backward.default", recorded=True)
def _overrideable_backward(
    grad_out: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: Sequence[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> Any:
    if grad_out is None:
        return None, None, None, None
    operands = _of_batch(query), _of_batch(key), _of_batch(value)
    scaling = scaling_of(operands[0], scale)
    problem = _Problem(*operands, scaling, _Seen(is_causal), attn_bias, dropout_p, philox_seed, philox_offset)
    *grads, of_bias = _backward(problem, _of_batch(grad_out), _of_batch(out), logsumexp, of_bias=True)
    results = (
        with_strides_of(aten.view.default(grad, list(like.shape)), like)
        for grad, like in zip(grads, (query, key, value), strict=True)
    )
    return (*results, of_bias)


@rule("aten._triton_scaled_dot_attention.default", recorded=True)
def _triton(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0) -> Any:
    return _flash(q, k, v, dropout_p)[0]


@rule("aten._scaled_dot_product_attention_math_for_mps.default", recorded=True)
def _math_for_metal(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Tensor | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    return aten._scaled_dot_product_attention_math.default(
        query, key, value, attn_mask, dropout_p, is_causal, dropout_mask, scale=scale, enable_gqa=enable_gqa
    )


@rule("aten._fill_mem_eff_dropout_mask_.default", recorded=True)
def _dropout_numbers(self: Tensor, dropout_p: float, seed: int, offset: int) -> Any:
    """Fill `self` with the random numbers that dropout compares with its probability, for tests of dropout."""
    key, stream = (aten.full.default([], one, dtype=torch.int64, device=self.device) for one in (seed, offset))
    drawn = aten.view.default(philox_uniform(self.numel(), key, stream), list(self.shape))
    return aten.copy_.default(self, drawn)


@rule("aten._fused_sdp_choice.default")
def _choice(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> int:
    """Choose the composition (`SDPBackend.MATH`) for `scaled_dot_product_attention`, not a kernel of the device."""
    return 0
