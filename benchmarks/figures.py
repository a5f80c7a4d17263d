"""The results of a measurement: figures in a section, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.timing import Spread, geometric_mean

__all__ = ["Figure", "Section", "Settings", "markdown", "section_json"]


@dataclass(frozen=True)
class Settings:
    """How much to measure.

    Attributes:
        quick: measure a small part, enough to see that it works.
        rounds: number of turns of each contestant.
        seconds: duration of a turn.
    """

    quick: bool
    rounds: int
    seconds: float


@dataclass(frozen=True)
class Figure:
    """A row of a section's table: a ratio, a time or a count. `low` and `high` are the quartiles, if it was measured repeatedly."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""

    @classmethod
    def from_spread(cls, name: str, spread: Spread, note: str = "") -> Figure:
        return cls(name, spread.median, spread.low, spread.high, note)

    @classmethod
    def over_models(cls, name: str, values: Sequence[float]) -> Figure:
        """Return the geometric mean of one value per model, with the least and the most as `low` and `high`."""
        return cls(name, geometric_mean(values), min(values), max(values), f"{len(values)} models; least to most")


@dataclass(frozen=True)
class Section:
    """The results of one measurement.

    Attributes:
        name: the name for `--only`.
        title: the heading.
        how: what was measured and how, in a few sentences.
        figures: the rows of the table.
        lists: heading -> entries, printed after the table, such as the worst ops.
        rows: all single results, for the JSON file.
    """

    name: str
    title: str
    how: str
    figures: Sequence[Figure]
    lists: dict[str, list[str]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)


def markdown(section: Section) -> str:
    """Return the section as Markdown: the table, then the lists."""
    lines = [f"### {section.title}", "", section.how, "", "| figure | value | quartiles | |", "|---|---|---|---|"]
    lines += [f"| {f.name} | {_number(f.value)} | {_quartiles(f)} | {f.note} |" for f in section.figures]
    for heading, entries in section.lists.items():
        lines += ["", f"{heading}: {'; '.join(entries) or 'none'}"]
    return "\n".join(lines) + "\n"


def section_json(section: Section) -> dict[str, Any]:
    """Return the section as values that JSON can hold."""
    return asdict(section)


def _quartiles(figure: Figure) -> str:
    return "" if figure.low is None or figure.high is None else f"{_number(figure.low)} to {_number(figure.high)}"


def _number(value: float) -> str:
    if float(value).is_integer():
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
