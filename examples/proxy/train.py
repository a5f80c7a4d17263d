"""Train a transformer on a device whose tensors are in another process, and print the number of messages per step.

    python examples/proxy/train.py --steps 5

There are three op sets: Core ATen; with composites kept whole; and with a few large ops. The exit code is 1 if a loss differs from
the CPU's, or an op outside the set reached the server.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from proxy import device
from proxy.client import Server
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed

#: Backward ops and optimizer steps that the server runs as one op.
LARGE = [
    *("aten.gelu_backward", "aten.mse_loss", "aten.mse_loss_backward"),
    *("aten._foreach_add_", "aten._fused_sgd_.default", "aten._fused_adam_.default"),
]

#: Name of an op set -> the ops that it adds to Core ATen, and the composites that it adds and keeps whole.
FORMS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "Core ATen": ((), ()),
    "composites whole": ((), device.WHOLE),
    "large ops too": (LARGE, device.WHOLE),
}


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), Block(16, 2), Block(16, 2), nn.LayerNorm(16), nn.Linear(16, 3))


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, fused=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, fused=True),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, target: Tensor, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@dataclass
class Measured:
    """The results with one op set.

    Attributes:
        losses: the losses.
        forward: number of messages of a forward pass.
        step: number of messages of a training step.
        reached: op -> number of calls on the server.
    """

    losses: list[float]
    forward: int
    step: int
    reached: Counter[str]


def on_proxy(server: Server, form: str, make: Callable[..., torch.optim.Optimizer], steps: int) -> Measured:
    more, keep = FORMS[form]
    torch.manual_seed(0)
    model, x, target = net(), torch.randn(4, 5, 6), torch.randn(4, 5, 3)
    with ed.EagerDecompMode(device.backend(*more, *keep), keep=keep):
        model, x, target = model.to("proxy"), x.to("proxy"), target.to("proxy")
        optimizer = make(model.parameters())
        losses = train(model, optimizer, x, target, 1)  # the first step creates the optimizer's state
        server.counts()
        before = server.messages
        losses += train(model, optimizer, x, target, steps - 1)
        step = (server.messages - before) // (steps - 1)
        reached = Counter(server.counts())
        before = server.messages
        with torch.no_grad():
            model(x)
        return Measured(losses, server.messages - before, step, reached)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="training steps, 2 or more (default: %(default)s)")
    steps = max(2, parser.parse_args().steps)
    server = device.start()
    failed = False
    try:
        for name, make in OPTIMIZERS.items():
            torch.manual_seed(0)
            model, x, target = net(), torch.randn(4, 5, 6), torch.randn(4, 5, 3)
            want = train(model, make(model.parameters()), x, target, steps)
            print(f"{name}, {steps} steps; the CPU's losses: {' '.join(f'{loss:.6f}' for loss in want)}")
            for form in FORMS:
                measured = on_proxy(server, form, make, steps)
                more, keep = FORMS[form]
                ops = device.backend(*more, *keep).ops
                outside = sorted(set(measured.reached) - {str(op) for op in ops})
                difference = max(abs(got - wanted) for got, wanted in zip(measured.losses, want, strict=True))
                failed |= difference > 1e-4 or bool(outside)
                print(
                    f"  {form:16}  messages: {measured.forward:4} forward, {measured.step:4} a step;  {len(measured.reached):2} "
                    f"ops reached the server, {len(outside)} outside the set;  losses differ by {difference:.0e}"
                )
                if outside:
                    print(f"    outside: {', '.join(outside)}")
    finally:
        device.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
