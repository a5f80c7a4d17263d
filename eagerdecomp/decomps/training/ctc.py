"""Connectionist temporal classification (Graves et al. 2006), forward and backward.

The paths of a target run over its states: its labels with a blank before, between and after. ``alpha[t, s]`` is the log
probability of all path beginnings that are in state `s` at time `t`, and ``beta`` that of all path ends. Each follows from its
neighbour in time, so a loop over time is needed. It takes 6 kernel calls per step, forward and backward; the rest is computed for
all steps at once, with some 60 to 90 calls.

One recurrence, `_paths`, computes both: ``beta`` is ``alpha`` of the reversed sequence. Two more states avoid special cases:

- *nowhere*, after the states of the target. No path is ever in it. A forbidden step is replaced by a step from it.
- *source*, the last state. A path goes from it to its first or second state. Its log probability is 0 at only one time.

The logarithm of 0 is a finite number here (`_NEVER`), so that no infinities are subtracted. Values below half of it count as minus
infinity.

Lengths are Python numbers that differ from call to call, so these rules are linked: they have no cache key.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_NEVER = -1e30
_INF = float("inf")


class _Paths(NamedTuple):
    """The result of `_paths`, with a row per step; the first row is before any step: ``[B, T + 1, S + 2]``."""

    arrived: Tensor  #: of the paths that reach a state, its own log probability at that time left out
    within: Tensor  #: with it


# -- arguments --------------------------------------------------------------------------------------------------------------


def _fits(log_probs: Tensor, targets: Tensor, input_lengths: Sequence[int], target_lengths: Sequence[int], blank: int) -> bool:
    """Return whether eager accepts the arguments."""
    if log_probs.dtype not in (torch.float32, torch.float64) or log_probs.dim() != 3 or not log_probs.numel():
        return False
    if targets.dtype not in (torch.int64, torch.int32) or targets.dim() not in (1, 2):
        return False
    steps, batch, labels = log_probs.shape
    if not 0 <= blank < labels or len(input_lengths) != batch or len(target_lengths) != batch or min(target_lengths) < 0:
        return False
    fits = targets.size(0) == sum(target_lengths) if targets.dim() == 1 else targets.size(1) >= max(target_lengths)
    return fits and (targets.dim() == 1 or targets.size(0) == batch) and min(input_lengths) >= 0 and max(input_lengths) <= steps


def _read(lengths: Tensor) -> list[int]:
    if lengths.dtype.is_floating_point or lengths.dtype.is_complex or lengths.dtype is torch.bool:
        raise Declined
    flat = lengths if lengths.dim() == 1 else aten.reshape.default(lengths, [-1])
    return [int(aten._local_scalar_dense.default(length)) for length in aten.split_with_sizes.default(flat, [1] * flat.numel())]


def _by_tensors(op: Any, first_lengths: int) -> Callable[..., Any]:
    """Call the overload whose lengths are tensors. Eager reads these too, because the shape of the result depends on them."""

    def run(*args: Any, **kwargs: Any) -> Any:
        lengths = map(_read, args[first_lengths : first_lengths + 2])
        return op(*args[:first_lengths], *lengths, *args[first_lengths + 2 :], **kwargs)

    return run


def _vector(values: Sequence[int], device: torch.device) -> Any:
    """Return Python numbers as a tensor, with one kernel call for each run of equal numbers."""
    runs = [
        aten.full.default([len(list(run))], value, dtype=torch.int64, device=device) for value, run in itertools.groupby(values)
    ]
    return runs[0] if len(runs) == 1 else aten.cat.default(runs)


def _states(targets: Tensor, target_lengths: Sequence[int], lengths: Tensor, blank: int) -> Any:
    """Return the label of each state, ``[B, S]``: the target's labels with blanks around each.

    States after the end of a target have any label.
    """
    batch, longest = len(target_lengths), max(target_lengths)
    ragged = min(target_lengths) < longest
    device = targets.device
    if targets.dtype is not torch.int64:
        targets = aten._to_copy.default(targets, dtype=torch.int64)
    at = aten.arange.start_step(0, longest, 1, device=device)
    if targets.dim() == 1 and longest:
        starts = aten.unsqueeze.default(aten.sub.Tensor(aten.cumsum.default(lengths, 0), lengths), 1)
        targets = aten.index.Tensor(targets, [aten.clamp.default(aten.add.Tensor(starts, at), None, targets.numel() - 1)])
    elif targets.dim() == 1:
        targets = aten.view.default(targets, [batch, 0])
    else:
        targets = aten.slice.Tensor(targets, 1, 0, longest)
        if ragged:  # padding may hold numbers that are no labels
            filler = aten.full.default([], blank, dtype=torch.int64, device=device)
            targets = aten.where.self(aten.lt.Tensor(at, aten.unsqueeze.default(lengths, 1)), targets, filler)
    pairs = aten.constant_pad_nd.default(aten.unsqueeze.default(targets, 2), [1, 0], blank)
    return aten.constant_pad_nd.default(aten.view.default(pairs, [batch, 2 * longest]), [0, 1], blank)


def _steps_to(labels: Tensor) -> Any:
    """Return for each state the three states from which a path reaches it, ``[B, S + 2, 3]``: itself and the two before.

    The last of these skips a blank, which is allowed between different labels. A negative index counts from the end, so that the
    first states follow the source.
    """
    batch, states = labels.shape
    nowhere = aten.full.default([], states, dtype=torch.int64, device=labels.device)
    at = aten.arange.start_step(0, states, 1, device=labels.device)
    skipped = max(states - 2, 0)
    before = aten.constant_pad_nd.default(aten.slice.Tensor(labels, 1, 0, skipped), [states - skipped, 0], -1)
    skips = aten.where.self(aten.ne.Tensor(labels, before), aten.sub.Scalar(at, 2), nowhere)
    near = aten.sub.Tensor(aten.unsqueeze.default(at, 1), aten.arange.start_step(0, 2, 1, device=labels.device))
    near = aten.expand.default(near, [batch, states, 2])
    return aten.constant_pad_nd.default(aten.cat.default([near, aten.unsqueeze.default(skips, 2)], 2), [0, 0, 0, 2], states)


def _own(log_probs: Tensor, labels: Tensor) -> Any:
    """Return the log probability of each state's label, ``[B, T, S]``."""
    shape = [labels.size(0), log_probs.size(0), labels.size(1)]
    own = aten.gather.default(
        aten.permute.default(log_probs, [1, 0, 2]), 2, aten.expand.default(aten.unsqueeze.default(labels, 1), shape)
    )
    return aten.clamp.default(own, _NEVER)


