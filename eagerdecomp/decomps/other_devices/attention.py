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
            if self.column_lengths is None:
                rows = aten.add.Scalar(rows, keys - length)
            else:
                rows = aten.add.Tensor(rows, aten.sub.Scalar(self.column_lengths, length))
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


# -- what the ops share --------------------------------------------------------------------------------------------------------
#
# Their rules get the op's arguments by the names that its schema gives them (``by_schema``).


def _of_batch(x: Tensor) -> Any:
    return aten.unsqueeze.default(x, 0) if x.dim() == 3 else x


def _dense(call: Any, seed: Any, offset: Any, *, lower_right: bool = False) -> _Problem:
    """Return the problem of a call on ``[B, H, L, D]`` or ``[H, L, D]``."""
    query, key, value = (_of_batch(x) for x in (call.query, call.key, call.value))
    bias, seen = getattr(call, "attn_bias", None), _Seen(call.is_causal, lower_right)
    return _Problem(query, key, value, scaling_of(query, call.scale), seen, bias, call.dropout_p, seed, offset)


def _packed(call: Any, seen: _Seen, seed: Any, offset: Any, bias: Any = None) -> _Problem:
    """Return the problem of a call on ``[B, L, H, D]``, or on ``[total, H, D]`` with sequence offsets."""
    query, key, value = (_unpacked(x) for x in (call.query, call.key, call.value))
    return _Problem(query, key, value, scaling_of(query, call.scale), seen, bias, call.dropout_p, seed, offset)


def _like_operands(grads: Sequence[Any], call: Any, shaped: Callable[[Tensor, Tensor], Any] = with_strides_of) -> tuple[Any, ...]:
    """Return the gradients of query, key and value, each shaped like its operand."""
    return tuple(shaped(grad, like) for grad, like in zip(grads, (call.query, call.key, call.value), strict=False))


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


@rule("aten._scaled_dot_product_flash_attention.default", by_schema=True)
def _flash(call: Any) -> Any:
    """Compute attention. The causal mask is aligned at the lower right if lengths differ, as in FlashAttention-2."""
    seeds = _seeds(call.dropout_p, call.query)
    out, logsumexp = _forward(_dense(call, *seeds, lower_right=True))
    return (
        with_strides_of(out, call.query),
        logsumexp,
        None,
        None,
        call.query.size(2),
        call.key.size(2),
        *_flash_state(*seeds),
        aten.full.default([0], 0, dtype=call.query.dtype, device=call.query.device),
    )


@rule("aten._scaled_dot_product_flash_attention.quantized", by_schema=True)
def _flash_quantized(call: Any) -> Any:
    call.query, call.key = _descaled(call.query, call.q_descale), _descaled(call.key, call.k_descale)
    call.value = _descaled(call.value, call.v_descale)
    return _flash(call)


@rule("aten._scaled_dot_product_flash_attention_backward.default", by_schema=True)
def _flash_backward(call: Any) -> Any:
    if call.grad_out is None:  # autograd's undefined gradient
        return None, None, None
    problem = _dense(call, *_flash_seeds(call.dropout_p, call.philox_seed), lower_right=True)
    return _like_operands(_backward(problem, call.grad_out, call.out, call.logsumexp), call)


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


def _seen_in_sequences(call: Any, cum_seq_q: Tensor | None, cum_seq_k: Tensor | None, used: Tensor | None, seen: _Seen) -> _Seen:
    """Return which keys are seen in sequences with these offsets, or in batches if there are none; `seen` has the rest.

    Each sequence has `used` keys.
    """
    if cum_seq_q is None or cum_seq_k is None:
        lengths = None if used is None else aten.view.default(in_type(used, torch.int64), [-1, 1, 1, 1])
        return replace(seen, column_lengths=lengths)
    row_of, rows, row_lengths = _sequences(cum_seq_q, call.query.size(-3))
    column_of, columns, column_lengths = _sequences(cum_seq_k, call.key.size(-3))
    if used is not None:
        column_lengths = aten.index.Tensor(in_type(used, torch.int64), [column_of])
    if seen.lower_right:  # align the last query of each sequence with the last key of the same sequence
        in_rows = aten.sub.Tensor(aten.slice.Tensor(cum_seq_k, 0, 1), aten.slice.Tensor(cum_seq_k, 0, 0, -1))
        keys_of_row = aten.index.Tensor(in_type(used if used is not None else in_rows, torch.int64), [row_of])
        rows = aten.add.Tensor(rows, aten.sub.Tensor(keys_of_row, row_lengths))
    return _Seen(seen.causal, False, seen.left, seen.right, rows, columns, column_lengths, row_of, column_of)


