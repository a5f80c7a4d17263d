"""Train a convolutional net and a transformer on "npu" and on the CPU, and compare the losses.

    python examples/npu/train.py --steps 8 --only transformer

Both use dropout, gradient clipping and activation checkpointing. Each trains in three forms: with eagerdecomp installed on the
device, in the mode, and installed with kernels also for `linear`, `layer_norm`, attention and `silu_backward`. The exit code is 1
if a loss differs from the CPU's, or an op outside the set reached the device.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import npu
import torch
from npu.kernels import COMPOSITES
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import eagerdecomp as ed

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
}


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2))
        self.second = nn.Sequential(nn.Conv2d(8, 16, 3, groups=2), nn.GroupNorm(4, 16), nn.Hardswish(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(checkpoint(self.second, self.first(images), use_reentrant=False))

    @staticmethod
    def batch() -> tuple[Tensor, Tensor]:
        return torch.randn(8, 3, 12, 12), torch.randint(10, (8,))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.dropout = heads, 0.1
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.RMSNorm(width)])
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.mix(self.norms[0](x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self, letters: int = 29, width: int = 32, length: int = 16) -> None:
        super().__init__()
        self.letters, self.positions = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 4), Block(width, 4)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        x = self.letters(text) + self.positions(torch.arange(text.size(1), device=text.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x)).flatten(0, 1)

    @staticmethod
    def batch() -> tuple[Tensor, Tensor]:
        return torch.randint(29, (4, 16)), torch.randint(29, (64,))


MODELS: dict[str, Any] = {"conv": ConvNet, "transformer": Transformer}


#: Form -> function that returns the context of the training.
FORMS: dict[str, Callable[[], Any]] = {
    "installed": lambda: ed.install(npu.backend, "npu"),
    "mode": lambda: ed.EagerDecompMode(npu.backend),
    "keep": lambda: ed.install(npu.whole, "npu"),  # `npu.whole` has the composites in its set; keep= would name single ones
}


def train(model_name: str, optimizer_name: str, device: str, steps: int) -> list[float]:
    """Train and return the losses. The seed gives the same weights, batches and dropout masks on every device."""
    torch.manual_seed(0)
    model = MODELS[model_name]().to(device)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        inputs, targets = (one.to(device) for one in MODELS[model_name].batch())
        torch.manual_seed(1000 + step)
        loss = F.cross_entropy(model(inputs), targets, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", metavar="N", type=int, default=8, help="training steps (default: %(default)s)")
    parser.add_argument("--only", choices=sorted(MODELS), help="train only this model (default: both)")
    options = parser.parse_args()
    wrong = 0
    head = ("loss", "on CPU", "worst", "decomposed", "kernels", "whole", "outside")
    print(f"{'model':12} {'optimizer':10} {'form':10}" + "".join(f"{word:>11}" for word in head))
    for model in [options.only] if options.only else MODELS:
        for optimizer in OPTIMIZERS:
            expected = train(model, optimizer, "cpu", options.steps)
            for form, make_context in FORMS.items():
                npu.reset_counts()
                with make_context() as context:
                    losses = train(model, optimizer, "npu", options.steps)
                worst = max(abs(one - other) / other for one, other in zip(losses, expected, strict=True))
                calls, supported = npu.counts(), {str(op) for op in context.backend.ops}
                outside = sum(count for op, count in calls.items() if op not in supported)
                whole = sum(calls.get(op, 0) for op in COMPOSITES)
                wrong += worst > 1e-3 or outside > 0 or (whole > 0) != (form == "keep")
                print(
                    f"{model:12} {optimizer:10} {form:10}{losses[-1]:11.5f}{expected[-1]:11.5f}{worst:11.1e}"
                    f"{context.stats().total.decomposed:11}{sum(calls.values()):11}{whole:11}{outside:11}"
                )
    print(f"{options.steps} steps each. loss, on CPU: the last loss; worst: the largest relative difference of a loss")
    print("decomposed: calls of ops outside the set; kernels: kernel calls of the device; whole: kernel calls of composites;")
    print("outside: kernel calls of ops outside the set")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
