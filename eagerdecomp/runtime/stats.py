"""Counts of calls per op, and the table that shows them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from eagerdecomp.errors import OpSetError, ops_line, plan_command
from eagerdecomp.host.terminal import columns, fitted
from eagerdecomp.ops.opset import OpLike, resolve_ops

__all__ = ["HOST_RANDOM", "OTHER_NUMBERS", "OpStats", "Stats", "count_by_packet", "gap_lines"]

#: The labels of the two counts of random calls, in every table that has them.
HOST_RANDOM = "random calls for the host, run natively"
OTHER_NUMBERS = "random calls with other numbers than eager"

_SHAPES_ONLY = "calls whose rules read data, on fake, meta or traced tensors, for which the op itself ran"


@dataclass(frozen=True)
class OpStats:
    """Counts for one op.

    Attributes:
        calls: number of calls by the user's program.
        direct: calls that a kernel of the op set ran, or that passed through.
        decomposed: calls that a rule ran.
        hits: decomposed calls that ran a cached program or a linked rule, without planning, recording or reading data.
        misses: decomposed calls that were recorded.
        bypassed: decomposed calls that ran their rule without a program: it reads data, has effects, or its shapes keep changing.
        fell_back: calls without a route that ran natively, under ``on_unsupported="fallback"``.
        why_bypassed: the reason of the last bypass, or "".
        host_random: calls of a random op outside the set by data loading code, or with a generator of the program, which ran
            natively under ``host_random="native"``.
        other_numbers: decomposed calls of a random op whose random numbers may differ from those that eager draws from the same
            generator state.
        shapes_only: calls whose rule reads data, on fake or meta tensors, which have none, or on tensors that `make_fx` traces.
            They ran without a rule.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> with ed.EagerDecompMode(ed.core_aten()) as mode:
        ...     for _ in range(3):
        ...         y = torch.nn.functional.silu(torch.ones(2))
        >>> mode.stats()["aten.silu.default"].calls
        3
    """

    calls: int = 0
    direct: int = 0
    decomposed: int = 0
    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    fell_back: int = 0
    why_bypassed: str = ""
    host_random: int = 0
    other_numbers: int = 0
    shapes_only: int = 0

    def __add__(self, other: OpStats) -> OpStats:
        counts = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "why_bypassed"}
        return OpStats(**counts, why_bypassed=self.why_bypassed or other.why_bypassed)


_COLUMNS = ("calls", "direct", "decomposed", "hits", "misses", "bypassed", "fell_back")


@dataclass(frozen=True)
class Stats(Mapping[str, OpStats]):
    """A mapping from op names (``"aten.add.Tensor"``) to `OpStats`. `str` returns a table.

    Attributes:
        ops: the counts by op name.
        programs: number of cached programs.
        evictions: number of programs that the cache evicted.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> with ed.EagerDecompMode(ed.core_aten()) as mode:
        ...     y = torch.nn.functional.silu(torch.ones(2)) + 1
        >>> stats = mode.stats()
        >>> sorted(name for name, counts in stats.items() if counts.decomposed)
        ['aten.ones.default', 'aten.silu.default']
        >>> stats.total.fell_back
        0
    """

    ops: Mapping[str, OpStats]
    programs: int = 0
    evictions: int = 0

    @property
    def total(self) -> OpStats:
        """The sum of the counts of all ops."""
        total = OpStats()
        for one in self.ops.values():
            total = total + one
        return total

    @property
    def host_random(self) -> dict[str, int]:
        """Op -> number of random calls for the host that ran natively, largest first."""
        return self._most_first("host_random")

    @property
    def other_numbers(self) -> dict[str, int]:
        """Op -> number of random calls whose random numbers may differ from eager's, largest first."""
        return self._most_first("other_numbers")

    @property
    def gaps(self) -> dict[str, int]:
        """Op -> number of calls without a route that ran natively, largest first."""
        return self._most_first("fell_back")

    @property
    def shapes_only(self) -> dict[str, int]:
        """Op -> number of calls on fake tensors that the mode of these tensors ran, because a rule reads data; largest first."""
        return self._most_first("shapes_only")

    def __add__(self, other: Stats) -> Stats:
        ops = {name: self.ops.get(name, OpStats()) + other.ops.get(name, OpStats()) for name in sorted({*self.ops, *other.ops})}
        return Stats(ops, self.programs + other.programs, self.evictions + other.evictions)

    def _most_first(self, count: str) -> dict[str, int]:
        counts = {name: number for name, one in self.ops.items() if (number := getattr(one, count))}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def __getitem__(self, op: OpLike) -> OpStats:
        """Return the counts of one op, given by name or as an overload. A packet has the sum of its overloads."""
        names = [str(op)] if str(op) in self.ops else map(str, resolve_ops([op]))
        found = [self.ops[name] for name in names if name in self.ops]
        if not found:
            raise OpSetError(f"{op} was not called. List the ops that were: list(stats)")
        return functools.reduce(OpStats.__add__, found)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    def __str__(self) -> str:
        return table(self, columns())


