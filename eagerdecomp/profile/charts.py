"""The charts of a report as HTML and SVG: which ops reached which kernels, and counts over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eagerdecomp.host.html import render

__all__ = ["Ribbon", "Steps", "columns", "flow", "short_name"]

_PACKAGE = "eagerdecomp.profile"


@dataclass(frozen=True)
class Ribbon:
    """A flow from a called op to a kernel: its width and its kind (a CSS class)."""

    source: str
    target: str
    width: float
    kind: str


@dataclass(frozen=True)
class Steps:
    """Counts over time: their kind (a CSS class), the values, and whether to draw a line of steps or columns."""

    kind: str
    values: Sequence[float]
    stands: bool = False


# -- the flow --------------------------------------------------------------------------------------------------------

_WIDTH = 360  # width of the ribbons, in units that scale with the page
_LONGEST = 30  # maximum number of characters of a name
_AREA, _SLOT = 280, 17  # total height of all ribbons, and the additional height per bar


@dataclass
class _Bar:
    """A bar for an op on one side: its top, its height, and how much of the height ribbons use so far."""

    op: str
    number: int
    top: float
    height: float
    width: float
    taken: float = 0.0


@dataclass(frozen=True)
class _Drawn:
    """A ribbon between two bars, with its outline as an SVG path."""

    source: _Bar
    target: _Bar
    kind: str
    width: float
    path: str


def flow(
    ribbons: Sequence[Ribbon],
    width_text: Callable[[float], str],
    *,
    label: str,
    name: str,
    links: Mapping[str, str],
    most: int = 16,
) -> str:
    """Return a chart with the called ops on the left, kernels on the right, and ribbons between them.

    Args:
        ribbons: the flows.
        width_text: returns the text of a width.
        label: the accessible name of the chart.
        name: prefix of the ids in the chart.
        links: op -> address of its section.
        most: maximum number of ops that are drawn on each side; the others are merged.
    """
    source_of = _merged([(one.source, one.width) for one in ribbons], most)
    target_of = _merged([(one.target, one.width) for one in ribbons], most)
    widths: dict[tuple[str, str, str], float] = {}
    for one in ribbons:
        way = (source_of[one.source], target_of[one.target], one.kind)
        widths[way] = widths.get(way, 0.0) + one.width
    total = sum(widths.values()) or 1.0
    sources, targets = _sums(widths, 0), _sums(widths, 1)
    height = _AREA + _SLOT * max(len(sources), len(targets))
    others = {*source_of.values(), *target_of.values()} - {*source_of, *target_of}
    left = _side(sorted(sources, key=lambda op: (op in others, -sources[op], op)), sources, total, height)
    # Order kernels by the positions of their ops, so that few ribbons cross.
    pull = {
        op: sum(left[way[0]].top * width for way, width in widths.items() if way[1] == op) / (targets[op] or 1.0) for op in targets
    }
    right = _side(sorted(targets, key=lambda op: (op in others, pull[op], op)), targets, total, height)
    return render(
        _PACKAGE,
        "flow.html.jinja",
        width=_WIDTH,
        height=height,
        label=label,
        name=name,
        ribbons=list(_ribbons(widths, left, right)),
        left=left.values(),
        right=right.values(),
        width_text=width_text,
        links=links,
        short_name=short_name,
    )


def _merged(widths: Sequence[tuple[str, float]], most: int) -> dict[str, str]:
    """Return op -> name of its bar: its own for the widest ops, a common one for the others."""
    sums: dict[str, float] = {}
    for op, width in widths:
        sums[op] = sums.get(op, 0.0) + width
    ranked = sorted(sums, key=lambda op: (-sums[op], op))
    if len(ranked) <= most + 1:
        return {op: op for op in ranked}
    return {op: op if place < most else f"{len(ranked) - most} others" for place, op in enumerate(ranked)}


def _sums(widths: Mapping[tuple[str, str, str], float], end: int) -> dict[str, float]:
    sums: dict[str, float] = {}
    for way, width in widths.items():
        sums[way[end]] = sums.get(way[end], 0.0) + width
    return sums


def _side(order: Sequence[str], sums: Mapping[str, float], total: float, height: float) -> dict[str, _Bar]:
    slot = (height - _AREA) / max(1, len(order))
    places, top = {}, 0.0
    for number, op in enumerate(order):
        size = _AREA * sums[op] / total
        places[op] = _Bar(op, number, top + slot / 2, size, sums[op])
        top += slot + size
    return places


def _ribbons(widths: Mapping[tuple[str, str, str], float], left: Mapping[str, _Bar], right: Mapping[str, _Bar]) -> Iterator[_Drawn]:
    middle = _WIDTH / 2
    starts: dict[tuple[str, str, str], float] = {}
    for way in sorted(widths, key=lambda way: right[way[1]].top):
        place = left[way[0]]
        starts[way] = place.top + place.taken
        place.taken += place.height * widths[way] / (place.width or 1.0)
    for way in sorted(widths, key=lambda way: left[way[0]].top):
        source, target, width = left[way[0]], right[way[1]], widths[way]
        thick = source.height * width / (source.width or 1.0)
        y, z = starts[way], target.top + target.taken
        target.taken += thick
        thick = max(thick, 0.6)  # what is there can be seen
        path = (
            f"M0 {y:.1f}C{middle:g} {y:.1f} {middle:g} {z:.1f} {_WIDTH} {z:.1f}v{thick:.1f}"
            f"C{middle:g} {z + thick:.1f} {middle:g} {y + thick:.1f} 0 {y + thick:.1f}z"
        )
        yield _Drawn(source, target, way[2], width, path)


def short_name(op: str) -> str:
    """Return the short name of an op: ``gelu`` for ``aten.gelu.default``, cut to the maximum length."""
    name = op.removeprefix("aten.").removesuffix(".default")
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[: half - 1]}\u2026{name[-half:]}"


# -- counts over time ------------------------------------------------------------------------------------------------

_COLUMNS_WIDTH, _COLUMNS_HEIGHT, _TOP, _BOTTOM = 420, 130, 16, 18


def columns(steps: Steps, starts: Sequence[float], step: float, end: float, label: str) -> str:
    """Return a chart of counts over the seconds of a run, as columns or as a line of steps."""
    high = max(steps.values, default=0.0) or 1.0
    floor, room = _COLUMNS_HEIGHT - _BOTTOM, _COLUMNS_HEIGHT - _BOTTOM - _TOP
    end = max(end, max(starts, default=0.0) + step) or 1.0

    def x(seconds: float) -> float:
        return _COLUMNS_WIDTH * seconds / end

    line, bars = f"M0 {floor}", []
    for start, value in zip(starts, steps.values, strict=True):
        if steps.stands:
            line += f"H{x(start):.1f}V{floor - room * value / high:.1f}"
        elif value:
            bars.append((x(start), max(1.0, room * value / high), start, value))
    return render(
        _PACKAGE,
        "columns.svg.jinja",
        width=_COLUMNS_WIDTH,
        height=_COLUMNS_HEIGHT,
        floor=floor,
        top=_TOP,
        label=label,
        kind=steps.kind,
        line=f"{line}H{_COLUMNS_WIDTH}" if steps.stands else "",
        columns=bars,
        wide=max(1.0, x(step) - 0.5),
        most=high,
        end=end,
    )
