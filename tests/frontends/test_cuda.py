"""On a GPU: a training step under the mode and an installation, alone and captured as a CUDA graph. Skipped without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.backends.inductor import inductor_hook
from eagerdecomp.program.compile_hook import HITS_BEFORE_FUSING

pytestmark = [pytest.mark.full, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "mode": lambda: ed.EagerDecompMode(ed.core_aten()),
    "mode, fused": lambda: ed.EagerDecompMode(ed.Backend("fused", ed.core_aten(), compile=inductor_hook), cache=ed.ProgramCache()),
    "installed": lambda: ed.install(ed.core_aten(), "cuda"),
    "installed, the device's own ops": lambda: ed.install(ed.Backend.of_device("cuda"), "cuda"),
}


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def steps() -> Callable[[], Tensor]:
    """Return a function that trains a small network by one step and returns the loss."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.LayerNorm(8 * 36), nn.Linear(8 * 36, 5))
    model = nn.Sequential(*layers).cuda()
    x, classes = torch.randn(4, 3, 8, 8).cuda(), torch.tensor([0, 3, 1, 4]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=True, capturable=True)

    def step() -> Tensor:
        loss = F.cross_entropy(model(x), classes)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step


def losses(run: Callable[[], Tensor], count: int) -> list[float]:
    return [run().item() for _ in range(count)]


@pytest.mark.parametrize("way", WAYS)
def test_a_step_trains_as_in_eager(way: str) -> None:
    want = losses(steps(), 6)
    step = steps()
    with WAYS[way]():
        torch.testing.assert_close(losses(step, 6), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["eager", *WAYS])
def test_a_captured_step_trains_as_in_eager(way: str) -> None:
    before = HITS_BEFORE_FUSING + 2 if way == "mode, fused" else 2  # a program must be compiled before the capture
    want = losses(steps(), before + 6)
    step, result = steps(), torch.zeros((), device="cuda")
    with WAYS[way]() if way in WAYS else nullcontext():
        got = losses(step, before)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            got += losses(step, 1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result.copy_(step())
    for _ in range(5):
        graph.replay()
        got.append(result.item())
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
