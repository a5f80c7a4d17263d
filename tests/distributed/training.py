"""Shared code of scenarios: their table, a small model, batches that differ by rank, and training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

Numbers = dict[str, Any]

SCENARIOS: dict[str, Callable[[], Numbers]] = {}
#: Those that need four processes.
FOUR: set[str] = set()

STEPS = 3


def scenario(run: Callable[[], Numbers]) -> Callable[[], Numbers]:
    SCENARIOS[run.__name__] = run
    return run


def of_four(run: Callable[[], Numbers]) -> Callable[[], Numbers]:
    FOUR.add(run.__name__)
    return scenario(run)


def rank() -> int:
    return dist.get_rank()


def world() -> int:
    return dist.get_world_size()


# -- models and data -------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A feed-forward block of a transformer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, blocks: int = 2, width: int = 8) -> None:
        super().__init__()
        # On Core ATen uniform numbers are drawn as eager draws them, which all of `normal_` and `randint` are not.
        self.embedding = nn.Embedding(16, width, _weight=torch.rand(16, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return F.gelu(self.head(x), approximate="tanh")


def net(blocks: int = 2) -> Net:
    torch.manual_seed(0)
    return Net(blocks)


def batches(seed: int | None = None, steps: int = STEPS) -> Iterator[tuple[Tensor, Tensor]]:
    """This rank's batches; the same ones in every rank where a seed is given."""
    generator = torch.Generator().manual_seed(100 + rank() if seed is None else seed)
    for _ in range(steps):
        tokens, targets = torch.rand(2, 4, 8, generator=generator).mul(16).long()
        yield tokens, targets


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def parameters(model: nn.Module) -> Numbers:
    return {f"parameter {name}": whole(one.detach()).clone() for name, one in model.named_parameters()}


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    seed: int | None = None,
    clip: float | None = None,
    data: Iterable[tuple[Tensor, Tensor]] | None = None,
) -> Numbers:
    optimizer = optimizer or adamw(model)
    losses, norms = [], []
    for tokens, targets in data if data is not None else batches(seed):
        optimizer.zero_grad()
        loss = loss_of(model(tokens), targets)
        loss.backward()
        if clip is not None:
            norms.append(whole(nn.utils.clip_grad_norm_(model.parameters(), clip)).item())
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "norms": norms, **parameters(model)}
