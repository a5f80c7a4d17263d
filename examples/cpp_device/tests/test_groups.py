"""Two processes train on the device with DistributedDataParallel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FOLDER = Path(__file__).parent.parent


def member(rank: int, folder: Path) -> None:
    import chip
    import train
    from chip import groups

    groups.register()
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("cpu:gloo,chip:staged", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    found: dict[str, object] = {"cpu": train.train("conv", "AdamW", "cpu", 3, DistributedDataParallel)}
    chip.reset_calls()
    found["chip"] = train.train("conv", "AdamW", "chip", 3, DistributedDataParallel)
    found["kernels"], found["fallback"] = sum(chip.kernel_calls().values()), chip.fallback_calls()
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def test_ddp_results_in_the_cpus_losses_on_kernels_of_the_device(tmp_path: Path) -> None:
    paths = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
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
    for found in (json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)):
        assert found["chip"] == pytest.approx(found["cpu"], rel=1e-5)
        assert found["kernels"] > 1000
        assert found["fallback"] == {}


if __name__ == "__main__":
    member(int(sys.argv[1]), Path(sys.argv[2]))
