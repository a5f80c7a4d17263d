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
    "diag_embed": lambda x: x.diag_embed(),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0, 2]), 3.0),
    "renorm": lambda x: x.detach().renorm(2, 0, 1.0),
    "block_diag": lambda x: torch.block_diag(x, x),
    "upsample_nearest2d": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "reflection_pad1d": lambda x: F.pad(x, (1, 2), mode="reflect"),
    "reflection_pad2d": lambda x: F.pad(torch.stack([x, x])[None], (1, 2, 1, 1), mode="reflect"),
    "replication_pad2d": lambda x: F.pad(torch.stack([x, x])[None], (1, 2, 1, 1), mode="replicate"),
    "new_empty_strided": lambda x: x.new_empty_strided(x.shape, x.stride()).fill_(0) + x,
}


@pytest.mark.parametrize("name", OF_EVERY_LENGTH)
def test_lengths_leave_no_programs(name: str) -> None:
    cache = ed.ProgramCache()
    with ed.EagerDecompMode(CORE, cache=cache):
        for length in range(4, 12):
            x = torch.randn(4, length, requires_grad=True)
            result = OF_EVERY_LENGTH[name](x)
            if result.requires_grad:
                result.sum().backward()
    assert cache.info().programs <= 2
