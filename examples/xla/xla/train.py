"""``python -m xla.train``: train the demo's character transformer on the device, and print its losses and the CPU's.

    python -m xla.train                     # --steps N, --compile, --dropout P

Weights and batches are the same on both. With dropout the two draw other random numbers, so it is 0 unless asked for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xla
from eagerdecomp.cli.demo import CharTransformer, source_text
from xla import calls

__all__ = ["main", "train"]

CONTEXT, BATCH, LEARNING_RATE, CLIP = 64, 16, 3e-3, 1.0


def batches(codes: Tensor, steps: int) -> Iterator[Tensor]:
    """The same windows of the text for every device."""
    draws = torch.Generator().manual_seed(0)
    for _ in range(steps):
        starts = torch.randint(len(codes) - CONTEXT, (BATCH,), generator=draws)
        yield torch.stack([codes[start : start + CONTEXT + 1] for start in starts])


def train(device: str, steps: int, compiled: bool = False, dropout: float = 0.0) -> tuple[list[float], list[float]]:
    """Return the losses of some steps, and the seconds that each took."""
    text = source_text(200_000)
    symbols = sorted(set(text))
    place = {symbol: number for number, symbol in enumerate(symbols)}
    codes = torch.tensor([place[symbol] for symbol in text])
    torch.manual_seed(0)
    model = CharTransformer(len(symbols), dropout).to(device)
    # A step count on the CPU would be a number that changes with each step; the CPU has no other.
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, foreach=True, capturable=device != "cpu")

    def step(batch: Tensor) -> Tensor:
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run: Callable[[Tensor], Tensor] = xla.compile_step(step, model, optimizer) if compiled else step
    losses, seconds = [], []
    for batch in batches(codes, steps):
        started = time.perf_counter()
        losses.append(run(batch.to(device)).item())
        seconds.append(time.perf_counter() - started)
    return losses, seconds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m xla.train", description="Train a transformer on the device and on the CPU.")
    parser.add_argument("--steps", type=int, default=30, help="how many (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="each step as one compiled function")
    parser.add_argument("--dropout", type=float, default=0.0, help="probability; above 0 the losses differ (default: %(default)s)")
    options = parser.parse_args()
    xla.install()
    print(f"{options.steps} steps on the CPU, then on the device. Its first steps compile, so they take longest.", flush=True)
    expected, at_home = train("cpu", options.steps, dropout=options.dropout)
    losses, there = train("jax", options.steps, options.compile, options.dropout)
    print(f"{'step':>5}{'cpu':>10}{'jax':>10}{'difference':>12}{'cpu ms':>9}{'jax ms':>9}")
    for number, (one, other) in enumerate(zip(expected, losses, strict=True)):
        if number % max(1, options.steps // 10) == 0 or number == options.steps - 1:
            apart = abs(one - other) / one
            print(f"{number:5}{one:10.5f}{other:10.5f}{apart:12.1e}{1e3 * at_home[number]:9.1f}{1e3 * there[number]:9.1f}")
    print(f"{len(calls.counts())} kernels ran {sum(calls.counts().values())} times; {calls.compiled()} functions were compiled")
    worst = max(abs(one - other) / one for one, other in zip(expected, losses, strict=True))
    return int(options.dropout == 0 and worst > 1e-2)


if __name__ == "__main__":
    raise SystemExit(main())
