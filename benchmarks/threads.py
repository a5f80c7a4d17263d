"""Threads: several threads, each inside a mode of its own, that share one cache."""

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

from benchmarks.figures import Figure, Section, Settings
from benchmarks.fresh import in_fresh_process
from benchmarks.rivals import Noop
from benchmarks.timing import Spread, quiet_collector, ratios
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["COUNTS", "measure"]

COUNTS = (1, 2, 4)
_PASSES = 100


def _work() -> Callable[[], Any]:
    """A few decomposed ops, forward and backward, on tensors that are no one else's."""
    x, weight, bias = (torch.rand(shape, requires_grad=True) for shape in ((16, 32), (32,), (32,)))
    target = torch.rand(16, 32)

    def run() -> None:
        y = F.layer_norm(F.silu(x), (32,), weight, bias)
        F.huber_loss(F.gelu(y), target).backward()  # type: ignore[no-untyped-call]
        x.grad = weight.grad = bias.grad = None

    return run


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Wall time of the same passes, dealt out to one thread or several; in a process of its own, since torch's flag for modes being
    on is the whole process's, and modes of its own class that several threads enter leave it wrong."""
    progress("threads")
    rows = in_fresh_process("benchmarks.threads", str(settings.rounds), str(_PASSES // (10 if settings.quick else 1)))
    alone = rows[0]["times"]["ours"]
    figures = []
    for row in rows:
        many, times = f"{row['threads']} thread{'s' * (row['threads'] > 1)}", row["times"]
        figures.append(Figure.of(f"ours / noop mode, {many}", Spread.of(ratios(times["ours"], times["noop"]))))
        figures.append(Figure.of(f"ours / native, {many}", Spread.of(ratios(times["ours"], times["native"]))))
        if row["threads"] > 1:
            figures.append(Figure.of(f"ours, {many} / 1 thread, same work", Spread.of(ratios(times["ours"], alone))))
        figures.append(Figure(f"programs held with {many}", row["programs"]))
    how = (
        "Wall time of a fixed number of small forward and backward passes, dealt out to threads that each enter a mode of their "
        "own with one cache for all. Python runs one thread at a time."
    )
    return Section("threads", "Threads", how, figures, rows=rows)


def _wall_seconds(crew: list[tuple[AbstractContextManager[Any], Callable[[], Any]]], passes: int) -> float:
    """Seconds until every thread has run its passes; all start together."""
    together = threading.Barrier(len(crew) + 1)
    failures: list[BaseException] = []

    def work(mode: AbstractContextManager[Any], run: Callable[[], Any]) -> None:
        try:
            together.wait()
            with mode:
                for _ in range(passes):
                    run()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=member) for member in crew]
    for thread in threads:
        thread.start()
    together.wait()
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
    with quiet_collector():
        for count in COUNTS:
            times: dict[str, list[float]] = {name: [] for name in factories}
            crews = {name: [(make(), _work()) for _ in range(count)] for name, make in factories.items()}
            for number in range(rounds + 1):
                for name, crew in crews.items():
                    seconds = _wall_seconds(crew, passes // count)
                    if number:  # the first round warms
                        times[name].append(seconds)
            rows.append({"threads": count, "times": times, "programs": cache.info().programs})
    return rows


def main(words: list[str]) -> None:
    """Print what every number of threads took as a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rounds, passes = map(int, words)
    print(json.dumps(_rows(rounds, passes)))


if __name__ == "__main__":
    main(sys.argv[1:])