def _flash_seen(call: Any, used: Tensor | None = None) -> _Seen:
    left, right = (None if one is None or one < 0 else one for one in (call.window_size_left, call.window_size_right))
    return _seen_in_sequences(call, call.cum_seq_q, call.cum_seq_k, used, _Seen(call.is_causal, True, left, right))


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


@rule("aten._flash_attention_forward.default", by_schema=True)
def _flash_forward(call: Any) -> Any:
    """Compute attention of ``[B, L, H, D]``, or of ``[total, H, D]`` with sequence offsets.

    Pages of keys (`block_table`) are joined first, for batches without key offsets.
    """
    if getattr(call, "block_table", None) is not None:
        if call.cum_seq_k is not None:
            return NotImplemented
        batch, pages = call.block_table.shape
        call.key, call.value = (
            aten.reshape.default(aten.index.Tensor(x, [call.block_table]), [batch, pages * x.size(1), *x.shape[2:]])
            for x in (call.key, call.value)
        )
    if (call.cum_seq_q is None) is not (call.cum_seq_k is None):
        return NotImplemented
    seeds, seen = _seeds(call.dropout_p, call.query), _flash_seen(call, call.seqused_k)
    problem = _packed(call, seen, *seeds)
    bias = _slopes(call.alibi_slopes, seen, problem.query.size(2), problem.key.size(2), call.query.device)
    out, logsumexp = _forward(replace(problem, bias=bias))
    if call.cum_seq_q is not None:
        logsumexp = aten.view.default(logsumexp, list(logsumexp.shape[1:]))
    empty = aten.full.default([0], 0, dtype=call.query.dtype, device=call.query.device)
    return _repacked(out, call.query), logsumexp, *_flash_state(*seeds), empty


@rule("aten._flash_attention_forward.quantized", by_schema=True)
def _flash_forward_quantized(call: Any) -> Any:
    """Multiply float8 operands by their scales, then compute attention.

    Scales are per batch and head. Concatenated sequences have no batch, so float8 with offsets is declined.
    """
    if call.cum_seq_q is not None and call.query.dtype is torch.float8_e4m3fn:
        return NotImplemented
    call.query, call.key, call.value = (
        aten.transpose.int(_descaled(aten.transpose.int(x, 1, 2), scale), 1, 2)
        for x, scale in ((call.query, call.q_descale), (call.key, call.k_descale), (call.value, call.v_descale))
    )
    return _flash_forward(call)


@rule("aten._flash_attention_forward_no_dropout_inplace.default", by_schema=True)
def _flash_forward_into(call: Any) -> Any:
    """Write the attention output into `out` and return the log-sum-exp."""
    found, logsumexp, *_ = _flash_forward(call)
    aten.copy_.default(call.out, found)
    return logsumexp


@rule("aten._flash_attention_backward.default", by_schema=True)
def _flash_packed_backward(call: Any) -> Any:
    if call.grad_out is None:  # autograd's undefined gradient
        return None, None, None
    problem = _packed(call, _flash_seen(call), *_flash_seeds(call.dropout_p, call.rng_state))
    kept = aten.unsqueeze.default(call.logsumexp, 0) if call.logsumexp.dim() == 2 else call.logsumexp
    return _like_operands(_backward(problem, _unpacked(call.grad_out), _unpacked(call.out), kept), call, _repacked)


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


