"""Train the models of `benchmarks/` by two steps in eager and on the Triton kernels, and print how far the losses are apart.

python examples/triton/benchmark_models.py     # by Triton's interpreter, four minutes; in a checkout, which has benchmarks/

Dropout is left out: Triton's random numbers are not those of the CPU's generator. So the losses of models that draw noise differ.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import torch

import eagerdecomp as ed

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]


def losses(net: Any, mode: Any) -> list[float]:
    """Return the losses before, between and after two steps; of a model with its own kind of step, its last output."""
    from benchmarks.nets import adamw_step

    torch.manual_seed(0)
    model, batch, found = net.make(), net.batch(), []
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0

    def loss() -> torch.Tensor:
        found.append(net.forward(model, batch).mean() if net.trainer else net.loss(model, batch))
        return found[-1]

    step = net.trainer(model, batch) if net.trainer else adamw_step(model, loss)
    with mode:
        step()
        step()
        with torch.no_grad():
            loss()
    return [one.item() for one in found]


def main() -> int:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    import on_triton

    from benchmarks.nets import NETS

    torch.nn.functional.dropout = lambda x, *args, **kwargs: x
    print(f"{'model':25} {'first loss':>10} {'last':>8} {'difference':>11} {'kernels':>8}")
    for net in NETS:
        expected, before = losses(net, contextlib.nullcontext()), on_triton.launches()
        try:
            found = losses(net, ed.EagerDecompMode(on_triton.backend))
        except ed.UnsupportedOpError as error:
            print(f"{net.name:25} lacks a kernel of {error.op}", flush=True)
            continue
        worst = max(abs(one - other) / abs(one) for one, other in zip(expected, found, strict=True))
        launched = on_triton.launches() - before
        print(f"{net.name:25} {expected[0]:10.5f} {expected[-1]:8.5f} {worst:11.1e} {launched:8}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
