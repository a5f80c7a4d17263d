"""Memory: the most bytes alive at once during a pass, ours against native."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.figures import Figure, Section, Settings
from benchmarks.fresh import in_fresh_process
from benchmarks.nets import KINDS, chosen, job, jobs
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure", "peak_growth"]

_WARM = 4  # passes before: programs are compiled, optimizer state exists


def peak_growth(run: Callable[[], Any]) -> int:
    """The most bytes that torch's allocator held at once during `run`, beyond what it held before.

    Taken from the profiler's memory events, which torch's CPU allocator sends: kernels' own scratch is among them.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((event["args"]["Ev Idx"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    peak: int = max(accumulate((size for _, size in changes), initial=0))
    return peak


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """One warm pass of every model under the profiler, natively and under the mode; in a process of its own, where the
    profiler may talk."""
    progress("memory")
    rows = in_fresh_process("benchmarks.memory", "quick" if settings.quick else "full")
    figures = []
    for name, key in (("peak ours / native", "ratio"), ("growth ours / native", "growth_ratio")):
        for kind in KINDS:
            taken = [row[key] for row in rows if row["kind"] == kind]
            figures.append(Figure.between(f"{name}, {kind}", taken))
    worst = sorted(rows, key=lambda row: -row["ratio"])[:5]
    lists = {"Worst peak": [f"{row['model']} {row['kind']} {row['ratio']:.3g}" for row in worst]}
    how = (
        "Bytes from the profiler's memory events of torch's allocator during one warm pass. Peak: with weights, buffers and "
        "optimizer state; growth: what came and went during the pass alone."
    )
    return Section("memory", "Memory", how, figures, lists, rows)


def _bytes_held(model: nn.Module, kind: str) -> int:
    """The tensors that live before the pass and after it: weights, AdamW's two moments of each when training, and buffers."""
    weights, buffers = (sum(t.untyped_storage().nbytes() for t in held) for held in (model.parameters(), model.buffers()))
    return (3 if kind == "train" else 1) * weights + buffers


def _rows(quick: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    mode = EagerDecompMode(core_aten())
    for net, kind in jobs(chosen(quick)):
        row: dict[str, Any] = {"model": net.name, "kind": kind}
        ways: dict[str, AbstractContextManager[Any]] = {"native": nullcontext(), "ours": mode}
        for name, way in ways.items():
            subject = job(net, kind)
            with way:
                for _ in range(_WARM):
                    subject.run()
                row[f"{name}_growth"] = peak_growth(subject.run)
        row["held"] = _bytes_held(subject.model, kind)
        row["ratio"] = (row["held"] + row["ours_growth"]) / (row["held"] + row["native_growth"])
        row["growth_ratio"] = row["ours_growth"] / row["native_growth"]
        rows.append(row)
    return rows


def main(words: list[str]) -> None:
    """Print what every model takes as a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    (how_much,) = words
    print(json.dumps(_rows(how_much == "quick")))


if __name__ == "__main__":
    main(sys.argv[1:])
