"""Recorded runs: one on the device is compared with one on the CPU."""

from __future__ import annotations

from pathlib import Path

import npu
import torch

import eagerdecomp as ed
from eagerdecomp.recording.differences import compare_runs


def test_a_run_on_the_device_is_compared_with_one_on_the_cpu(tmp_path: Path) -> None:
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU()).to(device)
        x = torch.randn(4, 8).to(device)
        with ed.install(npu.backend, "npu"), ed.ValueRecorder(tmp_path / device) as recorder:
            model(x).square().mean().backward()
        recorder.close()
    found = compare_runs(tmp_path / "cpu", tmp_path / "npu")
    assert not found, found.as_dict()
    calls = found.ranks[0].runs[1].calls
    assert found.compared > 15
    assert all(value.digest is not None for call in calls for value in call.outputs if "empty" not in call.op)
