"""Write a report as JUnit XML: right kernels pass, wrong ones fail, and those that did not run are skipped.

Each kernel is a test case with its op's name. Its failures are one ``failure`` element, because readers of the format show only the
first. Failures without a kernel (the manifest, a run that was cut short) are cases of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

from eagerdecomp.conformance.manifest import stale_because
from eagerdecomp.conformance.reports.words import STATE_WORDS, by_blamed, details, head, one_line, ordered, printable
from eagerdecomp.conformance.results import Consequence, Report, Verdict

__all__ = ["report_junit"]


def report_junit(report: Report, *, families: Mapping[str, str] | None = None) -> str:
    """Return a report as JUnit XML.

    Args:
        report: the report.
        families: name of an op -> its family, by which cases are grouped.
    """
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", name=one_line(f"conformance of {report.backend}"))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("profile", report.profile), ("seed", str(report.seed)), ("torch", report.torch)):
        ElementTree.SubElement(properties, "property", name=name, value=one_line(value))
    consequences = by_blamed(report)
    for verdict in ordered(report):
        _case(suite, verdict, consequences.get(str(verdict.op), ()), (families or {}).get(str(verdict.op), ""))
    for name, kind, names in _beside(report):
        case = ElementTree.SubElement(suite, "testcase", classname="conformance", name=name, time="0")
        ElementTree.SubElement(case, kind, message=one_line(names.partition("\n")[0]), type=name).text = names
    cases = list(suite.iter("testcase"))
    for element in (suites, suite):
        element.set("tests", str(len(cases)))
        element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        element.set("errors", str(sum(case.find("error") is not None for case in cases)))
        element.set("time", f"{report.seconds:.3f}")
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, verdict: Verdict, consequences: tuple[Consequence, ...], family: str) -> None:
    group = one_line(f"conformance.{family}" if family else "conformance")
    case = ElementTree.SubElement(suite, "testcase", classname=group, name=str(verdict.op), time=f"{verdict.seconds:.3f}")
    if verdict.state == "wrong":
        first = verdict.failures[0]
        message = one_line(f"{first.property}: {first.message}")
        failure = ElementTree.SubElement(case, "failure", message=message, type=one_line(", ".join(verdict.broken)))
        failure.text = printable("\n\n".join(_reported(verdict, consequences)))
    elif verdict.state != "right":
        names = STATE_WORDS[verdict.state] + (f": {verdict.note}" if verdict.note else "")
        ElementTree.SubElement(case, "skipped", message=one_line(names))


def _reported(verdict: Verdict, consequences: tuple[Consequence, ...]) -> Iterator[str]:
    for one in verdict.failures:
        parts = [f"{one.property}: {one.message}", *details(one)]
        parts += ["reproducer:", one.reproducer.rstrip()] if one.reproducer else []
        yield "\n".join(parts)
    if consequences:
        yield "\n".join(["decomposed ops that it makes wrong:", *(f"{one.op}: {one.call}" for one in consequences)])


def _beside(report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield failures without a kernel: name, element, message."""
    if report.stale:
        names = [printable(f"{name}: {stale_because(name)}") for name in report.stale]
        yield "stale absences", "failure", "\n".join([f"{len(names)} declared absent that are not", *names])
    if report.undeclared:
        names = list(map(printable, report.undeclared))
        yield "undeclared absences", "failure", "\n".join([f"{len(names)} absent that the manifest does not declare", *names])
    if report.interrupted:
        yield "the whole run", "error", f"{head(report)}: what it had not reached is not exercised"
