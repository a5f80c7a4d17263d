"""Measure several threads that share one cache, each in its own mode."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.baselines import Noop
from benchmarks.figures import Figure, Section, Settings
from benchmarks.fresh import in_fresh_process
from benchmarks.timing import Spread, ratios, without_gc
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["COUNTS", "measure"]

COUNTS = (1, 2, 4)
_PASSES = 100


def _work() -> Callable[[], Any]:
    """Return a run of a few decomposed ops, forward and backward, on its own tensors."""
    x, weight, bias = (torch.rand(shape, requires_grad=True) for shape in ((16, 32), (32,), (32,)))
    target = torch.rand(16, 32)

    def run() -> None:
        y = F.layer_norm(F.silu(x), (32,), weight, bias)
        F.huber_loss(F.gelu(y), target).backward()  # type: ignore[no-untyped-call]
        x.grad = weight.grad = bias.grad = None

    return run


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Measure the wall time of the same passes on one thread and on several.

    It runs in a new process: torch's flag for active modes is global, and modes that several threads enter leave it wrong.
    """
    progress("threads")
    rows = in_fresh_process("benchmarks.threads", str(settings.rounds), str(_PASSES // (10 if settings.quick else 1)))
    alone = rows[0]["times"]["ours"]
    figures = []
    for row in rows:
        many, times = f"{row['threads']} thread{'s' * (row['threads'] > 1)}", row["times"]
        figures.append(Figure.from_spread(f"ours / noop mode, {many}", Spread.of(ratios(times["ours"], times["noop"]))))
        figures.append(Figure.from_spread(f"ours / native, {many}", Spread.of(ratios(times["ours"], times["native"]))))
        if row["threads"] > 1:
            figures.append(Figure.from_spread(f"ours, {many} / 1 thread, same work", Spread.of(ratios(times["ours"], alone))))
        figures.append(Figure(f"programs held with {many}", row["programs"]))
    how = (
        "Wall time of a fixed number of small forward and backward passes, divided among threads. Each thread enters its own "
        "mode, and all share one cache. Python runs one thread at a time."
    )
    return Section("threads", "Threads", how, figures, rows=rows)


def _wall_seconds(members: list[tuple[AbstractContextManager[Any], Callable[[], Any]]], passes: int) -> float:
    """Return the seconds until all threads have run their passes. All start together."""
    start_together = threading.Barrier(len(members) + 1)
    failures: list[BaseException] = []

    def work(mode: AbstractContextManager[Any], run: Callable[[], Any]) -> None:
        try:
            start_together.wait()
            with mode:
                for _ in range(passes):
                    run()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=member) for member in members]
    for thread in threads:
        thread.start()
    start_together.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if failures:
        raise failures[0]
    return seconds


def _rows(rounds: int, passes: int) -> list[dict[str, Any]]:
    cache = ProgramCache()
    factories: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "native": nullcontext,
        "noop": Noop,
        "ours": lambda: EagerDecompMode(core_aten(), cache=cache),
    }
    rows: list[dict[str, Any]] = []
    with without_gc():
        for count in COUNTS:
            times: dict[str, list[float]] = {name: [] for name in factories}
            teams = {name: [(make(), _work()) for _ in range(count)] for name, make in factories.items()}
            for number in range(rounds + 1):
                for name, members in teams.items():
                    seconds = _wall_seconds(members, passes // count)
                    if number:  # round 0 is a warm-up
                        times[name].append(seconds)
            rows.append({"threads": count, "times": times, "programs": cache.info().programs})
    return rows


def main(arguments: list[str]) -> None:
    """Print the times for each number of threads as a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rounds, passes = map(int, arguments)
    print(json.dumps(_rows(rounds, passes)))


if __name__ == "__main__":
    main(sys.argv[1:])
