"""Measure inference, training steps and generation of models against a no-op mode and plain eager."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchmarks.baselines import Noop
from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import KINDS, Net, job, jobs, selected_nets
from benchmarks.timing import Contestant, Spread, joint_spread, race, ratios
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

RATIOS = {"ours / noop mode": ("ours", "noop"), "ours / native": ("ours", "native")}


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race each kind of pass of each model. Each contestant has its own weights."""
    mode = EagerDecompMode(core_aten())
    rows: list[dict[str, Any]] = []
    for net, kind in jobs(selected_nets(settings.quick)):
        progress(f"models: {net.name}, {kind}")
        times = race(_contestants(net, kind, mode), settings.rounds, 4 * settings.seconds)
        found = {name: ratios(times[over], times[under]) for name, (over, under) in RATIOS.items()}
        rows.append({"model": net.name, "kind": kind, "times": times, "ratios": found})
    figures = [
        Figure.from_spread(
            f"{name}, {kind}", joint_spread([row["ratios"][name] for row in rows if row["kind"] == kind]), _model_count(rows, kind)
        )
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
        "One pass of a small model. Infer: a forward without gradients. Train: forward, backward and a step of AdamW with foreach "
        "ops. Generate: eight tokens, one after another. Values are geometric means over the models."
    )
    return Section("models", "Models", how, figures, each, rows)


def _model_count(rows: list[dict[str, Any]], kind: str) -> str:
    return f"{sum(row['kind'] == kind for row in rows)} models"


def _contestants(net: Net, kind: str, mode: EagerDecompMode) -> dict[str, Contestant]:
    contexts: dict[str, AbstractContextManager[Any]] = {"native": nullcontext(), "noop": Noop(), "ours": mode}
    return {name: Contestant(job(net, kind).run, context) for name, context in contexts.items()}
