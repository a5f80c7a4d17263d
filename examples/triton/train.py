"""Train four small models in eager, and in the mode on Triton kernels, and print how far the losses are apart.

python examples/triton/train.py                   # on the CPU, by Triton's interpreter: tiny models, two minutes
python examples/triton/train.py --device cuda     # compiled for a GPU
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))


class Transformer(nn.Module):
    def __init__(self, symbols: int = 11, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        ahead = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        found: Tensor = self.head(self.block(self.embedding(tokens), src_mask=ahead)).flatten(0, 1)
        return found


class Block(nn.Module):
    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made))
        self.short = nn.Conv2d(given, made, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(self.first(x)) + self.short(x))


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*stem, Block(4, 4, 1), Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.lstm(x)[0][:, -1])
        return found


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


#: name -> (what makes the model, what draws a batch and its targets)
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]] = {
    "transformer": (Transformer, lambda: (torch.randint(11, (2, 6)), torch.randint(11, (12,)))),
    "resnet": (resnet, lambda: (torch.randn(2, 3, 8, 8), torch.randint(3, (2,)))),
    "lstm": (Recurrent, lambda: (torch.randn(3, 4, 5), torch.randint(3, (3,)))),
    "mlp": (mlp, lambda: (torch.randn(4, 8), torch.randint(3, (4,)))),
}


def train(name: str, steps: int, device: str, mode: Any) -> list[float]:
    """Return the losses of some steps in a mode. Weights and batches are drawn outside, so that they are the same for each mode."""
    make, batch = MODELS[name]
    torch.manual_seed(0)
    model, batches = make().to(device), [batch() for _ in range(steps)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x, target in batches:
        x, target = x.to(device), target.to(device)
        with mode:
            loss = F.cross_entropy(model(x), target)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> int:
    parser = argparse.ArgumentParser(description="Train small models in eager, and on Triton kernels.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cpu: by Triton's interpreter (default)")
    parser.add_argument("--steps", type=int, default=3, help="how many (default: %(default)s)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which (default: all)")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("train: this torch sees no CUDA device (torch.cuda.is_available() is False)", file=sys.stderr)
        return 2
    os.environ["TRITON_INTERPRET"] = str(int(options.device == "cpu"))  # read when triton is imported
    import on_triton

    import eagerdecomp as ed

    apart = 0.0
    print(f"{'model':12} {'first loss':>10} {'last':>8} {'difference':>11} {'kernels':>8} {'seconds':>8}")
    for name in options.models:
        expected = train(name, options.steps, options.device, contextlib.nullcontext())
        before, started = on_triton.launches(), time.perf_counter()
        losses = train(name, options.steps, options.device, ed.EagerDecompMode(on_triton.backend))
        worst = max(abs(one - other) / abs(one) for one, other in zip(expected, losses, strict=True))
        spent, ran = time.perf_counter() - started, on_triton.launches() - before
        print(f"{name:12} {losses[0]:10.5f} {losses[-1]:8.5f} {worst:11.1e} {ran:8} {spent:8.1f}", flush=True)
        apart = max(apart, worst)
    return int(apart > 1e-4)


if __name__ == "__main__":
    raise SystemExit(main())