def table(stats: Stats, width: int | None = None) -> str:
    """Return the counts as a text table, the most frequent op first, with a line of totals and a line about the cache.

    Args:
        stats: the counts.
        width: if the table is wider than this, columns without a count are left out and long names stand on lines of their own.
    """
    rows = sorted(stats.ops.items(), key=lambda item: (-item[1].calls, item[0]))
    lines = _counts([*rows, ("total", stats.total)], _COLUMNS, None)
    if width is not None and len(lines[0]) > width:
        counted = [column for column in _COLUMNS if column == "calls" or getattr(stats.total, column)]
        lines = _counts([*rows, ("total", stats.total)], counted, width)
    lines += fitted("cache: ", f"{stats.programs} programs held, {stats.evictions} evicted", width)
    random = ((HOST_RANDOM, stats.host_random), (OTHER_NUMBERS, stats.other_numbers))
    for label, counts in (*random, (_SHAPES_ONLY, stats.shapes_only)):
        if counts:
            lines += fitted("", f"{label}: {count_by_packet(counts)}", width)
    if stats.other_numbers:
        lines.append(f"line to paste, so that they draw eager's numbers: {ops_line(stats.other_numbers)}")
    lines += gap_lines(stats.gaps)
    reasons = sorted({f"{name}: {one.why_bypassed}" for name, one in rows if one.why_bypassed})
    if reasons:
        lines.append("bypassed the cache:")
        lines.extend(line for reason in reasons for line in fitted("  ", reason, width))
    return "\n".join(lines)


def _counts(rows: Sequence[tuple[str, OpStats]], shown: Sequence[str], width: int | None) -> list[str]:
    cells = [("op", *shown), *((name, *(str(getattr(one, column)) for column in shown)) for name, one in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    if width is not None:
        widths[0] = min(widths[0], max(width - sum(widths[1:]) - 2 * len(shown), len("total")))
    lines = []
    for name, *counts in cells:
        if len(name) > widths[0]:
            lines.append(name)
            name = ""
        lines.append("  ".join([name.ljust(widths[0]), *map(str.rjust, counts, widths[1:])]))
    rule = "-" * len(lines[0])
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]


def gap_lines(gaps: Mapping[str, int], ops: str = "OPS") -> list[str]:
    """Return lines that list ops without a route, with their native calls, and how to add them all.

    Args:
        gaps: op -> calls that ran natively.
        ops: the op set as the command line takes it, for the printed command.
    """
    if not gaps:
        return []
    width = max(map(len, gaps))
    return [
        "without a route, run natively:",
        *(f"  {name.ljust(width)}  {calls}" for name, calls in gaps.items()),
        f"line to paste, which adds them all: {ops_line(gaps)}",
        f"the fewest kernels, and gaps that this run did not reach: {plan_command(ops)}",
    ]


def count_by_packet(counts: Mapping[str, int]) -> str:
    """Return the total of the counts and the count of each packet: ``12 (aten.random_ 10, aten.multinomial 2)``."""
    packets: dict[str, int] = {}
    for name, count in counts.items():
        packet = name.rpartition(".")[0]
        packets[packet] = packets.get(packet, 0) + count
    named = ", ".join(f"{packet} {count}" for packet, count in sorted(packets.items(), key=lambda item: (-item[1], item[0])))
    return f"{sum(counts.values())} ({named})" if named else "0"
