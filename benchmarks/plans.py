"""Measure how long `plan` takes for all of ATen, and count the ops by status."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import Net, job, selected_nets
from eagerdecomp.coverage.analysis import plan
from eagerdecomp.ops.opset import OpSet, core_aten, infra, prims

__all__ = ["measure"]

#: A small set, as a new backend may have.
_SMALL_SET = (
    *("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "neg", "abs", "reciprocal", "exp", "log", "sqrt", "sin", "erf"),
    *("maximum", "minimum", "gt.Scalar", "eq.Tensor", "where.self", "_to_copy", "sum.dim_IntList", "amax", "mm", "bmm", "cat"),
    *(
        "full",
        "arange.start_step",
        "index.Tensor",
        "gather",
        "scatter_add",
        "permute",
        "expand",
        "view",
        "squeeze.dim",
        "unsqueeze",
    ),
)

_SETS: dict[str, Callable[[], OpSet]] = {
    "Core ATen": core_aten,
    "prims": prims,
    f"{len(_SMALL_SET)} ops beside infra()": lambda: infra() | [f"aten.{op}" for op in _SMALL_SET],
    "infra() alone": infra,
}


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Time plans of all of ATen for large and small sets, and plans of a training step of each model."""
    figures, rows = [], []
    for name, ops in [*_SETS.items()][: 1 if settings.quick else None]:
        progress(f"plan: {name}")
        planned = plan(ops())
        counts = ", ".join(f"{count} {status}" for status, count in planned.counts.items())
        figures.append(Figure(f"all of ATen on {name}, seconds", planned.seconds, note=counts))
        rows.append({"set": name, "seconds": planned.seconds, **planned.counts})
    name, ops = [*_SETS.items()][2]
    seconds = []
    for net in selected_nets(settings.quick):
        progress(f"plan: {net.name}")
        seconds.append(plan(ops(), model=partial(_step, net)).seconds)
    figures.append(
        Figure(f"a model's step on {name}, seconds", median(seconds), min(seconds), max(seconds), f"{len(seconds)} models")
    )
    how = "Each overload of ATen is planned for a set: routes, kernel calls, gradient, and the ten kernels to write next."
    return Section("plan", "Plan", how, figures, {}, rows)


def _step(net: Net) -> Callable[[], object]:
    return job(net, "train").run
