"""CTC against eager: losses, gradients, what forward saves, lengths, errors; and a small recogniser trained on it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten


def case(
    input_lengths: list[int],
    target_lengths: list[int],
    *,
    joined: bool = False,
    classes: int = 4,
    blank: int = 0,
    steps: int | None = None,
    width: int | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Log probabilities and targets; targets repeat labels often, and what is beyond their ends is no label."""
    generator = torch.Generator().manual_seed(seed)
    steps = max(input_lengths) if steps is None else steps
    scores = torch.randn(steps, len(input_lengths), classes, generator=generator, dtype=torch.float64)
    others = torch.tensor([label for label in range(classes) if label != blank])
    width = max(target_lengths) if width is None else width
    targets = others[torch.randint(len(others), (len(input_lengths), width), generator=generator)]
    for row, length in zip(targets, target_lengths, strict=True):
        row[length:] = -7
    if joined:
        targets = torch.cat([row[:length] for row, length in zip(targets, target_lengths, strict=True)])
    return scores.log_softmax(-1).to(dtype), targets


def loss_and_gradient(log_probs: Tensor, targets: Tensor, inputs: Any, lengths: Any, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = log_probs.detach().clone().requires_grad_()
    loss = F.ctc_loss(leaf, targets, inputs, lengths, **options)
    weights = torch.arange(1.0, loss.numel() + 1, dtype=loss.dtype).view(loss.shape)
    return loss.detach(), torch.autograd.grad(loss, leaf, weights)[0]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("as_tensors", [False, True])
def test_loss_and_gradient(as_tensors: bool, joined: bool, dtype: torch.dtype, reduction: str) -> None:
    inputs, lengths = [7, 5, 6], [3, 0, 2]
    log_probs, targets = case(inputs, lengths, joined=joined, dtype=dtype)
    given_lengths = (torch.tensor(inputs), torch.tensor(lengths)) if as_tensors else (tuple(inputs), tuple(lengths))
    check(loss_and_gradient, log_probs, targets, *given_lengths, reduction=reduction)


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=4),
    joined=st.booleans(),
    blank=st.integers(0, 3),
    more_steps=st.integers(0, 2),
    wider=st.integers(0, 2),
    zero_infinity=st.booleans(),
    seed=st.integers(0, 5),
)
@example([(0, 0)], True, 1, 1, 0, False, 0)  # nothing at all has the probability 1
@example([(0, 2), (3, 0)], False, 3, 0, 1, True, 0)
@example([(2, 2), (6, 4)], True, 0, 0, 0, False, 1)  # a repeated label that does not fit: no path
def test_any_lengths(
    lengths: list[tuple[int, int]], joined: bool, blank: int, more_steps: int, wider: int, zero_infinity: bool, seed: int
) -> None:
    inputs, targets_of = [pair[0] for pair in lengths], [pair[1] for pair in lengths]
    options: dict[str, Any] = {"blank": blank, "seed": seed, "steps": max(max(inputs) + more_steps, 1)}
    log_probs, targets = case(inputs, targets_of, joined=joined, width=max(targets_of) + wider, **options)
    check(loss_and_gradient, log_probs, targets, inputs, targets_of, reduction="none", blank=blank, zero_infinity=zero_infinity)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_impossible_labels(zero_infinity: bool) -> None:
    log_probs, targets = case([6, 6], [2, 3])
    log_probs[:, 1, targets[1, 0]] = -float("inf")
    log_probs[2, 0, 0] = -float("inf")
    check(loss_and_gradient, log_probs, targets, [6, 6], [2, 3], reduction="none", zero_infinity=zero_infinity)


def test_a_target_that_holds_the_blank() -> None:
    """Not at its end: there eager's gradient of the last step forgets one of the two blanks."""
    log_probs, _ = case([6, 6], [2, 2])
    check(loss_and_gradient, log_probs, torch.tensor([[0, 1], [0, 2]]), [6, 6], [2, 2], reduction="none")


def test_very_unlikely_paths_keep_their_gradient() -> None:
    log_probs, targets = case([40, 40], [6, 4])
    check(loss_and_gradient, (log_probs * 60).log_softmax(-1), targets, [40, 40], [6, 4], reduction="none")


@pytest.mark.parametrize("layout", ["transposed", "sliced"])
def test_layouts(layout: str) -> None:
    log_probs, targets = case([5, 4], [2, 1])
    log_probs = (
        log_probs.transpose(0, 1).contiguous().transpose(0, 1) if layout == "transposed" else log_probs.repeat(1, 1, 2)[..., :4]
    )
    check(loss_and_gradient, log_probs, targets.t().contiguous().t(), [5, 4], [2, 1], reduction="none")


def test_one_sequence_without_a_batch() -> None:
    log_probs, targets = case([6], [3])
    check(loss_and_gradient, log_probs[:, 0], targets[0], torch.tensor(6), torch.tensor(3), reduction="none")


def test_targets_of_32_bits() -> None:
    log_probs, targets = case([5, 4], [2, 1])
    check(lambda *given: aten._ctc_loss(*given)[0], log_probs, targets.int(), [5, 4], [2, 1])


def saved(log_probs: Tensor, targets: Tensor, inputs: list[int], lengths: list[int]) -> Tensor:
    """Return what forward saves, where eager fills it."""
    alpha = aten._ctc_loss(log_probs, targets, inputs, lengths)[1]
    assert alpha.is_contiguous()
    for row, steps, length in zip(alpha, inputs, lengths, strict=True):
        row[steps:] = 0
        row[:, 2 * length + 1 :] = 0
    return alpha


@pytest.mark.parametrize("joined", [False, True])
def test_forward_saves_what_eager_saves(joined: bool) -> None:
    inputs, lengths = [7, 5, 0], [3, 0, 2]
    check(saved, *case(inputs, lengths, joined=joined, width=5), inputs, lengths)


@pytest.mark.parametrize("native", ["_ctc_loss", "_ctc_loss_backward"])
def test_a_backend_with_one_of_the_two_trains_right(native: str) -> None:
    inputs, lengths = [7, 5, 6], [3, 0, 2]
    half = CORE | {f"aten.{native}"}
    for zero_infinity in (False, True):
        check(loss_and_gradient, *case(inputs, lengths), inputs, lengths, ops=half, zero_infinity=zero_infinity)


def test_gradient_against_differences() -> None:
    log_probs, targets = case([5, 4], [2, 1])
    leaf = log_probs.requires_grad_()
    assert on_core(lambda: torch.autograd.gradcheck(lambda x: F.ctc_loss(x.log_softmax(-1), targets, (5, 4), (2, 1)), (leaf,)))


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


def test_a_recogniser_trains_as_in_eager() -> None:
    torch.manual_seed(0)
    lstm, head = torch.nn.LSTM(5, 8), torch.nn.Linear(8, 4)
    batches = [(torch.randn(8, 3, 5), torch.tensor([8, 7 - step % 2, 6]), torch.randint(1, 4, (3, 3))) for step in range(4)]

    def train() -> list[Tensor]:
        encoder, output = copy.deepcopy(lstm), copy.deepcopy(head)
        parameters = [*encoder.parameters(), *output.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=1e-2)
        losses = []
        for frames, lengths, targets in batches:
            log_probs = output(encoder(frames)[0]).log_softmax(-1)
            loss = F.ctc_loss(log_probs, targets, lengths, torch.tensor([3, 2, 1]), zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [*losses, *(parameter.detach() for parameter in parameters)]

    for got, want in zip(on_core(train), train(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
