"""Measure inference, training steps and generation of models against a no-op mode and plain eager."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import KINDS, Net, chosen, job, jobs
from benchmarks.rivals import Noop
from benchmarks.timing import Contestant, Spread, joint, race, ratios
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

RATIOS = {"ours / noop mode": ("ours", "noop"), "ours / native": ("ours", "native")}


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race every pass of every model, each contestant with weights of its own."""
    mode = EagerDecompMode(core_aten())
    rows: list[dict[str, Any]] = []
    for net, kind in jobs(chosen(settings.quick)):
        progress(f"models: {net.name}, {kind}")
        times = race(_contestants(net, kind, mode), settings.rounds, 4 * settings.seconds)
        found = {name: ratios(times[over], times[under]) for name, (over, under) in RATIOS.items()}
        rows.append({"model": net.name, "kind": kind, "times": times, "ratios": found})
    figures = [
        Figure.of(f"{name}, {kind}", joint([row["ratios"][name] for row in rows if row["kind"] == kind]), _models(rows, kind))
        for name in RATIOS
        for kind in KINDS
    ]
    each = {
        f"Ours / noop mode, {kind}": [
            f"{row['model']} {Spread.of(row['ratios']['ours / noop mode'])}" for row in rows if row["kind"] == kind
        ]
        for kind in KINDS
    }
    how = (
        "One pass of a small model: a forward without gradients; a step of forward, backward and AdamW in its foreach form; eight "
        "tokens written one by one. Geometric means over the models."
    )
    return Section("models", "Models", how, figures, each, rows)


def _models(rows: list[dict[str, Any]], kind: str) -> str:
    return f"{sum(row['kind'] == kind for row in rows)} models"


def _contestants(net: Net, kind: str, mode: EagerDecompMode) -> dict[str, Contestant]:
    ways: dict[str, AbstractContextManager[Any]] = {"native": nullcontext(), "noop": Noop(), "ours": mode}
    return {name: Contestant(job(net, kind).run, way) for name, way in ways.items()}
