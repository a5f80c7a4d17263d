"""The page about the differences of two runs: the distance over the calls as a chart, differences, and distances per module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eagerdecomp.host.html import count_text, counted, render
from eagerdecomp.recording.differences import RankDifferences, RunDifferences
from eagerdecomp.recording.text import differences_text, off_text, verdict

__all__ = ["page"]

# The size of the chart. Its vertical axis has a distance from 1e-17 (also 0) to 10.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 1000, 260, 44, 20
_LEAST, _MOST = -17.0, 1.0


@dataclass(frozen=True)
class _Point:
    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True)
class _ModuleRow:
    module: str
    calls: int
    largest: float
    first: str


def page(found: RunDifferences) -> str:
    """Return the differences as HTML."""
    ranks = [_rank(one) for one in found.ranks]
    alone = sum(len(calls) for one in found.ranks for calls in one.unmatched)
    wrong = sum(len(one.found) for one in found.ranks)
    return render(
        "eagerdecomp.recording",
        "diff.html.jinja",
        title=f"{found.folders[0]} and {found.folders[1]}",
        verdicts=[("bad" if one else "good", _sentence(one, len(found.ranks))) for one in found.ranks],
        facts={},
        tiles=[
            ("calls compared", count_text(found.compared), counted(len(found.ranks), "rank")),
            ("kinds of wrong calls", count_text(wrong), "ops by module and phase, with inputs that agree"),
            ("random", count_text(sum(len(one.random) for one in found.ranks)), "ops by module that drew other numbers"),
            ("without a partner", count_text(alone), "calls of one run"),
        ],
        sections={"chart": "Distance over the calls", "differences": "First differences", "modules": "Modules", "text": "As text"},
        ranks=ranks,
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        floor=_HEIGHT - _BOTTOM,
        levels=[(_y(10.0**power), f"1e{power}" if power else "1") for power in range(-16, 1, 4)],
        text=differences_text(found),
        off_text=off_text,
    )


def _sentence(one: RankDifferences, count: int) -> str:
    return (f"rank {one.rank}: " if count > 1 else "") + verdict(one)


def _rank(one: RankDifferences) -> dict[str, Any]:
    last = max(1, len(one.runs[0].calls) - 1)
    marks = [
        (row, _LEFT + (_WIDTH - _LEFT) * row.first.number / last, "bad" if row.kind != "random" else "warn")
        for row in (*one.found, *one.random)
    ]
    rows = sorted((*one.found, *one.random), key=lambda row: row.first.number)
    return {"rank": one.rank, "points": _points(one, last), "marks": marks, "rows": rows, "modules": _modules(one), "last": last}


def _points(one: RankDifferences, last: int) -> Sequence[_Point]:
    """Return a point for each pixel of the chart: the largest distance of the calls there."""
    largest: dict[int, tuple[float, int]] = {}
    for number, off in one.distances:
        column = round((_WIDTH - _LEFT) * number / last)
        if column not in largest or off > largest[column][0]:
            largest[column] = (off, number)
    calls = one.runs[0].calls
    return [
        _Point(_LEFT + column, _y(off), calls.site(number).phase, f"call {number}, {calls.site(number).op}: {off_text(off)}")
        for column, (off, number) in sorted(largest.items())
    ]


def _y(off: float) -> float:
    level = min(_MOST, max(_LEAST, math.log10(off))) if 0 < off < math.inf else _LEAST if off == 0 else _MOST
    return round((_HEIGHT - _BOTTOM) * (_MOST - level) / (_MOST - _LEAST), 1)


def _modules(one: RankDifferences) -> list[_ModuleRow]:
    counts: dict[str, int] = {}
    largest: dict[str, float] = {}
    for number, off in one.distances:
        module = one.runs[0].calls.site(number).module
        counts[module] = counts.get(module, 0) + 1
        largest[module] = max(off, largest.get(module, 0.0))
    firsts: dict[str, str] = {}
    for row in one.found:
        firsts.setdefault(row.first.module, f"call {row.first.number}, {row.first.op}")
    rows = [_ModuleRow(name, count, largest[name], firsts.get(name, "")) for name, count in counts.items()]
    return sorted(rows, key=lambda row: -row.largest)
