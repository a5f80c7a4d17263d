"""A backend that holds a forward op without its backward op, or the other way round, trains as eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check
from torch import Tensor

aten = torch.ops.aten


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


#: Few distinct values, so that windows tie.
VOLUMES = (random(2, 3, 3, 5, 4) * 4).round().float()
SPECIAL = torch.tensor([0.0, -0.0, 0.3, -0.3, 1.0, -1.0, 2.5, -6.5, 21.0, -40.0, 40.0, 1e-5])
SEGMENTS = torch.tensor([1.0, 5, 5, torch.nan, 2, 0, 3, 0, 0, -2, 4, torch.nan, 0, torch.inf, torch.nan, torch.nan, 3, 2, 0, 4])
CLASSES, LABELS = torch.tensor([1, 0, 4, 3]), torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2]])
BAGS = torch.tensor([1, 2, 4, 5, 4, 4, 1]), torch.tensor([0, 2, 2, 4])
TARGETS, STEPS, LENGTHS = torch.tensor([[1, 1, 3], [2, 2, 2], [3, 1, 1]]), [7, 5, 6], [3, 0, 2]

#: The op, of which the backward op's name follows, -> a function and its arguments.
PAIRS: dict[str, list[tuple[Callable[..., Any], tuple[Tensor, ...]]]] = {
    "_ctc_loss": [
        (lambda x, z=z: F.ctc_loss(x.log_softmax(-1), TARGETS, STEPS, LENGTHS, zero_infinity=z), (random(7, 3, 4),))
        for z in (False, True)
    ],
    "_embedding_bag": [
        (lambda w, mode=mode: F.embedding_bag(BAGS[0], w, BAGS[1], mode=mode), (random(6, 3),)) for mode in ("sum", "mean", "max")
    ],
    "_fake_quantize_learnable_per_tensor_affine": [
        (
            lambda *given: torch._fake_quantize_learnable_per_tensor_affine(*given, -8, 7, 0.5),
            (random(4, 3).float(), torch.tensor([0.3]), torch.tensor([2.0])),
        )
    ],
    "adaptive_max_pool2d": [(lambda x: aten.adaptive_max_pool2d(x, [2, 3]), (VOLUMES[:, 0],))],
    "adaptive_max_pool3d": [(lambda x: aten.adaptive_max_pool3d(x, [2, 3, 3]), (VOLUMES,))],
    "log_sigmoid_forward": [
        (F.logsigmoid, (SPECIAL.to(dtype),)) for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    ],
    "max_pool2d_with_indices": [(lambda x: aten.max_pool2d_with_indices(x, [3, 3], [1, 1], [1, 1]), (VOLUMES[:, 0],))],
    "max_pool3d_with_indices": [(lambda x: aten.max_pool3d_with_indices(x, [3] * 3, [1] * 3, [1] * 3), (VOLUMES,))],
    "multilabel_margin_loss_forward": [(lambda x: F.multilabel_margin_loss(x, LABELS), (random(2, 4),))],
    "nll_loss_forward": [
        (lambda x, how=how: F.cross_entropy(x, CLASSES, random(5).exp(), reduction=how, ignore_index=1), (random(4, 5),))
        for how in ("none", "mean", "sum")
    ],
    "segment_reduce": [
        (lambda x, how=how: torch.segment_reduce(x, how, lengths=torch.tensor([3, 0, 2, 2, 2, 1, 2, 2, 3, 3])), (SEGMENTS,))
        for how in ("sum", "mean", "max", "min", "prod")
    ],
    "upsample_bicubic2d": [(lambda x: F.interpolate(x, size=(7, 5), mode="bicubic"), (random(2, 3, 4, 5),))],
}


def trained(run: Callable[..., Any], *given: Tensor) -> list[Tensor]:
    leaves = [one.detach().requires_grad_() for one in given]
    out = run(*leaves)
    out = out[0] if isinstance(out, tuple) else out
    weights = torch.linspace(-1, 2, out.numel()).view(out.shape).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, weights)]


@pytest.mark.parametrize("held", ["forward", "backward"])
@pytest.mark.parametrize("name", PAIRS)
def test_it_trains_as_eager_does(name: str, held: str) -> None:
    backward = f"_{name}_backward" if name == "segment_reduce" else f"{name.removesuffix('_forward')}_backward"
    forward = getattr(aten, name).default
    ops = CORE - [forward, getattr(aten, backward).default] | [forward if held == "forward" else getattr(aten, backward).default]
    if name == "_embedding_bag":
        ops -= ["aten.embedding", "aten.embedding_dense_backward"]
    for run, given in PAIRS[name]:
        check(lambda *leaves: trained(run, *leaves), *given, ops=ops)  # noqa: B023 - called at once
