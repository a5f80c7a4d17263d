"""Compare two runs of the suite: which kernels got better or worse, for a pull request.

Each kernel whose verdict differs is a `VerdictChange`. It is worse if the kernel is wrong now and was not, breaks another property,
was right and is absent now, or is no longer exercised (in a run that was not cut short). A kernel that was wrong and is absent now
is neither better nor worse. Ops that only one of the runs tested are not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from eagerdecomp.conformance.results import Report, State, Verdict

__all__ = ["DIRECTIONS", "VerdictChange", "ReportComparison", "Direction", "compare"]

Direction = Literal["worse", "better", "neither"]

#: Direction -> its text in reports, in their order.
DIRECTIONS: Mapping[Direction, str] = {
    "worse": "worse than before",
    "better": "better than before",
    "neither": "neither better nor worse",
}


@dataclass(frozen=True)
class VerdictChange:
    """A kernel whose verdict differs.

    Attributes:
        op: its name.
        was: its state in the old run; ``absent`` also if that run does not know the op.
        now: its state in the new run.
        broken: properties that it breaks now and did not before.
        fixed: properties that it broke before and does not now.
        direction: ``better``, ``worse`` or ``neither``.
    """

    op: str
    was: State
    now: State
    broken: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    direction: Direction = "neither"

    def __str__(self) -> str:
        change = f"{self.was} -> {self.now}" if self.was != self.now else f"still {self.now}"
        parts = [f"breaks {', '.join(self.broken)}"] if self.broken else []
        parts += [f"keeps {', '.join(self.fixed)}"] if self.fixed and self.now == "wrong" else []
        return f"{self.op}: {change}" + (f" ({'; '.join(parts)})" if parts else "")


@dataclass(frozen=True)
class ReportComparison:
    """The differences between two runs.

    Attributes:
        changes: the kernels whose verdicts differ, sorted by name.
        same: number of kernels with equal verdicts.
        apart: ops that only one of the runs tested or reached, which are not compared.
        notes: other differences of the runs: profile, version of torch.
    """

    changes: tuple[VerdictChange, ...] = ()
    same: int = 0
    apart: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def changes_to(self, direction: Direction) -> tuple[VerdictChange, ...]:
        """Return the changes of one direction."""
        return tuple(change for change in self.changes if change.direction == direction)

    @property
    def worse(self) -> bool:
        """Whether any kernel got worse, which fails a CI check."""
        return bool(self.changes_to("worse"))

    def __str__(self) -> str:
        lines = []
        for direction, status in DIRECTIONS.items():
            found = self.changes_to(direction)
            lines += [f"{status}: {len(found)}", *(f"  {change}" for change in found)] if found else []
        lines.append(f"as before: {self.same}")
        if self.apart:
            lines.append(f"not compared, in only one of the runs: {len(self.apart)}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def compare(old: Report, new: Report) -> ReportComparison:
    """Return the differences from an old run to a new one."""
    then, now = ({str(verdict.op): verdict for verdict in report.results} for report in (old, new))
    apart: list[str] = []
    changes: list[VerdictChange] = []
    for op in sorted(then.keys() | now.keys()):
        was, found = then.get(op), now.get(op)
        if _unknown_to(old, was) or _unknown_to(new, found):
            apart.append(op)
        elif _said(was) != _said(found):
            changes.append(_change(op, was, found))
    same = len(then.keys() | now.keys()) - len(changes) - len(apart)
    return ReportComparison(tuple(changes), same, tuple(apart), _notes(old, new))


def _unknown_to(report: Report, verdict: Verdict | None) -> bool:
    """Return whether a run has no result for an op, because it did not test or did not reach it."""
    return report.limited if verdict is None else report.interrupted and verdict.state == "not exercised"


def _said(verdict: Verdict | None) -> tuple[State, frozenset[str]]:
    return ("absent", frozenset()) if verdict is None else (verdict.state, frozenset(verdict.broken))


def _change(op: str, was: Verdict | None, found: Verdict | None) -> VerdictChange:
    (then, broke), (now, breaks) = _said(was), _said(found)
    return VerdictChange(
        op, then, now, tuple(sorted(breaks - broke)), tuple(sorted(broke - breaks)), _direction(then, now, breaks - broke)
    )


def _direction(then: State, now: State, broken: Collection[str]) -> Direction:
    if now == "wrong":
        return "worse" if broken else "better"
    if now == "right":
        return "better"
    if then == "right":
        return "worse"
    return "neither"


def _notes(old: Report, new: Report) -> tuple[str, ...]:
    notes = [
        f"the older run is one of {was}, this one of {now}"
        for was, now in (
            (f"backend {old.backend!r}", f"backend {new.backend!r}"),
            (f"torch {old.torch}", f"torch {new.torch}"),
            (f"profile {old.profile}", f"profile {new.profile}"),
        )
        if was != now
    ]
    if old.profile != new.profile:
        notes.append("a kernel that one profile finds wrong may have been wrong all the time")
    for report, change in ((old, "the older run"), (new, "this run")):
        notes += [f"{change} was cut short"] if report.interrupted else []
        notes += [f"{change} was asked for some ops alone"] if report.limited else []
    if old.left_out:
        notes.append(f"the older run knows ops that this torch lacks: {', '.join(old.left_out)}")
    return tuple(notes)
