"""Losses on a backend with one of two kernels, in blocks and in inference mode, gradients of integers, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatch_recorders import SizeRecorder
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.decomps.training import classification_losses

aten = torch.ops.aten

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


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", WHOLE)
def test_losses_that_are_not_decomposed_in_inference_mode(name: str, reduction: str) -> None:
    @torch.inference_mode()
    def whole(x: Tensor, y: Tensor) -> Tensor:
        return WHOLE[name](x, y, reduction)

    check(whole, random(4, CLASSES), random(4, CLASSES, seed=1))
    check(loss_and_gradients, WHOLE[name], random(4, CLASSES), random(4, CLASSES, seed=1), reduction)


# -- cost ---------------------------------------------------------------------------------------------------------------------

LABELS = torch.tensor([[3, 0, -1, 1, 2]] * 4)
COSTS: dict[str, tuple[Callable[[], Any], int]] = {
    "mse": (lambda: aten.mse_loss(X, X), 3),
    "mse backward": (lambda: aten.mse_loss_backward(ONE, X, X, 1), 3),
    "huber": (lambda: aten.huber_loss(X, X), 5),
    "huber backward": (lambda: aten.huber_loss_backward(ONE, X, X, 1, 1.0), 4),
    "smooth l1": (lambda: aten.smooth_l1_loss(X, X), 5),
    "smooth l1 backward": (lambda: aten.smooth_l1_loss_backward(ONE, X, X, 1, 1.0), 4),
    "soft margin": (lambda: aten.soft_margin_loss(X, X), 5),
    "soft margin backward": (lambda: aten.soft_margin_loss_backward(ONE, X, X, 1), 8),
    "binary cross entropy": (lambda: aten.binary_cross_entropy(X, X), 10),
    "logits": (lambda: aten.binary_cross_entropy_with_logits(X, X), 10),
    "binary cross entropy backward": (lambda: aten.binary_cross_entropy_backward(ONE, X, X), 7),
    "multi margin": (lambda: aten.multi_margin_loss(X, T), 9),
    "multi margin backward": (lambda: aten.multi_margin_loss_backward(ONE, X, T, 1, 1), 14),
    "multilabel margin": (lambda: aten.multilabel_margin_loss_forward(X, LABELS, 1), 27),
    "multilabel margin backward": (lambda: aten.multilabel_margin_loss_backward(ONE, X, LABELS, 1, X.abs()), 27),
    "nll": (lambda: aten.nll_loss_forward(X, T, None, 1, -100), 9),
    "weighted nll": (lambda: aten.nll_loss_forward(X, T, X[0], 1, -100), 13),
    "nll backward": (lambda: aten.nll_loss_backward(ONE, X, T, None, 1, -100, ONE), 8),
}


@pytest.mark.parametrize("name", COSTS)
def test_kernel_calls(name: str) -> None:
    run, calls = COSTS[name]
    assert kernel_calls(run) == calls


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_gradients_of_integers_are_those_of_eagers_kernels(dtype: torch.dtype, reduction: int) -> None:
    """Whose differences do not wrap, and whose quotients are rounded towards zero."""
    draws = torch.Generator().manual_seed(reduction)
    for size in (1, 3, 6):
        grad, given, target = (torch.randint(0, 20, (size,), generator=draws).to(dtype) for _ in range(3))
        for bend in (0.0, 1.0, 2.0, 3.5):
            want = aten.smooth_l1_loss_backward.default(grad, given, target, reduction, bend)
            args = (grad, given, target, reduction, bend)
            found = on_core(lambda: aten.smooth_l1_loss_backward.default(*args))  # noqa: B023 - called at once
            assert found.dtype is dtype
            assert torch.equal(found, want)
        want = aten.mse_loss_backward.default(grad, given, target, reduction)
        found = on_core(lambda: aten.mse_loss_backward.default(grad, given, target, reduction))  # noqa: B023
        assert found.dtype is dtype
        assert torch.equal(found, want)
