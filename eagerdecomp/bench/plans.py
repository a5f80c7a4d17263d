"""Plans: how long it takes to plan all of ATen, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable

from eagerdecomp.bench.figures import Figure, Section, Settings
from eagerdecomp.opset import core_aten, prims
from eagerdecomp.planning import plan

__all__ = ["measure"]

_SETS = {"Core ATen": core_aten, "prims": prims}


def measure(settings: Settings, tell: Callable[[str], None]) -> Section:
    """Plan all of ATen for sets of two kinds: one that most ops reach, and one that leaves much open."""
    figures, rows = [], []
    for name, ops in _SETS.items() if not settings.quick else [("Core ATen", core_aten)]:
        tell(f"plan: {name}")
        made = plan(ops())
        counts = ", ".join(f"{count} {status}" for status, count in made.counts.items())
        figures.append(Figure(f"all of ATen on {name}, seconds", made.seconds, note=counts))
        rows.append({"set": name, "seconds": made.seconds, **made.counts})
    how = "Every overload of ATen planned for a set: its routes, kernel calls and gradient, and the ten kernels to write next."
    return Section("plan", "Plan", how, figures, {}, rows)
