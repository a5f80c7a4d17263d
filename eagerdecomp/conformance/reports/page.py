"""Write a report as one HTML file: a table of kernels, details of wrong ones, and coverage by family.

A wrong kernel has the anchor ``#wrong-`` with its op's name, and a row of the table ``#row-`` with the name.
"""

from __future__ import annotations

from collections.abc import Mapping

from eagerdecomp.conformance.comparing import DIRECTIONS, ReportComparison
from eagerdecomp.conformance.manifest import stale_because
from eagerdecomp.conformance.reports.words import STATE_WORDS, by_blamed, one_line, ordered, printable
from eagerdecomp.conformance.results import STATES, Report, State
from eagerdecomp.host.html import count_text, counted, duration_text, render

__all__ = ["report_page"]

_OTHER = "other"

_CLASSES: Mapping[State, str] = {"wrong": "wrong", "right": "right", "not exercised": "unrun", "absent": "absent"}

#: The states in a bar, from left to right.
_IN_BAR: tuple[State, ...] = ("right", "wrong", "not exercised", "absent")


def report_page(
    report: Report, *, families: Mapping[str, str] | None = None, comparison: ReportComparison | None = None, title: str = ""
) -> str:
    """Return a report as HTML.

    Args:
        report: the report.
        families: name of an op -> its family, in the order in which families are shown; other ops are in "other".
        comparison: the comparison with an older run.
        title: the title of the page; by default the backend's name.
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
    """Return sentences about the run, each with a CSS class."""
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
    """Return name, value and meaning of the numbers at the top of the page."""
    tiles = [(str(state), count_text(number), STATE_WORDS[state]) for state, number in report.counts.items()]
    if report.calls:
        ops = len({str(one.op) for one in report.consequences})
        names = f"calls of decomposed ops compared; {counted(ops, 'op')} wrong by a kernel's fault"
        tiles.append(("decomposed ops", count_text(report.calls), names))
    return tiles


def _by_family(report: Report, families: Mapping[str, str]) -> Mapping[str, Mapping[State, int]]:
    """Return the number of kernels by state for each family that has kernels."""
    found: dict[str, dict[State, int]] = {family: dict.fromkeys(STATES, 0) for family in (*families.values(), _OTHER)}
    for verdict in report.results:
        found[families.get(str(verdict.op), _OTHER)][verdict.state] += 1
    return {family: counts for family, counts in found.items() if sum(counts.values())}
