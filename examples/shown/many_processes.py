"""Two processes train together with gloo. In each, the losses are eager's, and only ops of the set reach the backend.

python examples/shown/many_processes.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from showing import Checks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

import eagerdecomp as ed

WORLD, STEPS = 2, 4
CORE = ed.core_aten()
Losses = list[float]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.silu(self.up(self.norm(x))))


def blocks() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block())


def train(model: nn.Module, seed: int) -> Losses:
    """Train with gradient clipping, and return the losses and norms. The norm is over the gradients of all processes."""
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(model(torch.randn(4, 6, 8)), torch.randn(4, 6, 8))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses += [loss.item(), (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()]
    return losses


def by_ddp() -> Losses:
    return train(nn.parallel.DistributedDataParallel(blocks()), seed=dist.get_rank())


def by_fsdp() -> Losses:
    model = blocks()
    for block in model:
        fully_shard(block)
    return train(fully_shard(model), seed=dist.get_rank())


def by_tensor_parallel() -> Losses:
    """Train with half of the columns or rows of each linear layer, and half of each sequence between them, in each process."""
    sharded, replicated = Shard(1), Replicate()
    styles = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=sharded),
        "down": RowwiseParallel(output_layouts=sharded),
    }
    plan: dict[str, ParallelStyle] = {f"{block}.{name}": style for block in range(2) for name, style in styles.items()}
    plan["0"] = PrepareModuleInput(input_layouts=replicated, desired_input_layouts=sharded, use_local_output=True)
    plan["1"] = PrepareModuleOutput(output_layouts=sharded, desired_output_layouts=replicated)
    return train(parallelize_module(blocks(), init_device_mesh("cpu", (WORLD,)), plan), seed=0)


def by_pipeline() -> Losses:
    """Train with one block in each process. The last process has the losses."""
    rank = dist.get_rank()
    block = blocks()[rank]
    schedule = Schedule1F1B(PipelineStage(block, rank, WORLD, torch.device("cpu")), n_microbatches=4, loss_fn=F.smooth_l1_loss)
    optimizer = torch.optim.AdamW(block.parameters(), lr=1e-2, foreach=True)
    losses: list[torch.Tensor] = []
    torch.manual_seed(0)
    for _ in range(STEPS):
        x, target = torch.randn(8, 6, 8), torch.randn(8, 6, 8)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            one: list[torch.Tensor] = []
            schedule.step(target=target, losses=one)
            losses += one
        optimizer.step()
    return [loss.item() for loss in losses]


WAYS: dict[str, Callable[[], Losses]] = {
    "DistributedDataParallel": by_ddp,
    "FSDP2": by_fsdp,
    "tensor-parallel": by_tensor_parallel,
    "a 1F1B pipeline": by_pipeline,
}


def one_process(rank: int, folder: Path) -> None:
    """Run a process of the group, and write its results to a file."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=timedelta(seconds=60))
    found: dict[str, Any] = {}
    for name, run in WAYS.items():
        plain = run()
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE) as mode:  # in every process, backward within it
            in_mode = run()
        found[name] = {
            "plain": plain,
            "mode": in_mode,
            "outside": sum(seen.outside(CORE).values()),
            "decomposed": mode.stats().total.decomposed,
            "passed": sorted(str(op) for op in seen.passthrough(CORE) if op.namespace != "profiler"),
        }
    with ed.install(CORE, "cpu"):
        for name, run in WAYS.items():
            found[name]["installed"] = run()
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def run_processes() -> list[dict[str, Any]]:
    """Run the processes and return their results. All have ended when this returns."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, folder]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(WORLD):
                started.append(subprocess.Popen([*command, str(rank)], env=environment))
            if any(one.wait(600) for one in started):
                raise SystemExit("a process ended with an error")
        finally:
            for one in started:
                one.kill()
                one.wait()
        return [json.loads((Path(folder) / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(WORLD)]


def main() -> int:
    check = Checks()
    found = run_processes()
    for name in WAYS:
        ranks = [one[name] for one in found]
        losses = [loss for one in ranks for loss in one["plain"]]
        check(f"{name}: losses and norms of gradients in {WORLD} processes", len(losses) >= 4 * STEPS)
        for form in ("mode", "installed"):
            difference = max(abs(a - b) for one in ranks for a, b in zip(one["plain"], one[form], strict=True))
            check(f"{name}, {form}: largest difference from eager {difference:.1e}, at most 1e-5", difference < 1e-5)
        check(f"{name}: {[one['decomposed'] for one in ranks]} calls decomposed", all(one["decomposed"] > 50 for one in ranks))
        check(f"{name}: calls outside the set that reached the backend", [one["outside"] for one in ranks], [0] * WORLD)
        passed = sorted({op for one in ranks for op in one["passed"]})
        collective = all(op.startswith(("c10d.", "_c10d_functional.")) for op in passed)
        check(f"{name}: only collectives passed through: {', '.join(passed)}", bool(passed) and collective)
    return int(check.failed > 0)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        one_process(int(sys.argv[2]), Path(sys.argv[1]))
    else:
        raise SystemExit(main())
