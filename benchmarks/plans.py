"""Measure how long it takes to plan all of ATen, and count the results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import Net, chosen, job
from eagerdecomp.coverage.analysis import plan
from eagerdecomp.ops.opset import OpSet, core_aten, infra, prims

__all__ = ["measure"]

#: Ops of a small set, with which a backend may begin.
_FEW = (
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
    f"{len(_FEW)} ops beside infra()": lambda: infra() | [f"aten.{op}" for op in _FEW],
    "infra() alone": infra,
}


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Plan all of ATen for large sets and for small ones that leave many ops without a route; also plan the ops of models."""
    figures, rows = [], []
    for name, ops in [*_SETS.items()][: 1 if settings.quick else None]:
        progress(f"plan: {name}")
        made = plan(ops())
        counts = ", ".join(f"{count} {status}" for status, count in made.counts.items())
        figures.append(Figure(f"all of ATen on {name}, seconds", made.seconds, note=counts))
        rows.append({"set": name, "seconds": made.seconds, **made.counts})
    name, ops = [*_SETS.items()][2]
    found = []
    for net in chosen(settings.quick):
        progress(f"plan: {net.name}")
        found.append(plan(ops(), model=partial(_step, net)).seconds)
    figures.append(Figure(f"a model's step on {name}, seconds", median(found), min(found), max(found), f"{len(found)} models"))
    how = "Every overload of ATen planned for a set: its routes, kernel calls and gradient, and the ten kernels to write next."
    return Section("plan", "Plan", how, figures, {}, rows)


def _step(net: Net) -> Callable[[], object]:
    return job(net, "train").run
