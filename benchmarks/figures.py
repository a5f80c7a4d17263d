"""Figures: what a measurement found, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.timing import Spread, geometric_mean

__all__ = ["Figure", "Section", "Settings", "markdown", "section_json"]


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        quick: a small part of everything, enough to see that it works.
        rounds: how often each contestant has its turn.
        seconds: how long a turn is.
    """

    quick: bool
    rounds: int
    seconds: float


@dataclass(frozen=True)
class Figure:
    """One number of a section's table: a ratio or a count, with its spread where it has one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""

    @classmethod
    def of(cls, name: str, spread: Spread, note: str = "") -> Figure:
        return cls(name, spread.median, spread.low, spread.high, note)

    @classmethod
    def between(cls, name: str, values: Sequence[float]) -> Figure:
        """The geometric mean of what models gave, between the least and the most."""
        return cls(name, geometric_mean(values), min(values), max(values), f"{len(values)} models; least to most")


@dataclass(frozen=True)
class Section:
    """One measurement's figures.

    Attributes:
        name: as `--only` spells it.
        title: for people.
        how: in a sentence or two, what was done.
        figures: the table.
        lists: further lines under a heading each, such as the worst ops.
        rows: every single result, for the JSON file.
    """

    name: str
    title: str
    how: str
    figures: Sequence[Figure]
    lists: dict[str, list[str]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)


def markdown(section: Section) -> str:
    """The section as Markdown: its table, then its lists."""
    lines = [f"### {section.title}", "", section.how, "", "| figure | value | quartiles | |", "|---|---|---|---|"]
    lines += [f"| {f.name} | {_number(f.value)} | {_quartiles(f)} | {f.note} |" for f in section.figures]
    for heading, entries in section.lists.items():
        lines += ["", f"{heading}: {'; '.join(entries) or 'none'}"]
    return "\n".join(lines) + "\n"


def section_json(section: Section) -> dict[str, Any]:
    """The section as plain values."""
    return asdict(section)


def _quartiles(figure: Figure) -> str:
    return "" if figure.low is None or figure.high is None else f"{_number(figure.low)} to {_number(figure.high)}"


def _number(value: float) -> str:
    if float(value).is_integer():
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
