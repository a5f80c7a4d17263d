"""Losses on a backend with one of two kernels, in blocks and in inference mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatch_recorders import SizeRecorder
from on_core import CORE, check, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.decomps.training import classification_losses

REDUCTIONS = ["none", "mean", "sum"]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def loss_and_gradients(loss: Callable[..., Tensor], x: Tensor, *others: Any, both: bool = False, **options: Any) -> Any:
    """The loss and its gradient, and with `both` the second argument's too."""
    leaves = [x.detach().requires_grad_()]
    if both:
        leaves.append(others[0].detach().requires_grad_())
        others = others[1:]
    value = loss(*leaves, *others, **options)
    weights = (torch.arange(1.0, value.numel() + 1, dtype=torch.float64).view(value.shape) / 8).to(value.dtype)
    return value.detach(), *torch.autograd.grad(value, leaves, weights)


CLASSES = 5


def classes(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(CLASSES, shape, generator=torch.Generator().manual_seed(seed))


def test_a_program_of_an_undecomposed_loss_raises_the_index_error_too() -> None:
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()), torch.inference_mode():
        for _ in range(3):  # recorded, compiled, hit
            F.cross_entropy(X, T)
        with pytest.raises(IndexError, match=r"^Target 99 is out of bounds.$"):
            F.cross_entropy(X, torch.full_like(T, 99))


@pytest.mark.parametrize("native", ["nll_loss_forward", "nll_loss_backward"])
def test_a_backend_with_one_of_the_two_trains_right(native: str) -> None:
    for reduction in REDUCTIONS:
        options: dict[str, Any] = {"weight": random(CLASSES, seed=2).exp(), "reduction": reduction, "ignore_index": 1}
        half = CORE | {f"aten.{native}"}
        check(loss_and_gradients, F.cross_entropy, random(4, CLASSES), classes(4), ops=half, **options)


# -- margins ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin_in_blocks_of_labels(reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classification_losses, "_PAIRS_AT_ONCE", 1)
    monkeypatch.setattr(classification_losses, "_LABELS_AT_ONCE", 3)
    torch.manual_seed(0)
    target = torch.stack([torch.randperm(7) for _ in range(3)])
    target[1, 4:], target[2, 0] = -1, -1
    check(loss_and_gradients, F.multilabel_margin_loss, random(3, 7), target, reduction=reduction)
    with SizeRecorder() as sizes:
        on_core(lambda: loss_and_gradients(F.multilabel_margin_loss, random(3, 7), target, reduction=reduction))
    assert max(sizes.sizes) == 3 * 3 * 7


@pytest.mark.parametrize("native", ["multilabel_margin_loss_forward", "multilabel_margin_loss_backward"])
def test_multilabel_margin_with_one_of_the_two_native(native: str) -> None:
    target = torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2]])
    check(loss_and_gradients, F.multilabel_margin_loss, random(2, 4), target, ops=CORE | {f"aten.{native}"})


# -- whole in inference mode --------------------------------------------------------------------------------------------------

X, T, ONE = random(4, CLASSES), classes(4), torch.tensor(1.0, dtype=torch.float64)

WHOLE: dict[str, Callable[[Tensor, Tensor, str], Tensor]] = {
    "nll": lambda x, y, how: F.nll_loss(x, T, reduction=how),
    "cross entropy": lambda x, y, how: F.cross_entropy(x, T, reduction=how, label_smoothing=0.1),
    "cross entropy of probabilities": lambda x, y, how: F.cross_entropy(x, y.softmax(1), reduction=how),
    "margin ranking": lambda x, y, how: F.margin_ranking_loss(x, y, y.sign(), margin=0.1, reduction=how),
    "hinge embedding": lambda x, y, how: F.hinge_embedding_loss(x, y.sign(), reduction=how),
    "cosine embedding": lambda x, y, how: F.cosine_embedding_loss(x, y, y[:, 0].sign(), reduction=how),
    "triplet margin": lambda x, y, how: F.triplet_margin_loss(x, y, x + 1, swap=True, reduction=how),
    "poisson": lambda x, y, how: F.poisson_nll_loss(x, y.abs() * 3, full=True, reduction=how),
    "gaussian": lambda x, y, how: F.gaussian_nll_loss(x, y, y.abs(), full=True, reduction=how),
    "kl divergence": lambda x, y, how: F.kl_div(x, y.softmax(1), reduction=how),
    "multilabel soft margin": lambda x, y, how: F.multilabel_soft_margin_loss(x, y.sigmoid(), reduction=how),
    "multilabel margin": lambda x, y, how: F.multilabel_margin_loss(x, torch.tensor([[3, 0, -1, 1, 2]] * 4), reduction=how),
}


@pytest.mark.parametrize("name", WHOLE)
def test_losses_that_are_not_decomposed_in_inference_mode(name: str) -> None:
    @torch.inference_mode()
    def whole(x: Tensor, y: Tensor) -> Tensor:
        return WHOLE[name](x, y, "mean")

    check(whole, random(4, CLASSES), random(4, CLASSES, seed=1))
