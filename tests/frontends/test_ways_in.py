"""A smoke test of each mode: losses and weights of two training steps of a small model equal eager's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from compare import assert_same
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.profile import RecordingMode

CORE = ed.core_aten()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.norm = nn.LayerNorm(6)
        self.hidden = nn.Linear(6, 8)
        self.out = nn.Linear(8, 4)

    def forward(self, words: Tensor) -> Tensor:
        x = F.gelu(self.hidden(self.norm(self.embedding(words))), approximate="tanh")
        return self.out(F.silu(x).mean(1))


def trained(way_in: Callable[[], AbstractContextManager[Any]]) -> tuple[list[Any], ed.BackendRecorder]:
    """Losses of two steps and the weights after them, from fixed data; and what reached the backend."""
    torch.manual_seed(0)
    model, words, classes = Model(), torch.randint(7, (5, 3)), torch.randint(4, (5,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    with ed.BackendRecorder() as seen, way_in():
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(words), classes)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return [losses, [parameter.detach() for parameter in model.parameters()]], seen


@contextmanager
def installed() -> Iterator[None]:
    with ed.install(CORE, "cpu"):
        yield


WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "mode": lambda: ed.EagerDecompMode(CORE),
    "small set": lambda: ed.EagerDecompMode(ed.tiny() | ed.infra()),
    "verified": lambda: ed.EagerDecompMode(CORE, verify=ed.Verify(every=3)),
    "recorded": lambda: RecordingMode(CORE),
    "installed": installed,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_trains_as_in_eager(way: str) -> None:
    want, _ = trained(contextlib.nullcontext)
    have, seen = trained(WAYS[way])
    assert_same(have, want)
    if way not in ("verified", "installed"):  # what verifies calls eager too; what is installed lies below the recorder
        allowed = ed.tiny() | ed.infra() if way == "small set" else CORE
        assert not seen.outside(allowed)
        assert seen.ops.total() > 100
