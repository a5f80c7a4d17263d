"""Shared parts of all report formats: names of states, parts of a kernel's entry, scripts, printable text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from eagerdecomp.conformance.results import STATES, Consequence, Failure, Report, State, Verdict
from eagerdecomp.host.atomic_file import write_text
from eagerdecomp.host.html import duration_text
from eagerdecomp.ops.call_text import SHORT_DTYPES

__all__ = [
    "STATE_WORDS",
    "advice_on_dtype",
    "by_blamed",
    "by_note",
    "details",
    "head",
    "one_line",
    "ordered",
    "printable",
    "script_key",
    "write_scripts",
]

#: State -> its text in reports.
STATE_WORDS: Mapping[State, str] = {
    "wrong": "broke a property",
    "right": "exercised, nothing found",
    "not exercised": "not run: nothing is known of it",
    "absent": "the backend has no such kernel",
}

# Characters that control a terminal, that XML or HTML forbid, or that UTF-8 cannot encode.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """Return text with an escape for each character that cannot be printed."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """Return printable text on one line."""
    return " ".join(printable(text).split())


def head(report: Report) -> str:
    """Return a line about the run: backend, profile, seed, version of torch, duration."""
    cut = ", cut short" if report.interrupted else ""
    some = ", of some ops alone" if report.limited else ""
    took = duration_text(report.seconds)
    return one_line(
        f"conformance of {report.backend}: {report.profile}{some}, seed {report.seed}, torch {report.torch}, {took}{cut}"
    )


#: With fewer wrong kernels than this, a common dtype may be chance.
_FEWEST_WRONG = 3


def advice_on_dtype(report: Report) -> str:
    """Return advice if most wrong kernels fail for the same dtypes, which the backend may not take at all; else "".

    float32 is never among them, because every backend takes it.
    """
    wrong = report.with_state("wrong")
    counted = Counter(name for verdict in wrong for name in verdict.failing_dtypes)
    declared = report.dtypes or tuple(map(str, SHORT_DTYPES))
    most = {name for name, kernels in counted.items() if 2 * kernels > len(wrong)} - {str(torch.float32)}
    left_out = ", ".join(name for name in declared if name in most)
    taken = ", ".join(name for name in declared if name not in most)
    if len(wrong) < _FEWEST_WRONG or not left_out or not taken:
        return ""
    what = f"most of the {len(wrong)} wrong kernels fail for each call with {left_out}"
    return f"{what}. If yours do not take them, declare it: Backend(dtypes={{{taken}}})"


def ordered(report: Report) -> tuple[Verdict, ...]:
    """Return the verdicts, the most important states first, then by name."""
    return tuple(sorted(report.results, key=lambda verdict: (STATES.index(verdict.state), str(verdict.op))))


def by_blamed(report: Report) -> Mapping[str, tuple[Consequence, ...]]:
    """Return the wrong decomposed ops by the name of the kernel to blame."""
    found: dict[str, tuple[Consequence, ...]] = {}
    for one in sorted(report.consequences, key=lambda one: str(one.op)):
        found[str(one.blamed)] = (*found.get(str(one.blamed), ()), one)
    return found


def by_note(verdicts: Iterable[Verdict]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of ops by their note."""
    found: dict[str, tuple[str, ...]] = {}
    for verdict in verdicts:
        found[verdict.note] = (*found.get(verdict.note, ()), str(verdict.op))
    return found


def details(failure: Failure) -> list[str]:
    """Return lines with the failing call, the expected and the actual result, as far as they are known."""
    names = (("call", failure.example), ("expected", failure.expected), ("got", failure.got))
    return [f"{label}: {text}" for label, text in names if text]


def script_key(failure: Failure) -> tuple[str, str]:
    """Return the key of a failure's script: the op's name and the property."""
    return str(failure.op), failure.property


def write_scripts(report: Report, folder: str | Path) -> Mapping[tuple[str, str], str]:
    """Write the reproducers of a report into a folder, one script per failure. Return the path of each by `script_key`."""
    written: dict[tuple[str, str], str] = {}
    for failure in report.failures:
        key = script_key(failure)
        if failure.reproducer and key not in written:
            Path(folder).mkdir(parents=True, exist_ok=True)
            path = Path(folder, re.sub(r"[^\w.]+", "_", ".".join(key)) + ".py")
            write_text(path, failure.reproducer, errors="backslashreplace")
            written[key] = str(path)
    return written
