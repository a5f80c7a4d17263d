"""Compiled programs: decompositions by the hook, whole graphs by `dynamo_backend`, to the CPU's numbers and in one call."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import xla
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    with ed.install(xla.backend):
        yield
    torch._dynamo.reset()


def test_a_decomposition_that_runs_often_becomes_one_function() -> None:
    x = torch.randn(4, 5)
    moved = x.to("jax")
    for _ in range(20):
        found = F.softplus(moved)
    xla.reset_counts()
    found = F.softplus(moved)
    (program,) = xla.counts()
    assert program.startswith("a program of")
    torch.testing.assert_close(found.cpu(), F.softplus(x))


def test_a_program_that_writes_its_argument() -> None:
    here, moved = torch.randn(4, 5), torch.zeros(4, 5, device="jax")
    moved.copy_(here)
    for _ in range(20):
        F.elu_(here, 0.5)
        F.elu_(moved, 0.5)
    torch.testing.assert_close(moved.cpu(), here)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm(self.first(x)))
        return self.last(F.gelu(x, approximate="tanh")).softmax(-1)


def step(model: nn.Module, forward: nn.Module, x: Tensor) -> list[Tensor]:
    out = forward(x)
    out.square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()  # not Adam: the gradient of the bias before the norm is rounding alone
    return [out.detach().cpu(), *(one.detach().cpu() for one in model.state_dict().values())]


@pytest.mark.filterwarnings("ignore")
def test_forward_and_backward_are_one_call_each() -> None:
    torch.manual_seed(0)
    model = Net()
    there, x = copy.deepcopy(model).to("jax"), torch.randn(5, 8)
    compiled = torch.compile(there, backend=ed.dynamo_backend(xla.backend, whole_graphs=True), fullgraph=True)
    xla.reset_counts()
    got, want = step(there, compiled, x.to("jax")), step(model, model, x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert sum(calls for name, calls in xla.counts().items() if name.startswith("a program of")) == 2
    assert not any(name.startswith(("aten.addmm", "aten.mm")) for name in xla.counts())


@pytest.mark.filterwarnings("ignore")
def test_dropout_in_a_whole_graph_draws_again_and_repeats_under_a_seed() -> None:
    compiled = torch.compile(
        lambda x: F.dropout(x, 0.5) * 2, backend=ed.dynamo_backend(xla.backend, whole_graphs=True), fullgraph=True
    )
    x = torch.ones(200, device="jax")
    torch.manual_seed(1)
    first, second = compiled(x).cpu(), compiled(x).cpu()
    torch.manual_seed(1)
    assert torch.equal(compiled(x).cpu(), first)
    assert not torch.equal(first, second)
    assert 50 < (first == 0).sum() < 150