@rule("aten._scaled_dot_product_efficient_attention.default", by_schema=True)
def _efficient(call: Any) -> Any:
    seeds = _seeds(call.dropout_p, call.query)
    out, logsumexp = _forward(_dense(call, *seeds))
    return _heads_inside(out, call.query), _filled_up(logsumexp, call.compute_log_sumexp), *seeds


def _heads_inside(x: Tensor, like: Tensor) -> Any:
    """Return ``[B, H, L, D]`` in the dtype of `like`, with the memory order ``[B, L, H, D]``."""
    turned = aten.permute.default(in_type(x, like.dtype), [0, 2, 1, 3])
    return aten.permute.default(aten.clone.default(turned, memory_format=torch.contiguous_format), [0, 2, 1, 3])


@rule("aten._scaled_dot_product_efficient_attention_backward.default", by_schema=True)
def _efficient_backward(call: Any) -> Any:
    if call.grad_out_ is None:
        return None, None, None, None
    kept = aten.slice.Tensor(call.logsumexp, 2, 0, call.query.size(2))
    problem = _dense(call, call.philox_seed, call.philox_offset)
    *grads, found = _backward(problem, call.grad_out_, call.out, kept, of_bias=call.grad_input_mask[3])
    return *_like_operands(grads, call, _heads_inside), None if found is None else _aligned(found)


def _efficient_seen(call: Any, used: Tensor | None = None) -> _Seen:
    """Return which keys are seen, for ``[B, L, H, D]``, or ``[1, total, H, D]`` with offsets."""
    causal = call.custom_mask_type in (_TOP_LEFT, _BOTTOM_RIGHT)
    left = None if not call.window_size else call.window_size - 1  # a window counts the query's own place
    seen = _Seen(causal, call.custom_mask_type == _BOTTOM_RIGHT, left)
    return _seen_in_sequences(call, call.cu_seqlens_q, call.cu_seqlens_k, used, seen)


@rule("aten._efficient_attention_forward.default", by_schema=True)
def _efficient_forward(call: Any) -> Any:
    """Compute attention of ``[B, L, H, D]``, or of ``[1, total, H, D]`` with sequence offsets."""
    if call.bias is not None and call.cu_seqlens_q is not None:
        return NotImplemented
    seeds = _seeds(call.dropout_p, call.query)
    out, logsumexp = _forward(_packed(call, _efficient_seen(call, call.seqlen_k), *seeds, call.bias))
    most_q, most_k = call.query.size(1), call.key.size(1) if call.max_seqlen_k is None else call.max_seqlen_k
    if call.cu_seqlens_q is not None and call.max_seqlen_q is not None:
        most_q = call.max_seqlen_q
        logsumexp = _apart(logsumexp, call.cu_seqlens_q, most_q)
    out = aten.clone.default(aten.transpose.int(out, 1, 2), memory_format=torch.contiguous_format)
    return in_type(out, call.query.dtype), _filled_up(logsumexp, call.compute_log_sumexp), *seeds, most_q, most_k


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


@rule("aten._efficient_attention_backward.default", by_schema=True)
def _efficient_packed_backward(call: Any) -> Any:
    if call.grad_out_ is None:
        return None, None, None, None
    if call.shared_storage_dqdkdv:
        return NotImplemented
    length = call.query.size(1)
    if call.cu_seqlens_q is None:
        kept = aten.slice.Tensor(call.logsumexp, 2, 0, length)
    else:
        kept = _together(call.logsumexp, call.cu_seqlens_q, length)
    problem = _packed(call, _efficient_seen(call), call.philox_seed, call.philox_offset, call.bias)
    *grads, found = _backward(problem, _unpacked(call.grad_out_), _unpacked(call.out), kept, of_bias=call.bias_requires_grad)
    return *_like_operands(grads, call, _repacked), None if found is None else _aligned(found)


# -- cuDNN's, and the one that a device overrides -----------------------------------------------------------------------------


@rule("aten._scaled_dot_product_cudnn_attention.default", by_schema=True)
def _cudnn(call: Any) -> Any:
    out, logsumexp, *rest = _overrideable(call)
    return out, aten.unsqueeze.default(logsumexp, -1), *rest


