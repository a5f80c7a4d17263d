"""Measure one call of each op against the floor, a no-op mode, the naive mode, and plain eager."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.cases import COMMON, SIZES, TINY, Case, Size, chosen
from benchmarks.figures import Figure, Section, Settings
from benchmarks.rivals import Naive, Noop, floor
from benchmarks.timing import Contestant, Spread, joint, race, ratios
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
    """The ways to run one call, all of the op's builtin with the same arguments. The floor is there where the op is decomposed, the
    naive mode where it decomposes the op: it runs an op that torch's table lacks as it is."""
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
    """Time every case in every size, in each of the ways."""
    ops = core_aten()
    mode, naive = EagerDecompMode(ops), Naive(ops)
    rows: list[dict[str, Any]] = []
    for case in chosen(settings.quick):
        for size in (TINY,) if settings.quick else SIZES:
            progress(f"ops: {case.name}, {size.name}")
            times = race(contestants(case, size, mode, naive), settings.rounds, settings.seconds)
            rows.append({"op": case.name, "family": case.family, "size": size.name, "decomposed": "floor" in times, "times": times})
    for row in rows:
        row["ratios"] = {name: ratios(row["times"][a], row["times"][b]) for name, (a, b) in RATIOS.items() if _both(row, a, b)}
    return Section(
        "ops",
        "Ops",
        "One call of each op's builtin on Core ATen. Floor: the same kernels in a straight line behind the leanest mode. Noop: a "
        "mode that only calls on, written as usual. Naive: torch's table in a mode, down to the same set; table: the same without "
        "a set, down to prims. Geometric means over the ops in each round; quartiles are over the rounds.",
        _figures(rows),
        _worst(rows),
        rows,
    )


def _both(row: dict[str, Any], over: str, under: str) -> bool:
    return over in row["times"] and under in row["times"]


def _figures(rows: list[dict[str, Any]]) -> list[Figure]:
    found: list[Figure] = []
    for name in RATIOS:
        for size in dict.fromkeys(row["size"] for row in rows):
            taken = [row["ratios"][name] for row in rows if name in row["ratios"] and row["size"] == size]
            if taken:
                found.append(Figure.of(f"{name}, {size}", joint(taken), f"{len(taken)} ops"))
    common = [row["ratios"]["ours / noop mode"] for row in rows if row["op"] in COMMON]
    if common:
        found.append(Figure.of("ours / noop mode, common ops", joint(common), f"{len(common)} calls, decomposed or not"))
    over = [row for row in rows if row["decomposed"]]
    if over:
        late = sum(Spread.of(row["ratios"]["ours / floor"]).median > 1.15 for row in over)
        found.append(Figure("calls over 1.15 of the floor", late, note=f"of {len(over)}"))
    return found


def _worst(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for name in RATIOS:
        ranked = [(Spread.of(row["ratios"][name]), row) for row in rows if name in row["ratios"]]
        ranked.sort(key=lambda pair: pair[0].median, reverse=name.startswith("ours"))
        lists[f"Worst {name}"] = [f"{row['op']} {row['size']} {spread}" for spread, row in ranked[:_WORST]]
    return lists