def _paths(own: Tensor, labels: Tensor, entered: Tensor) -> _Paths:
    """Return the log probability of all paths up to each time and state, from the log probabilities of the states.

    Each sequence begins with the step after row ``entered[b]``.
    """
    batch, steps, states = own.shape
    device = own.device
    own = aten.constant_pad_nd.default(own, [0, 2, 1, 0], 0.0)
    sequence = aten.arange.start_step(0, batch, 1, device=device)
    source = aten.full.default([], states + 1, dtype=torch.int64, device=device)
    own = aten.index_put.default(own, [sequence, entered, source], aten.full.default([], -_NEVER, dtype=own.dtype, device=device))
    size = states + 2
    rows = aten.split_with_sizes.default(aten.view.default(own, [batch, (steps + 1) * size]), [size] * (steps + 1), 1)
    windows = _steps_to(labels)
    sequence = aten.view.default(sequence, [batch, 1, 1])
    arrived = [aten.full.default([batch, size], _NEVER, dtype=own.dtype, device=device)]
    within = [aten.add.Scalar(rows[0], _NEVER)]
    for row in rows[1:]:
        arrived.append(_log_sum_exp(aten.index.Tensor(within[-1], [sequence, windows]), 2))
        within.append(aten.add.Tensor(arrived[-1], row))
    return _Paths(*(aten.view.default(aten.cat.default(parts, 1), [batch, steps + 1, size]) for parts in (arrived, within)))


def _log_sum_exp(x: Tensor, dim: int) -> Any:
    """Compute log-sum-exp by the softmax kernel: the maximum of ``x - log_sum_exp(x)`` is at the maximum of `x`."""
    return aten.sub.Tensor(aten.amax.default(x, [dim]), aten.amax.default(aten._log_softmax.default(x, dim, False), [dim]))


def _with_infinity(x: Tensor) -> Any:
    never = aten.full.default([], -_INF, dtype=x.dtype, device=x.device)
    return aten.where.self(aten.lt.Scalar(x, _NEVER / 2), never, x)


# -- the ops ----------------------------------------------------------------------------------------------------------------


@rule("aten._ctc_loss.default")
def _forward(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,  # the caller's concern, and backward's
) -> Any:
    if not _fits(log_probs, targets, input_lengths, target_lengths, blank):
        return NotImplemented
    batch, device = log_probs.size(1), log_probs.device
    lengths = _vector(target_lengths, device)
    labels = _states(targets, target_lengths, lengths, blank)
    at_once = aten.full.default([batch], 0, dtype=torch.int64, device=device)
    alpha = _paths(_own(log_probs, labels), labels, at_once).within
    # A path ends in the last blank or the last label. Without labels, the latter has the index -1, which is the source. So the
    # empty path has the probability 1.
    last = aten.unsqueeze.default(_vector(input_lengths, device), 1)
    ends = aten.sub.Tensor(aten.unsqueeze.default(aten.mul.Scalar(lengths, 2), 1), aten.arange.start_step(0, 2, 1, device=device))
    sequence = aten.arange.start_step(0, batch, 1, device=device)
    ended = _log_sum_exp(aten.index.Tensor(alpha, [aten.unsqueeze.default(sequence, 1), last, ends]), 1)
    true = aten.slice.Tensor(aten.slice.Tensor(alpha, 1, 1, alpha.size(1)), 2, 0, labels.size(1))
    return aten.neg.default(_with_infinity(ended)), _with_infinity(true)


