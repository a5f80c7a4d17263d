"""torchaudio's `forced_align`: the best path of a CTC model through the labels of a target."""

from __future__ import annotations

import torch
from torch import Tensor

from eagerdecomp.decomps.libraries.torchvision.checks import check
from eagerdecomp.eager.promotion import in_type, number_like
from eagerdecomp.rules.rule import library_rule

aten = torch.ops.aten


@library_rule("torchaudio.forced_align.default")
def forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor]:
    """Return the Viterbi path over the labels with blanks between (Kuerzinger et al., "CTC-Segmentation", 2020, section 2).

    A step stays at its state, moves to the next one, or moves by two, over the blank between two different labels. As in the
    kernel, it stays unless a move scores higher than both other choices. States that no path reaches score minus infinity.
    """
    frames, labels = _checked(log_probs, targets, input_lengths, target_lengths, blank)
    if not frames:
        return aten.full.default([1, 0], 0, dtype=targets.dtype, device=targets.device), log_probs
    target = in_type(aten.view.default(targets, [-1]), torch.int64)
    blanks = aten.full.default([labels, 1], blank, dtype=torch.int64, device=target.device)
    pairs = aten.view.default(aten.cat.default([blanks, aten.unsqueeze.default(target, 1)], 1), [-1])
    states = aten.cat.default([pairs, aten.full.default([1], blank, dtype=torch.int64, device=target.device)])
    least = number_like(log_probs, float("-inf"))
    score = aten.index_select.default(aten.view.default(log_probs, [frames, -1]), 1, states)
    skips = _skips(target, labels)
    place = aten.arange.start_step(0, 2 * labels + 1, 1, dtype=torch.int64, device=target.device)
    # A path begins with the first blank or the first label.
    alpha = aten.where.self(aten.lt.Scalar(place, 2), aten.select.int(score, 0, 0), least)
    steps = []
    for t in range(1, frames):
        moved = aten.constant_pad_nd.default(alpha, [2, 0], float("-inf"))
        one, two = aten.slice.Tensor(moved, 0, 1, -1), aten.slice.Tensor(moved, 0, 0, -2)
        two = aten.where.self(skips, two, least)
        longest = aten.logical_and.default(aten.gt.Tensor(two, one), aten.gt.Tensor(two, alpha))
        longer = aten.logical_and.default(aten.gt.Tensor(one, alpha), aten.gt.Tensor(one, two))
        step = aten.where.self(longest, number_like(place, 2), in_type(longer, torch.int64))
        steps.append(aten.sub.Tensor(place, step))
        best = aten.where.self(longest, two, aten.where.self(longer, one, alpha))
        alpha = aten.add.Tensor(best, aten.select.int(score, 0, t))
    end = 2 * labels
    if labels:
        ends = aten.gt.Tensor(aten.slice.Tensor(alpha, 0, end, end + 1), aten.slice.Tensor(alpha, 0, end - 1, end))
        at = aten.where.self(ends, number_like(place, end), number_like(place, end - 1))
    else:
        at = aten.full.default([1], 0, dtype=torch.int64, device=target.device)
    path = [at]
    for step in reversed(steps):
        at = aten.index_select.default(step, 0, at)
        path.append(at)
    positions = path[0] if len(path) == 1 else aten.flip.default(aten.cat.default(path), [0])
    found = aten.index_select.default(states, 0, positions)
    return in_type(aten.view.default(found, [1, -1]), targets.dtype), log_probs


def _skips(target: Tensor, labels: int) -> Tensor:
    """Return which states a path may enter from two states before: labels that differ from the previous label."""
    if labels < 2:
        return aten.full.default([2 * labels + 1], False, dtype=torch.bool, device=target.device)  # type: ignore[no-any-return]
    differs = aten.ne.Tensor(aten.slice.Tensor(target, 0, 1, labels), aten.slice.Tensor(target, 0, 0, labels - 1))
    blanks = aten.full.default([labels - 1], False, dtype=torch.bool, device=target.device)
    pairs = aten.view.default(aten.stack.default([blanks, differs], 1), [-1])
    ends = aten.full.default([2], False, dtype=torch.bool, device=target.device)
    return aten.cat.default([ends, pairs, aten.slice.Tensor(ends, 0, 0, 1)])  # type: ignore[no-any-return]


def _checked(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int) -> tuple[int, int]:
    """Run the kernel's checks, and return the number of frames and of labels."""
    check(
        log_probs.dtype in (torch.float64, torch.float32, torch.float16),
        "log_probs must be float64, float32 or float16 (half) type",
    )
    check(targets.dtype in (torch.int32, torch.int64), "targets must be int32 or int64 type")
    check(log_probs.is_contiguous(), "log_probs must be contiguous")
    check(targets.is_contiguous(), "targets must be contiguous")
    check(log_probs.dim() == 3, "log_probs must be 3-D (batch_size, input length, num classes)")
    check(targets.dim() == 2, "targets must be 2-D (batch_size, target length,)")
    check(input_lengths.dim() == 1, "input_lengths must be 1-D (batch_size,)")
    check(target_lengths.dim() == 1, "target_lengths must be 1-D (batch_size,)")
    for name, one in (("log_probs", log_probs), ("targets", targets)):
        check(one.shape[0] == 1, f"The batch dimension for {name} must be 1 at the current version.")
    frames, labels = log_probs.shape[1], targets.shape[1]
    check(0 <= blank < log_probs.shape[2], "blank must be within [0, num classes)")
    check(frames == _largest(input_lengths), "input length mismatch")
    check(labels == _largest(target_lengths), "target length mismatch")
    repeats = 0
    if labels > 1:
        same = aten.eq.Tensor(aten.slice.Tensor(targets, 1, 1, labels), aten.slice.Tensor(targets, 1, 0, labels - 1))
        repeats = int(aten._local_scalar_dense.default(aten.sum.dim_IntList(same, [0, 1])))
    words = f"Found log_probs length: {frames}, targets length: {labels}, and number of repeats: {repeats}"
    check(frames >= labels + repeats, f"targets length is too long for CTC. {words}")
    return frames, labels


def _largest(lengths: Tensor) -> int:
    return int(aten._local_scalar_dense.default(aten.amax.default(lengths)))
