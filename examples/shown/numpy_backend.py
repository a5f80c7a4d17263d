"""A small transformer trains on NumPy kernels to eager's losses, and only ops of the set reach the backend.

python examples/shown/numpy_backend.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from showing import Checks
from torch import nn

import eagerdecomp as ed
from eagerdecomp.backends.numpy import BACKEND

CALLS: Counter[str] = Counter()


def counting(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        CALLS[name] += 1
        return kernel(*args, **kwargs)

    return run


COUNTED = ed.Backend("numpy", BACKEND.ops, {op: counting(str(op), kernel) for op, kernel in BACKEND.kernels.items()})


def train(steps: int = 6) -> list[float]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Embedding(11, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 11))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    tokens = torch.arange(24).reshape(2, 12) % 11
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> int:
    check = Checks()
    eager = train()
    with ed.EagerDecompMode(COUNTED) as mode:
        ours = train()
    print(f"ok  eager's losses: {[round(one, 4) for one in eager]}")
    print(f"ok  on NumPy:       {[round(one, 4) for one in ours]}")
    check("the loss goes down", ours[-1] < ours[0] / 2)
    check(
        "losses differ from eager by less than 1e-3", max(abs(one - other) for one, other in zip(eager, ours, strict=True)) < 1e-3
    )
    print(f"ok  calls of NumPy kernels: {sum(CALLS.values())}, of {len(CALLS)} ops")
    check("all of them are ops of the set", set(CALLS) <= {str(op) for op in BACKEND.ops})
    check("more than 50 matrix products ran on NumPy", sum(CALLS[f"aten.{name}.default"] for name in ("mm", "bmm", "addmm")) > 50)
    check("calls without a route, which ran natively", sum(one.fell_back for one in mode.stats().ops.values()), 0)
    return int(check.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