@rule("aten._ctc_loss_backward.default")
def _backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    neg_log_likelihood: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Any:
    if log_probs.dtype not in (torch.float32, torch.float64) or grad.dtype is not log_probs.dtype:
        return NotImplemented
    steps, batch, classes = log_probs.shape
    device = log_probs.device
    lengths = _vector(target_lengths, device)
    labels = _states(targets, target_lengths, lengths, blank)
    states = labels.size(1)
    # Reverse each target: its last state comes first.
    places = aten.sub.Tensor(
        aten.unsqueeze.default(aten.mul.Scalar(lengths, 2), 1), aten.arange.start_step(0, states, 1, device=device)
    )
    beyond = aten.lt.Scalar(places, 0)
    places = aten.clamp.default(places, 0)
    labels = aten.gather.default(labels, 1, places)
    ends = _vector([steps - length for length in input_lengths], device)
    beta = _paths(aten.flip.default(_own(log_probs, labels), [1]), labels, ends).arrived
    beta = aten.flip.default(aten.slice.Tensor(aten.slice.Tensor(beta, 1, 1, steps + 1), 2, 0, states), [1])
    # The posterior probability of each state. For states that no path is in, `log_alpha` may have any value.
    everywhere = [batch, steps, states]
    alpha = aten.gather.default(log_alpha, 2, aten.expand.default(aten.unsqueeze.default(places, 1), everywhere))
    loss = aten.view.default(neg_log_likelihood, [batch, 1, 1])
    posterior = aten.add.Tensor(aten.add.Tensor(alpha, beta), loss)
    out = aten.logical_or.default(aten.lt.Scalar(beta, _NEVER / 2), aten.unsqueeze.default(beyond, 1))
    posterior = aten.exp.default(aten.where.self(out, aten.full.default([], -_INF, dtype=beta.dtype, device=device), posterior))
    of_label = aten.scatter_add.default(
        aten.full.default([batch, steps, classes], 0.0, dtype=beta.dtype, device=device),
        2,
        aten.expand.default(aten.unsqueeze.default(labels, 1), everywhere),
        posterior,
    )
    log_probs = as_contiguous(log_probs)
    loss = aten.view.default(neg_log_likelihood, [1, batch, 1])
    # Eager's formula is NaN where a class, or the whole target, is impossible.
    undefined = aten.mul.Scalar(aten.sub.Tensor(log_probs, loss), 0.0)
    result = aten.sub.Tensor(aten.add.Tensor(aten.exp.default(log_probs), undefined), aten.permute.default(of_label, [1, 0, 2]))
    result = aten.mul.Tensor(result, aten.view.default(grad, [1, batch, 1]))
    # The gradient is 0 after a sequence's end, and for an infinite loss with `zero_infinity`.
    nothing = aten.le.Scalar(
        aten.sub.Tensor(aten.view.default(_vector(input_lengths, device), [1, batch, 1]), _column(steps, device)), 0
    )
    if zero_infinity:
        nothing = aten.logical_or.default(nothing, aten.eq.Scalar(loss, _INF))
    return aten.where.self(nothing, aten.full.default([], 0.0, dtype=result.dtype, device=device), result)


def _column(size: int, device: torch.device) -> Any:
    return aten.view.default(aten.arange.start_step(0, size, 1, device=device), [size, 1, 1])


@rule("aten._cudnn_ctc_loss.default", "aten.miopen_ctc_loss.default", recorded=True)
def _with_gradient(*args: Any) -> Any:
    """Return the loss of each sequence and its gradient, as cuDNN and MIOpen compute them together."""
    given, (blank, _, zero_infinity) = args[:4], args[4:]
    loss, log_alpha = aten._ctc_loss.default(*given, blank, zero_infinity)
    one = aten.full_like.default(loss, 1)
    return loss, aten._ctc_loss_backward.default(one, *given, loss, log_alpha, blank, zero_infinity)


rule("aten._cudnn_ctc_loss.Tensor", "aten.miopen_ctc_loss.Tensor")(_by_tensors(op_called("aten._cudnn_ctc_loss.default"), 2))
rule("aten._ctc_loss.Tensor")(_by_tensors(op_called("aten._ctc_loss.default"), 2))
rule("aten._ctc_loss_backward.Tensor")(_by_tensors(op_called("aten._ctc_loss_backward.default"), 3))
