"""torch.compile on the device with `dynamo_backend`: results equal the CPU's, and only the device's kernels run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import npu
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed

FORMS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "mode": lambda: ed.EagerDecompMode(npu.backend),
    "installed": lambda: ed.install(npu.backend, "npu"),
}


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)
        self.breaks = breaks

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.first(x))
        if self.breaks:
            torch._dynamo.graph_break()
        return self.last(F.gelu(self.norm(x), approximate="tanh")).softmax(-1)


def step(model: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    out = forward(x)
    out.square().sum().backward()
    torch.optim.AdamW(model.parameters()).step()
    return [out.detach().cpu(), *(one.detach().cpu() for one in model.parameters())]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("breaks", [False, True], ids=["one graph", "a break"])
@pytest.mark.parametrize("form", FORMS)
def test_a_compiled_model_trains_on_the_device_to_the_cpus_numbers(form: str, breaks: bool) -> None:
    torch.manual_seed(0)
    model = Net(breaks)
    there, x = copy.deepcopy(model).npu(), torch.randn(5, 8)
    want = step(model, model, x)
    made = ed.dynamo_backend(npu.backend)
    compiled = torch.compile(there, backend=made, fullgraph=not breaks)
    npu.reset_counts()
    with FORMS[form]():
        got = step(there, compiled, x.npu())
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert len(made.graphs()) == (4 if breaks else 2)
    for graph in made.graphs():
        assert {node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)} <= set(npu.backend.ops)
    assert npu.counts()["aten.sigmoid.default"] >= 2  # of silu and of its gradient
