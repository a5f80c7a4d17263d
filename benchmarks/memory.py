"""Measure the peak memory of a pass of each model, in the mode against eager."""

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
from benchmarks.nets import KINDS, job, jobs, selected_nets
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure", "peak_growth"]

_WARM = 4  # passes before the measurement: they compile programs and create the optimizer's state


def peak_growth(run: Callable[[], Any]) -> int:
    """Return the most bytes that torch's allocator held at once during `run`, less what it held before.

    The profiler reports each allocation of torch's CPU allocator. This includes temporary memory of kernels.
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
    """Profile one warm pass of each model, in eager and in the mode, in a new process, because the profiler prints."""
    progress("memory")
    rows = in_fresh_process("benchmarks.memory", "quick" if settings.quick else "full")
    figures = []
    for name, key in (("peak ours / native", "ratio"), ("growth ours / native", "growth_ratio")):
        for kind in KINDS:
            taken = [row[key] for row in rows if row["kind"] == kind]
            figures.append(Figure.over_models(f"{name}, {kind}", taken))
    worst = sorted(rows, key=lambda row: -row["ratio"])[:5]
    lists = {"Worst peak": [f"{row['model']} {row['kind']} {row['ratio']:.3g}" for row in worst]}
    how = (
        "Bytes of torch's allocator during one warm pass, from the profiler's memory events. Peak: with weights, buffers and "
        "optimizer state. Growth: only what the pass allocates."
    )
    return Section("memory", "Memory", how, figures, lists, rows)


def _bytes_held(model: nn.Module, kind: str) -> int:
    """Return the bytes that exist before and after a pass: weights, buffers, and in training AdamW's two moments of each weight."""
    weights, buffers = (sum(t.untyped_storage().nbytes() for t in held) for held in (model.parameters(), model.buffers()))
    return (3 if kind == "train" else 1) * weights + buffers


def _rows(quick: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    mode = EagerDecompMode(core_aten())
    for net, kind in jobs(selected_nets(quick)):
        row: dict[str, Any] = {"model": net.name, "kind": kind}
        contexts: dict[str, AbstractContextManager[Any]] = {"native": nullcontext(), "ours": mode}
        for name, context in contexts.items():
            subject = job(net, kind)
            with context:
                for _ in range(_WARM):
                    subject.run()
                row[f"{name}_growth"] = peak_growth(subject.run)
        row["held"] = _bytes_held(subject.model, kind)
        row["ratio"] = (row["held"] + row["ours_growth"]) / (row["held"] + row["native_growth"])
        row["growth_ratio"] = row["ours_growth"] / row["native_growth"]
        rows.append(row)
    return rows


def main(arguments: list[str]) -> None:
    """Print the memory of each model as a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    (how_much,) = arguments
    print(json.dumps(_rows(how_much == "quick")))


if __name__ == "__main__":
    main(sys.argv[1:])
