"""Train the models of `benchmarks/` by two steps in eager and on the Triton kernels, and print how far the losses are apart.

python examples/triton/benchmark_models.py     # by Triton's interpreter, four minutes; in a checkout, which has benchmarks/

Triton's random numbers are not those of the CPU's generator. So dropout is left out, and noise is drawn before each run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import eagerdecomp as ed

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]


def losses(net: Any, mode: Any) -> list[float]:
    """Return the losses of two steps, and the loss after them; the GAN's own kind of step has two losses, and none comes after."""
    from benchmarks import nets

    adamw_step = nets.adamw_step
    torch.manual_seed(0)
    model, batch, found = net.make(), net.batch(), []
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0

    def kept(loss: Any) -> Any:
        def call() -> torch.Tensor:
            found.append(loss())
            return found[-1]

        return call

    noise = iter(torch.randn(10, 1000).unbind())
    with (
        patch.object(torch.nn.functional, "dropout", lambda x, *args, **kwargs: x),
        patch.object(torch, "randn_like", lambda x: next(noise)[: x.numel()].view(x.shape)),
        patch.object(nets, "adamw_step", lambda model, loss: adamw_step(model, kept(loss))),
    ):
        step = net.trainer(model, batch) if net.trainer else nets.adamw_step(model, lambda: net.loss(model, batch))
        with mode:
            step()
            step()
            if not net.trainer:
                with torch.no_grad():
                    found.append(net.loss(model, batch))
    return [one.item() for one in found]


def main() -> int:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    import on_triton

    from benchmarks.nets import NETS

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
