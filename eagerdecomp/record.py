"""A record: what a run called, what reached the backend, when and from which line, as a value that is kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any, TypeVar

from eagerdecomp.errors import RecordError

__all__ = ["Bucket", "Bypass", "Event", "Flow", "Head", "KernelEvent", "Line", "Miss", "Record", "Site", "Unsupported"]

FORMAT = "eagerdecomp record"
VERSION = 1

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Head:
    """What run it was.

    Attributes:
        script: what was run: a file, a module's name, or "" where a mode was entered by hand.
        args: the script's own arguments.
        op_set: what the set calls itself.
        on_unsupported: "error" or "fallback".
        torch: torch's version.
        eagerdecomp: this library's.
        python: Python's.
        started: when, in UTC, as ISO 8601 writes it.
        seconds: how long the run took, with all that recording it cost.
        recorder_seconds: of those, what the recorder itself was seen to take; the times of calls and kernels are without it. What
            torch takes to hand the recorder each kernel call is not in it, and is in the times of calls.
        exit_code: the script's; None where there was no script, or where it has not ended.
        error: the exception that ended the run ("ValueError: ..."), or "".
        devices: the devices there were.
        cpu_threads: threads that torch's kernels may use.
        threads: names of the threads that made calls; events refer to them by number.
    """

    script: str = ""
    args: tuple[str, ...] = ()
    op_set: str = ""
    on_unsupported: str = "error"
    torch: str = ""
    eagerdecomp: str = ""
    python: str = ""
    started: str = ""
    seconds: float = 0.0
    recorder_seconds: float = 0.0
    exit_code: int | None = None
    error: str = ""
    devices: tuple[str, ...] = ()
    cpu_threads: int = 0
    threads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A line that calls came from: the nearest one outside torch, this library and Python's own.

    Attributes:
        file: its file, "" where there was none (an autograd thread, beyond what is known of it).
        number: its number there.
        function: the function that it stands in.
        text: what it says, stripped, "" where the source is not there.
        backward: the autograd node that made the calls ("GeluBackward0"), "" outside of backward passes. The line is then the one
            of the forward call that the node is the gradient of, if that is known, else the one that called for gradients.
    """

    file: str
    number: int
    function: str
    text: str
    backward: str = ""


@dataclass(frozen=True)
class Site:
    """The calls of one op from one line. A call is one of `direct`, `hits`, ..., `failed`.

    Attributes:
        op: the op called: "aten.gelu.default".
        line: number of the line in `Record.lines`.
        calls: how many calls.
        seconds: time in them, from torch handing over the call to its result.
        kernel_seconds: of that, inside kernels of the backend.
        kernels: how many kernel calls they made.
        direct: calls that the kernel of the backend ran as they were, or that passed as plumbing.
        hits: decomposed by a linked rule or a stored program.
        misses: decomposed and recorded, as no stored program fitted.
        bypassed: decomposed by a rule that was run anew, with neither key nor program.
        fell_back: run natively although unsupported, as `on_unsupported="fallback"` has it.
        refused: without a route to the set: `UnsupportedOpError`.
        failed: ended in any other exception.
    """

    op: str
    line: int
    calls: int
    seconds: float
    kernel_seconds: float
    kernels: int
    direct: int = 0
    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    fell_back: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Flow:
    """The kernel calls of one kind that the calls of one op came to.

    Attributes:
        op: the op called.
        kernel: the op that reached the backend.
        calls: how many calls of that kernel.
        seconds: time in them.
        supported: whether the kernel is in the op set; one that is not got there by a fallback, or as plumbing.
    """

    op: str
    kernel: str
    calls: int
    seconds: float
    supported: bool = True


@dataclass(frozen=True)
class Bucket:
    """What happened in one stretch of time. Stretches in which nothing was called are left out.

    Attributes:
        start: where it begins, in seconds from the start of the run; each is `Record.bucket_seconds` long.
        programs: programs that the cache held at its end.
        calls, direct, hits, misses, bypassed, fell_back, refused, failed: the calls that ended in it, as in `Site`.
    """

    start: float
    programs: int
    calls: int
    direct: int = 0
    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    fell_back: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Miss:
    """One call that was recorded as a new program.

    Attributes:
        op: the op called.
        line: number of the line in `Record.lines`.
        at: when, in seconds from the start of the run.
        seconds: how long the call took.
        call: how it was called: "aten.gelu.default(f32[2, 3])".
        why: which facts were new.
    """

    op: str
    line: int
    at: float
    seconds: float
    call: str
    why: str


@dataclass(frozen=True)
class Bypass:
    """The calls of one op from one line that ran their rule anew for one reason."""

    op: str
    line: int
    calls: int
    why: str


