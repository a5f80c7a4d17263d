"""Train a transformer on a device whose tensors live in another process, and print how many messages a step takes.

    python examples/proxy/train.py             # --steps N

Once the proxy's set is Core ATen alone; once composites cross whole; once a few large operators as well, which the server has
kernels for. Exit code 1 where a loss is not the CPU's, or anything but the set reached the server.
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

#: Gradients and optimizer steps that are one kernel on the server.
LARGE = [
    *("aten.gelu_backward", "aten.mse_loss", "aten.mse_loss_backward"),
    *("aten._foreach_add_", "aten._fused_sgd_.default", "aten._fused_adam_.default"),
]

#: What the set is beside Core ATen, and which of it eager would decompose.
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
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mix(self.norms[0](x)).chunk(3, dim=-1)
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
class Seen:
    """The result of one form."""

    losses: list[float]
    forward: int
    step: int
    reached: Counter[str]


def on_proxy(server: Server, form: str, make: Callable[..., torch.optim.Optimizer], steps: int) -> Seen:
    more, keep = FORMS[form]
    torch.manual_seed(0)
    model, x, target = net(), torch.randn(4, 5, 6), torch.randn(4, 5, 3)
    with ed.EagerDecompMode(device.backend(*more, *keep), keep=keep):
        model, x, target = model.to("proxy"), x.to("proxy"), target.to("proxy")
        optimizer = make(model.parameters())
        losses = train(model, optimizer, x, target, 1)  # an optimizer's first step makes its state
        server.counts()
        before = server.messages
        losses += train(model, optimizer, x, target, steps - 1)
        step = (server.messages - before) // (steps - 1)
        reached = Counter(server.counts())
        before = server.messages
        with torch.no_grad():
            model(x)
        return Seen(losses, server.messages - before, step, reached)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="training steps, 2 or more (default %(default)s)")
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
                seen = on_proxy(server, form, make, steps)
                more, keep = FORMS[form]
                ops = device.backend(*more, *keep).ops
                outside = sorted(set(seen.reached) - {str(op) for op in ops})
                off = max(abs(got - wanted) for got, wanted in zip(seen.losses, want, strict=True))
                failed |= off > 1e-4 or bool(outside)
                print(
                    f"  {form:16}  messages: {seen.forward:4} forward, {seen.step:4} a step;  {len(seen.reached):2} ops reached "
                    f"the server, {len(outside)} outside the set;  losses off by {off:.0e}"
                )
                if outside:
                    print(f"    outside: {', '.join(outside)}")
    finally:
        device.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
