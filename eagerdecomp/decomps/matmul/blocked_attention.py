"""Attention by blocks of keys, on request and for large scores: no intermediate has the size of the product of both lengths.

Each query row keeps its maximum score so far, the sum of its weights and its weighted values; each further block rescales them
(Milakov and Gimelshein 2018; Dao et al. 2022). In causal attention, a block is skipped for the queries before it, and their rows
are finished.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.decomps.math.attention_heads import (
    as_rows,
    check_attention,
    heads_last,
    scaling_of,
    visible,
    widened,
    with_strides_of,
)
from eagerdecomp.decomps.math.matrices import joined
from eagerdecomp.eager.layouts import layout_of
from eagerdecomp.errors import ArgumentError
from eagerdecomp.rules.restride import with_eager_strides
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.user_rules import register_decomposition

__all__ = ["Blocks", "backward_in_blocks", "blocked_attention", "forward_in_blocks"]

aten = torch.ops.aten


def blocked_attention(block_size: int = 128) -> tuple[Rule, ...]:
    """Make rules that compute attention by blocks of `block_size` keys: ``EagerDecompMode(ops, rules=[*blocked_attention(256)])``.

    Forward and backward hold scores of one block at a time, ``[B, H, L, block_size]``, where the library's own rules hold all
    ``[B, H, L, S]``; a block costs 20 to 30 kernel calls each way. Results, log-sum-exp included, are the same up to rounding, so
    forward may run by these rules and backward by a kernel, or the other way round. Attention that torch itself decomposes
    (dropout, double backward) never arrives whole and is not blocked.

    Args:
        block_size: the number of keys in a block.

    Returns:
        Rules for the attention ops of ATen, forward and backward, to pass as ``rules=``.

    Raises:
        ArgumentError: when `block_size` is not a positive integer.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> q = torch.ones(1, 1, 512, 8)
        >>> mode = ed.EagerDecompMode(ed.core_aten(), rules=ed.blocked_attention(128))
        >>> with ed.BackendRecorder() as seen, mode:
        ...     y = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        >>> seen.ops[torch.ops.aten.bmm.default]
        8
    """
    if not isinstance(block_size, int) or isinstance(block_size, bool) or block_size < 1:
        raise ArgumentError(f"block_size must be a number of keys from 1 up, such as 128, not {block_size!r}")

    @_rule_of(aten._scaled_dot_product_flash_attention_for_cpu.default)
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> Any:
        check_attention(query, key, value, dropout_p, attn_mask)
        if not (query.numel() and key.numel()):
            return NotImplemented
        return forward_in_blocks(Blocks(query, key, value, is_causal, attn_mask, scale, block_size))

    @_rule_of(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
    def backward(grad_out: Tensor | None, *args: Any, attn_mask: Tensor | None = None, scale: float | None = None) -> Any:
        query, key, value, out, logsumexp, _, is_causal = args
        if grad_out is None or not (query.numel() and key.numel()):
            return NotImplemented
        return backward_in_blocks(Blocks(query, key, value, is_causal, attn_mask, scale, block_size), grad_out, out, logsumexp)

    return forward, backward


def _rule_of(op: OpOverload) -> Callable[[Callable[..., Any]], Rule]:
    layout = layout_of(op)
    assert layout is not None
    return lambda fn: register_decomposition(op)(with_eager_strides(fn, layout))


class Blocks:
    """The operands of one call, cut into blocks of keys."""

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, causal: bool, mask: Tensor | None, scale: float | None, size: int
    ) -> None:
        self.query, self.key, self.value = query, key, value
        self.causal, self.mask, self.size = causal, mask, size
        self.scaling = scaling_of(query, scale)
        self.scaled = aten.mul.Scalar(widened(query), self.scaling)
        self.groups = key.size(1)
        # No query sees the keys after the last query.
        if causal:
            # In each block, keys and queries count from the same position. So one mask serves every block.
            device = query.device
            self.shown = visible(query.size(2), size, device)
            self.nothing = aten.full.default([], -math.inf, dtype=self.scaled.dtype, device=device)
        self.seen = min(key.size(2), query.size(2)) if causal else key.size(2)

    def bounds(self) -> list[tuple[int, int]]:
        return [(start, min(start + self.size, self.seen)) for start in range(0, self.seen, self.size)]

    def from_row(self, x: Tensor, row: int) -> Tensor:
        """Return the queries from `row` on, for ``[B, H, L, *]``."""
        return aten.slice.Tensor(x, 2, row, self.query.size(2)) if row else x

    def first_row(self, start: int) -> int:
        return start if self.causal else 0

    def of_keys(self, x: Tensor, start: int, end: int) -> Tensor:
        """Return one block of keys or values as a matrix per head."""
        whole = start == 0 and end == x.size(2)
        return as_rows(x if whole else aten.slice.Tensor(x, 2, start, end), self.groups, by_strides=True)

    def product(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Return ``rows @ keys^T`` as ``[B, H, l, block]``."""
        batch, heads = self.query.shape[:2]
        scores = aten.bmm.default(rows, aten.permute.default(keys, [0, 2, 1]))
        length = rows.size(1) * self.groups // heads
        return aten.view.default(scores, [batch, heads, length, keys.size(1)])  # type: ignore[no-any-return]

    def scores(self, rows: Tensor, keys: Tensor, start: int, end: int) -> Tensor:
        scores = self.product(rows, keys)
        if self.mask is not None:
            mask = self.mask
            if mask.size(-1) != 1:
                mask = aten.slice.Tensor(mask, mask.dim() - 1, start, end)
            row = self.first_row(start)
            if mask.size(-2) != 1 and row:
                mask = aten.slice.Tensor(mask, mask.dim() - 2, row, self.query.size(2))
            scores = aten.add.Tensor(scores, mask)
        if self.causal:
            shown = aten.slice.Tensor(self.shown, 0, 0, scores.size(2))
            if scores.size(3) != self.size:
                shown = aten.slice.Tensor(shown, 1, 0, scores.size(3))
            scores = aten.where.self(shown, scores, self.nothing)
        return scores

    def weighted(self, weights: Tensor, matrices: Tensor) -> Tensor:
        """Return ``weights @ matrices`` as ``[B, H, l, D]``."""
        batch, heads, length, block = weights.shape
        flat = aten.view.default(weights, [batch * self.groups, heads // self.groups * length, block])
        return aten.view.default(aten.bmm.default(flat, matrices), [batch, heads, length, matrices.size(2)])  # type: ignore[no-any-return]

    def gathered(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Return ``weights^T @ rows``, summed over the query heads of each group: ``[B * groups, block, D]``."""
        batch, heads, length, block = weights.shape
        flat = aten.view.default(weights, [batch * self.groups, heads // self.groups * length, block])
        return aten.bmm.default(aten.permute.default(flat, [0, 2, 1]), rows)  # type: ignore[no-any-return]


def forward_in_blocks(blocks: Blocks) -> tuple[Tensor, Tensor]:
    masked = blocks.mask is not None
    zero = aten.full.default([], 0.0, dtype=blocks.scaled.dtype, device=blocks.scaled.device) if masked else None
    outs: list[Tensor] = []
    sums: list[Tensor] = []
    state: list[Tensor] = []
    rows, row = as_rows(blocks.scaled, blocks.groups, by_strides=True), 0
    for start, end in blocks.bounds():
        first = blocks.first_row(start)
        if first > row:
            done, state = _parted(state, first - row)
            out, lse = _finished(done, zero)
            outs.append(out)
            sums.append(lse)
            rows, row = as_rows(blocks.from_row(blocks.scaled, first), blocks.groups, by_strides=True), first
        scores = blocks.scores(rows, blocks.of_keys(blocks.key, start, end), start, end)
        state = _with_block(state, scores, blocks, blocks.of_keys(blocks.value, start, end), zero)
    out, lse = _finished(state, zero)
    out, lse = joined([*outs, out], 2), joined([*sums, lse], 2)
    query = blocks.query
    return with_strides_of(out, query), heads_last(aten.squeeze.dim(lse, -1), query.shape[:3], lse.dtype)


def _with_block(state: Sequence[Tensor], scores: Tensor, blocks: Blocks, values: Tensor, zero: Tensor | None) -> list[Tensor]:
    """Return the state (maximum score, sum of weights, weighted values) after one more block of scores."""
    top = aten.amax.default(scores, [-1], True)
    if state:
        top = aten.maximum.default(state[0], top)
    base = top if zero is None else _finite(top, zero)
    weights = aten.exp.default(aten.sub.Tensor(scores, base))
    total = aten.sum.dim_IntList(weights, [-1], True)
    out = blocks.weighted(weights, values)
    if state:
        kept = aten.exp.default(aten.sub.Tensor(state[0], base))
        total = aten.add.Tensor(aten.mul.Tensor(state[1], kept), total)
        out = aten.add.Tensor(aten.mul.Tensor(state[2], kept), out)
    return [top, total, out]


def _finite(top: Tensor, zero: Tensor) -> Tensor:
    """Return `top` with 0 for rows that are fully masked so far. Their weights are then exp(-inf) = 0."""
    return aten.where.self(aten.eq.Scalar(top, -math.inf), zero, top)  # type: ignore[no-any-return]


def _finished(state: Sequence[Tensor], zero: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sum-exp. A fully masked row gives zeros, and 0 as its log-sum-exp."""
    top, total, out = state
    if zero is not None:
        top = _finite(top, zero)
        one = aten.full.default([], 1.0, dtype=total.dtype, device=total.device)
        total = aten.where.self(aten.eq.Scalar(total, 0), one, total)
    return aten.div.Tensor(out, total), aten.add.Tensor(top, aten.log.default(total))


def _parted(state: Sequence[Tensor], count: int) -> tuple[list[Tensor], list[Tensor]]:
    """Split each tensor of the state into its first `count` rows and the rest."""
    parts = [aten.split_with_sizes.default(x, [count, x.size(2) - count], 2) for x in state]
    return [part[0] for part in parts], [part[1] for part in parts]


def backward_in_blocks(blocks: Blocks, grad_out: Tensor, out: Tensor, logsumexp: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value, groups = blocks.query, blocks.key, blocks.value, blocks.groups
    grad = widened(grad_out)
    # Gradient of the softmax: weights * (grad_weights - sum(grad_weights * weights)). The sum equals grad_out . out.
    inner = aten.sum.dim_IntList(aten.mul.Tensor(grad, widened(out)), [-1], True)
    lse = aten.unsqueeze.default(logsumexp, -1)
    done: list[Tensor] = []
    grad_keys: list[Tensor] = []
    grad_values: list[Tensor] = []
    so_far: Tensor | None = None
    row = 0
    rows, grad_rows = as_rows(blocks.scaled, groups, by_strides=True), as_rows(grad, groups, by_strides=True)
    for start, end in blocks.bounds():
        first = blocks.first_row(start)
        if first > row and so_far is not None:
            head, (so_far,) = _parted([so_far], first - row)
            done += head
            inner, lse = (part[0] for part in (_parted([x], first - row)[1] for x in (inner, lse)))
            rows, grad_rows = (as_rows(blocks.from_row(x, first), groups, by_strides=True) for x in (blocks.scaled, grad))
            row = first
        keys, values = (blocks.of_keys(x, start, end) for x in (key, value))
        weights = aten.exp.default(aten.sub.Tensor(blocks.scores(rows, keys, start, end), lse))
        grad_scores = aten.mul.Tensor(weights, aten.sub.Tensor(blocks.product(grad_rows, values), inner))
        grad_values.append(blocks.gathered(weights, grad_rows))
        grad_keys.append(blocks.gathered(grad_scores, rows))
        more = blocks.weighted(grad_scores, keys)
        so_far = more if so_far is None else aten.add.Tensor(so_far, more)
    assert so_far is not None, "there is a block: neither queries nor keys are none"
    grad_query = aten.mul.Scalar(joined([*done, so_far], 2), blocks.scaling)
    return (
        heads_last(grad_query, query.shape, query.dtype),
        heads_last(_of_all_keys(grad_keys, key, blocks.seen), key.shape, key.dtype),
        heads_last(_of_all_keys(grad_values, value, blocks.seen), value.shape, value.dtype),
    )


def _of_all_keys(parts: list[Tensor], like: Tensor, seen: int) -> Tensor:
    """Concatenate the gradients of the blocks, with zeros for the keys that no query sees."""
    whole = joined(parts, 1)
    if seen < like.size(2):
        whole = aten.constant_pad_nd.default(whole, [0, 0, 0, like.size(2) - seen])
    return aten.view.default(whole, like.shape)  # type: ignore[no-any-return]
