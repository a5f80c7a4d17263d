"""Measure what a process needs before its second step: the import, the installation, and the first training step."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from benchmarks.figures import Figure, Section, Settings
from benchmarks.fresh import in_fresh_process
from benchmarks.timing import Spread, thread_seconds

__all__ = ["measure"]

_THIS = "benchmarks.start"
_JOBS = ("imports", "install", "native", "mode", "installed")


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Run each job in several new processes. The first does not count, because it may write bytecode files."""
    rows: list[dict[str, Any]] = []
    for number in range(3 if settings.quick else 8):
        for job in _JOBS:
            progress(f"start: {job}, process {number}")
            found = {"job": job, **in_fresh_process(_THIS, job)}
            if number:
                rows.append(found)

    def milliseconds(job: str, name: str, less: float = 0.0) -> Spread:
        return Spread.of([1000 * (row[name] - less) for row in rows if row["job"] == job])

    native = milliseconds("native", "first").median / 1000
    how = (
        "CPU time in new processes, after `import torch`, with bytecode files present. The rows of a mode and an installation "
        "include the modules that they import. First step: a training step of a small BERT-like encoder with AdamW "
        "(foreach=False), less the median of eager's first step."
    )
    figures = [
        Figure.from_spread("import eagerdecomp, ms", milliseconds("imports", "package")),
        Figure.from_spread("the first mode, imports included, ms", milliseconds("imports", "mode")),
        Figure.from_spread("the first install, imports included, ms", milliseconds("install", "first")),
        Figure.from_spread("install again, ms", milliseconds("install", "again")),
        Figure.from_spread("first training step in the mode, beyond native's, ms", milliseconds("mode", "first", native)),
        Figure.from_spread("first training step, installed, beyond native's, ms", milliseconds("installed", "first", native)),
    ]
    return Section("start", "Start", how, figures, {}, rows)


# -- in the fresh process -----------------------------------------------------------------------------------------


def _seconds(run: Callable[[], Any]) -> float:
    start = thread_seconds()
    run()
    return thread_seconds() - start


def _imports() -> dict[str, float]:
    def package() -> None:
        import eagerdecomp  # noqa: F401

    def mode() -> None:
        import eagerdecomp as ed

        ed.EagerDecompMode(ed.core_aten())

    return {"package": _seconds(package), "mode": _seconds(mode)}


def _install() -> dict[str, float]:
    def install() -> Any:
        import eagerdecomp as ed

        handles.append(ed.install(ed.core_aten(), "cpu"))

    handles: list[Any] = []
    first = _seconds(install)
    handles.pop().remove()
    again = _seconds(install)
    handles.pop().remove()
    return {"first": first, "again": again}


def _step(way: str) -> dict[str, float]:
    """Time the first training steps. Entering the mode, or installing, is not timed."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True)
    model = nn.Sequential(nn.Embedding(100, 64), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(64, 100))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tokens = torch.randint(100, (4, 16))

    def step() -> None:
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    context: Any = nullcontext()
    if way != "native":
        import eagerdecomp as ed

        context = ed.EagerDecompMode(ed.core_aten()) if way == "mode" else ed.install(ed.core_aten(), "cpu")
    with context:
        return {"first": _seconds(step), "second": _seconds(step), "third": _seconds(step)}


def main(job: str) -> None:
    """Run a job and print its times as a line of JSON."""
    sys.dont_write_bytecode = False
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = _imports() if job == "imports" else _install() if job == "install" else _step(job)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
