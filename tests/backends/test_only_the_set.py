"""Training, inference and functional transforms reach a backend by ops of the set alone, with eager's values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, on
from torch import nn
from torch.utils.checkpoint import checkpoint

aten = torch.ops.aten


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.attend = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)  # a key bias has no gradient but noise
        self.convolve = nn.Conv1d(8, 8, 3, padding=1, bias=False)  # nor a bias before a batch norm
        self.batch_norm = nn.BatchNorm1d(8)
        self.feed = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.SiLU(), nn.Linear(16, 11))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embed(tokens))
        x = x + self.attend(x, x, x, need_weights=False)[0]
        x = x + self.batch_norm(self.convolve(x.transpose(1, 2))).transpose(1, 2)
        return self.feed(x)


torch.manual_seed(0)
BLOCK = Block()


def model() -> Block:
    return copy.deepcopy(BLOCK)


TOKENS = torch.arange(20).reshape(4, 5) % 11

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "Adam amsgrad foreach": lambda p: torch.optim.Adam(p, 0.01, foreach=True, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01, centered=True),
    "Adagrad foreach": lambda p: torch.optim.Adagrad(p, 0.01, foreach=True),
}


def train(optimizer: str, clip: float = 1.0) -> list[torch.Tensor]:
    net = model()
    steps = OPTIMIZERS[optimizer](net.parameters())
    for _ in range(3):
        steps.zero_grad()
        loss = F.cross_entropy(net(TOKENS).flatten(0, 1), TOKENS.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), clip)
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        steps.step()
    return [loss.detach(), *(p.detach() for p in net.parameters())]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_with_only_core_aten_equals_eager(optimizer: str) -> None:
    want = train(optimizer)
    with on(CORE):
        got = train(optimizer)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def _forward_backward(context: Any = None, wrap: Callable[..., Any] = lambda f, x: f(x)) -> list[torch.Tensor]:
    net = model()
    with context or nullcontext():
        loss = F.cross_entropy(wrap(net, TOKENS).flatten(0, 1).float(), TOKENS.flatten())
    loss.backward()
    return [loss.detach(), *(p.grad for p in net.parameters() if p.grad is not None)]


WRAPPED: dict[str, Callable[[], list[torch.Tensor]]] = {
    "autocast": lambda: _forward_backward(torch.autocast("cpu", torch.bfloat16)),
    "checkpoint": lambda: _forward_backward(wrap=lambda f, x: checkpoint(f, x, use_reentrant=False)),
    "reentrant checkpoint": lambda: _forward_backward(
        wrap=lambda f, x: checkpoint(
            f.feed,
            checkpoint(lambda e: f.norm(f.embed(x)) + e, torch.ones(8, requires_grad=True), use_reentrant=True),
            use_reentrant=True,
        )
    ),
    "deterministic algorithms": lambda: _deterministic(_forward_backward),
}


def _deterministic(run: Callable[[], Any]) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return run()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", WRAPPED)
def test_forward_and_backward_under_torchs_own_wrappers(name: str) -> None:
    want = WRAPPED[name]()
    with on(CORE):
        got = WRAPPED[name]()
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if name == "autocast" else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(got, want, **tolerance)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_inference(context: Callable[[], Any]) -> None:
    net = model().eval()
    with context():
        want = net(TOKENS)
        with on(CORE):
            for _ in range(3):
                torch.testing.assert_close(net(TOKENS), want)


def test_hooks_run_on_the_set() -> None:
    def run() -> list[torch.Tensor]:
        net, seen = model(), []
        net.feed.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum()))
        net.norm.register_forward_hook(lambda m, i, o: F.silu(o))
        net.embed.weight.register_hook(lambda g: F.softplus(g))
        net(TOKENS).sum().backward()
        return [*seen, net.embed.weight.grad]

    want = run()
    with on(CORE):
        got = run()
    torch.testing.assert_close(got, want)


FUNC: dict[str, Callable[[], Any]] = {
    "grad": lambda: torch.func.grad(lambda x: F.gelu(x).sum())(torch.arange(4.0)),
    "vmap": lambda: torch.func.vmap(lambda x: F.layer_norm(F.silu(x), (4,)))(torch.arange(12.0).view(3, 4)),
    "jvp": lambda: torch.func.jvp(lambda x: F.softmax(F.gelu(x), -1), (torch.arange(4.0),), (torch.ones(4),)),
    "vmap of grad": lambda: torch.func.vmap(torch.func.grad(lambda x: F.huber_loss(x, x * 2)))(torch.arange(12.0).view(3, 4)),
    "hessian": lambda: torch.func.hessian(lambda x: F.silu(x).sum())(torch.arange(3.0)),
    "jacrev": lambda: torch.func.jacrev(lambda x: F.log_softmax(x, 0))(torch.arange(3.0)),
    "functional_call": lambda: torch.func.functional_call(model(), dict(model().named_parameters()), (TOKENS,)),
    "forward mode": lambda: _dual(lambda x: F.elu(x) * F.silu(x)),
}


def _dual(f: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    with torch.autograd.forward_ad.dual_level():
        made = torch.autograd.forward_ad.make_dual(torch.arange(-2.0, 2), torch.ones(4))
        return tuple(torch.autograd.forward_ad.unpack_dual(f(made)))


@pytest.mark.parametrize("name", FUNC)
def test_torch_func(name: str) -> None:
    want = FUNC[name]()
    with on(CORE):
        for _ in range(3):
            got = FUNC[name]()
    torch.testing.assert_close(got, want)
