"""The counters of a recording: counted per thread while calls run, and summed on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.host.source_lines import UserLines
from eagerdecomp.profile.rows import Bucket, Bypass, Event, Flow, KernelEvent, Site

__all__ = ["OUTCOMES", "RunningCall", "Tally", "Timeline", "buckets_of", "bypasses_of", "flows_of", "sites_of"]

#: The outcomes of a call, in the order of the counts in a row, and as the timeline names them.
OUTCOMES = ("direct", "hit", "miss", "bypassed", "fell back", "refused", "failed")

_FIRST_BUCKET_NS = 10_000_000
_MOST_BUCKETS = 256
_MOST_SITES = 20_000

#: Indices in a row of counts of a site: calls, time, time in kernels, kernel calls, then one count per outcome.
_CALLS, _TIME, _KERNEL_TIME, _KERNELS, _OUTCOMES = 0, 1, 2, 3, 4


class RunningCall:
    """The current call of a thread.

    Attributes:
        spent: time in ns that the recorder took during the call; it is subtracted.
        line: number of the line that made it.
        text: the call as text; "" if it was not needed.
        quiet: whether recording is suspended, because a Python kernel of the backend or the recorder itself is running.
        slices: the kernel calls for the timeline, with start and end; None if the call is not on the timeline.
        fell_back: whether it ran natively.
    """

    __slots__ = ("fell_back", "kernel_ns", "kernels", "line", "op", "quiet", "slices", "spent", "text")

    def __init__(self, op: OpOverload) -> None:
        self.op = op
        self.line = -1
        self.text = ""
        self.kernels = 0
        self.kernel_ns = 0
        self.spent = 0
        self.quiet = False
        self.slices: list[tuple[Any, int, int]] | None = None
        self.fell_back = False


class Timeline:
    """The first calls of a run, up to a limit. Each call and each kernel call counts towards the limit."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.events: list[tuple[RunningCall, int, int, int, int]] = []

    def takes(self) -> bool:
        """Return whether there is room for one more call, and count it."""
        room = self.room > 0
        self.room -= room
        return room

    def keep(self, call: RunningCall, thread: int, begun: int, ended: int, outcome: int) -> None:
        """Store a call that has ended."""
        self.events.append((call, thread, begun, ended, outcome))

    def events_of(self, start: int) -> tuple[Event, ...]:
        """Return the events, the first begun first. Their times are relative to `start`."""
        made = []
        for call, thread, begun, ended, outcome in sorted(self.events, key=lambda event: event[2]):
            slices = call.slices or ()
            kernels = tuple(KernelEvent(str(one), _us(first - start), _us(last - first)) for one, first, last in slices)
            place = (call.line, thread, _us(begun - start), _us(ended - begun))
            made.append(Event(str(call.op), *place, OUTCOMES[outcome], call.text, kernels))
        return tuple(made)


