"""Measure one call of each op against the floor, a no-op mode, the naive mode, and plain eager."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.baselines import Naive, Noop, floor
from benchmarks.cases import COMMON, SIZES, TINY, Case, Size, selected_cases
from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import Contestant, Spread, joint_spread, race, ratios
from eagerdecomp._torch.ops import builtin
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["contestants", "measure"]

#: Figure -> (numerator, denominator) of its ratio.
RATIOS = {
    "ours / floor": ("ours", "floor"),
    "ours / noop mode": ("ours", "noop"),
    "naive / ours": ("naive", "ours"),
    "table / ours": ("table", "ours"),
    "ours / native": ("ours", "native"),
}
_WORST = 5


def contestants(case: Case, size: Size, mode: EagerDecompMode, naive: Naive) -> dict[str, Contestant]:
    """Return the ways to run one call. All call the op's builtin with the same arguments.

    The floor is included if the op is decomposed. The naive mode is included if torch's table has the op; otherwise
    that mode would run the op natively.
    """
    args, kwargs = case.args(size), case.kwargs(size)
    run = partial(builtin(case.op), *args, **kwargs)
    found = {"native": Contestant(run), "noop": Contestant(run, Noop()), "ours": Contestant(run, mode)}
    if case.op not in mode.backend.ops:
        found["floor"] = Contestant(run, floor(case.op, run, mode))
        if _decomposes(case, run, naive):
            found["naive"] = Contestant(run, naive)
            found["table"] = Contestant(run, Naive())
    return found


def _decomposes(case: Case, run: Callable[[], Any], naive: Naive) -> bool:
    try:
        with BackendRecorder() as seen, naive:
            run()
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return case.op not in seen.ops


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race all ways to run each case, in each size."""
    ops = core_aten()
    mode, naive = EagerDecompMode(ops), Naive(ops)
    rows: list[dict[str, Any]] = []
    for case in selected_cases(settings.quick):
        for size in (TINY,) if settings.quick else SIZES:
            progress(f"ops: {case.name}, {size.name}")
            times = race(contestants(case, size, mode, naive), settings.rounds, settings.seconds)
            rows.append({"op": case.name, "family": case.family, "size": size.name, "decomposed": "floor" in times, "times": times})
    for row in rows:
        row["ratios"] = {name: ratios(row["times"][a], row["times"][b]) for name, (a, b) in RATIOS.items() if _has_both(row, a, b)}
    return Section(
        "ops",
        "Ops",
        "One call of each op's builtin on Core ATen. Floor: the same kernel calls without checks, in the shortest possible mode. "
        "Noop: a mode that only calls the op. Naive: a mode that applies torch's decomposition table down to the same set. "
        "Table: the same, down to prims. Values are geometric means over the ops in each round; quartiles are over the rounds.",
        _figures(rows),
        _worst(rows),
        rows,
    )


def _has_both(row: dict[str, Any], numerator: str, denominator: str) -> bool:
    return numerator in row["times"] and denominator in row["times"]


def _figures(rows: list[dict[str, Any]]) -> list[Figure]:
    found: list[Figure] = []
    for name in RATIOS:
        for size in dict.fromkeys(row["size"] for row in rows):
            taken = [row["ratios"][name] for row in rows if name in row["ratios"] and row["size"] == size]
            if taken:
                found.append(Figure.from_spread(f"{name}, {size}", joint_spread(taken), f"{len(taken)} ops"))
    common = [row["ratios"]["ours / noop mode"] for row in rows if row["op"] in COMMON]
    if common:
        found.append(
            Figure.from_spread("ours / noop mode, common ops", joint_spread(common), f"{len(common)} calls, decomposed or not")
        )
    decomposed = [row for row in rows if row["decomposed"]]
    if decomposed:
        slower = sum(Spread.of(row["ratios"]["ours / floor"]).median > 1.15 for row in decomposed)
        found.append(Figure("calls over 1.15 of the floor", slower, note=f"of {len(decomposed)}"))
    return found


def _worst(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for name in RATIOS:
        ranked = [(Spread.of(row["ratios"][name]), row) for row in rows if name in row["ratios"]]
        ranked.sort(key=lambda pair: pair[0].median, reverse=name.startswith("ours"))
        lists[f"Worst {name}"] = [f"{row['op']} {row['size']} {spread}" for spread, row in ranked[:_WORST]]
    return lists
