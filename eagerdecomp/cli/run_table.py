"""The summary table of a run, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.host.outputs import Outputs
from eagerdecomp.host.terminal import fitted
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpSet
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.runtime.stats import HOST_RANDOM, OTHER_NUMBERS, OpStats, Stats, count_by_packet, gap_lines

__all__ = ["RunFacts", "run_facts", "summary_json", "summary_table"]

_NAMES_SHOWN = 4


@dataclass(frozen=True)
class RunFacts:
    """Results of a run under the mode, for the table and for the JSON file.

    Attributes:
        op_set: the label of the op set.
        called: op -> number of calls by the program, without passthrough ops.
        reached: op of the set -> number of calls that reached the backend; None if this was not recorded.
        outside: op outside the set -> number of calls that reached the backend; None if this was not recorded.
        in_kernels: op -> number of calls by the backend's own kernels.
        passthrough: ops without computation that pass natively (profiler ranges, metadata queries, collectives) -> calls.
        total: the mode's counts over all ops.
        programs: number of programs in the cache.
        seconds: time of the run, or of one step, under the mode.
        plain_seconds: the same in plain eager; None if it was not measured.
        timed: what `seconds` measures, as text.
        rows: labels and texts of additional lines, which come first in the table.
        values: the values of these lines, for JSON.
        host_random: random op -> calls for the host that ran natively; they are not among those outside the set.
        other_numbers: random op -> calls whose numbers may differ from eager's.
        gaps: op without a route -> calls that ran natively.
        ops_option: the value of ``--ops`` on the command line.
        outputs: what the script printed under the mode and in plain eager; None if it ran once.
        notes: notes under the table. A note that starts with spaces is a line to paste, which is not wrapped.
    """

    op_set: str
    called: Mapping[str, int]
    reached: Mapping[str, int] | None
    outside: Mapping[str, int] | None
    passthrough: Mapping[str, int]
    total: OpStats
    programs: int
    seconds: float
    plain_seconds: float | None = None
    timed: str = "the whole run"
    rows: Sequence[tuple[str, str]] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    host_random: Mapping[str, int] = field(default_factory=dict)
    other_numbers: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[str, int] = field(default_factory=dict)
    in_kernels: Mapping[str, int] = field(default_factory=dict)
    ops_option: str = "OPS"
    outputs: Outputs | None = None
    notes: Sequence[str] = ()


def run_facts(supported: Backend | OpSet, stats: Stats, seen: BackendRecorder | None, *, seconds: float, **more: Any) -> RunFacts:
    """Return the results of a run, from the mode's counts and from a recorder outside the mode (None if there was none)."""
    calls = {name: one.calls for name, one in stats.items() if one.calls}
    backend = as_backend(supported)
    op_set = backend.ops
    called = {name: count for name, count in calls.items() if not is_passthrough_name(name)}
    passed = {name: count for name, count in calls.items() if name not in called}
    reached: dict[str, int] | None = None
    outside: dict[str, int] | None = None
    if seen is not None:
        reached = {str(op): count for op, count in sorted(seen.ops.items(), key=_by_name) if op in op_set}
        others = {str(op): count - stats.host_random.get(str(op), 0) for op, count in seen.outside(op_set).items()}
        outside = {name: count for name, count in sorted(others.items()) if count > 0}
        more["in_kernels"] = {str(op): count for op, count in sorted(seen.in_kernels.items(), key=_by_name)}
    more |= {"host_random": stats.host_random, "other_numbers": stats.other_numbers, "gaps": stats.gaps}
    return RunFacts(repr(backend), called, reached, outside, passed, stats.total, stats.programs, seconds, **more)


def summary_table(facts: RunFacts, width: int | None = None) -> str:
    """Return the table as text, followed by the lines in which two outputs differ.

    Args:
        facts: the results.
        width: the width to fit into, except for lines to paste; None for lines of any length.
    """
    rows = [*facts.rows, *_op_rows(facts), *_random_rows(facts), *_decomposed_rows(facts), _time_row(facts), *_output_rows(facts)]
    label_width = max(len(label) for label, _ in rows)
    lines = [line for label, value in rows for line in fitted(f"{label.ljust(label_width)}  ", value, width)]
    rule = "-" * max(map(len, lines))
    parts = [gap_lines(facts.gaps, facts.ops_option), facts.outputs.listing(width) if facts.outputs is not None else []]
    listing = [line for part in parts if part for line in (*part, rule)]
    notes = [line for note in facts.notes for line in ([note] if note.startswith(" ") else fitted("", note, width))]
    return "\n".join([*fitted("eagerdecomp on ", facts.op_set, width), rule, *lines, rule, *listing, *notes])


