"""A report as a page: one HTML file that needs no other, with the kernels as a table, what is wrong at length, and coverage by
family.

Each wrong kernel has ``#wrong-`` and its op's name as an address, each row of the table ``#row-`` and the name.
"""

from __future__ import annotations

from collections.abc import Mapping

from eagerdecomp.conformance.comparing import DIRECTIONS, Comparison
from eagerdecomp.conformance.manifest import stale_because
from eagerdecomp.conformance.reports.words import STATE_WORDS, by_blamed, one_line, ordered, printable
from eagerdecomp.conformance.results import STATES, Report, State
from eagerdecomp.host.html import count_text, counted, duration_text, render

__all__ = ["report_page"]

_OTHER = "other"

_CLASSES: Mapping[State, str] = {"wrong": "wrong", "right": "right", "not exercised": "unrun", "absent": "absent"}

#: From the left.
_IN_BAR: tuple[State, ...] = ("right", "wrong", "not exercised", "absent")


def report_page(
    report: Report, *, families: Mapping[str, str] | None = None, comparison: Comparison | None = None, title: str = ""
) -> str:
    """A report as HTML text.

    Args:
        families: of each op by name, in the order they are shown; ops without one are "other".
        comparison: with an older run.
        title: of the page; the backend's name unless given.
    """
    families = families or {}
    by_family = _by_family(report, families)
    opening = [one for one in report.next_kernels[:10] if one.together]
    sections = [
        ("wrong", "Wrong kernels", report.with_state("wrong")),
        ("compared", "Compared with the older run", comparison is not None),
        ("families", "Coverage by family", by_family),
        ("kernels", "Kernels", True),
        ("next", "What to write next", opening),
        ("manifest", "The manifest of absences", report.stale or report.undeclared),
    ]
    return render(
        "eagerdecomp.conformance.reports",
        "conformance.html.jinja",
        title=one_line(title or f"Conformance of {report.backend}"),
        verdicts=_verdicts(report),
        facts=_facts(report),
        tiles=_tiles(report),
        sections={name: heading for name, heading, present in sections if present},
        report=report,
        ordered=ordered(report),
        consequences=by_blamed(report),
        comparison=comparison,
        directions=DIRECTIONS,
        states=[state for state in _IN_BAR if report.counts[state]],
        classes=_CLASSES,
        rank={state: len(STATES) - place for place, state in enumerate(STATES)},
        by_family=by_family,
        longest=max((sum(counts.values()) for counts in by_family.values()), default=0),
        families=families,
        other=_OTHER,
        enables={str(one.op): one.alone for one in report.next_kernels},
        next=opening,
        one_line=one_line,
        printable=printable,
        stale_because=stale_because,
    )


def _verdicts(report: Report) -> list[tuple[str, str]]:
    """Sentences, each with a CSS class."""
    counts = report.counts
    ran = counts["wrong"] + counts["right"]
    names = []
    if counts["wrong"]:
        names.append(
            ("bad", f"{counts['wrong']} of {counted(ran, 'kernel')} exercised {'is' if counts['wrong'] == 1 else 'are'} wrong.")
        )
    elif ran:
        names.append(("good", f"Nothing wrong was found in {counted(ran, 'kernel')} exercised."))
    else:
        names.append(("quiet", "No kernel was exercised."))
    if report.interrupted:
        names.append(("warn", "The run was cut short: what it had not reached is not exercised."))
    if report.stale or report.undeclared:
        names.append(("bad", "The manifest of absences does not hold."))
    return names


def _facts(report: Report) -> dict[str, str]:
    return {
        "profile": one_line(report.profile + (", some ops alone" if report.limited else "")),
        "seed": str(report.seed),
        "torch": one_line(report.torch),
        "took": duration_text(report.seconds),
    }


def _tiles(report: Report) -> list[tuple[str, str, str]]:
    """Name, value, and what the value means."""
    tiles = [(str(state), count_text(number), STATE_WORDS[state]) for state, number in report.counts.items()]
    if report.calls:
        ops = len({str(one.op) for one in report.consequences})
        names = f"calls of decomposed ops compared; {counted(ops, 'op')} wrong by a kernel's fault"
        tiles.append(("decomposed ops", count_text(report.calls), names))
    return tiles


def _by_family(report: Report, families: Mapping[str, str]) -> Mapping[str, Mapping[State, int]]:
    """The kernels of each family that has some, by state."""
    found: dict[str, dict[State, int]] = {family: dict.fromkeys(STATES, 0) for family in (*families.values(), _OTHER)}
    for verdict in report.results:
        found[families.get(str(verdict.op), _OTHER)][verdict.state] += 1
    return {family: counts for family, counts in found.items() if sum(counts.values())}
