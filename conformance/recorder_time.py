"""Measure what `ValueRecorder` costs: time on the benchmark models, and memory, disk and time of very long runs.

    python conformance/recorder_time.py                   time in the mode with a recorder, divided by the mode's time
    python conformance/recorder_time.py --calls 1000000   records two runs of that many calls, and compares them

Rounds of the two contestants alternate in one process, with one thread. A ratio is that of two medians of CPU times.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

import torch  # noqa: E402

import eagerdecomp as ed  # noqa: E402
from benchmarks.nets import Net, job, jobs, selected_nets  # noqa: E402
from eagerdecomp.recording.differences import compare_runs  # noqa: E402

_ROUNDS, _CALLS_PER_ROUND = 9, 1000


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two models")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if options.calls:
            _long_runs(Path(folder), options.calls)
        else:
            _table(Path(folder), selected_nets(options.quick))
    return 0


def _table(folder: Path, nets: tuple[Net, ...]) -> None:
    found: dict[str, list[float]] = {}
    print(f"{'model':26} {'pass':9} {'calls':>6} {'mode, us/call':>14} {'recorded':>9} {'ratio':>6}")
    for net, kind in jobs(nets):
        if kind == "generate":
            continue
        calls, alone, recorded = _times(job(net, kind).run, folder / "run")
        found.setdefault(kind, []).append(recorded / alone)
        scale = 1e6 / calls
        print(f"{net.name:26} {kind:9} {calls:6} {alone * scale:14.1f} {recorded * scale:9.1f} {recorded / alone:6.2f}", flush=True)
    for kind, ratios in found.items():
        print(f"{kind}: geometric mean {geometric_mean(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


def _times(run: Callable[[], Any], folder: Path) -> tuple[int, float, float]:
    """Return the number of calls of a pass, and its time in the mode without and with a recorder."""
    mode, recorder = ed.EagerDecompMode(ed.core_aten()), ed.ValueRecorder(folder)
    with recorder, mode:
        for _ in range(3):
            before = recorder.calls
            run()
    calls = recorder.calls - before
    passes = max(2, _CALLS_PER_ROUND // calls)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        with mode:
            times[0].append(_timed(run, passes))
        with recorder, mode:
            times[1].append(_timed(run, passes))
    recorder.close()
    shutil.rmtree(folder)
    return calls, median(times[0]), median(times[1])


def _timed(run: Callable[[], Any], passes: int) -> float:
    start = time.process_time()
    for _ in range(passes):
        run()
    return (time.process_time() - start) / passes


def _long_runs(folder: Path, calls: int) -> None:
    """Train a small model for many calls, twice, and compare."""
    for name in ("a", "b"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        recorder = ed.ValueRecorder(folder / name)
        start, rounds = time.perf_counter(), 0
        with recorder:
            while recorder.calls < calls:
                optimizer.zero_grad()
                model(torch.randn(8, 16)).square().mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if recorder.calls * 10 // calls > rounds:
                    rounds = recorder.calls * 10 // calls
                    print(f"{name}: {recorder.calls:9,} calls, {_memory():6.0f} MiB at most", flush=True)
        recorder.close()
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in (folder / name).rglob("*") if path.is_file())
        print(f"{name}: {seconds * 1e6 / recorder.calls:.0f} us and {size / recorder.calls:.0f} bytes per call", flush=True)
    start = time.perf_counter()
    found = compare_runs(folder / "a", folder / "b")
    seconds = time.perf_counter() - start
    print(f"diff: {found.compared:,} calls compared in {seconds:.0f} s, {_memory():.0f} MiB at most; they differ: {bool(found)}")


def _memory() -> float:
    """Return the largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
