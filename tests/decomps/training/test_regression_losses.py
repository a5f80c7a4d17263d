"""Losses and their gradients against eager: values, reductions, dtypes, layouts, errors, and what they cost."""

from __future__ import annotations

import itertools
import math
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
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


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


# -- distances --------------------------------------------------------------------------------------------------------------

DISTANCES: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "mse": (F.mse_loss, {}),
    "huber": (F.huber_loss, {}),
    "huber of 0.3": (F.huber_loss, {"delta": 0.3}),
    "smooth l1": (F.smooth_l1_loss, {}),
    "smooth l1 of 0.3": (F.smooth_l1_loss, {"beta": 0.3}),
    "smooth l1 of 0": (aten.smooth_l1_loss, {"beta": 0.0}),
    "l1": (F.l1_loss, {}),
    "soft margin": (F.soft_margin_loss, {}),
}


def distance(name: str, reduction: str) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    loss, options = DISTANCES[name]
    return loss, options | {"reduction": REDUCTIONS.index(reduction) if loss is aten.smooth_l1_loss else reduction}


@pytest.mark.full
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", DISTANCES)
def test_distances(name: str, reduction: str, dtype: torch.dtype) -> None:
    loss, options = distance(name, reduction)
    x, y = random(4, 5, dtype=dtype), random(4, 5, seed=1, dtype=dtype)
    y[0, 0] = x[0, 0]
    y[1, 1] = x[1, 1] + 1
    y[2, 2] = x[2, 2] - 1
    check(loss_and_gradients, loss, x, y, both=name != "soft margin", **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", DISTANCES)
def test_distances_of_nothing_and_of_no_numbers(name: str, reduction: str) -> None:
    loss, options = distance(name, reduction)
    check(loss_and_gradients, loss, random(0, 3), random(0, 3), **options)
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), 1.0, 2.0])
    if name != "smooth l1 of 0":  # eager's kernel divides by beta there
        check(loss_and_gradients, loss, x, torch.tensor([1.0, 1.0, 1.0, float("nan"), float("inf")]), **options)


@pytest.mark.full
@pytest.mark.parametrize("name", DISTANCES)
def test_layouts_of_distances(name: str) -> None:
    loss, options = distance(name, "none")
    image, other = random(2, 3, 4, 5), random(2, 3, 4, 5, seed=1)
    last = torch.channels_last
    check(loss_and_gradients, loss, image.contiguous(memory_format=last), other.contiguous(memory_format=last), **options)
    check(loss_and_gradients, loss, image.contiguous(memory_format=last), other, **options)
    check(loss_and_gradients, loss, image.transpose(0, 1), other.transpose(0, 1), **options)
    check(loss_and_gradients, loss, image[..., ::2], other[..., ::2], **options)


@pytest.mark.parametrize("dtype", FLOATS)
def test_soft_margins_overflow_where_eager_does(dtype: torch.dtype) -> None:
    x = torch.tensor([12.0, -12.0, 100.0, -100.0, 1000.0], dtype=dtype)
    check(loss_and_gradients, F.soft_margin_loss, x, torch.ones_like(x), reduction="none")


