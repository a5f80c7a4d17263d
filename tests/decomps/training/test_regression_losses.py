"""Losses in blocks and in inference mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from dispatch_recorders import SizeRecorder
from on_core import CORE, check, gradient, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.decomps.training import classification_losses

CLASSES = 5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, T = random(4, CLASSES), torch.randint(CLASSES, (4,), generator=torch.Generator().manual_seed(0))


def test_a_program_of_an_undecomposed_loss_raises_the_index_error_too() -> None:
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()), torch.inference_mode():
        for _ in range(3):  # recorded, compiled, hit
            F.cross_entropy(X, T)
        with pytest.raises(IndexError, match=r"^Target 99 is out of bounds.$"):
            F.cross_entropy(X, torch.full_like(T, 99))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_multilabel_margin_in_blocks_of_labels(reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classification_losses, "_PAIRS_AT_ONCE", 1)
    monkeypatch.setattr(classification_losses, "_LABELS_AT_ONCE", 3)
    torch.manual_seed(0)
    target = torch.stack([torch.randperm(7) for _ in range(3)])
    target[1, 4:], target[2, 0] = -1, -1

    def trained(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.multilabel_margin_loss(x, target, reduction=reduction), gradient(
            lambda x: F.multilabel_margin_loss(x, target, reduction=reduction).square().sum(), x
        )

    check(trained, random(3, 7))
    with SizeRecorder() as sizes:
        on_core(lambda: trained(random(3, 7)))
    assert max(sizes.sizes) == 3 * 3 * 7


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: F.cross_entropy(x, T, label_smoothing=0.1),
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[3, 0, -1, 1, 2]] * 4)),
    ],
)
def test_losses_that_are_not_decomposed_in_inference_mode(loss: Callable[[Tensor], Tensor]) -> None:
    check(torch.inference_mode()(loss), random(4, CLASSES))
