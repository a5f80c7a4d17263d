"""The manifest in which the author of a backend declares missing kernels of Core ATen, with reasons.

It is a text file with one op per line, by its full name, and a reason after ``#``::

    # what comes next
    aten.erf.default              # no approximation written yet
    aten.grid_sampler_2d.default  # not on this device

The check fails for a missing kernel that is not declared. It also fails for a stale entry: its kernel exists, or it names no op
that a backend could lack. So the file is always complete, and no kernel is lost unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from eagerdecomp.conformance.results import Report
from eagerdecomp.errors import FileError, OpSetError
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten, resolve_ops

__all__ = ["check_manifest", "parse_manifest", "read_manifest", "stale_because", "write_manifest"]

_UNWRITTEN = "not written yet"


def read_manifest(path: str | Path) -> dict[str, str]:
    """Return the ops that a manifest file declares missing, with their reasons.

    Raises:
        FileError: if the file cannot be read, or a line is not an entry.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileError(
            f"{path}: no such file. Write one with: eagerdecomp conformance MODULE:BACKEND --write-absences FILE"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise FileError(f"{path}: cannot read this file: {reason}. Pass a file with one op per line") from None
    return parse_manifest(text, str(path))


def parse_manifest(text: str, source: str = "manifest") -> dict[str, str]:
    """Return the ops that the text of a manifest declares missing, with their reasons ("" without one).

    A name that this torch does not know is not an error here, but a stale entry.

    Raises:
        FileError: for a line with more than one name, or an op that is declared twice.
    """
    declared: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        entry, _, reason = line.partition("#")
        names = entry.split()
        if len(names) > 1:
            raise FileError(f"{source}:{number}: expected one op, and a reason after #, not {line.strip()!r}")
        if names and names[0] in declared:
            raise FileError(f"{source}:{number}: {names[0]} is declared twice. Remove one of the lines")
        declared.update(dict.fromkeys(names, reason.strip()))
    return declared


def check_manifest(report: Report, declared: Iterable[str], backend: Backend) -> Report:
    """Compare the missing kernels of a backend with the manifest.

    Returns:
        the report with `Report.stale` (entries whose kernel is not missing) and `Report.undeclared` (missing kernels without an
        entry). Both are about the whole backend, whichever of its kernels were tested.
    """
    absent = {str(op) for op in core_aten() if op not in backend.ops}
    names = set(declared)
    return replace(report, stale=tuple(sorted(names - absent)), undeclared=tuple(sorted(absent - names)))


def stale_because(name: str) -> str:
    """Return why an entry is stale."""
    try:
        found = [str(op) for op in resolve_ops([name])]
    except OpSetError:
        return "no operator is called that"
    if found != [name]:
        return f"an entry is one overload: {', '.join(found[:3])}"
    return "the backend has this kernel" if name in core_aten() else "it is not of Core ATen, so no backend lacks it"


def write_manifest(report: Report, declared: Mapping[str, str] | None = None) -> str:
    """Return the text of a manifest that declares exactly the missing ops of a report, with the reasons given before.

    If the run tested only some ops (`Report.limited`), entries for the others are kept.
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