def summary_json(facts: RunFacts) -> dict[str, Any]:
    """Return the results as plain values, for JSON."""
    total = facts.total
    return {
        "op_set": facts.op_set,
        **facts.values,
        "ops_called": len(facts.called),
        "ops_reached": None if facts.reached is None else len(facts.reached) + len(facts.outside or {}),
        "ops_outside": None if facts.outside is None else len(facts.outside),
        "calls": {
            "called": dict(facts.called),
            "reached": None if facts.reached is None else dict(facts.reached),
            "outside": None if facts.outside is None else dict(facts.outside),
            "passthrough": dict(facts.passthrough),
            "in_kernels": dict(facts.in_kernels),
        },
        "fell_back": total.fell_back,
        "gaps": dict(facts.gaps),
        "random": {"host_random": dict(facts.host_random), "other_numbers": dict(facts.other_numbers)},
        "cache": {"hits": total.hits, "misses": total.misses, "bypassed": total.bypassed, "programs": facts.programs},
        "timed": facts.timed,
        "seconds": facts.seconds,
        "plain_seconds": facts.plain_seconds,
        "time_ratio": facts.seconds / facts.plain_seconds if facts.plain_seconds else None,
        "output": facts.outputs.to_json() if facts.outputs is not None else None,
        "notes": list(facts.notes),
    }


def _op_rows(facts: RunFacts) -> Iterable[tuple[str, str]]:
    yield "distinct ops the program called", str(len(facts.called))
    if facts.reached is None or facts.outside is None:
        yield "distinct ops that reached the backend", "not recorded"
    else:
        yield "distinct ops that reached the backend", str(len(facts.reached) + len(facts.outside))
        yield "  of those outside the set", _count_and_names(facts.outside)
        if facts.in_kernels:
            yield "distinct ops called inside its kernels", _count_and_names(facts.in_kernels)
    if facts.total.fell_back:
        yield "calls that fell back to native", str(facts.total.fell_back)
    if facts.passthrough:
        spaces = sorted({name.partition(".")[0] for name in facts.passthrough})
        yield "ops without computation, passed", f"{len(facts.passthrough)} ({', '.join(spaces)})"


def _random_rows(facts: RunFacts) -> Iterable[tuple[str, str]]:
    if facts.host_random:
        yield HOST_RANDOM, count_by_packet(facts.host_random)
    yield OTHER_NUMBERS, count_by_packet(facts.other_numbers)


def _output_rows(facts: RunFacts) -> Iterable[tuple[str, str]]:
    if facts.outputs is not None:
        drawn = ": random calls drew other numbers, see below" if not facts.outputs.same and facts.other_numbers else ""
        yield "output, against plain eager", f"{facts.outputs.summary()}{drawn}"


def _decomposed_rows(facts: RunFacts) -> Iterable[tuple[str, str]]:
    total = facts.total
    bypassed = f", {total.bypassed} bypassed the cache" if total.bypassed else ""
    how = f"{total.hits} by linked rules or cached programs, {total.misses} recorded (cache misses){bypassed}"
    yield "calls decomposed", f"{total.decomposed} of {total.calls}: {how}"
    yield "programs in the cache", str(facts.programs)


def _time_row(facts: RunFacts) -> tuple[str, str]:
    label, ours, plain = f"time, {facts.timed}", _duration(facts.seconds), facts.plain_seconds
    if not plain:
        return label, ours
    return label, f"{ours}, {facts.seconds / plain:.2f} times plain eager ({_duration(plain)})"


def _count_and_names(counts: Mapping[str, int]) -> str:
    if not counts:
        return "0"
    names = list(counts)[:_NAMES_SHOWN]
    more = ", ..." if len(counts) > _NAMES_SHOWN else ""
    return f"{len(counts)} ({', '.join(names)}{more})"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _by_name(item: tuple[Any, int]) -> str:
    return str(item[0])
