"""Ctrl-C at any point of a recorded program: the run can be read, and its digests are those of the values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sampled import SEED

sys.path[:0] = [str(Path(__file__).parent)]

from moments import Interrupted, at_call, at_line  # noqa: E402

import eagerdecomp as ed  # noqa: E402
from eagerdecomp.recording.differences import compare_runs  # noqa: E402
from eagerdecomp.recording.run_folder import read_run  # noqa: E402

pytestmark = pytest.mark.full


def work() -> None:
    x = torch.arange(40000.0).view(200, 200)
    for number in range(3):
        (x.t() @ x).relu().sum()
        torch._foreach_add_([torch.ones(3), torch.ones(2)], float(number))
        torch.full((3,), float(number)).exp_()


def record(folder: Path, at: Callable[[int, Callable[[], Any]], tuple[Any, int]], moment: int) -> tuple[Any, int]:
    recorder = ed.ValueRecorder(folder)
    with recorder:
        work()
        got = at(moment, work)
        work()
    recorder.close()
    return got


@pytest.mark.parametrize("at", [at_line, at_call], ids=["line", "signal"])
def test_a_recording_is_whole_after_an_interrupt(at: Any, tmp_path: Path) -> None:
    _, moments = record(tmp_path / "whole", at, sys.maxsize)
    assert moments > 500
    for moment in range(SEED % 23, moments, 23):
        got, _ = record(tmp_path / str(moment), at, moment)
        assert isinstance(got, Interrupted) or moment > 0.9 * moments
        run = read_run(tmp_path / str(moment) / "rank0")
        assert run.complete, got
        assert len(run.calls) >= len(read_run(tmp_path / "whole" / "rank0").calls) * 2 // 3, got
        found = compare_runs(tmp_path / "whole", tmp_path / str(moment))
        assert not found, (got, found.as_dict())
