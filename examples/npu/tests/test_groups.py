"""Two processes train on the device with DistributedDataParallel, with the set installed and in the mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import eagerdecomp as ed


def train(device: str) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.BatchNorm1d(16), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    torch.manual_seed(dist.get_rank())
    losses = []
    for step in range(4):
        x = torch.randn(6, 8).to(device)
        with wrapped.no_sync() if step == 1 else nullcontext():
            loss = wrapped(x).square().mean()
            loss.backward()
        if step != 1:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def member(rank: int, folder: Path) -> None:
    import npu
    from npu import groups

    groups.register()
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("cpu:gloo,npu:hosted", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    found: dict[str, object] = {"cpu": train("cpu")}
    forms = {"installed": lambda: ed.install(npu.backend, "npu"), "mode": lambda: ed.EagerDecompMode(npu.backend)}
    for name, form in forms.items():
        npu.reset_counts()
        with form():
            found[name] = train("npu")
        found[f"{name}, outside"] = sorted(set(npu.counts()) - {str(op) for op in npu.backend.ops})
        found[f"{name}, kernels"] = sum(npu.counts().values())
    try:
        init_device_mesh("npu", (2,))
    except NotImplementedError as error:
        found["mesh"] = str(error)
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def test_ddp_results_in_the_cpus_losses_on_kernels_of_the_device(tmp_path: Path) -> None:
    paths = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(2):
            started.append(subprocess.Popen([sys.executable, __file__, str(rank), str(tmp_path)], env=environment))
        assert [one.wait(600) for one in started] == [0, 0]
    finally:
        for one in started:
            one.kill()
            one.wait()
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    assert ranks[0]["cpu"] != ranks[1]["cpu"]
    for found in ranks:
        for form in ("installed", "mode"):
            assert found[form] == pytest.approx(found["cpu"], rel=1e-5), form
            assert found[f"{form}, outside"] == []
            assert found[f"{form}, kernels"] > 500
        assert "FSDP2" in found["mesh"]


if __name__ == "__main__":
    member(int(sys.argv[1]), Path(sys.argv[2]))
