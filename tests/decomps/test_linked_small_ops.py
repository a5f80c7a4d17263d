"""Small ops of every length, by no program for each length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE

import eagerdecomp as ed

OF_EVERY_LENGTH: dict[str, Callable[[torch.Tensor], Any]] = {
    "logsumexp": lambda x: x.logsumexp(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "mv": lambda x: x.mv(x[0]),
    "trace": lambda x: x.trace(),
    "tril": lambda x: x.t().tril(),
    "glu": lambda x: F.glu(torch.cat([x, x], 1)),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0, 2]), 3.0),
    "renorm": lambda x: x.detach().renorm(2, 0, 1.0),
    "block_diag": lambda x: torch.block_diag(x, x),
    "upsample_nearest2d": lambda x: F.interpolate(x.detach()[None, None], scale_factor=2),
    "reflection_pad1d": lambda x: F.pad(x, (1, 2), mode="reflect"),
    "reflection_pad2d": lambda x: F.pad(torch.stack([x, x])[None], (1, 2, 1, 1), mode="reflect"),
    "replication_pad2d": lambda x: F.pad(torch.stack([x, x])[None], (1, 2, 1, 1), mode="replicate"),
    "new_empty_strided": lambda x: x.new_empty_strided(x.shape, x.stride()).fill_(0) + x,
}


#: Those that leave no program at all.
BY_NONE: dict[str, Callable[[torch.Tensor], Any]] = {
    "unbind, split, unfold": lambda x: (x.unbind(), x.split(2), x.unfold(-1, 2, 1)),
    "norms of bfloat16": lambda x: [torch.linalg.vector_norm(x.bfloat16(), ord) for ord in (1, 2, float("inf"))],
    "stack": lambda x: (torch.stack([x, x + x, x]), torch.stack([x.t()] * 3)),
    "roll, triu": lambda x: (x.roll(1, 0), x.roll(x.size(1)), x.triu()),
    "select_backward": lambda x: torch.ops.aten.select_backward(x[0], [len(x), x.size(1)], 0, 1),
    "slice_backward": lambda x: torch.ops.aten.slice_backward(x, [len(x) + 2, x.size(1)], 0, 1, len(x) + 1, 1),
    "arange": lambda x: (torch.arange(x.size(1)), torch.arange(1, x.size(1))),
    "like another": lambda x: (torch.zeros_like(x), torch.ones_like(x), torch.empty_like(x.t()), x.new_zeros(x.size(1))),
    "zeros, ones": lambda x: (torch.zeros(x.size(1)), torch.ones(x.size(1), 2)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x[..., None], 2),
    "gradients of activations": lambda x: [
        *(run(x, x) for run in (torch.ops.aten.silu_backward, torch.ops.aten.tanh_backward, torch.ops.aten.hardswish_backward)),
        torch.ops.aten._softmax_backward_data(x, x, 1, x.dtype),
        torch.ops.aten.elu_backward(x, 1.0 + len(x[0]), 1.0, 1.0, False, x),
    ],
    "safe softmax": lambda x: torch.ops.aten._safe_softmax(x, 1),
}


@pytest.mark.parametrize("name", [*OF_EVERY_LENGTH, *BY_NONE])
def test_lengths_leave_no_programs(name: str) -> None:
    cache = ed.ProgramCache()
    with ed.EagerDecompMode(CORE, cache=cache):
        for length in range(4, 12):
            x = torch.randn(4, length, requires_grad=name in OF_EVERY_LENGTH)
            result = (OF_EVERY_LENGTH | BY_NONE)[name](x)
            if isinstance(result, torch.Tensor) and result.requires_grad:
                result.sum().backward()
    assert cache.info().programs <= (2 if name in OF_EVERY_LENGTH else 0)


def test_windows_that_are_chosen_at_random_leave_no_index_to_read() -> None:
    with ed.EagerDecompMode(CORE) as mode:
        for _ in range(3):
            torch.ops.aten.fractional_max_pool2d(torch.rand(2, 3, 5, 7), [2, 2], [2, 2], torch.rand(2, 3, 2))
    assert mode.stats().total.bypassed == 0