@dataclass(frozen=True)
class Unsupported:
    """The calls of one op from one line that have no route to the set.

    Attributes:
        op: the op called.
        line: number of the line in `Record.lines`.
        calls: how many there were.
        native: whether they ran natively (`on_unsupported="fallback"`); else they raised.
        call: how the first was called.
        message: what its error says, or would have said.
        chain: the ops between the call and the op without a route, outermost first.
        missing: the ops at which the routes ended.
        openers: the fewest kernels that would open a route, each entry one alternative.
    """

    op: str
    line: int
    calls: int
    native: bool
    call: str
    message: str
    chain: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    openers: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class KernelEvent:
    """A kernel call on the timeline: its op, and its start and length in microseconds."""

    kernel: str
    start: float
    duration: float


@dataclass(frozen=True)
class Event:
    """A call on the timeline.

    Attributes:
        op: the op called.
        line: number of the line in `Record.lines`.
        thread: number of the thread in `Head.threads`.
        start: microseconds from the start of the run.
        duration: microseconds that it took, with what recording it cost.
        outcome: "direct", "hit", "miss", "bypassed", "fell back", "refused" or "failed".
        call: how it was called.
        kernels: the kernel calls in it, in their order.
    """

    op: str
    line: int
    thread: int
    start: float
    duration: float
    outcome: str
    call: str
    kernels: tuple[KernelEvent, ...] = ()


@dataclass(frozen=True)
class Record:
    """What a run did. Its size is bounded: calls are counted by op and line, and of single ones only the first are kept.

    Attributes:
        head: what run it was.
        lines: the lines that calls came from; everything else refers to them by number.
        sites: calls by op and line, the longest first.
        flows: kernel calls by op called and kernel reached, the longest first.
        buckets: calls and the cache over time.
        bucket_seconds: how long each of those is.
        misses: the first calls that were recorded, in their order.
        misses_left_out: how many there were beyond those.
        bypasses: calls that ran a rule anew, by reason, the most first.
        unsupported: calls without a route, in the order they were met.
        events: the first calls, by their start.
        events_left_out: how many there were beyond those.
        notes: what the record lacks, in sentences.
    """

    head: Head
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

    def to_json(self) -> str:
        """The record as JSON text, a line for each row of its tables; `Record.from_json` reads it."""
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
        plain = {"format": FORMAT, "version": VERSION, "head": asdict(self.head)}
        plain |= {name: getattr(self, name) for name in ("bucket_seconds", "misses_left_out", "events_left_out", "notes")}
        parts = [f"{_text(name)}: {_text(value)}" for name, value in plain.items()]
        parts.append(f'"words": [{_rows(list(words))}]')  # what events say, each once
        for name, table in tables.items():
            parts.append(f'{_text(name)}: {{"columns": {_text(table["columns"])}, "rows": [{_rows(table["rows"])}]}}')
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """The record that `to_json` wrote.

        Raises:
            RecordError: for any other text, and for a record of another version.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise RecordError(f"not a record, as eagerdecomp run --record writes one: {error}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise RecordError(f'not a record, as eagerdecomp run --record writes one: no "format": "{FORMAT}" in it')
        if data.get("version") != VERSION:
            raise RecordError(f"a record of version {data.get('version')!r}; this eagerdecomp reads version {VERSION}: record anew")
        try:
            made = cls(
                Head(**{name: _frozen(value) for name, value in data["head"].items()}),
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
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise RecordError(f"a record that lacks something: {type(error).__name__}: {error}") from None
        placed: tuple[Site | Miss | Bypass | Unsupported | Event, ...]
        placed = (*made.sites, *made.misses, *made.bypasses, *made.unsupported, *made.events)
        for one in placed:
            if not 0 <= one.line < len(made.lines):
                raise RecordError(f"a record that lacks something: {one.op} came from line {one.line} of {len(made.lines)}")
        return made


def _table(kind: type[Any], rows: tuple[Any, ...]) -> dict[str, Any]:
    return {"columns": [one.name for one in fields(kind)], "rows": [astuple(row) for row in rows]}


def _read(kind: type[_Row], table: Mapping[str, Any]) -> tuple[_Row, ...]:
    columns = table["columns"]
    return tuple(kind(**{name: _frozen(value) for name, value in zip(columns, row, strict=True)}) for row in table["rows"])


def _event_row(event: Event, words: dict[str, int]) -> list[Any]:
    """An event with its words as numbers, and its kernels flat: many say the same."""

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    kernels = [item for one in event.kernels for item in (word(one.kernel), one.start, one.duration)]
    place = (event.line, event.thread, event.start, event.duration)
    return [word(event.op), *place, word(event.outcome), word(event.call), kernels]


def _event(row: list[Any], words: list[str]) -> Event:
    op, line, thread, start, duration, outcome, call, flat = row
    parts = iter(flat)
    kernels = tuple(KernelEvent(words[one], begin, length) for one, begin, length in zip(parts, parts, parts, strict=True))
    return Event(words[op], line, thread, start, duration, words[outcome], words[call], kernels)


def _rows(rows: list[Any]) -> str:
    return "".join(["\n", ",\n".join(map(_text, rows)), "\n"]) if rows else ""


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _frozen(value: Any) -> Any:
    """Lists of JSON as the tuples that they were."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