@pytest.mark.parametrize("name", ["mse", "huber", "smooth l1", "l1"])
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.bfloat16, torch.float32), (torch.float32, torch.int64)])
def test_distances_between_types(name: str, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    loss, options = distance(name, "mean")
    check(loss, random(4, 5, dtype=dtypes[0]), (3 * random(5, seed=1)).to(dtypes[1]), **options)


@pytest.mark.parametrize("name", ["mse", "huber of 0.3", "smooth l1 of 0.3"])
def test_distances_have_two_derivatives(name: str) -> None:
    loss, options = distance(name, "mean")
    leaves = [random(3, 2).requires_grad_(), random(3, 2, seed=1).requires_grad_()]
    for test in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert on_core(lambda: test(lambda x, y: loss(x, y, **options), leaves))  # noqa: B023 - called at once


# -- cross entropies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropies(weighted: bool, reduction: str, dtype: torch.dtype) -> None:
    x, target = 3 * random(4, 5, dtype=dtype), random(4, 5, seed=1).sigmoid().to(dtype)
    options: dict[str, Any] = {"reduction": reduction, "weight": random(5, seed=2, dtype=dtype).exp() if weighted else None}
    probability = x.sigmoid()
    probability[0, :2] = torch.tensor([0.0, 1.0])
    target[0, :2] = torch.tensor([1.0, 1.0])
    check(loss_and_gradients, F.binary_cross_entropy, probability, target, **options)
    check(loss_and_gradients, F.binary_cross_entropy_with_logits, x, target, **options)
    pos_weight = random(5, seed=3, dtype=dtype).exp()
    check(loss_and_gradients, F.binary_cross_entropy_with_logits, x, target, pos_weight=pos_weight, **options)


def test_logits_without_bounds() -> None:
    x = torch.tensor([float("inf"), -float("inf"), float("inf"), -float("inf"), float("nan"), 1e4, -1e4, -0.0])
    y = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 0.25, 0.25, 1.0])
    check(loss_and_gradients, F.binary_cross_entropy_with_logits, x, y, reduction="none")
    check(F.binary_cross_entropy_with_logits, x, y, pos_weight=torch.tensor(2.0), reduction="none")


CLASSES = 5


def classes(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(CLASSES, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.full
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore_index", [-100, 2])
@pytest.mark.parametrize("shape", [(CLASSES,), (4, CLASSES), (0, CLASSES), (2, CLASSES, 3), (2, CLASSES, 3, 2)], ids=str)
def test_class_losses(shape: tuple[int, ...], ignore_index: int, weighted: bool, reduction: str) -> None:
    check_class_losses(shape, ignore_index, weighted, reduction, torch.float32)


def check_class_losses(shape: tuple[int, ...], ignore_index: int, weighted: bool, reduction: str, dtype: torch.dtype) -> None:
    x = random(*shape, dtype=dtype)
    target = classes(*(shape[:1] + shape[2:] if len(shape) > 1 else ()))
    weight = random(CLASSES, seed=2, dtype=dtype).exp() if weighted else None
    options: dict[str, Any] = {"weight": weight, "reduction": reduction, "ignore_index": ignore_index}
    check(loss_and_gradients, F.nll_loss, x.log_softmax(1 if len(shape) > 1 else 0), target, **options)
    check(loss_and_gradients, F.cross_entropy, x, target, label_smoothing=0.1, **options)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weighted", [False, True])
def test_class_losses_of_other_types(weighted: bool, dtype: torch.dtype) -> None:
    for reduction in REDUCTIONS:
        check_class_losses((4, CLASSES), -100, weighted, reduction, dtype)
    check_class_losses((2, CLASSES, 3, 2), 2, weighted, "none", dtype)  # of 16-bit floats eager sums planes in that dtype


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("op", [aten.nll_loss_forward.default, aten.nll_loss2d_forward.default], ids=str)
def test_the_two_results_of_class_losses(op: Any, weighted: bool) -> None:
    """Backward divides by the second, which is zero where nothing is averaged."""
    shape = (4, CLASSES) if "2d" not in str(op) else (2, CLASSES, 3, 2)
    x, target = random(*shape), classes(*shape[:1], *shape[2:])
    weight = random(CLASSES, seed=2).exp() if weighted else None
    for reduction, ignored in itertools.product(range(3), (-100, 1)):
        check(op, x, target, weight, reduction, ignored)
        check(op, x, torch.full_like(target, ignored), weight, reduction, ignored)
    if "2d" not in str(op):
        check(op, x, target.byte(), weight, 1, 3)
        check(op, x[0], target[0], weight, 1, 3)
        check(op, x[0], target[:1], weight, 1, 3)


def test_a_score_of_minus_infinity_that_is_ignored() -> None:
    x = random(4, CLASSES)
    x[:, 0] = -float("inf")
    check(loss_and_gradients, F.nll_loss, x, torch.tensor([1, -100, 2, -100]))


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


def test_layouts_of_class_losses() -> None:
    image = random(2, CLASSES, 3, 4)
    for x in (image.contiguous(memory_format=torch.channels_last), image.transpose(2, 3), image[..., ::2]):
        check(loss_and_gradients, F.cross_entropy, x, classes(2, *x.shape[2:]), reduction="none")
    rows = random(CLASSES, 4).t()
    check(loss_and_gradients, F.cross_entropy, rows, classes(8)[::2])


@pytest.mark.parametrize("weighted", [False, True])
def test_probabilities_as_targets(weighted: bool) -> None:
    weight = random(CLASSES, seed=2).exp() if weighted else None
    for reduction in REDUCTIONS:
        target = random(4, CLASSES, seed=1).softmax(1)
        options: dict[str, Any] = {"weight": weight, "reduction": reduction, "label_smoothing": 0.2}
        check(loss_and_gradients, F.cross_entropy, random(4, CLASSES), target, both=True, **options)


# -- margins ------------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("p", "margin"), [(1, 1.0), (2, 1.0), (1, 0.2), (2, 0.5), (1, -0.1)])
def test_multi_margin(p: int, margin: float, weighted: bool, reduction: str, dtype: torch.dtype) -> None:
    weight = random(CLASSES, seed=2, dtype=dtype).exp() if weighted else None
    options: dict[str, Any] = {"p": p, "margin": margin, "weight": weight, "reduction": reduction}
    x = random(4, CLASSES, dtype=dtype)
    check(loss_and_gradients, F.multi_margin_loss, x, classes(4), **options)
    check(loss_and_gradients, F.multi_margin_loss, x.t().contiguous().t(), classes(4), **options)
    check(loss_and_gradients, F.multi_margin_loss, x[0], classes(1)[0], **options)
    check(loss_and_gradients, F.multi_margin_loss, x[0], classes(1), **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(reduction: str, dtype: torch.dtype) -> None:
    target = torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2], [0, 1, 2, 3], [2, 2, -1, -1]])
    x = random(4, 4, dtype=dtype)
    for scores in (x, x.t(), torch.zeros_like(x)):
        check(loss_and_gradients, F.multilabel_margin_loss, scores, target, reduction=reduction)
        check(aten.multilabel_margin_loss_forward.default, scores, target, REDUCTIONS.index(reduction))
    check(loss_and_gradients, F.multilabel_margin_loss, x[0], target[0], reduction=reduction)
    check(loss_and_gradients, F.multilabel_margin_loss, x[0, 0], target[1, 1], reduction=reduction)


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


