"""Measure time and memory of scans (cumsum, cumprod, cummax, logcumsumexp ...) over a million elements, forward and backward."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.figures import Figure, Section, Settings
from benchmarks.fresh import in_fresh_process
from benchmarks.memory import peak_growth
from benchmarks.timing import Contestant, Spread, race, ratios
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

#: The scans, as functions of a 1-D tensor.
SCANS: dict[str, Callable[[Tensor], Tensor]] = {
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(0)[0],
    "cummin": lambda x: x.cummin(0)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "cumulative_trapezoid": torch.cumulative_trapezoid,
    "vander": lambda x: torch.linalg.vander(x, N=4),
}


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race each scan against eager, forward and with its gradient. Then measure peak memory in a new process, with the profiler."""
    length = 10_000 if settings.quick else 1_000_000
    mode = EagerDecompMode(core_aten())
    rows: list[dict[str, Any]] = []
    for name, kind, run in _calls(length):
        progress(f"scans: {name}, {kind}")
        times = race({"native": Contestant(run), "ours": Contestant(run, mode)}, settings.rounds, settings.seconds)
        rows.append({"scan": name, "kind": kind, "times": times, "ratios": ratios(times["ours"], times["native"])})
    progress("scans: memory")
    for row, peaks in zip(rows, in_fresh_process("benchmarks.scans", str(length)), strict=True):
        row.update(peaks)
    figures = [Figure.from_spread(f"ours / native, {row['scan']}, {row['kind']}", Spread.of(row["ratios"])) for row in rows]
    figures += [
        Figure(f"peak / input, {row['scan']}, {row['kind']}", row["ours"], note=f"native {row['native']:.2f}") for row in rows
    ]
    how = (
        f"{length} float32 elements near 1, on Core ATen, alternately in eager and in the mode. `vander` returns a matrix of 4 "
        "columns. Peak: the most bytes alive at once during the call, with its results and without its input, divided by the "
        "bytes of the input."
    )
    return Section("scans", "Scans", how, figures, rows=rows)


def _calls(length: int) -> list[tuple[str, str, Callable[[], Any]]]:
    calls: list[tuple[str, str, Callable[[], Any]]] = []
    x = 1 + torch.randn(length, generator=torch.Generator().manual_seed(0)) / 1000
    for name, scan in SCANS.items():
        values = x[: length // 4].clone() if name == "vander" else x
        calls.append((name, "forward", partial(scan, values)))
        calls.append((name, "with its gradient", partial(_gradient, scan, values.clone().requires_grad_())))
    return calls


def _gradient(scan: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    result = scan(x)
    return torch.autograd.grad(result, x, torch.ones_like(result))[0]


def main(arguments: list[str]) -> None:
    """Print the peak memory of each call, divided by the bytes of `length` float32 elements, as a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    length = int(arguments[0])
    mode = EagerDecompMode(core_aten())
    rows = []
    for _, _, run in _calls(length):
        run()
        native = peak_growth(run)
        with mode:
            run()
            ours = peak_growth(run)
        rows.append({"native": native / (4 * length), "ours": ours / (4 * length)})
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
