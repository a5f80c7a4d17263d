"""Write a report as Markdown for a comment on a pull request: changes, counts, and each wrong kernel with folded details.

Text from kernels and their authors is escaped: none of it becomes markup, a link or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eagerdecomp.conformance.comparing import DIRECTIONS, ReportComparison
from eagerdecomp.conformance.manifest import stale_because
from eagerdecomp.conformance.reports.words import (
    STATE_WORDS,
    advice_on_dtype,
    by_blamed,
    by_note,
    details,
    head,
    one_line,
    printable,
)
from eagerdecomp.conformance.results import Consequence, Report, Verdict
from eagerdecomp.host.html import first_names

__all__ = ["report_markdown"]

# GitHub takes comments of 65,536 characters.
_MOST = 64_000
_ROOM_FOR_LEFT_OUT = 2_000  # for the names of kernels whose details do not fit
_LINES = 40  # maximum lines of an example, about a screen
_CHARACTERS = 4_000  # maximum characters of an example
_SCRIPT = 6_000  # characters; a longer script holds data, and is left to the JSON

_NEXT = 10
_NAMES = 12

# Characters that Markdown, HTML or GitHub interpret inside a line. They are written as entities, which also work in tables.
_MARKUP = re.compile(r"[\\`*_\[\]<>&|~@#$]|:(?=//)|(?<=www)\.")


def report_markdown(report: Report, *, comparison: ReportComparison | None = None) -> str:
    """Return a report as Markdown.

    Args:
        report: the report.
        comparison: the comparison with an older run, which comes first.
    """
    wrong = sorted(report.with_state("wrong"), key=lambda verdict: str(verdict.op))
    consequences = by_blamed(report)
    advice = advice_on_dtype(report)
    before = [
        f"### {_text(head(report))}",
        *([_text(advice)] if advice else []),
        *(_compared(comparison) if comparison else []),
        _counts(report),
    ]
    after = [*_absences(report), *_next(report), *_skipped(report)]
    room = _MOST - _ROOM_FOR_LEFT_OUT - sum(len(part) + 2 for part in (*before, *after))
    parts: list[str] = []
    left_out: list[str] = []
    for verdict in wrong:
        text = _kernel(verdict, consequences.get(str(verdict.op), ()))
        if len(text) + 2 > room:
            text = _kernel(verdict, consequences.get(str(verdict.op), ()), scripts=False)
        if len(text) + 2 > room:
            left_out.append(str(verdict.op))
        else:
            parts.append(text)
            room -= len(text) + 2
    if left_out:
        parts.append(
            f"wrong too, and left out here for want of space: {len(left_out)} ({first_names(map(_code, left_out), _NAMES)})"
        )
    return "\n\n".join([*before, *parts, *after]) + "\n"


def _counts(report: Report) -> str:
    rows = ["| kernels | | |", "|---|--:|---|"]
    rows += [
        f"| {'**wrong**' if state == 'wrong' and number else state} | {number} | {STATE_WORDS[state]} |"
        for state, number in report.counts.items()
    ]
    return "\n".join(rows)


def _compared(comparison: ReportComparison) -> Iterator[str]:
    yield "**Worse than before.**" if comparison.worse else "Nothing is worse than before."
    for direction, title in DIRECTIONS.items():
        found = comparison.changes_to(direction)
        if found:
            yield "\n".join([f"{title}: {len(found)}", "", *(f"- {_text(str(change))}" for change in found)])
    same = f"as before: {comparison.same}"
    yield same + (f"; not compared, in only one of the runs: {len(comparison.apart)}" if comparison.apart else "")
    if comparison.notes:
        yield "\n".join(f"- note: {_text(note)}" for note in comparison.notes)


def _kernel(verdict: Verdict, consequences: Sequence[Consequence], *, scripts: bool = True) -> str:
    first = _text(_cut(one_line(verdict.failures[0].message), 1, 300))
    lines = [f"<details><summary>{_code(str(verdict.op))}: <b>{_text(', '.join(verdict.broken))}</b>. {first}</summary>"]
    for failure in verdict.failures:
        lines.append(f"<b>{_text(failure.property)}</b>: {_text(_cut(failure.message, _LINES, _CHARACTERS))}")
        example = details(failure)
        lines += [_block(_cut("\n".join(example), _LINES, _CHARACTERS))] if example else []
        if failure.reproducer and scripts and len(failure.reproducer) <= _SCRIPT:
            lines.append(
                f"<details><summary>a script that shows it</summary>\n\n{_block(failure.reproducer, 'python')}\n\n</details>"
            )
    ops = list(dict.fromkeys(str(one.op) for one in consequences))
    if ops:
        lines.append(f"Decomposed ops that it makes wrong: {len(ops)} ({first_names(map(_code, ops), _NAMES)})")
    return "\n\n".join([*lines, "</details>"])


def _absences(report: Report) -> Iterator[str]:
    if report.stale:
        lines = [f"- {_code(name)}: {_text(stale_because(name))}" for name in report.stale]
        yield "\n".join([f"**Declared absent, and not: {len(lines)}**", "", *lines])
    if report.undeclared:
        yield f"**Absent, and not declared: {len(report.undeclared)}** ({first_names(map(_code, report.undeclared), _NAMES)})"


def _next(report: Report) -> Iterator[str]:
    best = report.next_kernels[:_NEXT]
    if best:
        rows = [f"| {_code(str(one.op))} | {one.alone} | {one.together} |" for one in best]
        total = sum(one.together for one in best)
        title = f"<details><summary>the next {len(best)} kernels to write: together they enable {total} ops of ATen</summary>"
        yield "\n".join([title, "", "| kernel | enables alone | after those above |", "|---|--:|--:|", *rows, "", "</details>"])


def _skipped(report: Report) -> Iterator[str]:
    for note, ops in by_note(report.with_state("not exercised")).items():
        yield f"not exercised, {_text(note) or 'no reason is given'}: {len(ops)} ({first_names(map(_code, ops), _NAMES)})"


def _code(name: str) -> str:
    return f"<code>{_text(name)}</code>"


def _text(words: str) -> str:
    """Return text on one line with all markup escaped."""
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", one_line(words))


def _block(text: str, language: str = "text") -> str:
    """Return a code block; its fence has more backticks than any in the text."""
    text = printable(text).strip("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _cut(text: str, lines: int, characters: int) -> str:
    kept = "\n".join(text.split("\n")[:lines])[:characters]
    return kept if kept == text else f"{kept} ..."
