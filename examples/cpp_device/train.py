"""Train five models on "chip" and on the CPU, and compare the losses.

    python examples/cpp_device/train.py --steps 8 --only lstm

The exit code is 1 if a loss differs from the CPU's, or an op ran on the CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import chip
import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 4

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
}


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 12, num_layers=2, batch_first=True), nn.Linear(12, CLASSES)

    def forward(self, sequences: Tensor) -> Tensor:
        return self.head(self.lstm(sequences)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(29, 16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, text: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(text.size(1), device=text.device)
        return self.head(self.layer(self.tokens(text), mask, is_causal=True)[:, -1])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, CLASSES))


def conv() -> nn.Module:
    first = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(8, 8, 3, stride=2), nn.SiLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(8, CLASSES))


def upsample() -> nn.Module:
    first = (nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Hardswish(), nn.Upsample(scale_factor=2, mode="bilinear"))
    second = (nn.Conv2d(8, CLASSES, 3, groups=2), nn.Upsample(scale_factor=2), nn.AdaptiveMaxPool2d(1))
    return nn.Sequential(*first, *second, nn.Flatten())


#: Name -> (the model, a batch of its inputs).
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (mlp, lambda: torch.randn(6, 8)),
    "conv": (conv, lambda: torch.randn(6, 3, 9, 9)),
    "transformer": (Transformer, lambda: torch.randint(29, (6, 7))),
    "lstm": (LSTM, lambda: torch.randn(6, 5, 8)),
    "upsample": (upsample, lambda: torch.randn(6, 3, 6, 6)),
}


def train(model_name: str, optimizer_name: str, device: str, steps: int, wrap: Callable[[Any], Any] | None = None) -> list[float]:
    """Train and return the losses. The seed gives the same weights and batches on every device. `wrap` wraps the model."""
    torch.manual_seed(0)
    make_model, make_batch = MODELS[model_name]
    model = make_model().to(device)
    model = wrap(model) if wrap is not None else model
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    losses = []
    for _ in range(steps):
        inputs, targets = make_batch().to(device), torch.randint(CLASSES, (6,)).to(device)
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
    parser.add_argument("--only", choices=sorted(MODELS), help="train only this model (default: all)")
    options = parser.parse_args()
    wrong = 0
    print(f"{'model':12} {'optimizer':10}" + "".join(f"{word:>10}" for word in ("loss", "on CPU", "worst", "kernels", "fallback")))
    for model in [options.only] if options.only else MODELS:
        for optimizer in OPTIMIZERS:
            expected = train(model, optimizer, "cpu", options.steps)
            chip.reset_calls()
            losses = train(model, optimizer, "chip", options.steps)
            kernels, fallback = sum(chip.kernel_calls().values()), sum(chip.fallback_calls().values())
            worst = max(abs(one - other) / other for one, other in zip(losses, expected, strict=True))
            wrong += worst > 1e-3 or fallback > 0
            print(f"{model:12} {optimizer:10}{losses[-1]:10.5f}{expected[-1]:10.5f}{worst:10.1e}{kernels:10}{fallback:10}")
    print(f"{options.steps} steps each. loss, on CPU: the last loss; worst: the largest relative difference of a loss;")
    print("kernels: kernel calls of the device; fallback: calls of ops that ran on the CPU")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
