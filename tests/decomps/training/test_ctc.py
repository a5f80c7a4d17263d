"""CTC of unlikely paths, and what it costs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from on_core import CORE, check, kernel_calls
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten


def case(input_lengths: list[int], target_lengths: list[int], *, steps: int | None = None) -> tuple[Tensor, Tensor]:
    """Log probabilities and targets; targets repeat labels often, and what is beyond their ends is no label."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(steps or max(input_lengths), len(input_lengths), 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(1, 4, (len(input_lengths), max(target_lengths)), generator=generator)
    for row, length in zip(targets, target_lengths, strict=True):
        row[length:] = -7
    return scores.log_softmax(-1), targets


def loss_and_gradient(log_probs: Tensor, targets: Tensor, inputs: Any, lengths: Any, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = log_probs.detach().clone().requires_grad_()
    loss = F.ctc_loss(leaf, targets, inputs, lengths, **options)
    weights = torch.arange(1.0, loss.numel() + 1, dtype=loss.dtype).view(loss.shape)
    return loss.detach(), torch.autograd.grad(loss, leaf, weights)[0]


def test_very_unlikely_paths_keep_their_gradient() -> None:
    log_probs, targets = case([40, 40], [6, 4])
    check(loss_and_gradient, (log_probs * 60).log_softmax(-1), targets, [40, 40], [6, 4], reduction="none")


def test_what_it_costs_grows_by_six_calls_a_step() -> None:
    def cost(steps: int) -> tuple[int, int]:
        log_probs, targets = case([steps] * 3, [2] * 3)
        forward = kernel_calls(lambda: aten._ctc_loss(log_probs, targets, [steps] * 3, [2] * 3))
        return forward, kernel_calls(lambda: loss_and_gradient(log_probs, targets, [steps] * 3, [2] * 3))

    (short, short_both), (long, long_both) = cost(5), cost(15)
    assert (long - short, long_both - short_both) == (60, 120)
    assert short <= 93
    assert short_both <= 225


def test_new_lengths_are_no_new_program() -> None:
    cases = [(length, *case([5, length], [2, 1], steps=5)) for length in (2, 3, 4)]
    with ed.EagerDecompMode(CORE) as mode:
        for length, log_probs, targets in cases:
            aten._ctc_loss(log_probs, targets, [5, length], [2, 1])
    assert mode.stats().total.misses == 0
