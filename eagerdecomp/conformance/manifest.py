"""The manifest in which a backend's author declares which kernels of Core ATen are missing, and why.

A text file with one op a line, by its full name, and a reason behind ``#``::

    # what comes next
    aten.erf.default          # no approximation written yet
    aten.grid_sampler_2d.default  # not on this device

It is held to both ways: an absence that nobody declared fails, and so does an entry that is stale, whose kernel is there by now or
which names nothing that a backend could lack. So the file says what is missing at any time, and no kernel is lost unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from eagerdecomp.conformance.results import Report
from eagerdecomp.errors import ConformanceError, OpSetError
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten, resolve_ops

__all__ = ["hold_to_manifest", "parse_manifest", "read_manifest", "stale_because", "write_manifest"]

_UNWRITTEN = "not written yet"


def read_manifest(path: str | Path) -> dict[str, str]:
    """The ops that a manifest declares absent, each with its reason.

    Raises:
        ConformanceError: where it cannot be read, or a line is no entry.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConformanceError(
            f"{path}: no such file. Write one with: eagerdecomp conformance MODULE:BACKEND --write-absences FILE"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConformanceError(f"{path}: cannot read this file: {reason}. Pass a file with one op per line") from None
    return parse_manifest(text, str(path))


def parse_manifest(text: str, source: str = "manifest") -> dict[str, str]:
    """The ops that the text of a manifest declares absent, each with its reason ("" where it gives none).

    Whether there are such ops is not asked here: a name that this torch does not know is a stale entry.

    Raises:
        ConformanceError: for a line that holds more than one name, or an op declared twice.
    """
    declared: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        entry, _, reason = line.partition("#")
        names = entry.split()
        if len(names) > 1:
            raise ConformanceError(f"{source}:{number}: expected one op, and a reason after #, not {line.strip()!r}")
        if names and names[0] in declared:
            raise ConformanceError(f"{source}:{number}: {names[0]} is declared twice. Remove one of the lines")
        declared.update(dict.fromkeys(names, reason.strip()))
    return declared


def hold_to_manifest(report: Report, declared: Iterable[str], backend: Backend) -> Report:
    """The report with what of the manifest does not hold: `Report.stale` and `Report.undeclared`.

    It is the backend that the manifest is about, whichever of its kernels were run.
    """
    absent = {str(op) for op in core_aten() if op not in backend.ops}
    names = set(declared)
    return replace(report, stale=tuple(sorted(names - absent)), undeclared=tuple(sorted(absent - names)))


def stale_because(name: str) -> str:
    """Why an entry that is no absence is none."""
    try:
        found = [str(op) for op in resolve_ops([name])]
    except OpSetError:
        return "no operator is called that"
    if found != [name]:
        return f"an entry is one overload: {', '.join(found[:3])}"
    return "the backend has this kernel" if name in core_aten() else "it is not of Core ATen, so no backend lacks it"


def write_manifest(report: Report, declared: Mapping[str, str] | None = None) -> str:
    """The text of a manifest that declares exactly what is absent in a report, with the reasons given before.

    A report of some ops alone, `Report.limited`, knows nothing of the others: entries for those are kept as they were.
    """
    before = dict(declared or {})
    reported = {str(verdict.op) for verdict in report.results}
    names = {str(verdict.op) for verdict in report.with_state("absent")}
    if report.limited:
        names |= before.keys() - reported
    width = max(map(len, names), default=0)
    lines = [f"# kernels of Core ATen that {_line(report.backend)} does not have: one op a line, and why"]
    lines += [f"{name.ljust(width)}  # {_line(before.get(name, '')) or _UNWRITTEN}" for name in sorted(names)]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())