@pytest.mark.parametrize("loss", [F.multi_margin_loss, F.multilabel_margin_loss, F.nll_loss])
def test_gradients_against_differences(loss: Callable[..., Tensor]) -> None:
    target = torch.tensor([[3, 0, -1, 1], [1, 2, -1, 0]]) if loss is F.multilabel_margin_loss else torch.tensor([3, 0])
    leaf = random(2, 4).requires_grad_()
    assert on_core(lambda: torch.autograd.gradcheck(lambda x: loss(x, target), (leaf,)))


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


# -- errors -------------------------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_certain_and_wrong_probability_has_an_infinite_slope_of_eagers_sign(dtype: torch.dtype) -> None:
    def slope(p: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(F.binary_cross_entropy(p.requires_grad_(), target), p)[0]

    check(slope, torch.tensor([1.0, 0.0, 0.5]).to(dtype), torch.tensor([0.0, 1.0, 1.0]).to(dtype))


def test_what_is_ignored_leaves_a_positive_zero() -> None:
    scores, ignored = torch.randn(3, 4), torch.full((3,), -100)
    scores[:, 0] = -math.inf
    for reduction in (0, 1, 2):
        check(aten.nll_loss_forward.default, scores, ignored, None, reduction, -100, exact=True)
        check(aten.nll_loss_forward.default, scores, torch.tensor([1, 1, 2]), None, reduction, 1, exact=True)


@pytest.mark.parametrize("reduction", [3, -1])
@pytest.mark.parametrize("name", ["huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"])
def test_other_numbers_for_the_reduction(name: str, reduction: int) -> None:
    x, y = torch.rand(3), torch.rand(3)
    options = {"binary_cross_entropy": [None], "binary_cross_entropy_with_logits": [None, None]}.get(name, [])
    check(lambda: getattr(torch.ops.aten, name).default(x, y, *options, reduction))


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
