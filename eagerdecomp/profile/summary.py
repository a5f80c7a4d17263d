"""Summary of a record: its calls by op, by source line and by kernel; as values, as JSON and as a few lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from eagerdecomp.diagnosis.gaps import choose_kernels_to_add
from eagerdecomp.host.html import count_text, counted, duration_text, first_names
from eagerdecomp.host.source_lines import Line
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.profile.record import Record
from eagerdecomp.profile.rows import Flow, Site

__all__ = ["Counts", "Digest", "LineRow", "OpRow", "WantedKernels", "file_name", "place_text"]

_SHOWN = 5  # names in a line


@dataclass(frozen=True)
class Counts:
    """Sums over calls; the fields are those of `Site`."""

    calls: int = 0
    seconds: float = 0.0
    kernel_seconds: float = 0.0
    kernels: int = 0
    direct: int = 0
    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    fell_back: int = 0
    refused: int = 0
    failed: int = 0

    @property
    def decomposed(self) -> int:
        """Calls that a rule ran."""
        return self.hits + self.misses + self.bypassed


@dataclass(frozen=True)
class OpRow:
    """The calls of one op: the number of source lines, and the kernel calls."""

    op: str
    counts: Counts
    lines: int
    reached: Mapping[str, int]


@dataclass(frozen=True)
class LineRow:
    """The calls from one source line, and the part of their time that its backward pass took."""

    line: Line
    counts: Counts
    backward_seconds: float
    ops: Mapping[str, int]


@dataclass(frozen=True)
class WantedKernels:
    """A group of kernels to add, the ops that it gives a route, and the number of their calls."""

    kernels: tuple[str, ...]
    ops: tuple[str, ...]
    calls: int


@dataclass(frozen=True)
class Digest:
    """A record and its totals."""

    record: Record

    @cached_property
    def total(self) -> Counts:
        """All calls."""
        return _sum(self.record.sites)

    @cached_property
    def ops(self) -> tuple[OpRow, ...]:
        """The called ops, those with the longest total time first."""
        reached: dict[str, Counter[str]] = {}
        for flow in self.record.flows:
            reached.setdefault(flow.op, Counter())[flow.kernel] += flow.calls
        rows = [
            OpRow(op, _sum(sites), len({site.line for site in sites}), dict(reached.get(op, Counter()).most_common()))
            for op, sites in _grouped((site.op, site) for site in self.record.sites).items()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.counts.seconds, row.op)))

    @cached_property
    def lines(self) -> tuple[LineRow, ...]:
        """The source lines, those with the longest total time first. A line's time includes its backward pass."""
        lines = self.record.lines
        rows = []
        for sites in _grouped((_place(lines[site.line]), site) for site in self.record.sites).values():
            called: Counter[str] = Counter()
            for site in sites:
                called[site.op] += site.calls
            forward = [lines[site.line] for site in sites if not lines[site.line].backward]
            back = sum(site.seconds for site in sites if lines[site.line].backward)
            rows.append(LineRow((forward or [lines[sites[0].line]])[0], _sum(sites), back, dict(called.most_common())))
        return tuple(sorted(rows, key=lambda row: (-row.counts.seconds, row.line.file, row.line.number)))

    @cached_property
    def reached(self) -> Mapping[str, int]:
        """Kernels of the set -> calls, the most first."""
        return _kernels(flow for flow in self.record.flows if flow.supported)

    @cached_property
    def outside(self) -> Mapping[str, int]:
        """Ops outside the set that ran natively -> calls, without passthrough ops."""
        return _kernels(flow for flow in self.record.flows if not flow.supported and not is_passthrough_name(flow.kernel))

    @property
    def kernel_calls(self) -> int:
        """Number of calls that reached the backend, without passthrough ops."""
        return sum(self.reached.values()) + sum(self.outside.values())

    @cached_property
    def wanted(self) -> tuple[WantedKernels, ...]:
        """Groups of kernels that together give all ops a route, by a greedy choice: the group for the most ops comes first."""
        return tuple(
            WantedKernels(kernels, tuple(dict.fromkeys(one.op for one in opened)), sum(one.calls for one in opened))
            for kernels, opened in choose_kernels_to_add(self.record.unsupported)
        )

    @cached_property
    def op_names(self) -> tuple[str, ...]:
        """The called ops, without passthrough ops."""
        return tuple(sorted(row.op for row in self.ops if not is_passthrough_name(row.op)))

    def place(self, number: int) -> str:
        """Return a line of the record as short text, ``train.py:33``, with ", backward" for calls of its backward pass."""
        line = self.record.lines[number]
        return place_text(line) + (", backward" if line.backward and line.file else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain values, for JSON."""
        record = self.record
        return {
            "metadata": asdict(record.metadata),
            "total": asdict(self.total),
            "ops": [{"op": row.op, **asdict(row.counts), "lines": row.lines, "reached": dict(row.reached)} for row in self.ops],
            "lines": [
                {
                    "file": row.line.file,
                    "number": row.line.number,
                    "function": row.line.function,
                    "text": row.line.text,
                    **asdict(row.counts),
                    "backward_seconds": row.backward_seconds,
                    "ops": dict(row.ops),
                }
                for row in self.lines
            ],
            "reached": dict(self.reached),
            "outside": dict(self.outside),
            "flows": [asdict(flow) for flow in record.flows],
            "cache": {"bucket_seconds": record.bucket_seconds, "buckets": [asdict(bucket) for bucket in record.buckets]},
            "misses": [self._placed(one) for one in record.misses],
            "misses_left_out": record.misses_left_out,
            "bypasses": [self._placed(one) for one in record.bypasses],
            "unsupported": [self._placed(one) for one in record.unsupported],
            "wanted": [asdict(one) for one in self.wanted],
            "notes": list(record.notes),
        }

    def _placed(self, row: Any) -> dict[str, Any]:
        return {**asdict(row), "line": self.place(row.line)}

    def __str__(self) -> str:
        """Return the summary as a few lines of text."""
        metadata, total = self.record.metadata, self.total
        lines = [
            f"{file_name(metadata.script) or 'a run'} on {metadata.op_set}, torch {metadata.torch}:"
            f" {duration_text(metadata.seconds)}",
            f"  {counted(len(self.op_names), 'op')} called in {counted(total.calls, 'call')},"
            f" {len(self.reached) + len(self.outside)} reached the backend in {counted(self.kernel_calls, 'kernel call')}",
            f"  outside the set: {_outside(self.outside)}",
            f"  decomposed: {count_text(total.hits)} by linked rules or cached programs, {count_text(total.misses)} recorded"
            f" (cache misses), {count_text(total.bypassed)} bypassed; {counted(self.programs, 'program')} in the cache",
        ]
        if self.ops and total.seconds > 0:
            op, line = self.ops[0], self.lines[0]
            lines.append(f"  longest op: {op.op}, {duration_text(op.counts.seconds)} in {counted(op.counts.calls, 'call')}")
            lines.append(f"  longest line: {place_text(line.line)}, {duration_text(line.counts.seconds)}")
        if self.record.unsupported:
            lines.append(f"  without a route: {first_names(sorted({one.op for one in self.record.unsupported}))}")
            lines += [f"    {' and '.join(one.kernels)} would open {first_names(one.ops)}" for one in self.wanted[:_SHOWN]]
        if metadata.error:
            lines.append(f"  ended by {metadata.error.splitlines()[0]}")
        return "\n".join(lines)

    @property
    def programs(self) -> int:
        """Number of programs in the cache at the end."""
        return self.record.buckets[-1].programs if self.record.buckets else 0


def place_text(line: Line) -> str:
    """Return a line as short text: ``train.py:33``."""
    if not line.file:
        return f"{line.backward}, line unknown" if line.backward else "line unknown"
    return f"{file_name(line.file)}:{line.number}"


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return path.replace("\\", "/").rpartition("/")[2]


def _place(line: Line) -> tuple[str, int, str]:
    return line.file, line.number, "" if line.file else line.backward


def _grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _sum(sites: Iterable[Site]) -> Counts:
    sites = list(sites)
    return Counts(**{one.name: sum(getattr(site, one.name) for site in sites) for one in fields(Counts)})


def _kernels(flows: Iterable[Flow]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for flow in flows:
        found[flow.kernel] += flow.calls
    return dict(found.most_common())


def _outside(outside: Mapping[str, int]) -> str:
    if not outside:
        return "nothing"
    return f"{counted(len(outside), 'op')} in {counted(sum(outside.values()), 'call')}: {first_names(outside)}"
