"""Write a report as text for a terminal: wrong kernels first, each with the failing call, then the kernels to write next."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eagerdecomp.conformance.comparing import ReportComparison
from eagerdecomp.conformance.manifest import stale_because
from eagerdecomp.conformance.reports.words import (
    STATE_WORDS,
    advice_on_dtype,
    by_blamed,
    by_note,
    head,
    one_line,
    printable,
    script_key,
)
from eagerdecomp.conformance.results import Consequence, Failure, Report, Verdict
from eagerdecomp.host.html import counted, first_names

__all__ = ["report_text"]

_LINES = 12  # of an example or a value, before the rest is left to the script
_DETAILED = 30  # kernels that are reported at length
_NEXT = 10
_LABEL = 12


def report_text(
    report: Report,
    *,
    scripts: Mapping[tuple[str, str], str] | None = None,
    comparison: ReportComparison | None = None,
    absent: bool = False,
    width: int = 100,
) -> str:
    """Return a report as text, without colors.

    Args:
        report: the report.
        scripts: the path of each failure's script, as `write_scripts` returns them.
        comparison: the comparison with an older run, which comes last.
        absent: whether to list absent kernels by name.
        width: maximum width of a line; only paths may be longer.
    """
    width = max(width, 40)
    blocks = [
        _indented([advice], "", width) if (advice := advice_on_dtype(report)) else [],
        _counts(report, width),
        *_wrong(report, scripts or {}, width),
        _accepts(report, width),
        _skipped(report, width),
        _absences(report, absent, width),
        _next(report, width),
        ["compared with the older run", *_indented(str(comparison).split("\n"), "  ", width)] if comparison else [],
        _indented([_verdict(report)], "", width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _counts(report: Report, width: int) -> list[str]:
    lines = _indented([head(report)], "", width)
    lines += [f"  {state:13}  {number:5}  {STATE_WORDS[state]}" for state, number in report.counts.items()]
    if report.calls:
        blamed = len({str(one.op) for one in report.consequences})
        words = f"  {report.calls:,} calls of decomposed ops compared, {counted(blamed, 'op')} wrong by a kernel's fault"
        lines += _indented([words], "", width)
    return lines


def _wrong(report: Report, scripts: Mapping[tuple[str, str], str], width: int) -> Iterator[list[str]]:
    wrong = sorted(report.with_state("wrong"), key=lambda verdict: str(verdict.op))
    consequences = by_blamed(report)
    for verdict in wrong[:_DETAILED]:
        yield _kernel(verdict, consequences.get(str(verdict.op), ()), scripts, width)
    if wrong[_DETAILED:]:
        more = [f"{verdict.op} ({', '.join(verdict.broken)})" for verdict in wrong[_DETAILED:]]
        yield ["also wrong:", *_indented(more, "  ", width)]


def _kernel(verdict: Verdict, consequences: Sequence[Consequence], scripts: Mapping[tuple[str, str], str], width: int) -> list[str]:
    lines = [f"wrong: {verdict.op}  ({one_line(', '.join(verdict.broken))})"]
    for failure in verdict.failures:
        lines += _failure(failure, scripts.get(script_key(failure), ""), width)
    ops = list(dict.fromkeys(str(one.op) for one in consequences))
    if ops:
        lines += _indented([f"{counted(len(ops), 'decomposed op')} wrong by it: {first_names(ops)}"], "  ", width)
    return lines


def _failure(failure: Failure, script: str, width: int) -> list[str]:
    lines = _cut(_indented([f"{failure.property}: {failure.message}"], "  ", width), "    ")
    for label, text in (("call", failure.example), ("expected", failure.expected), ("got", failure.got)):
        lines += _labelled(label, text, width) if text else []
    return [*lines, f"    {'reproducer':{_LABEL}}{one_line(script)}"] if script else lines


def _labelled(label: str, text: str, width: int) -> list[str]:
    """Return text with a label, cut to a few lines, because the script has the whole text."""
    indent = " " * (4 + _LABEL)
    lines = _cut(_indented(text.rstrip("\n").split("\n"), indent, width), indent)
    return [f"    {label:{_LABEL}}{lines[0].lstrip()}", *lines[1:]]


def _cut(lines: list[str], indent: str) -> list[str]:
    left = len(lines) - _LINES + 1
    return [*lines[: _LINES - 1], f"{indent}... {left} more lines"] if left > 1 else lines


def _accepts(report: Report, width: int) -> list[str]:
    lines = []
    for failure in report.accepts:
        lines += _cut(_indented([f"{failure.op}: {failure.message}"], "  ", width), "    ")
        for label, text in (("call", failure.example), ("expected", failure.expected), ("got", failure.got)):
            lines += _labelled(label, text, width) if text else []
    return [f"accept what eager refuses: {len({one.op for one in report.accepts})} kernels", *lines] if lines else []


def _skipped(report: Report, width: int) -> list[str]:
    lines = []
    for note, ops in by_note(report.with_state("not exercised")).items():
        lines += _indented([f"{one_line(note) or 'no reason is given'}: {len(ops)} ({first_names(ops)})"], "  ", width)
    return ["not exercised", *lines] if lines else []


def _absences(report: Report, by_name: bool, width: int) -> list[str]:
    names = sorted(str(verdict.op) for verdict in report.with_state("absent"))
    lines = [f"absent: {counted(len(names), 'kernel')} of Core ATen" + ("" if by_name else ", not listed")] if names else []
    lines += _indented(names, "  ", width) if by_name else []
    if report.stale:
        heading = [one_line(f"{name}: {stale_because(name)}") for name in report.stale]
        lines += [f"stale: {len(heading)} declared absent that are not", *_indented(heading, "  ", width)]
    if report.undeclared:
        heading = list(map(one_line, report.undeclared))
        lines += [f"undeclared: {len(heading)} absent that the manifest does not declare", *_indented(heading, "  ", width)]
    return lines


def _next(report: Report, width: int) -> list[str]:
    if not report.next_kernels:
        return []
    best = report.next_kernels[:_NEXT]
    total = sum(one.together for one in best)
    title = f"the next {counted(len(best), 'kernel')} to write; together they enable {counted(total, 'op')} of ATen"
    lines = _indented([f"{title} (alone, and after those above)"], "", width)
    lines.append("  alone  after  kernel")
    lines += [f"  {one.alone:5}  {one.together:5}  {one.op}" for one in best]
    alone = sorted(report.next_kernels[_NEXT:], key=lambda one: (-one.alone, str(one.op)))
    if alone:
        lines += _indented([f"  {len(alone)} more enable some, most alone {alone[0].op} ({alone[0].alone})"], "", width)
    return lines


def _verdict(report: Report) -> str:
    names = [f"{report.counts['wrong']} wrong"] if report.counts["wrong"] else []
    names += [f"{counted(len(report.stale), 'stale absence')}"] if report.stale else []
    names += [f"{counted(len(report.undeclared), 'undeclared absence')}"] if report.undeclared else []
    names += ["cut short"] if report.interrupted else []
    if names:
        return f"not conformant: {', '.join(names)}"
    cases = [verdict.cases for verdict in report.with_state("right")]
    if not cases:
        why = "no call reached" if report.counts["not exercised"] else "the backend has none of"
        return f"nothing was tested: {why} the kernels"
    ran = f"nothing wrong found in {counted(len(cases), 'kernel')} exercised"
    return f"{ran}, with at least {counted(min(cases), 'call')} each"


def _indented(texts: Iterable[str], indent: str, width: int) -> list[str]:
    lines: list[str] = []
    for text in texts:
        for line in printable(text).split("\n"):
            own = indent + " " * min(len(line) - len(line.lstrip()), 8)
            further = own + "  "
            lines += textwrap.wrap(line.strip(), width, initial_indent=own, subsequent_indent=further, break_on_hyphens=False) or [
                ""
            ]
    return lines
