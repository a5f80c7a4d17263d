"""Training steps of small models of four kinds, for runs that are recorded and compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eagerdecomp.recording.recorder import ValueRecorder

__all__ = ["TRAININGS", "record"]


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.stem(x)))
        return self.head(self.pool(F.relu(x + self.norm2(self.conv(x)))).mean((2, 3)))


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(20, 12), nn.LSTM(12, 12, 2, batch_first=True), nn.Linear(12, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(tokens))[0])


def _classifier(make: Callable[[], nn.Module], batch: Callable[[], Tensor], **format: Any) -> Callable[[], None]:
    torch.manual_seed(0)
    model = make().to(**format)
    x = batch()
    y = x if x.dtype is torch.int64 else torch.randint(0, 5, x.shape[:1])
    x = x.to(**format)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
        optimizer.step()

    return step


def _transformer(**format: Any) -> Callable[[], None]:
    def block() -> nn.Module:
        return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation=nn.GELU(), batch_first=True, norm_first=True)

    return _classifier(
        lambda: nn.Sequential(nn.Embedding(20, 16), block(), block(), nn.Linear(16, 20)), lambda: torch.randint(0, 20, (4, 7))
    )


def _resnet(**format: Any) -> Callable[[], None]:
    return _classifier(_Residual, lambda: torch.randn(4, 3, 8, 8), **format)


def _lstm(**format: Any) -> Callable[[], None]:
    return _classifier(_Lstm, lambda: torch.randint(0, 20, (4, 7)))


def _gan(**format: Any) -> Callable[[], None]:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 12), nn.Tanh())
    critic = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    optimizers = [torch.optim.Adam(one.parameters(), 1e-2) for one in (critic, generator)]
    noise, real, one, zero = torch.randn(8, 6), torch.randn(8, 12), torch.ones(8, 1), torch.zeros(8, 1)
    loss = F.binary_cross_entropy_with_logits

    def step() -> None:
        fake = generator(noise)
        losses = [lambda: loss(critic(real), one) + loss(critic(fake.detach()), zero), lambda: loss(critic(fake), one)]
        for optimizer, of in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            of().backward()
            optimizer.step()

    return step


#: Name -> a function that builds a model from a seed and returns its training step. Keywords are those of `Module.to`.
TRAININGS: dict[str, Callable[..., Callable[[], None]]] = {
    "transformer": _transformer,
    "resnet": _resnet,
    "lstm": _lstm,
    "gan": _gan,
}


def record(folder: Path, step: Callable[[], None], mode: AbstractContextManager[Any], steps: int = 2) -> ValueRecorder:
    """Record steps of a training under a mode."""
    recorder = ValueRecorder(folder)
    with recorder, mode:
        for _ in range(steps):
            step()
    recorder.close()
    return recorder