class Tally:
    """The counts of one thread."""

    __slots__ = (
        *("buckets", "bypasses", "call", "calls", "flows", "forward", "ident", "lines", "name", "number"),
        *("programs", "sites", "spent", "width"),
    )

    def __init__(self, number: int, name: str, ident: int, lines: UserLines) -> None:
        self.number = number
        self.name = name
        self.ident = ident
        self.lines = lines
        self.forward = lines.of_thread()
        self.call: RunningCall | None = None
        self.calls = 0
        self.spent = 0
        self.sites: dict[tuple[Any, int], list[int]] = {}
        self.flows: dict[tuple[Any, Any], list[int]] = {}
        self.buckets: dict[int, list[int]] = {}
        self.width = _FIRST_BUCKET_NS
        self.programs: dict[int, tuple[int, int]] = {}
        self.bypasses: dict[tuple[Any, int, str], int] = {}

    def line_of(self, frame: FrameType | None) -> int:
        """Return the number of the user's line from which a call in this frame comes."""
        return self.lines.number_of(frame, self.forward)

    def kernel(self, call: RunningCall, kernel: Any, begun: int, ended: int, room: Timeline) -> None:
        """Count a kernel call of the call under way."""
        taken = ended - begun
        call.kernels += 1
        call.kernel_ns += taken
        flow = self.flows.get((call.op, kernel))
        if flow is None:
            flow = self.flows[call.op, kernel] = [0, 0]
        flow[0] += 1
        flow[1] += taken
        if call.slices is not None and room.takes():
            call.slices.append((kernel, begun, ended))

    def settle(self, call: RunningCall, outcome: int, taken: int, at: int) -> None:
        """Count a call that has ended; `at` is when, in ns from the start of the run."""
        self.calls += 1
        line = call.line
        site = self.sites.get((call.op, line))
        if site is None:
            if len(self.sites) >= _MOST_SITES:
                line = self.lines.other()
            site = self.sites.setdefault((call.op, line), [0] * (_OUTCOMES + len(OUTCOMES)))
        site[_CALLS] += 1
        site[_TIME] += taken
        site[_KERNEL_TIME] += call.kernel_ns
        site[_KERNELS] += call.kernels
        site[_OUTCOMES + outcome] += 1
        bucket = self.buckets.get(at // self.width)
        if bucket is None:
            while at // self.width >= _MOST_BUCKETS:
                self.width *= 2
                self.buckets = _halved(self.buckets)
            bucket = self.buckets.setdefault(at // self.width, [0] * len(OUTCOMES))
        bucket[outcome] += 1

    def bypassed(self, call: RunningCall, why: str) -> None:
        """Count a call that ran its rule instead of a cached program, by the reason."""
        key = (call.op, call.line if len(self.bypasses) < _MOST_SITES else self.lines.other(), why)
        self.bypasses[key] = self.bypasses.get(key, 0) + 1

    def held(self, programs: int, at: int) -> None:
        """Note how many programs the cache holds, `at` ns from the start of the run."""
        self.programs[at // _FIRST_BUCKET_NS] = (at, programs)
        if len(self.programs) > 8 * _MOST_BUCKETS:
            self.programs = dict(list(self.programs.items())[::2])


def sites_of(tallies: Iterable[Tally]) -> tuple[Site, ...]:
    """Return the calls by op and line, those with the longest total time first."""
    rows: dict[tuple[Any, int], list[int]] = {}
    for tally in tallies:
        for place, row in list(tally.sites.items()):
            _add(rows, place, row)
    made = [
        Site(str(op), line, row[_CALLS], row[_TIME] / 1e9, row[_KERNEL_TIME] / 1e9, row[_KERNELS], *row[_OUTCOMES:])
        for (op, line), row in rows.items()
    ]
    return tuple(sorted(made, key=lambda site: -site.seconds))


def bypasses_of(tallies: Iterable[Tally]) -> tuple[Bypass, ...]:
    """Return the calls that ran a rule instead of a cached program, by op, line and reason, the most frequent first."""
    counts: Counter[tuple[str, int, str]] = Counter()
    for tally in tallies:
        for (op, line, why), count in list(tally.bypasses.items()):
            counts[str(op), line, why] += count
    return tuple(Bypass(op, line, count, why) for (op, line, why), count in counts.most_common())


def flows_of(tallies: Iterable[Tally], supported: Any) -> tuple[Flow, ...]:
    """Return the kernel calls by op and kernel, those with the longest total time first."""
    rows: dict[tuple[Any, Any], list[int]] = {}
    for tally in tallies:
        for pair, row in list(tally.flows.items()):
            _add(rows, pair, row)
    made = [
        Flow(str(op), str(kernel), row[0], row[1] / 1e9, not isinstance(kernel, OpOverload) or kernel in supported)
        for (op, kernel), row in rows.items()
    ]
    return tuple(sorted(made, key=lambda flow: -flow.seconds))


def buckets_of(tallies: Iterable[Tally], programs: int) -> tuple[tuple[Bucket, ...], float]:
    """Return the time buckets of the run, and their width in seconds. At the start the cache held `programs` programs."""
    every = list(tallies)
    width = max((tally.width for tally in every), default=_FIRST_BUCKET_NS)
    rows: dict[int, list[int]] = {}
    for tally in every:
        buckets, own = dict(tally.buckets), tally.width
        while own < width:
            buckets, own = _halved(buckets), own * 2
        for number, row in buckets.items():
            _add(rows, number, row)
    held = sorted(one for tally in every for one in list(tally.programs.values()))
    made: list[Bucket] = []
    place = 0
    for number in sorted(rows):
        while place < len(held) and held[place][0] < (number + 1) * width:
            programs = held[place][1]
            place += 1
        made.append(Bucket(number * width / 1e9, programs, sum(rows[number]), *rows[number]))
    return tuple(made), width / 1e9


def _halved(buckets: dict[int, list[int]]) -> dict[int, list[int]]:
    made: dict[int, list[int]] = {}
    for number, row in buckets.items():
        _add(made, number // 2, row)
    return made


def _add(rows: dict[Any, list[int]], key: Any, row: list[int]) -> None:
    before = rows.get(key)
    rows[key] = list(row) if before is None else [a + b for a, b in zip(before, row, strict=True)]


def _us(ns: int) -> float:
    return ns / 1000