@rule("aten._scaled_dot_product_cudnn_attention_backward.default", by_schema=True)
def _cudnn_backward(call: Any) -> Any:
    if call.grad_out is None:
        return None, None, None
    problem = _dense(call, call.philox_seed, call.philox_offset)
    return _like_operands(_backward(problem, call.grad_out, call.out, aten.squeeze.dim(call.logsumexp, -1)), call)


def _of_batches(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decline concatenated sequences; `_flash_attention_forward` supports them."""

    @functools.wraps(run)
    def of_batches(call: Any) -> Any:
        named = ("cum_seq_q", "cum_seq_k", "seqused_k", "block_table")  # the last two since torch 2.15
        return NotImplemented if any(getattr(call, name, None) is not None for name in named) else run(call)

    return of_batches


rule("aten._cudnn_attention_forward.default", by_schema=True)(_of_batches(_cudnn))
rule("aten._cudnn_attention_backward.default", by_schema=True)(_of_batches(_cudnn_backward))


@rule("aten._cudnn_attention_forward_no_dropout_inplace.default", by_schema=True)
def _cudnn_forward_into(call: Any) -> Any:
    """Compute attention of concatenated sequences like flash attention, but aligned at the first query and key."""
    if call.cum_seq_k is None or getattr(call, "block_table", None) is not None:
        return NotImplemented
    seen = _seen_in_sequences(call, call.cum_seq_q, call.cum_seq_k, getattr(call, "seqused_k", None), _Seen(call.is_causal))
    call.dropout_p = 0.0
    found, logsumexp = _forward(_packed(call, seen, None, None))
    aten.copy_.default(call.out, _repacked(found, call.out))
    return aten.view.default(logsumexp, list(logsumexp.shape[1:]))


@rule("aten._scaled_dot_product_fused_attention_overrideable.default", by_schema=True)
def _overrideable(call: Any) -> Any:
    """Compute attention of ``[B, H, L, D]`` or ``[H, L, D]``."""
    seeds = _seeds(call.dropout_p, call.query)
    out, logsumexp = _forward(_dense(call, *seeds))
    if call.query.dim() == 3:
        out = aten.squeeze.dim(out, 0)
    return _with_strides_of(out, call.query), logsumexp, None, None, call.query.size(-2), call.key.size(-2), *seeds, None


@rule("aten._scaled_dot_product_fused_attention_overrideable_backward.default", by_schema=True)
def _overrideable_backward(call: Any) -> Any:
    if call.grad_out is None:
        return None, None, None, None

    def shaped(grad: Tensor, like: Tensor) -> Any:
        return with_strides_of(aten.view.default(grad, list(like.shape)), like)

    problem = _dense(call, call.philox_seed, call.philox_offset)
    *grads, of_bias = _backward(problem, _of_batch(call.grad_out), _of_batch(call.out), call.logsumexp, of_bias=True)
    return *_like_operands(grads, call, shaped), of_bias


@rule("aten._triton_scaled_dot_attention.default", recorded=True)
def _triton(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0) -> Any:
    return aten._scaled_dot_product_flash_attention.default(q, k, v, dropout_p)[0]


@rule("aten._scaled_dot_product_attention_math_for_mps.default", recorded=True)
def _math_for_metal(*args: Any, **options: Any) -> Any:
    return aten._scaled_dot_product_attention_math.default(*args, **options)


@rule("aten._fill_mem_eff_dropout_mask_.default", recorded=True)
def _dropout_numbers(self: Tensor, dropout_p: float, seed: int, offset: int) -> Any:
    """Fill `self` with the random numbers that dropout compares with its probability, for tests of dropout."""
    key, stream = (aten.full.default([], one, dtype=torch.int64, device=self.device) for one in (seed, offset))
    drawn = aten.view.default(philox_uniform(self.numel(), key, stream), list(self.shape))
    return aten.copy_.default(self, drawn)


@rule("aten._fused_sdp_choice.default")
def _choice(*args: Any, **options: Any) -> int:
    """Choose the composition (`SDPBackend.MATH`) for `scaled_dot_product_attention`, not a kernel of the device."""
    return 0
