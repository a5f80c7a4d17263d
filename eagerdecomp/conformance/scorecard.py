"""The state of a backend as a value that can be compared: kernels, overloads, OpInfos and models, each with a state.

The JSON of a scorecard is an object with these fields:

- ``format``: 1. It is incremented when a field changes its meaning; other formats are refused.
- ``backend``, ``torch``, ``eagerdecomp``, ``date`` (UTC, ISO 8601), ``seconds``: what was scored, with which versions, and when.
- ``quick``: whether only few inputs were tried. Two cards are comparable if it is equal in both.
- ``own``: how many ops run a kernel of the backend's own, in Python or of its device; the others run torch's. Null if unknown.
- ``counts``: for each section of `SECTIONS`, how many names are ``good``, and ``of`` how many. The numbers of a dashboard.
- ``kernels``, ``overloads``, ``opinfos``, ``models``: the sections, each an object of names. The value of a name is an object with
  its ``state`` and, if there is more to say, a ``detail``. A key of ``SECTIONS[section].states`` is a state.
- ``next_kernels``: the kernels to write next, the one that enables the most overloads first: ``op``, and ``enables``, a number.
- ``history``: the ``date``, ``quick`` and ``counts`` of older cards, the oldest first: the history of the card of ``--since``, and
  that card itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eagerdecomp.conformance.reports.words import one_line
from eagerdecomp.errors import FileError
from eagerdecomp.host.html import counted, duration_text

__all__ = ["FORMAT", "SECTIONS", "CardComparison", "Result", "Scorecard", "Section"]

#: The format of scorecards.
FORMAT = 1

_COMMAND = "eagerdecomp scorecard MODULE:BACKEND --json FILE"

# States that are not listed by name on the page: a new backend has thousands of them.
_TO_BE_EXPECTED = ("absent", "missing", "unknown", "outside")

# How many names a list of the page has at most.
_SHOWN = 30


class Result(NamedTuple):
    """The state of a kernel, an overload, an OpInfo or a model, and why."""

    state: str
    detail: str = ""


class Section(NamedTuple):
    """A section of a scorecard: its title, its states with their meanings, and the states that are good."""

    title: str
    states: Mapping[str, str]
    good: tuple[str, ...]


_DIFFERS = "a result differs"
_LOST = {"crashed": "ended the process", "hung": "did not end"}
_ENDS = {"unsupported": "an op has no route", "error": "raised an error that eager does not raise", **_LOST}

#: The sections, in the order of the page.
SECTIONS: Mapping[str, Section] = {
    "kernels": Section(
        "kernels right",
        {
            "right": "nothing wrong was found",
            "wrong": "differs from eager",
            "not exercised": "no call could be compared",
            "absent": "an op of Core ATen without a kernel",
        },
        ("right",),
    ),
    "overloads": Section(
        "overloads closed",
        {
            "supported": "in the set",
            "passes": "computes nothing, so it runs natively",
            "closed": "every recorded call decomposes to the kernels",
            "partly": "some recorded calls do",
            "missing": "none does",
            "unknown": "has no recorded call",
            "outside": "not decomposed",
        },
        ("supported", "passes", "closed"),
    ),
    "opinfos": Section(
        "OpInfos pass", {"passes": "all samples are as in eager", "wrong": "a result differs", **_ENDS}, ("passes",)
    ),
    "models": Section(
        "models run",
        {
            "trains": "results and losses are as in eager",
            "runs": "results are as in eager, training is not",
            "wrong": _DIFFERS,
            **_ENDS,
        },
        ("trains", "runs"),
    ),
}


@dataclass(frozen=True)
class CardComparison:
    """The change since an older scorecard. Each row is a section, a name, and the states before and now.

    Attributes:
        better: what is good now and was not.
        worse: what was good and is not now, or is gone.
        notes: differences that make the cards hard to compare.
    """

    better: tuple[tuple[str, str, str, str], ...]
    worse: tuple[tuple[str, str, str, str], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scorecard:
    """The state of a backend. The docstring of this module describes the fields."""

    backend: str
    torch: str
    eagerdecomp: str
    date: str
    quick: bool
    seconds: float
    sections: Mapping[str, Mapping[str, Result]]
    next_kernels: tuple[tuple[str, int], ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    own: int | None = None

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """For each section, how many names are good, and of how many."""
        return {
            name: {"good": sum(one.state in section.good for one in self.sections[name].values()), "of": len(self.sections[name])}
            for name, section in SECTIONS.items()
        }

    @property
    def supported(self) -> int:
        """The number of ops of the backend, with kernels of its own or torch's."""
        return sum(one.state != "absent" for one in self.sections["kernels"].values())

    def after(self, old: Scorecard) -> tuple[Mapping[str, Any], ...]:
        """Return the history of a card that follows an older one."""
        return (*old.history, {"date": old.date, "quick": old.quick, "counts": old.counts})

    def compare(self, old: Scorecard) -> CardComparison:
        """Return the change since an older card. A name that only this card has is not compared, unless it is a good kernel."""
        better: list[tuple[str, str, str, str]] = []
        worse: list[tuple[str, str, str, str]] = []
        for section, (_, _, good) in SECTIONS.items():
            then, now = old.sections[section], self.sections[section]
            for name in sorted({*then, *now}):
                was, is_now = (found.state if (found := side.get(name)) else "absent" for side in (then, now))
                if (was in good) != (is_now in good) and (section == "kernels" or (name in then and name in now)):
                    (better if is_now in good else worse).append((section, name, was, is_now))
        facts = ("backend", "torch", "eagerdecomp", "quick")
        different = [f"{fact} was {getattr(old, fact)}" for fact in facts if getattr(old, fact) != getattr(self, fact)]
        return CardComparison(tuple(better), tuple(worse), tuple(different))

    # -- JSON --------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the card as JSON text, a line per name, which `from_json` reads."""
        facts = ("backend", "torch", "eagerdecomp", "date", "quick", "seconds", "own")
        rows = {name: {key: _row(one) for key, one in found.items()} for name, found in self.sections.items()}
        kernels = [{"op": op, "enables": enables} for op, enables in self.next_kernels]
        fields: dict[str, Any] = {"format": FORMAT, **{name: getattr(self, name) for name in facts}, "counts": self.counts}
        return json.dumps({**fields, **rows, "next_kernels": kernels, "history": self.history}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Scorecard:
        """Return the card that `to_json` wrote.

        Raises:
            FileError: if the text is no scorecard, is damaged, or has another format.
        """
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or "overloads" not in data:
                raise FileError(f"this is not a scorecard (it has no overloads). Write one with: {_COMMAND}")
            if data.get("format") != FORMAT:
                words = f"this scorecard has format {data.get('format')}, and this version reads format {FORMAT}"
                raise FileError(f"{words}. Write it again with: {_COMMAND}")
            sections = {
                name: {key: Result(str(row["state"]), str(row.get("detail", ""))) for key, row in data[name].items()}
                for name in SECTIONS
            }
            card = Scorecard(
                **{name: str(data[name]) for name in ("backend", "torch", "eagerdecomp", "date")},
                quick=bool(data["quick"]),
                seconds=float(data["seconds"]),
                sections=sections,
                next_kernels=tuple((str(row["op"]), int(row["enables"])) for row in data["next_kernels"]),
                history=tuple(_entry(row) for row in data["history"]),
                own=None if data.get("own") is None else int(data["own"]),
            )
            unknown = [f"{name} has the state {one.state!r}" for name in SECTIONS for one in _unknown(name, sections[name])]
            if unknown or card.counts != data["counts"]:
                words = unknown[0] if unknown else "its counts are not those of its sections"
                raise FileError(f"this scorecard is damaged: {words}. Write it again with: {_COMMAND}")
        except FileError:
            raise
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
            words = f"this is not a scorecard, or a damaged one ({type(error).__name__}: {error})"
            raise FileError(f"{words}. Write one with: {_COMMAND}") from None
        return card

    # -- the page ----------------------------------------------------------------------------------------------------

    def page(self, change: CardComparison | None = None) -> str:
        """Return the card as Markdown: counts over time, what is not good, the next kernels, and the change since an older card."""
        return "\n".join([*self._head(), *_changes(change), *self._next(), *self._rest()]) + "\n"

    def _head(self) -> Iterator[str]:
        how = "quick: few inputs" if self.quick else "full"
        yield f"# Scorecard of {one_line(self.backend)}"
        yield ""
        yield f"{self.date}, torch {self.torch}, eagerdecomp {self.eagerdecomp}, {how}, {duration_text(self.seconds)}."
        own = "" if self.own is None else f", {self.own} of them with a kernel of the backend's own; the others run torch's"
        yield f"{counted(self.supported, 'op')} in the set{own}."
        yield ""
        yield "| date | " + " | ".join(section.title for section in SECTIONS.values()) + " |"
        yield "|---" * (1 + len(SECTIONS)) + "|"
        for row in (*self.history, {"date": self.date, "quick": self.quick, "counts": self.counts}):
            cells = [f"{row['counts'][name]['good']} of {row['counts'][name]['of']}" for name in SECTIONS]
            yield f"| {row['date'][:10]}{' (quick)' if row['quick'] else ''} | " + " | ".join(cells) + " |"

    def _next(self) -> Iterator[str]:
        if self.next_kernels:
            yield from ("", "## Kernels to write next", "")
            yield from (f"- `{op}` enables {counted(enables, 'overload')}" for op, enables in self.next_kernels)

    def _rest(self) -> Iterator[str]:
        for name, (title, states, good) in SECTIONS.items():
            found = Counter(one.state for one in self.sections[name].values())
            yield from ("", f"## {title[0].upper()}{title[1:]}", "")
            yield from (f"- {found[state]} {state}: {meaning}" for state, meaning in states.items() if found[state])
            bad = [
                (key, one) for key, one in self.sections[name].items() if one.state not in (*good, "absent", "unknown", "outside")
            ]
            lines = [f"`{key}`: {one.state}" + (f": {_cell(one.detail)}" if one.detail else "") for key, one in bad]
            yield from ("", *_listed(lines)) if lines else ()


def _changes(change: CardComparison | None) -> Iterator[str]:
    if change is None:
        return
    yield from ("", "## Since the last scorecard", "")
    for words, rows in (("worse", change.worse), ("better", change.better)):
        yield f"{words}: {len(rows)}"
        yield from ("", *_listed([f"{section} `{name}`: {was} → {now}" for section, name, was, now in rows]), "") if rows else ("",)
    yield from (f"note: {one_line(note)}" for note in change.notes)


def _listed(rows: Sequence[str]) -> Iterator[str]:
    yield from (f"- {row}" for row in rows[:_SHOWN])
    if len(rows) > _SHOWN:
        yield f"- and {len(rows) - _SHOWN} more, in the JSON file"


def _cell(text: str) -> str:
    """Return text of a user as one line of Markdown that has no effect."""
    return "".join(f"\\{char}" if char in "\\`*_<>[]|#" else char for char in one_line(text)[:200])


def _row(one: Result) -> dict[str, str]:
    return {"state": one.state, "detail": one.detail} if one.detail else {"state": one.state}


def _unknown(section: str, found: Mapping[str, Result]) -> list[Result]:
    return [one for one in found.values() if one.state not in SECTIONS[section].states]


def _entry(row: Any) -> dict[str, Any]:
    """Return an entry of a history."""
    counts = {name: {key: int(row["counts"][name][key]) for key in ("good", "of")} for name in SECTIONS}
    return {"date": str(row["date"]), "quick": bool(row["quick"]), "counts": counts}
