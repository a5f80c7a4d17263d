"""Count what interrupts at random moments leave behind: in plain eager, under a mode that only calls on, and under this library's.

    python tests/mishaps/random_interrupts.py eager|noop|mode [--seed N] [--interrupts N]

A timer raises in the main thread while a small net trains. After each interrupt torch's state is compared with what it was and
reset.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent))

from moments import Interrupted, state

import eagerdecomp as ed
from eagerdecomp._torch.modes import leave_modes


class Noop(TorchDispatchMode):
    """Calls every op as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def count(kind: str, seed: int, interrupts: int) -> Counter[str]:
    """How often each part of torch's state was not as before an interrupt."""
    mode: AbstractContextManager[Any] = {"eager": nullcontext, "noop": Noop, "mode": lambda: ed.EagerDecompMode(ed.core_aten())}[
        kind
    ]()
    net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(net.parameters())
    x, target = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])

    def step() -> None:
        with mode:
            optimizer.zero_grad()
            with torch.no_grad():
                net(x)
            F.cross_entropy(net(x), target).backward()
            optimizer.step()

    def ring(*_: Any) -> None:
        raise Interrupted("timer")

    for _ in range(4):
        step()
    before, drawn, found = state(), random.Random(seed), Counter[str]()
    signal.signal(signal.SIGALRM, ring)
    for _ in range(interrupts):
        try:
            signal.setitimer(signal.ITIMER_REAL, drawn.uniform(0.0002, 0.012))
            while True:
                step()
        except Interrupted:
            pass
        after = state()
        found.update(name for name in before if before[name] != after[name])
        torch.set_grad_enabled(True)
        leave_modes((before["dispatch modes"], before["function modes"]))
        step()  # raises where anything else is wrong
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("eager", "noop", "mode"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interrupts", type=int, default=300)
    options = parser.parse_args()
    print(options.kind, dict(count(options.kind, options.seed, options.interrupts)))
