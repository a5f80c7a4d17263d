"""Counts of what a mode did, per op, and the table they print as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from eagerdecomp.errors import ops_line, plan_command

__all__ = ["HOST_RANDOM", "OTHER_NUMBERS", "OpStats", "Stats", "count_by_packet", "gap_lines"]

#: The labels of the two counts of random calls, in every table that has them.
HOST_RANDOM = "random calls of data loading, run natively"
OTHER_NUMBERS = "random calls with other numbers than eager"


@dataclass(frozen=True)
class OpStats:
    """Counts for one op.

    Attributes:
        calls: how often the program called it.
        direct: of those, run by the kernel the op set holds, or passed through.
        decomposed: of those, run by a rule.
        hits: decomposed calls that ran a stored program or a linked rule, with nothing planned, recorded or read.
        misses: decomposed calls that were recorded.
        bypassed: decomposed calls that ran their rule again: it reads data, has effects, or its shapes keep changing.
        fell_back: calls run natively although unsupported, under ``on_unsupported="fallback"``.
        why_bypassed: the reason of the last bypass, or "".
        host_random: calls of a random op outside the set that data loading code made, and that ran natively, under
            ``host_random="native"``.
        other_numbers: decomposed calls of a random op whose numbers are not those that eager draws from the same generator state,
            or are not known to be.

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

    def __add__(self, other: OpStats) -> OpStats:
        counts = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "why_bypassed"}
        return OpStats(**counts, why_bypassed=self.why_bypassed or other.why_bypassed)


_COLUMNS = ("calls", "direct", "decomposed", "hits", "misses", "bypassed", "fell_back")


@dataclass(frozen=True)
class Stats(Mapping[str, OpStats]):
    """Counts per op name (``"aten.add.Tensor"``), a mapping; `total` sums them; `str` gives a table.

    Attributes:
        ops: the counts by op name.
        programs: programs held by the cache.
        evictions: programs the cache dropped at its bound.

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
        """The sum over all ops."""
        total = OpStats()
        for one in self.ops.values():
            total = total + one
        return total

    @property
    def host_random(self) -> dict[str, int]:
        """Op -> random calls of data loading code that ran natively, the most first."""
        return self._most_first("host_random")

    @property
    def other_numbers(self) -> dict[str, int]:
        """Op -> random calls with other numbers than eager, the most first."""
        return self._most_first("other_numbers")

    @property
    def gaps(self) -> dict[str, int]:
        """Op -> calls that ran natively for want of a route, the most first."""
        return self._most_first("fell_back")

    def _most_first(self, count: str) -> dict[str, int]:
        counts = {name: number for name, one in self.ops.items() if (number := getattr(one, count))}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def __getitem__(self, op: object) -> OpStats:
        return self.ops[str(op)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    def __str__(self) -> str:
        return table(self)


def table(stats: Stats) -> str:
    """The counts as a text table, most called first, with a line of totals and one about the cache."""
    rows = sorted(stats.ops.items(), key=lambda item: (-item[1].calls, item[0]))
    cells: list[tuple[str, ...]] = [("op", *_COLUMNS)]
    cells += [(name, *(str(getattr(one, column)) for column in _COLUMNS)) for name, one in (*rows, ("total", stats.total))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
    lines.insert(1, "-" * len(lines[0]))
    lines.insert(-1, "-" * len(lines[0]))
    lines.append(f"cache: {stats.programs} programs held, {stats.evictions} evicted")
    for label, counts in ((HOST_RANDOM, stats.host_random), (OTHER_NUMBERS, stats.other_numbers)):
        if counts:
            lines.append(f"{label}: {count_by_packet(counts)}")
    lines += gap_lines(stats.gaps)
    reasons = sorted({f"{name}: {one.why_bypassed}" for name, one in rows if one.why_bypassed})
    if reasons:
        lines.append("bypassed the cache:")
        lines.extend(f"  {reason}" for reason in reasons)
    return "\n".join(lines)


def gap_lines(gaps: Mapping[str, int], ops: str = "OPS") -> list[str]:
    """Return lines that list ops without a route, with their native calls, and how to add them all.

    Args:
        gaps: op -> calls that ran natively.
        ops: what the command line calls the op set.
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
    """Return the sum of counts by op, and each packet with its own: ``12 (aten.random_ 10, aten.multinomial 2)``."""
    packets: dict[str, int] = {}
    for name, count in counts.items():
        packet = name.rpartition(".")[0]
        packets[packet] = packets.get(packet, 0) + count
    named = ", ".join(f"{packet} {count}" for packet, count in sorted(packets.items(), key=lambda item: (-item[1], item[0])))
    return f"{sum(counts.values())} ({named})" if named else "0"
