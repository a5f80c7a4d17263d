"""The table of all measurements; run them, and write the results as Markdown, JSON and a chart."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks import (
    bound,
    boxed,
    cold,
    compared,
    fused,
    growth,
    installs,
    kernels,
    linalg,
    memory,
    models,
    ops,
    plans,
    scans,
    start,
    threads,
    verify,
    writeback,
)
from benchmarks.chart import svg
from benchmarks.figures import Section, Settings, markdown, section_json

__all__ = ["FULL", "QUICK", "SECTIONS", "as_json", "as_svg", "as_text", "isolated", "machine", "run"]

#: Name for `--only` -> function that measures.
SECTIONS: dict[str, Callable[[Settings, Callable[[str], None]], Section]] = {
    "ops": ops.measure,
    "kernels": kernels.measure,
    "models": models.measure,
    "bound": bound.measure,
    "start": start.measure,
    "cold": cold.measure,
    "memory": memory.measure,
    "writeback": writeback.measure,
    "fused": fused.measure,
    "growth": growth.measure,
    "threads": threads.measure,
    "plan": plans.measure,
    "install": installs.measure,
    "boxed": boxed.measure,
    "verify": verify.measure,
    "compared": compared.measure,
    "linalg": linalg.measure,
    "scans": scans.measure,
}

FULL = Settings(quick=False, rounds=11, seconds=0.003)
QUICK = Settings(quick=True, rounds=3, seconds=0.0005)


def run(names: Sequence[str], settings: Settings, progress: Callable[[str], None]) -> list[Section]:
    """Run the named measurements, in the table's order. `progress` is called with a text for each step."""
    with isolated():
        return [measure(settings, progress) for name, measure in SECTIONS.items() if name in names]


@contextmanager
def isolated() -> Iterator[None]:
    """Run kernels on one thread, with their own seed and without warnings; restore all of it at the end."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(count)


def machine() -> dict[str, Any]:
    """Return the versions, the processor and the load of this machine."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": None if load is None else round(load, 1),
    }


def _machine_text() -> str:
    facts = machine()
    load = "" if facts["load"] is None else f", load {facts['load']}"
    return f"torch {facts['torch']}, Python {facts['python']}, {facts['machine']}, {facts['cores']} cores{load}"


def as_text(sections: Sequence[Section]) -> str:
    """Return all sections as Markdown."""
    head = (
        f"{_machine_text()}; one thread. Times are CPU times of the thread. The contestants take turns in one process, and each "
        "ratio is of times of the same round."
    )
    return "\n".join([head, "", *map(markdown, sections)])


def as_json(sections: Sequence[Section], settings: Settings) -> dict[str, Any]:
    """Return all sections, with all single results, as values that JSON can hold."""
    measured = {"quick": settings.quick, "rounds": settings.rounds, "seconds": settings.seconds}
    return {"machine": machine(), "settings": measured, "sections": [section_json(section) for section in sections]}


def as_svg(sections: Sequence[Section]) -> str:
    """Return the chart of all sections, as SVG."""
    return svg(sections, _machine_text())
