"""The record of a run: which ops were called, which kernels they reached, when, and from which line. It is stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from math import isfinite
from typing import Any, TypeVar

from eagerdecomp.errors import FileError
from eagerdecomp.host.source_lines import Line
from eagerdecomp.profile.perfetto import trace_text
from eagerdecomp.profile.rows import Bucket, Bypass, Event, Flow, KernelEvent, Metadata, Miss, Site, Unsupported

__all__ = ["Line", "Record"]

FORMAT = "eagerdecomp record"
VERSION = 1
_COMMAND = "eagerdecomp run --record FILE SCRIPT"
_WRITE_ONE = f"Write one with: {_COMMAND}"
_WRITE_AGAIN = f"Write it again with: {_COMMAND}"

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Record:
    """The record of a run. Its size is bounded: calls are counted by op and line, and only the first calls are stored one by one.

    Attributes:
        metadata: the run: script, op set, torch, times, threads, error.
        lines: the source lines of the calls; the other fields refer to them by index.
        sites: counts and times by op and line, the longest time first.
        flows: kernel calls by called op and kernel, the longest time first.
        buckets: counts of calls and of cached programs, for each interval of time with calls.
        bucket_seconds: the length of one interval.
        misses: the first cache misses, in order.
        misses_left_out: number of later misses, which are not stored.
        bypasses: calls that ran a rule instead of a cached program, by reason, the most frequent first.
        unsupported: calls without a route, in the order in which they were seen.
        events: the first calls, sorted by start time.
        events_left_out: number of later calls, which are not stored.
        notes: limits of this record, as text.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> with RecordingMode(ed.core_aten()) as mode:
        ...     y = torch.nn.functional.silu(torch.ones(2))
        >>> record = mode.record()
        >>> [(site.op, site.calls) for site in record.sites if "silu" in site.op]
        [('aten.silu.default', 1)]
    """

    metadata: Metadata
    lines: tuple[Line, ...] = ()
    sites: tuple[Site, ...] = ()
    flows: tuple[Flow, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    bucket_seconds: float = 0.0
    misses: tuple[Miss, ...] = ()
    misses_left_out: int = 0
    bypasses: tuple[Bypass, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    events: tuple[Event, ...] = ()
    events_left_out: int = 0
    notes: tuple[str, ...] = ()

    def to_perfetto(self) -> str:
        """Return the timeline as a trace for https://ui.perfetto.dev and chrome://tracing."""
        return trace_text(self.metadata, self.lines, self.events, self.buckets, self.bucket_seconds)

    def to_json(self) -> str:
        """Return the record as JSON, with a line for each row of its tables. `Record.from_json` reads it."""
        words: dict[str, int] = {}
        tables = {
            "lines": _table(Line, self.lines),
            "sites": _table(Site, self.sites),
            "flows": _table(Flow, self.flows),
            "buckets": _table(Bucket, self.buckets),
            "misses": _table(Miss, self.misses),
            "bypasses": _table(Bypass, self.bypasses),
            "unsupported": _table(Unsupported, self.unsupported),
            "events": {"columns": [one.name for one in fields(Event)], "rows": [_event_row(one, words) for one in self.events]},
        }
        plain = {"format": FORMAT, "version": VERSION, "metadata": asdict(self.metadata)}
        plain |= {name: getattr(self, name) for name in ("bucket_seconds", "misses_left_out", "events_left_out", "notes")}
        parts = [f"{_text(name)}: {_text(value)}" for name, value in plain.items()]
        parts.append(f'"words": [{_rows(list(words))}]')  # the strings of events, without repeats
        for name, table in tables.items():
            parts.append(f'{_text(name)}: {{"columns": {_text(table["columns"])}, "rows": [{_rows(table["rows"])}]}}')
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Return the record that `to_json` wrote.

        Args:
            text: the JSON text.

        Raises:
            FileError: for any other text, and for a record of another version.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileError(f"this is not a record of a run ({error}). {_WRITE_ONE}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise FileError(f'this is not a record of a run (it has no "format": "{FORMAT}"). {_WRITE_ONE}')
        if data.get("version") != VERSION:
            raise FileError(
                f"this record has version {data.get('version')!r}, and this eagerdecomp reads version {VERSION}. {_WRITE_AGAIN}"
            )
        try:
            whole = cls(
                _checked(Metadata(**{name: _frozen(value) for name, value in data["metadata"].items()})),
                lines=_read(Line, data["lines"]),
                sites=_read(Site, data["sites"]),
                flows=_read(Flow, data["flows"]),
                buckets=_read(Bucket, data["buckets"]),
                bucket_seconds=data["bucket_seconds"],
                misses=_read(Miss, data["misses"]),
                misses_left_out=data["misses_left_out"],
                bypasses=_read(Bypass, data["bypasses"]),
                unsupported=_read(Unsupported, data["unsupported"]),
                events=tuple(_event(row, data["words"]) for row in data["events"]["rows"]),
                events_left_out=data["events_left_out"],
                notes=tuple(data["notes"]),
            )
            made = _checked(whole)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise FileError(f"this record is damaged ({type(error).__name__}: {error}). {_WRITE_AGAIN}") from None
        placed: tuple[Site | Miss | Bypass | Unsupported | Event, ...]
        placed = (*made.sites, *made.misses, *made.bypasses, *made.unsupported, *made.events)
        for one in placed:
            if not 0 <= one.line < len(made.lines):
                words = f"{one.op} refers to line {one.line} of {len(made.lines)}"
                raise FileError(f"this record is damaged ({words}). {_WRITE_AGAIN}")
        return made


def _table(kind: type[Any], rows: tuple[Any, ...]) -> dict[str, Any]:
    return {"columns": [one.name for one in fields(kind)], "rows": [astuple(row) for row in rows]}


def _read(kind: type[_Row], table: Mapping[str, Any]) -> tuple[_Row, ...]:
    columns = table["columns"]
    return tuple(
        _checked(kind(**{name: _frozen(value) for name, value in zip(columns, row, strict=True)})) for row in table["rows"]
    )


def _checked(row: _Row) -> _Row:
    """Return the row, if its values have the declared types."""
    for one in fields(row):  # type: ignore[arg-type]
        value = getattr(row, one.name)
        if not _CHECKS.get(str(one.type), lambda _: True)(value):
            raise TypeError(f"{one.name} is {value!r:.80}")
    return row


def _words(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int),
    "int | None": lambda value: value is None or isinstance(value, int),
    "float": lambda value: isinstance(value, (int, float)) and isfinite(value),
    "tuple[str, ...]": _words,
    "tuple[tuple[str, ...], ...]": lambda value: isinstance(value, tuple) and all(map(_words, value)),
}


def _event_row(event: Event, words: dict[str, int]) -> list[Any]:
    """Return an event as a list, with numbers for repeated strings and a flat list of kernels."""

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    kernels = [item for one in event.kernels for item in (word(one.kernel), one.start, one.duration)]
    place = (event.line, event.thread, event.start, event.duration)
    return [word(event.op), *place, word(event.outcome), word(event.call), kernels]


def _event(row: list[Any], words: list[str]) -> Event:
    op, line, thread, start, duration, outcome, call, flat = row
    parts = iter(flat)
    kernels = tuple(
        _checked(KernelEvent(words[one], begin, length)) for one, begin, length in zip(parts, parts, parts, strict=True)
    )
    return _checked(Event(words[op], line, thread, start, duration, words[outcome], words[call], kernels))


def _rows(rows: list[Any]) -> str:
    return "".join(["\n", ",\n".join(map(_text, rows)), "\n"]) if rows else ""


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _frozen(value: Any) -> Any:
    """Return lists from JSON as tuples, recursively."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
